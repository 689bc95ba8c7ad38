"""Accuracy: predictions against published runs, by the figures that the project holds itself to.

python benchmarks/accuracy/first.py RUNS.csv                    the figures, and errors by source
python benchmarks/accuracy/first.py RUNS.csv --evidence         the same, written to docs/evidence/accuracy.json
python benchmarks/accuracy/first.py RUNS.csv --source KEY       every run of a source with its breakdown
python benchmarks/accuracy/first.py RUNS.csv --source KEY --sort ratio --limit 40
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from linkscale.estimate import evaluate
from linkscale.fit.predictor import Estimator
from linkscale.fit.score import Errors, Row, Validation, errors, source_weighted, validate_runs
from linkscale.plan.resolve import Case, resolve
from linkscale.plan.run_models import mixture
from linkscale.profile import shipped_profile
from linkscale.readers.runs import RunRecord, Runs, read_runs
from linkscale.workload.counts import decoder

from evidence import record

MEGATRON_A100 = ("megatron_sc21_t1", "megatron_sc21_t2", "megatron_readme_2021_01", "megatron_readme_2020")
CAUSES = ("compute", "recompute", "tp", "pp", "dp", "bubble", "optimizer", "input_host", "wait")
MEMORY_AT_MOST = 0.08
"""The median error of memory that every source must keep."""

RESTS_ON = [
    f"src/linkscale/{room}"
    for room in ("cost", "estimate", "fit", "hardware", "plan", "profile", "readers", "topology", "workload")
]


class Run(NamedTuple):
    """A scored run: what was published, how it was understood, and the prediction beside it."""

    record: RunRecord
    case: Case
    row: Row

    @property
    def error(self) -> float:
        """Predicted over measured step time, less one."""
        return self.row.step_error or 0.0


UNEXPLAINED: dict[str, Callable[[Run], bool]] = {
    "DeepSpeed ZeRO-3, Narayanan et al. 2021, Table 2": lambda r: (
        r.row.source_key == "megatron_sc21_t2" and r.case.strategy.stack == "deepspeed"
    ),
    "MT-NLG 530B": lambda r: r.row.source_key == "mtnlg530b",
    "BigScience on A100 over Omni-Path": lambda r: r.row.source_key == "bigscience_a100",
    "BigScience on V100 over Omni-Path": lambda r: r.row.source_key == "bigscience_v100",
    "JAX (MaxText, Paxml)": lambda r: r.record.framework.startswith(("MaxText", "Paxml")),
    "MPT with ALiBi, up to 4,096 tokens": lambda r: r.row.source_key == "llmfoundry_mpt" and r.case.seq_len <= 4096,
    "MPT with ALiBi, 8,192 tokens": lambda r: r.row.source_key == "llmfoundry_mpt" and r.case.seq_len == 8192,
    "MPT with ALiBi, over 8,192 tokens": lambda r: r.row.source_key == "llmfoundry_mpt" and r.case.seq_len > 8192,
    "GPT-OSS": lambda r: r.record.model.startswith("GPT OSS"),
    "Nemotron-3, state spaces": lambda r: r.record.model.startswith("Nemotron_3"),
    "DeepSeek-V4, attention to a part of the tokens": lambda r: r.record.model.startswith("DeepSeekV4"),
    "mixtures of Megatron-Bridge on H100": lambda r: (
        r.row.source_key == "megatron_bridge_perf" and r.record.gpu.startswith("H100") and mixture(r.record)
    ),
}
"""Groups of runs that share a cause which the model does not hold, or holds roughly."""


def states_enough(record: RunRecord) -> bool:
    """A dense row that states layers, width, batch and layout itself."""
    stated = (record.layers, record.hidden, record.global_batch_seqs, record.tp, record.pp, record.dp)
    return all(stated) and not mixture(record)


def scored(runs: Runs, validation: Validation) -> list[Run]:
    """Return the runs that have both a measured and a predicted step time."""
    found = []
    for published, row in zip(runs.records, validation.rows, strict=True):
        case = resolve(published)
        if isinstance(case, Case) and row.step_error is not None:
            found.append(Run(published, case, row))
    return found


def figures(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the headline figures, each with what it must be (None: no promise) and how many runs it rests on."""
    korthikanti = [r for r in runs if r.row.source_key == "korthikanti2022"]
    megatron = [r for r in runs if r.row.source_key in MEGATRON_A100 and r.record.gpu.startswith("A100")]
    dense = [r for r in runs if states_enough(r.record)]
    nothing = (float("nan"), float("nan"))
    weighted = source_weighted(r.row for r in dense) or nothing
    everything = source_weighted(r.row for r in runs) or nothing
    rows: list[tuple[str, float, int, float | None]] = [
        ("Korthikanti et al. 2022, mean", _mean(korthikanti), len(korthikanti), 0.06),
        ("Megatron tables on A100, mean", _mean(megatron), len(megatron), 0.10),
        ("dense runs, median, every source weighing the same", weighted[0], len(dense), 0.15),
        ("dense runs, mean of the sources' means", weighted[1], len(dense), None),
        ("all runs, median, every source weighing the same", everything[0], len(runs), 0.13),
    ]
    return [{"name": n, "value": round(v, 4), "runs": c, "at_most": limit} for n, v, c, limit in rows]


def _mean(runs: Sequence[Run]) -> float:
    return float(np.mean(np.abs([r.error for r in runs]))) if runs else float("nan")


def report(path: str) -> dict[str, Any]:
    """Validate a file of runs and return everything that the accuracy page shows."""
    runs = read_runs(path)
    validation = validate_runs(runs, Estimator())
    summary, found = validation.summary, scored(runs, validation)
    inside = [group.within_interval for group in summary.groups if group.within_interval is not None]
    return {
        "runs": {
            "file": Path(path).name,
            "sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest(),
            "rows": summary.rows, "predicted": summary.predicted, "scored": summary.scored,
            "sources": summary.sources,
        },
        "figures": figures(found),
        "interval": {
            "runs": round(summary.within_interval or 0.0, 4), "sources": round(float(np.mean(inside)), 4),
        },
        "sources": [
            {"name": g.name, "rows": g.rows, "step": _errors(g.step), "within": g.within_interval and
             round(g.within_interval, 4)}
            for g in summary.groups
        ],
        "memory": [
            {"source": group.name, "kind": _memory_kind(runs, group.name), "at_most": MEMORY_AT_MOST,
             **(_errors(group.memory) or {})}
            for group in summary.groups if group.memory
        ],
        "unexplained": [_spread(name, [r.error for r in found if rule(r)]) for name, rule in UNEXPLAINED.items()],
        "not_predicted": [
            {"reason": reason.reason, "rows": reason.rows, "sources": list(reason.sources)}
            for reason in summary.reasons
        ],
    }  # fmt: skip


def _errors(found: Errors | None) -> dict[str, float] | None:
    if found is None:
        return None
    sizes = {name: round(getattr(found, name), 4) for name in ("median", "mean", "p90", "bias")}
    return {"runs": found.n, **sizes}


def _memory_kind(runs: Runs, source: str) -> str:
    cases = (resolve(r) for r in runs.records if r.source_key == source)
    return "/".join(sorted({c.memory_kind for c in cases if isinstance(c, Case) and c.measured_memory_bytes}))


def _spread(name: str, signed: list[float]) -> dict[str, Any]:
    ends = {} if not signed else {
        "median": round(float(np.median(signed)), 4), "least": round(min(signed), 4), "most": round(max(signed), 4),
    }  # fmt: skip
    return {"name": name, "runs": len(signed), **ends}


def show(found: dict[str, Any]) -> None:
    """Print a report."""
    for figure in found["figures"]:
        limit = f"   (at most {figure['at_most']:.0%})" if figure["at_most"] else ""
        print(f"{figure['name']:54}{figure['value']:7.1%}  of {figure['runs']:5} runs{limit}")
    inside = found["interval"]
    print(f"{'in p10-p90: runs, and mean of the sources':54}{inside['runs']:7.1%}{inside['sources']:7.1%}")
    print(f"\n{'source':28}{'rows':>6}{'scored':>8}{'median':>9}{'mean':>9}{'p90':>9}{'bias':>9}{'inside':>9}")
    for source in found["sources"]:
        print(f"{source['name']:28}{source['rows']:6}{_cells(source['step'])}", end="")
        print(f"{source['within']:9.1%}" if source["within"] is not None else "")
    print(f"\n{'memory':28}{'':6}{'runs':>8}{'median':>9}{'mean':>9}{'p90':>9}{'bias':>9}")
    for source in found["memory"]:
        print(f"{source['source']:28}{'':6}{_cells(source)}   {source['kind']}")
    print()
    for group in found["unexplained"]:
        ends = f"{group['median']:+9.1%}{group['least']:+9.1%}{group['most']:+9.1%}" if group["runs"] else ""
        print(f"{group['name']:50}{group['runs']:6}{ends}")
    for reason in found["not_predicted"]:
        print(f"{reason['rows']:6}  not predicted: {reason['reason']}  [{', '.join(reason['sources'])}]")


def _cells(found: dict[str, float] | None) -> str:
    if not found:
        return f"{0:8}"
    sizes = "".join(f"{found[name]:9.1%}" for name in ("median", "mean", "p90"))
    return f"{found['runs']:8}{sizes}{found['bias']:+9.1%}"


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
        found = errors(float(ratio) - 1.0 for ratio in ratios)
        print(f"\n{len(ratios)} runs: mean error {found.mean:.1%}, bias {found.bias:+.1%}" if found else "")
    for published in records:
        case = resolve(published)
        if not isinstance(case, Case):
            print(f"{case.id:28}{case.kind}: {case.reason}")


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


def main() -> None:
    """Measure, print, and record when asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs")
    parser.add_argument("--evidence", action="store_true", help="write docs/evidence/accuracy.json")
    parser.add_argument("--source", help="print every run of this source")
    parser.add_argument("--sort", choices=["id", "ratio"], default="id")
    parser.add_argument("--limit", type=int, default=10_000)
    args = parser.parse_args()
    if args.source:
        chosen = [r for r in read_runs(args.runs).records if r.source_key == args.source]
        table(chosen, args.sort, args.limit)
        return
    found = report(args.runs)
    show(found)
    if args.evidence:
        record("accuracy", found, files=RESTS_ON)


if __name__ == "__main__":
    main()
