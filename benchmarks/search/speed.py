"""Strategies a second that the search screens on one core: GPT-3 175B on 4,096 A100s, sequence 2,048, batch 1,536.

Counts legal, mutually distinct strategies for which step time AND memory were computed: pruning is off. Generating
them, asking the rules, comparing with memory, ranking and the Pareto front are inside the measured time; the median
pass counts. Terms that depend on some numbers only (a layer's kernels on tp and micro-batch) are priced once per
distinct value; no strategy's step or memory is taken from another one. Whole commands are timed as users run them, with
pruning.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

from linkscale.plan.strategy import NUMBERS
from linkscale.profile import shipped_profile
from linkscale.search.axes import Axes, wide_axes
from linkscale.search.constraints import Constraints
from linkscale.search.job import Job
from linkscale.search.screen import Screened, screen
from linkscale.search.space import groups
from linkscale.topology import parse_cluster
from linkscale.workload import load_architecture

from evidence import record

MODEL, CLUSTER, SEQ_LEN, GLOBAL_BATCH = "gpt3-175b", "dgx-a100:4096", 2048, 1536
PLAN = f"plan {MODEL} {CLUSTER} --seq {SEQ_LEN} --global-batch {GLOBAL_BATCH}"
DEMO = "plan llama-3.1-405b dgx-h100:16384 --global-batch 2048 --seq 8192"
EXPERTS = "plan deepseek-v3 hgx-h800:2048 --global-batch 15360 --seq 4096"
LONG = "plan llama-3.1-405b dgx-h100:16384 --global-batch 512 --seq 131072"


def measure(rounds: int) -> dict[str, Any]:
    """Screen the wide space a few times."""
    job = Job(arch=load_architecture(MODEL), seq_len=SEQ_LEN, global_batch=GLOBAL_BATCH)
    cluster = parse_cluster(CLUSTER)
    axes = wide_axes(job, cluster, Constraints())
    profile = shipped_profile(cluster.gpu.arch)
    wall, cpu, found = [], [], []
    for _ in range(rounds):
        start = time.perf_counter(), time.process_time()
        found.append(screen(job, cluster, axes, profile, top=10, prune=False))
        wall.append(time.perf_counter() - start[0])
        cpu.append(time.process_time() - start[1])
    report = _report(axes, found[0], statistics.median(wall), statistics.median(cpu), count_distinct(job, axes))
    return {**report, "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def whole_command(arguments: str) -> dict[str, float]:
    """Time `linkscale plan` from a fresh interpreter to the last line; the peak is of all commands so far."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "linkscale.cli", *arguments.split()], check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"seconds": round(seconds, 3), "peak_rss_bytes": children.ru_maxrss * 1024}


def count_distinct(job: Job, axes: Axes) -> int:
    """Count the different strategies of a space by the values of all their fields."""
    found, choices = 0, []
    for group in groups(job, axes):
        choices.append(group.batch.choices)
        found += len(np.unique(np.stack([getattr(group.batch, name) for name in NUMBERS], axis=1), axis=0))
    if len(set(choices)) != len(choices):
        raise SystemExit("two groups of strategies share their choices")
    return found


def _report(axes: Axes, found: Screened, wall_s: float, cpu_s: float, distinct: int) -> dict[str, Any]:
    if not found.evaluated == found.legal == distinct:
        raise SystemExit(f"{found.evaluated} evaluated, {found.legal} legal, {distinct} distinct: they must be equal")
    return {
        "job": f"{MODEL} on {CLUSTER}, sequence {SEQ_LEN}, global batch {GLOBAL_BATCH}",
        "axes": axes.table(),
        "strategies": distinct,
        "fit": found.fit,
        "seconds": round(wall_s, 3),
        "strategies_per_s": round(found.evaluated / wall_s),
        "cpu_seconds": round(cpu_s, 3),
        "strategies_per_cpu_s": round(found.evaluated / cpu_s),
    }


def main() -> None:
    """Measure, print the axes and the figures, and write the evidence."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="passes over the whole space")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    report = measure(parser.parse_args().rounds)
    report["commands"] = {command: whole_command(command) for command in (PLAN, DEMO, EXPERTS, LONG)}
    for name, values in report["axes"].items():
        print(f"{name:27} {len(values):3}  {', '.join(map(str, values))}")
    for name in [name for name in report if name not in ("job", "axes", "commands")]:
        print(f"{name:27} {report[name]:,}")
    for command, found in report["commands"].items():
        print(f"linkscale {command}: {found['seconds']} s, {found['peak_rss_bytes'] / 1e6:.0f} MB")
    files = [f"src/linkscale/{room}" for room in ("search", "estimate", "cost", "plan/strategy.py", "plan/legality.py")]
    record("search_speed", report, files=files)


if __name__ == "__main__":
    main()
