"""Fit the shipped parameters and write them with the rows they rest on.

python benchmarks/accuracy/fit_shipped.py RUNS.csv             fit, print, write profile/data/fitted.yaml and its rows
python benchmarks/accuracy/fit_shipped.py RUNS.csv --families  leave one family of sources out, predict it, print errors
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

import numpy as np

from linkscale.fit.shipped import Fit, fit_shipped, identifies, log_errors
from linkscale.plan.resolve import Case, resolve
from linkscale.readers.runs import read_runs

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs")
    parser.add_argument("--families", action="store_true")
    args = parser.parse_args()
    cases = sample(args.runs)
    if args.families:
        leave_out(cases)
        return
    used = [case for case in cases if identifies(case)]
    fit = fit_shipped(used)
    report(used, fit)
    write(used, fit)


def sample(runs: str) -> list[Case]:
    """Return a seeded sample of cases with a measured step time, at most so many of a source."""
    by_source: dict[str, list[Case]] = defaultdict(list)
    for record in read_runs(runs).records:
        case = resolve(record)
        if isinstance(case, Case) and case.measured_step_s:
            by_source[case.source_key].append(case)
    draw = random.Random(SEED)
    kept = [c if len(c) <= MOST_PER_SOURCE else draw.sample(c, MOST_PER_SOURCE) for _, c in sorted(by_source.items())]
    return [case for cases in kept for case in cases]


def report(cases: list[Case], fit: Fit) -> None:
    for name, value in fit.values.items():
        print(f"{name:32}{value:8.3f}")
    by_source: dict[str, list[float]] = defaultdict(list)
    for case, residual in zip(cases, fit.residuals, strict=True):
        by_source[case.source_key].append(float(residual))
    for source, errors in by_source.items():
        size = np.median(np.abs(np.expm1(errors)))
        print(f"{source:28} n {len(errors):3}  median |error| {size:6.1%}  bias {np.median(errors):+6.1%}")


def leave_out(cases: list[Case]) -> None:
    print(f"{'family':12}{'n':>5}{'median':>9}{'p90':>9}{'bias':>9}   fitted without it")
    for family, keys in FAMILIES.items():
        held = [c for c in cases if c.source_key.startswith(keys)]
        if not held:
            continue
        fit = fit_shipped([c for c in cases if not c.source_key.startswith(keys) and identifies(c)])
        errors = np.expm1(log_errors(held, fit.values))
        size = np.abs(errors)
        found = f"{np.median(size):9.1%}{np.quantile(size, 0.9):9.1%}{np.median(errors):+9.1%}"
        print(f"{family:12}{len(held):5}{found}", flush=True)


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
        "# and their measured step times are in fitted_rows.csv. Ada and CDNA 3 borrow Ampere's share: no\n"
        "# run of theirs is known.\n"
        f"all:\n  ops_per_kernel: {{eager: {value['ops_per_kernel eager']}, compiled: 1.5}}\n"
        f"  ring_overlap: {value['ring_overlap']}\ngenerations:\n"
        + row("volta", None, "volta") + row("ampere", None, "ampere") + row("ada", half["ampere"], "ampere")
        + row("hopper", fp8["hopper"], "hopper") + row("blackwell", fp8["blackwell"], "blackwell")
        + row("cdna3", half["ampere"], "ampere")
    )  # fmt: skip
    (DATA / "fitted.yaml").write_text(text)
    lines = ["id,source_key,measured_step_s"] + [f"{c.id},{c.source_key},{c.measured_step_s:.6g}" for c in cases]
    (DATA / "fitted_rows.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
