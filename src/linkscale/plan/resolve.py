"""A published run → what ``predict`` needs: architecture, cluster, strategy, batch. Or the reason why not.

A row *states enough* when it gives the GPU, the number of GPUs, the model's shape (or a known model), the sequence
length, the global batch and the layout. What else it leaves out comes from the product defaults. Rows are refused by
the rules of ``REFUSALS`` only, never for what a prediction would give.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

from linkscale.base.errors import InputError
from linkscale.base.model import Model
from linkscale.plan.defaults import check_field
from linkscale.plan.legality import check
from linkscale.plan.measured import measured_memory_bytes, measured_step_s
from linkscale.plan.product import Defaults, product_defaults
from linkscale.plan.shapes import run_architecture
from linkscale.plan.strategy import Precision, Sharding, Strategy
from linkscale.plan.systems import run_cluster
from linkscale.readers.runs import RunRecord
from linkscale.topology.cluster import Cluster
from linkscale.workload.architecture import Architecture
from linkscale.workload.counts import params

SPELLINGS = {"fsdp": "zero3", "mxfp8": "fp8"}
"""What sources write for a choice that has another name here."""


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


def _degrees(record: RunRecord) -> int | None:
    dp = record.dp or _remaining_dp(record)
    if not (record.tp and record.pp and dp):
        return None
    return record.tp * record.pp * (record.cp or 1) * dp


def _remaining_dp(record: RunRecord) -> int | None:
    """Data-parallel ranks where a row leaves them out: nothing contradicts only when the other degrees divide."""
    if record.dp or not (record.tp and record.pp and record.num_gpus) or "does not satisfy" in record.notes:
        return record.dp
    model = record.tp * record.pp * (record.cp or 1)
    return record.num_gpus // model if record.num_gpus % model == 0 else None


REFUSALS: tuple[Refusal, ...] = (
    Refusal("contradictory", _contradicts, _says("the numbers that the source prints contradict each other (CHECK)")),
    Refusal("mixture of experts", lambda r: bool(r.experts) or "MoE:" in r.notes,
            _says("mixture-of-experts models are not priced yet")),
    Refusal("LoRA", lambda r: "(LoRA)" in r.model, _says("LoRA trains a small part of the weights: not priced")),
    Refusal("offload", lambda r: "CPU offload experiment" in r.notes or "CPU offload used" in r.notes,
            _says("offload to host memory is not priced")),
    Refusal("nvfp4", lambda r: r.precision == "nvfp4", _says("nvfp4 arithmetic is not priced yet")),
    Refusal("no shape", lambda r: not (r.layers and r.hidden and r.heads),
            lambda r: f"the source states no layers, width and heads of {r.model!r}"),
    Refusal("unknown GPU", lambda r: r.gpu.startswith("unknown"), _says("the source does not state the GPU")),
    Refusal("no GPU count", lambda r: not r.num_gpus, _says("the source does not state the number of GPUs")),
    Refusal("no sequence length", lambda r: not r.seq_len, _says("the source does not state the sequence length")),
    Refusal("no global batch", lambda r: not r.global_batch_seqs, _says("the source does not state the global batch")),
    Refusal("no layout", lambda r: _degrees(r) is None, _says("the source does not state the parallel layout")),
    Refusal("layout and GPUs differ", lambda r: _degrees(r) != r.num_gpus,
            lambda r: f"tp*pp*cp*dp = {_degrees(r)}, but the run has {r.num_gpus} GPUs"),
)  # fmt: skip


def resolve(record: RunRecord, defaults: Defaults | None = None) -> Case | Unresolved:
    """Return what a run was, or the first reason why it cannot be predicted."""
    table = defaults or product_defaults()
    for refusal in REFUSALS:
        if refusal.applies(record):
            return _unresolved(record, refusal.kind, refusal.says(record))
    try:
        found = _Resolver(record, table).case()
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
    if strategy.precision not in gpu.peak_flops_per_s:
        raise InputError(f"{gpu.name} has no {strategy.precision} arithmetic")
    check(case.architecture, case.cluster.gpus, strategy, case.seq_len, case.global_batch)


def _unresolved(record: RunRecord, kind: str, reason: str) -> Unresolved:
    return Unresolved(
        id=record.id, source_key=record.source_key, kind=kind, reason=reason,
        measured_step_s=record.step_time_s, measured_memory_bytes=measured_memory_bytes(record),
    )  # fmt: skip


class _Resolver:
    """One record on its way to a case; collects the sentences of the defaults that it used."""

    def __init__(self, record: RunRecord, table: Defaults) -> None:
        self.record = record
        self.table = table
        self.assumptions: list[str] = []

    def default(self, field: str) -> Any:
        """Return the table's value for a field and keep its sentence."""
        value = self.any_default(field)
        if value is None:
            raise InputError(f"no product default for {field} of {self.record.framework!r} on {self.record.gpu!r}")
        return value

    def any_default(self, field: str) -> Any:
        """Return the table's value for a field, or None where no rule speaks of the run."""
        found = self.table.find(field, self.record)
        if found is None:
            return None
        if found.said not in self.assumptions:
            self.assumptions.append(found.said)
        return found.value

    def case(self) -> Case:
        record = self.record
        seq_len, global_batch = record.seq_len or 1, record.global_batch_seqs or 1  # stated, or refused above
        architecture = run_architecture(record, self.default)
        cluster = run_cluster(record, self.default, self.any_default)
        strategy = self.strategy()
        step_s = measured_step_s(record, params(architecture), cluster.gpu)
        kind = str(self.default("memory_kind")) if record.peak_mem_gib else ""
        return Case(
            id=record.id, source_key=record.source_key, architecture=architecture, cluster=cluster, strategy=strategy,
            seq_len=seq_len, global_batch=global_batch,
            measured_step_s=None if self._power_unknown() else step_s,
            measured_memory_bytes=measured_memory_bytes(record), memory_kind=kind,
            assumptions=tuple(self.assumptions),
        )  # fmt: skip

    def _power_unknown(self) -> bool:
        """Whether the GPUs ran at a power limit that nobody states: memory can be compared, seconds cannot."""
        unknown = any(text in self.record.notes for text in ("power limit not stated", "limit not given"))
        if unknown:
            self.assumptions.append("step time not compared: the GPUs ran at a power limit that the source omits")
        return unknown

    def strategy(self) -> Strategy:
        record = self.record
        sharding = self.sharding()
        pp = record.pp or 1
        tp = record.tp or 1
        recompute, layers = self.recompute(pp)
        return Strategy(
            stack=self.default("stack"),
            sequence_parallel=self._stated_or("sequence_parallel", record.sp) and tp > 1,
            sharding=sharding,
            recompute=recompute,
            recompute_layers=layers,
            precision=self.precision(),
            attention=self._known_or("attention", record.attention),
            compile=self.default("compile"),
            fused_loss=self.default("fused_loss"),
            grad_dtype=self.default("grad_dtype"),
            param_dtype=self.default("param_dtype"),
            overlap_grad_reduce=self.default("overlap_grad_reduce"),
            overlap_param_gather=self.default("overlap_param_gather"),
            overlap_p2p=self.default("overlap_p2p"),
            cp_comm="all_gather" if self.default("stack") == "fsdp2" else "p2p",
            no_sync=sharding == "zero2" and pp > 1,
            tp_overlap=self.default("tp_overlap") if tp > 1 else "none",
            tp=tp, pp=pp, cp=record.cp or 1, dp=_remaining_dp(record) or 1,
            vpp=self.vpp(pp), micro_batch=self.micro_batch(pp),
            shard_domain=record.gpus_per_node or 8 if sharding == "hsdp" else 1,
        )  # fmt: skip

    def _stated_or(self, field: str, stated: Any) -> Any:
        return self.default(field) if stated is None else stated

    def _known_or(self, field: str, stated: str) -> Any:
        if stated in ("", "unknown"):
            return self.default(field)
        value = SPELLINGS.get(stated, stated)
        check_field(field, value)
        return value

    def precision(self) -> Precision:
        if self.record.precision == "mxfp8":
            self.assumptions.append("mxfp8 priced as fp8: same peak, block scales of 1/32 of the bytes left out")
        return cast(Precision, self._known_or("precision", self.record.precision))

    def sharding(self) -> Sharding:
        instead = self.table.find("sharding_under_pipeline", self.record)
        if instead is not None:
            self.assumptions.append(instead.said)
            return cast(Sharding, instead.value)
        return cast(Sharding, self._known_or("sharding", self.record.sharding))

    def recompute(self, pp: int) -> tuple[Any, int]:
        """Return what is recomputed and of how many layers per stage (0: all)."""
        kind = self._known_or("recompute", self.record.recompute)
        if isinstance(kind, int):
            return "full", -(-kind // pp)
        if kind != "selective" or not self.record.layers:
            return kind, 0
        every = self.any_default("selective_means")
        return (kind, 0) if every is None else ("full", -(-self.record.layers // int(every) // pp))

    def vpp(self, pp: int) -> int:
        if pp == 1:
            return 1
        stated = self._stated_or("vpp", self.record.vpp)
        if stated != "one layer":
            return int(stated)
        layers = self.record.layers or 0
        return layers // pp if layers and layers % pp == 0 else 1

    def micro_batch(self, pp: int) -> int:
        record = self.record
        replicas = _remaining_dp(record) or 1
        if record.micro_batch_seqs:
            return record.micro_batch_seqs
        local = (record.global_batch_seqs or 1) // replicas
        if record.grad_accum and local % record.grad_accum == 0:
            return local // record.grad_accum
        default = self.default("micro_batch")
        return max(1, local // pp) if default == "one per stage" else int(default)
