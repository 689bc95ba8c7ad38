"""Fit the shipped parameters and write them with the rows they rest on.

python benchmarks/accuracy/fit_shipped.py RUNS.csv             fit, print, write profile/data/fitted.yaml and its rows
python benchmarks/accuracy/fit_shipped.py RUNS.csv --families  leave one family of sources out, predict it, print errors

With --evidence the second is written to docs/evidence/families.json, beside the values that the fit gives today. A
fit takes a minute or two; families are fitted side by side, one a core.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from linkscale.fit.shipped import PARAMETERS, Fit, fit_shipped, identifies, is_mixture, log_errors
from linkscale.plan.resolve import Case, resolve
from linkscale.profile import shipped_profile
from linkscale.readers.runs import read_runs

from evidence import record

MOST_PER_SOURCE = 24
SEED = 2026
FAMILIES = {
    "megatron": ("megatron_sc21", "megatron_readme", "mtnlg", "korthikanti"),
    "nemo": ("nemo", "dgxc"),
    "bridge": ("megatron_bridge",),
    "titan": ("torchtitan", "aws_torchtitan", "torchao"),
    "mpt": ("llmfoundry",),
    "ibm": ("ibm_fsdp",),
    "bigscience": ("bigscience",),
    "jax": ("jaxtoolbox", "gcp_gpu"),
    "vtrain": ("vtrain",),
    "others": ("flashattn", "dlperf", "tinyllama"),
}
DATA = Path(str(files("linkscale.profile"))) / "data"


RESTS_ON = [
    f"src/linkscale/{room}"
    for room in ("cost", "estimate", "fit", "hardware", "plan", "profile", "readers", "topology", "workload")
]


def main() -> None:
    """Fit and write, or leave families out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs")
    parser.add_argument("--families", action="store_true")
    parser.add_argument("--evidence", action="store_true", help="with --families: write docs/evidence/families.json")
    args = parser.parse_args()
    if args.families:
        found = leave_out(args.runs)
        if args.evidence:
            record("families", found, files=RESTS_ON)
        return
    used = [case for case in sample(args.runs) if identifies(case)]
    fit = fit_shipped(used)
    report(used, fit)
    write(used, fit)


def sample(runs: str) -> list[Case]:
    """Return a seeded sample of cases with a measured step time, at most so many dense ones and mixtures a source.

    Runs that train adapters or offload to their hosts are predicted, not fitted.
    """
    by_source: dict[tuple[bool, str], list[Case]] = defaultdict(list)
    for run in read_runs(runs).records:
        case = resolve(run)
        if isinstance(case, Case) and case.measured_step_s and not _apart(case):
            by_source[is_mixture(case), case.source_key].append(case)
    draw = random.Random(SEED)
    kept = [c if len(c) <= MOST_PER_SOURCE else draw.sample(c, MOST_PER_SOURCE) for _, c in sorted(by_source.items())]
    return [case for cases in kept for case in cases]


def _apart(case: Case) -> bool:
    """Whether a run is predicted, but not drawn to be fitted."""
    return case.architecture.training.adapters or case.strategy.offload_optimizer


def report(cases: list[Case], fit: Fit) -> None:
    for name, value in fit.values.items():
        print(f"{name:32}{value:8.3f}")
    by_source: dict[str, list[float]] = defaultdict(list)
    for case, residual in zip(cases, fit.residuals, strict=True):
        by_source[case.source_key + ", mixtures" * is_mixture(case)].append(float(residual))
    for source, errors in by_source.items():
        size = np.median(np.abs(np.expm1(errors)))
        print(f"{source:40} n {len(errors):3}  median |error| {size:6.1%}  bias {np.median(errors):+6.1%}")


def leave_out(runs: str) -> dict[str, Any]:
    """Fit without each family in turn and predict it; fit once with all, to compare with what ships."""
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    with ProcessPoolExecutor() as pool:
        found = list(pool.map(partial(_without, runs), ["", *FAMILIES]))
    whole, rows = found[0], [row for row in found[1:] if row["runs"]]
    for name, value in whole["parameters"].items():
        print(f"{name:32}{value['fitted']:8.3f}  shipped {value['shipped']:.3f}, prior {value['prior']:.3f}")
    print(f"{'family':12}{'runs':>5}{'median':>9}{'mean':>9}{'p90':>9}{'bias':>9}   fitted without it")
    for row in rows:
        sizes = "".join(f"{row[key]:9.1%}" for key in ("median", "mean", "p90"))
        means = ", ".join(f"{name} {mean:.1%}" for name, mean in row["source_means"].items())
        print(f"{row['family']:12}{row['runs']:5}{sizes}{row['bias']:+9.1%}   {means}")
    sha256 = hashlib.sha256(Path(runs).read_bytes()).hexdigest()
    return {"runs": {"file": Path(runs).name, "sha256": sha256}, **whole, "families": rows}


def _without(runs: str, family: str) -> dict[str, Any]:
    """Fit without a family and say how it is then predicted; without none, say what the fit gives."""
    cases = sample(runs)
    if not family:
        used = [case for case in cases if identifies(case)]
        return {"fitted_on": len(used), "parameters": _parameters(fit_shipped(used).values)}
    keys = FAMILIES[family]
    held = [case for case in cases if case.source_key.startswith(keys)]
    if not held:
        return {"family": family, "runs": 0}
    start = {p.name: _shipped(p.name) for p in PARAMETERS}  # near the answer: a third of the time
    fit = fit_shipped([c for c in cases if not c.source_key.startswith(keys) and identifies(c)], start)
    errors = np.expm1(log_errors(held, fit.values))
    size = np.abs(errors)
    return {
        "family": family,
        "runs": len(held),
        "median": round(float(np.median(size)), 4),
        "mean": round(float(np.mean(size)), 4),
        "p90": round(float(np.quantile(size, 0.9)), 4),
        "bias": round(float(np.mean(errors)), 4),
        "source_means": {
            source: round(float(np.mean([s for s, c in zip(size, held, strict=True) if c.source_key == source])), 4)
            for source in sorted({case.source_key for case in held})
        },
    }


def _parameters(fitted: dict[str, float]) -> dict[str, dict[str, float]]:
    return {
        p.name: {
            "prior": p.prior, "spread": p.spread, "fitted": round(fitted[p.name], 3), "shipped": _shipped(p.name),
        }
        for p in PARAMETERS
    }  # fmt: skip


def _shipped(name: str) -> float:
    """Return the value that ships for a fitted parameter."""
    parameter = next(p for p in PARAMETERS if p.name == name)
    profile = shipped_profile(parameter.generation or "ampere")
    if parameter.generation:
        return profile.gemm_sustained[parameter.precisions[0]]
    return profile.ops_per_kernel["eager"] if name == "ops_per_kernel eager" else float(getattr(profile, name))


def write(cases: Iterable[Case], fit: Fit) -> None:
    value = {name: f"{v:.3f}" for name, v in fit.values.items()}
    half = {g: value[f"gemm_sustained {g} half"] for g in ("volta", "ampere", "hopper")}
    half["blackwell"] = value["gemm_sustained blackwell"]
    fp8 = {"hopper": value["gemm_sustained hopper fp8"], "blackwell": half["blackwell"]}

    def row(generation: str, low: str | None, source: str) -> str:
        h = half[source]
        tail = f", fp8: {low}" if low else ""
        return f"  {generation}: {{gemm_sustained: {{bf16: {h}, fp16: {h}, tf32: {h}, fp32: {h}{tail}}}}}\n"

    text = (
        "# Parameters that no table gives, fitted to published runs by benchmarks/accuracy/fit_shipped.py; the rows\n"
        "# and their measured step times are in fitted_rows.csv. Ada and CDNA 3 borrow Ampere's share: no run of\n"
        "# theirs is known.\n"
        f"all:\n  ops_per_kernel: {{eager: {value['ops_per_kernel eager']}, compiled: 1.5}}\n"
        f"  ring_overlap: {value['ring_overlap']}\n  expert_passes: {value['expert_passes']}\ngenerations:\n"
        + row("volta", None, "volta") + row("ampere", None, "ampere") + row("ada", half["ampere"], "ampere")
        + row("hopper", fp8["hopper"], "hopper") + row("blackwell", fp8["blackwell"], "blackwell")
        + row("cdna3", half["ampere"], "ampere")
    )  # fmt: skip
    (DATA / "fitted.yaml").write_text(text)
    lines = ["id,source_key,measured_step_s"] + [f"{c.id},{c.source_key},{c.measured_step_s:.6g}" for c in cases]
    (DATA / "fitted_rows.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
