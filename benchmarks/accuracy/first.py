"""First accuracy: predictions against published runs, by the figures that the project holds itself to.

python benchmarks/accuracy/first.py RUNS.csv                    the figures, and errors by source
python benchmarks/accuracy/first.py RUNS.csv --source KEY       every run of a source with its breakdown
python benchmarks/accuracy/first.py RUNS.csv --source KEY --sort ratio --limit 40
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable

import numpy as np

from linkscale.estimate import evaluate
from linkscale.fit.predictor import Estimator
from linkscale.fit.score import Row, errors, source_weighted, validate_runs
from linkscale.plan.resolve import Case, resolve
from linkscale.profile import shipped_profile
from linkscale.readers.runs import RunRecord, read_runs
from linkscale.workload.counts import decoder

MEGATRON_A100 = ("megatron_sc21_t1", "megatron_sc21_t2", "megatron_readme_2021_01", "megatron_readme_2020")
CAUSES = ("compute", "recompute", "tp", "pp", "dp", "bubble", "optimizer", "input_host", "wait")


def states_enough(record: RunRecord) -> bool:
    """A dense row that states layers, width, batch and layout itself."""
    stated = (record.layers, record.hidden, record.global_batch_seqs, record.tp, record.pp, record.dp)
    return all(stated) and not record.experts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs")
    parser.add_argument("--source", help="print every run of this source")
    parser.add_argument("--sort", choices=["id", "ratio"], default="id")
    parser.add_argument("--limit", type=int, default=10_000)
    args = parser.parse_args()
    runs = read_runs(args.runs)
    if args.source:
        table([r for r in runs.records if r.source_key == args.source], args.sort, args.limit)
        return
    start = time.perf_counter()
    validation = validate_runs(runs, Estimator())
    seconds = time.perf_counter() - start
    by_id = {record.id: record for record in runs.records}
    figures(validation.rows, by_id)
    print(f"\n{'source':28}{'rows':>6}{'scored':>8}{'median':>9}{'mean':>9}{'bias':>9}{'p90':>9}{'memory':>9}")
    for group in validation.summary.groups:
        step, memory = group.step, group.memory
        cells = f"{step.n:8}{step.median:9.1%}{step.mean:9.1%}{step.bias:+9.1%}{step.p90:9.1%}" if step else f"{0:8}"
        print(f"{group.name:28}{group.rows:6}{cells}" + (f"{memory.mean:9.1%}" if memory else ""))
    print(f"\n{len(runs.records)} rows in {seconds:.2f} s")
    for reason in validation.summary.reasons:
        print(f"{reason.rows:6}  not predicted: {reason.reason}  [{', '.join(reason.sources)}]")


def figures(rows: Iterable[Row], by_id: dict[str, RunRecord]) -> None:
    """Print the figures with what they must be."""
    scored = [row for row in rows if row.step_error is not None]
    megatron = [r for r in scored if r.source_key in MEGATRON_A100 and by_id[r.id].gpu.startswith("A100")]
    for name, chosen, limit in (
        ("Korthikanti et al. 2022, mean", [r for r in scored if r.source_key == "korthikanti2022"], 0.06),
        ("Megatron A100 tables, mean", megatron, 0.10),
    ):
        found = errors(row.step_error or 0.0 for row in chosen)
        print(f"{name:44}{found.mean if found else float('nan'):7.1%}  of {len(chosen):5} runs   (at most {limit:.0%})")
    dense = [row for row in scored if states_enough(by_id[row.id])]
    weighted = source_weighted(dense)
    if weighted:
        print(f"{'dense runs, source-weighted median':44}{weighted[0]:7.1%}  of {len(dense):5} runs   (at most 15%)")
        print(f"{'dense runs, mean of source means':44}{weighted[1]:7.1%}  of {len(dense):5} runs")


def table(records: list[RunRecord], sort: str, limit: int) -> None:
    """Print every run of a source: layout, measured, predicted, ratio, and the seconds by cause."""
    lines = [line for record in records if (line := _line(record))]
    if sort == "ratio":
        lines.sort()
    print(f"{'id':28}{'model':18}{'gpus':>6} {'layout':34}{'measured':>9}{'predicted':>10}{'ratio':>7}", end="")
    print("".join(f"{cause[:9]:>10}" for cause in CAUSES) + f"{'mem meas':>9}{'pred':>7}")
    for _, text in lines[:limit]:
        print(text)
    ratios = np.array([ratio for ratio, _ in lines if ratio > 0])
    if len(ratios):
        print(f"\n{len(ratios)} runs: mean error {np.mean(np.abs(ratios - 1)):.1%}, bias {np.mean(ratios - 1):+.1%}")
    for record in records:
        found = resolve(record)
        if not isinstance(found, Case):
            print(f"{found.id:28}{found.kind}: {found.reason}")


def _line(record: RunRecord) -> tuple[float, str] | None:
    case = resolve(record)
    if not isinstance(case, Case):
        return None
    profile = shipped_profile(case.cluster.gpu.arch)
    model, batch = decoder(case.architecture), case.strategy.batch()
    found = evaluate(model, case.cluster, batch, case.seq_len, case.global_batch, profile)
    step = float(found.step_s[0])
    measured = case.measured_step_s or 0.0
    ratio = step / measured if measured else 0.0
    text = f"{case.id:28.28}{record.model:18.17}{case.cluster.gpus:6} {_layout(case):34.33}"
    text += f"{measured:9.3f}{step:10.3f}{ratio:7.3f}"
    text += "".join(f"{float(found.breakdown_s[cause][0]):10.3f}" for cause in CAUSES)
    if case.measured_memory_bytes:
        memory = getattr(found.memory, case.memory_kind)[0]
        text += f"{case.measured_memory_bytes / 2**30:9.1f}{memory / 2**30:7.1f}"
    return ratio, text


def _layout(case: Case) -> str:
    s = case.strategy
    return f"t{s.tp} p{s.pp}x{s.vpp} d{s.dp} b{s.micro_batch} {s.sharding} {s.recompute} {s.precision}"


if __name__ == "__main__":
    main()
