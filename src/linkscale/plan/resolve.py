"""A published run → what ``predict`` needs: architecture, cluster, strategy, batch. Or the reason why not.

A row *states enough* when it gives the GPU, the number of GPUs, the model's shape (or a known model), the sequence
length, the global batch and the layout. What else it leaves out comes from the product defaults. Rows are refused by
the rules of ``REFUSALS`` only, never for what a prediction would give.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from linkscale.base.errors import InputError
from linkscale.base.model import Model
from linkscale.plan.asked import Asked
from linkscale.plan.legality import check
from linkscale.plan.measured import measured_memory_bytes, measured_step_s
from linkscale.plan.precision import check_precision
from linkscale.plan.product import Defaults, product_defaults
from linkscale.plan.run_models import disagreement, mixture, run_model
from linkscale.plan.run_strategy import degrees, run_strategy
from linkscale.plan.run_training import as_trained
from linkscale.plan.shapes import run_architecture
from linkscale.plan.strategy import Strategy
from linkscale.plan.systems import run_cluster
from linkscale.readers.runs import RunRecord
from linkscale.topology.cluster import Cluster
from linkscale.workload.architecture import Architecture
from linkscale.workload.counts import params


class Case(Model, frozen=True):
    """A run that can be predicted, and what it measured. ``assumptions``: every default that was needed."""

    id: str
    source_key: str
    architecture: Architecture
    cluster: Cluster
    strategy: Strategy
    seq_len: int
    global_batch: int
    measured_step_s: float | None
    measured_memory_bytes: float | None
    memory_kind: str
    assumptions: tuple[str, ...]


class Unresolved(Model, frozen=True):
    """A run that cannot be predicted, and why. The kind groups reasons that differ in their numbers only."""

    id: str
    source_key: str
    kind: str
    reason: str
    measured_step_s: float | None = None
    measured_memory_bytes: float | None = None


class Refusal(NamedTuple):
    """A rule by which a row is not predicted."""

    kind: str
    applies: Callable[[RunRecord], bool]
    says: Callable[[RunRecord], str]


def _says(text: str) -> Callable[[RunRecord], str]:
    return lambda record: text


def _contradicts(record: RunRecord) -> bool:
    """A CHECK note, unless it only doubts the printed utilisation: step times are compared, not utilisations."""
    return "CHECK:" in record.notes and "CHECK: implied" not in record.notes


def _no_shape(record: RunRecord) -> str:
    """Say what is missing of a shape that neither the row nor a packaged model gives, or nothing."""
    if run_model(record):
        return ""
    if not (record.layers and record.hidden and record.heads):
        beside = ", and no packaged model is known to have its shape" if mixture(record) else ""
        return f"the source states no layers, width and heads of {record.model!r}{beside}"
    return ""


REFUSALS: tuple[Refusal, ...] = (
    Refusal("contradictory", _contradicts, _says("the numbers that the source prints contradict each other (CHECK)")),
    Refusal("contradictory", lambda r: bool(disagreement(r)), disagreement),
    Refusal("no shape", lambda r: bool(_no_shape(r)), _no_shape),
    Refusal("unknown GPU", lambda r: r.gpu.startswith("unknown"), _says("the source does not state the GPU")),
    Refusal("no GPU count", lambda r: not r.num_gpus, _says("the source does not state the number of GPUs")),
    Refusal("no sequence length", lambda r: not r.seq_len, _says("the source does not state the sequence length")),
    Refusal("no global batch", lambda r: not r.global_batch_seqs, _says("the source does not state the global batch")),
    Refusal("no layout", lambda r: degrees(r) is None, _says("the source does not state the parallel layout")),
    Refusal("layout and GPUs differ", lambda r: degrees(r) != r.num_gpus,
            lambda r: f"tp*pp*cp*dp = {degrees(r)}, but the run has {r.num_gpus} GPUs"),
)  # fmt: skip


def resolve(record: RunRecord, defaults: Defaults | None = None) -> Case | Unresolved:
    """Return what a run was, or the first reason why it cannot be predicted."""
    table = defaults or product_defaults()
    for refusal in REFUSALS:
        if refusal.applies(record):
            return _unresolved(record, refusal.kind, refusal.says(record))
    try:
        found = _case(Asked(record, table))
    except InputError as error:
        return _unresolved(record, "not understood", str(error))
    try:
        _check(found)
    except InputError as error:
        return _unresolved(record, "cannot run", str(error))
    return found


def _check(case: Case) -> None:
    """Raise where the GPU lacks the arithmetic or the strategy breaks a rule of legality."""
    gpu, strategy = case.cluster.gpu, case.strategy
    check_precision(gpu.name, gpu.peak_flops_per_s, strategy.precision)
    check(case.architecture, case.cluster.gpus, strategy, case.seq_len, case.global_batch)


def _unresolved(record: RunRecord, kind: str, reason: str) -> Unresolved:
    return Unresolved(
        id=record.id, source_key=record.source_key, kind=kind, reason=reason,
        measured_step_s=record.step_time_s, measured_memory_bytes=measured_memory_bytes(record),
    )  # fmt: skip


def _case(asked: Asked) -> Case:
    record = asked.record
    architecture = as_trained(asked, run_architecture(asked))
    cluster = run_cluster(asked)
    strategy = run_strategy(asked)
    step_s = measured_step_s(record, params(architecture), cluster.gpu)
    kind = str(asked.default("memory_kind")) if record.peak_mem_gib else ""
    return Case(
        id=record.id, source_key=record.source_key, architecture=architecture, cluster=cluster, strategy=strategy,
        seq_len=record.seq_len or 1, global_batch=record.global_batch_seqs or 1,  # stated, or refused above
        measured_step_s=None if _power_unknown(asked) else step_s,
        measured_memory_bytes=measured_memory_bytes(record), memory_kind=kind, assumptions=tuple(asked.assumptions),
    )  # fmt: skip


def _power_unknown(asked: Asked) -> bool:
    """Whether the GPUs ran at a power limit that nobody states: memory can be compared, seconds cannot."""
    unknown = any(text in asked.record.notes for text in ("power limit not stated", "limit not given"))
    if unknown:
        asked.say("step time not compared: the GPUs ran at a power limit that the source omits")
    return unknown
