"""Which strategies can run at all: one table of rules, asked one by one with a message or for a whole batch.

A rule is about divisibility and about what a stack supports, never about speed or memory. ``predict`` raises the
message of the first broken rule; the search keeps the rows where every mask is True. Messages name the values and
the way out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from linkscale.base.errors import InputError
from linkscale.plan.strategy import LEAST, NUMBERS, Sharding, Stack, Strategy, StrategyBatch

if TYPE_CHECKING:
    from linkscale.workload.architecture import Architecture

BoolArray = npt.NDArray[np.bool_]

MOST = 2**31 - 1
"""Largest number a field may hold: keeps products of two of them inside 64 bits."""

SHARDINGS: dict[Stack, tuple[Sharding, ...]] = {
    "megatron": ("none", "zero1", "zero2", "zero3", "hsdp"),
    "fsdp2": ("zero2", "zero3", "hsdp"),
    "fsdp1": ("none", "zero2", "zero3", "hsdp"),
    "deepspeed": ("none", "zero1", "zero2", "zero3", "hsdp"),
    "ddp": ("none", "zero1"),
}
"""What each stack can shard: Megatron-LM's distributed optimizer and Megatron-FSDP; ``reshard_after_forward`` of
fully_shard; FSDP1's ShardingStrategy; DeepSpeed's stages and MiCS; DDP with ZeroRedundancyOptimizer."""


class Job(NamedTuple):
    """What a strategy is laid on."""

    arch: Architecture
    gpus: int
    seq_len: int
    global_batch: int


class Rule(NamedTuple):
    """One condition: ``mask`` is True where it holds (one bool where it depends on no number)."""

    name: str
    mask: Callable[[Job, StrategyBatch], BoolArray | bool]
    message: Callable[[Job, Strategy], str]


def check(arch: Architecture, gpus: int, strategy: Strategy, seq_len: int, global_batch: int) -> None:
    """Raise InputError with the first broken rule's message; return when the strategy can run."""
    numbers = {"gpus": gpus, "seq_len": seq_len, "global_batch": global_batch}
    numbers |= {name: getattr(strategy, name) for name in NUMBERS}
    for name, value in numbers.items():
        least = LEAST.get(name, 1)
        if not least <= value <= MOST:
            raise InputError(f"{name} = {shown(value)}; it must be from {least} to {MOST}")
    job, batch = Job(arch, gpus, seq_len, global_batch), strategy.batch()
    for rule in RULES:
        if not np.all(rule.mask(job, batch)):
            raise InputError(rule.message(job, strategy))


def legal_mask(arch: Architecture, gpus: int, batch: StrategyBatch, seq_len: int, global_batch: int) -> BoolArray:
    """Return which strategies of a batch keep every rule."""
    job = Job(arch, gpus, seq_len, global_batch)
    keep = np.ones(len(batch), dtype=bool)
    for rule in RULES:
        keep &= rule.mask(job, batch)
    return keep


def shown(value: int) -> str:
    """Return a whole number as text, however long it is."""
    return str(value) if abs(value) < 10**15 else f"about 1e{len(str(abs(value))) - 1}"


def _fills(job: Job, b: StrategyBatch) -> BoolArray:
    # Divided one by one, since the product of four degrees may not fit 64 bits.
    model = (job.gpus % b.tp == 0) & (job.gpus // b.tp % b.cp == 0) & (job.gpus // b.tp // b.cp % b.pp == 0)
    return np.asarray(model & (job.gpus // b.tp // b.cp // b.pp == b.dp))


def _fills_not(job: Job, s: Strategy) -> str:
    model = s.tp * s.cp * s.pp
    product = f"tp*cp*pp*dp = {s.tp}*{s.cp}*{s.pp}*{s.dp} = {s.gpus}" if s.cp > 1 else (
        f"tp*pp*dp = {s.tp}*{s.pp}*{s.dp} = {s.gpus}")  # fmt: skip
    ways = f"dp = {job.gpus // model} or " if job.gpus % model == 0 else ""
    return f"{product}, but the cluster has {job.gpus} GPUs; use {ways}a cluster of {s.gpus} GPUs"


def _heads(job: Job, b: StrategyBatch) -> BoolArray:
    return np.asarray(job.arch.heads % b.tp == 0)


def _kv_heads(job: Job, b: StrategyBatch) -> BoolArray:
    # Fewer key-value heads than ranks are repeated, each on tp / kv_heads ranks.
    return np.asarray((job.arch.kv_heads % b.tp == 0) | (b.tp % job.arch.kv_heads == 0))


def _kv_heads_not(job: Job, s: Strategy) -> str:
    kv = job.arch.kv_heads
    return f"kv_heads = {kv} and tp = {s.tp}: neither divides the other; use a tp that divides {kv} or a multiple of it"


def _context(job: Job, b: StrategyBatch) -> BoolArray:
    # Ring and gathering balance causal work with two chunks a rank; trading tokens for heads needs heads to trade.
    if b.choices.cp_comm == "a2a":
        return np.asarray((b.cp == 1) | (job.arch.kv_heads % (b.cp * b.tp) == 0))
    return np.asarray((b.cp == 1) | (job.seq_len % (2 * b.cp) == 0))


def _context_not(job: Job, s: Strategy) -> str:
    if s.cp_comm == "a2a":
        return (
            f"cp_comm a2a trades heads: {job.arch.kv_heads} key-value heads do not divide by cp*tp = {s.cp}*{s.tp}; "
            "use a smaller cp, or cp_comm p2p"
        )
    return f"seq_len = {job.seq_len} does not divide by 2*cp = {2 * s.cp}, two chunks a rank; use another cp"


def _sequence(job: Job, b: StrategyBatch) -> BoolArray | bool:
    return np.asarray(job.seq_len % (b.cp * b.tp) == 0) if b.choices.sequence_parallel else True


def _sequence_not(job: Job, s: Strategy) -> str:
    return (
        f"seq_len = {job.seq_len} does not divide by cp*tp = {s.cp * s.tp}, which sequence parallelism needs; "
        f"use another tp, or turn sequence_parallel off"
    )


def _batch(job: Job, b: StrategyBatch) -> BoolArray:
    return np.asarray(job.global_batch % (b.dp * b.micro_batch) == 0)


def _batch_not(job: Job, s: Strategy) -> str:
    product = s.dp * s.micro_batch
    below, above = job.global_batch // product * product, -(-job.global_batch // product) * product
    ways = f"{below} or {above}" if below else f"{above}"
    return (
        f"global_batch = {job.global_batch} does not divide by dp*micro_batch = {s.dp}*{s.micro_batch} = {product}; "
        f"use a global batch of {ways}, or another micro_batch"
    )


def _stages(job: Job, b: StrategyBatch) -> BoolArray:
    return np.asarray(b.pp * b.vpp <= job.arch.layers + 2 * (b.vpp > 1))


def _stages_not(job: Job, s: Strategy) -> str:
    return f"pp*vpp = {s.pp}*{s.vpp} = {s.pp * s.vpp} stages, but the model has {job.arch.layers} layers; use fewer"


def _interleaved(job: Job, b: StrategyBatch) -> BoolArray:
    # 2 more: Megatron can count the embedding and the loss as one layer each (account-for-embedding-in-pipeline-split,
    # account-for-loss-in-pipeline-split), which is how Llama 3.1 405B lays its 126 layers on 16 stages.
    chunks = b.pp * b.vpp
    return np.asarray((b.vpp == 1) | (job.arch.layers % chunks == 0) | ((job.arch.layers + 2) % chunks == 0))


def _interleaved_not(job: Job, s: Strategy) -> str:
    layers = job.arch.layers
    return (
        f"{layers} layers do not divide by pp*vpp = {s.pp}*{s.vpp} = {s.pp * s.vpp}, nor do {layers + 2} with the "
        f"embedding and the loss counted as layers; use another vpp, or vpp = 1, where stages may be uneven"
    )


def _rounds(job: Job, b: StrategyBatch) -> BoolArray:
    return np.asarray((b.vpp == 1) | (job.global_batch // (b.dp * b.micro_batch) % b.pp == 0))


def _rounds_not(job: Job, s: Strategy) -> str:
    count = job.global_batch // (s.dp * s.micro_batch)
    return (
        f"interleaving (vpp = {s.vpp}) needs the number of micro-batches to be a multiple of pp = {s.pp}, but "
        f"global_batch/(dp*micro_batch) = {job.global_batch}/({s.dp}*{s.micro_batch}) = {count}; "
        f"use vpp = 1 or another global batch"
    )


def _shard_domain(job: Job, b: StrategyBatch) -> BoolArray:
    if b.choices.sharding != "hsdp":
        return np.asarray(b.shard_domain == 1)
    return np.asarray(((b.shard_domain > 1) & (b.dp * b.cp % b.shard_domain == 0)) | (b.dp * b.cp == 1))


def _shard_domain_not(job: Job, s: Strategy) -> str:
    if s.sharding != "hsdp":
        return f"shard_domain = {s.shard_domain} belongs to sharding hsdp, but sharding is {s.sharding}"
    return f"sharding hsdp needs a shard_domain above 1 that divides dp*cp = {s.dp * s.cp}; it is {s.shard_domain}"


def _recompute(job: Job, b: StrategyBatch) -> BoolArray:
    if b.choices.recompute != "full":
        return np.asarray(b.recompute_layers == 0)
    return np.asarray(b.recompute_layers <= -(-job.arch.layers // b.pp))


def _recompute_not(job: Job, s: Strategy) -> str:
    if s.recompute != "full":
        return f"recompute_layers = {s.recompute_layers} belongs to recompute full, but recompute is {s.recompute}"
    per_stage = -(-job.arch.layers // s.pp)
    return f"recompute_layers = {s.recompute_layers}, but a stage has {per_stage} layers; use fewer, or 0 for all"


def _supported(job: Job, b: StrategyBatch) -> BoolArray | bool:
    return b.choices.sharding in SHARDINGS[b.choices.stack] or b.dp * b.cp == 1


def _supported_not(job: Job, s: Strategy) -> str:
    return f"stack {s.stack} has no sharding {s.sharding!r}; it has {', '.join(SHARDINGS[s.stack])}"


def _schedule(job: Job, b: StrategyBatch) -> BoolArray | bool:
    """GPipe, ZB-H1 and DualPipe hold one chunk a stage, ZB-V two; DualPipe feeds both ends of an even pipeline."""
    alone = np.asarray(b.pp == 1)
    match b.choices.schedule:
        case "gpipe" | "zb-h1":
            return np.asarray(b.vpp == 1)
        case "zb-v":
            return np.asarray(alone | (b.vpp == 2))
        case "dualpipe":
            enough = job.global_batch // np.maximum(b.dp * b.micro_batch, 1) >= 2 * b.pp
            return np.asarray(alone | ((b.vpp == 1) & (b.pp % 2 == 0) & enough))
        case "1f1b":
            return True


def _schedule_not(job: Job, s: Strategy) -> str:
    if s.schedule == "dualpipe":
        micro_batches = job.global_batch // (s.dp * s.micro_batch)
        return (
            f"schedule dualpipe needs an even pp, vpp = 1 and at least 2*pp = {2 * s.pp} micro-batches; "
            f"here pp = {s.pp}, vpp = {s.vpp} and {micro_batches} micro-batches"
        )
    if s.schedule == "zb-v":
        return f"schedule zb-v places two chunks on a stage, but vpp = {s.vpp}; use vpp = 2 or schedule zb-h1"
    return f"schedule {s.schedule} is not interleaved, but vpp = {s.vpp}; use vpp = 1 or schedule 1f1b"


def _pipelined(job: Job, b: StrategyBatch) -> BoolArray | bool:
    """DeepSpeed's pipeline engine refuses ZeRO-2 and ZeRO-3; FSDP1 and DDP have no pipeline."""
    choices = b.choices
    bare = choices.stack in ("ddp", "fsdp1") or (
        choices.stack == "deepspeed" and choices.sharding in ("zero2", "zero3", "hsdp")
    )
    return b.pp == 1 if bare else True


def _pipelined_not(job: Job, s: Strategy) -> str:
    what = f"stack {s.stack}" + (f" with {s.sharding}" if s.stack == "deepspeed" else "")
    way = "sharding zero1" if s.stack == "deepspeed" else "stack megatron"
    return f"{what} has no pipeline parallelism, but pp = {s.pp}; use pp = 1 or {way}"


RULES: tuple[Rule, ...] = (
    Rule("gpus", _fills, _fills_not),
    Rule("context", _context, _context_not),
    Rule("heads", _heads, lambda job, s: (
        f"{job.arch.heads} attention heads do not divide by tp = {s.tp}; use a tp that divides {job.arch.heads}")),
    Rule("kv_heads", _kv_heads, _kv_heads_not),
    Rule("ffn", lambda job, b: np.asarray(job.arch.ffn_hidden % b.tp == 0), lambda job, s: (
        f"ffn_hidden = {job.arch.ffn_hidden} does not divide by tp = {s.tp}; use another tp")),
    Rule("sequence", _sequence, _sequence_not),
    Rule("batch", _batch, _batch_not),
    Rule("stages", _stages, _stages_not),
    Rule("pipeline", lambda job, b: (b.vpp == 1) | (b.pp > 1), lambda job, s: (
        f"vpp = {s.vpp} with pp = 1: interleaving needs a pipeline; use vpp = 1 or pp > 1")),
    Rule("schedule", _schedule, _schedule_not),
    Rule("engine", lambda job, b: (b.vpp == 1) if b.choices.stack == "deepspeed" else True, lambda job, s: (
        f"stack deepspeed does not interleave, but vpp = {s.vpp}; use vpp = 1 or stack megatron")),
    Rule("interleaved", _interleaved, _interleaved_not),
    Rule("rounds", _rounds, _rounds_not),
    Rule("shard_domain", _shard_domain, _shard_domain_not),
    Rule("recompute", _recompute, _recompute_not),
    Rule("sharding", _supported, _supported_not),
    Rule("pipelined", _pipelined, _pipelined_not),
    Rule("tensor", lambda job, b: (b.tp == 1) if b.choices.stack == "ddp" else True, lambda job, s: (
        f"stack ddp has no tensor parallelism, but tp = {s.tp}; use tp = 1 or stack megatron")),
    Rule("ring", lambda job, b: (
        (b.tp == 1) if b.choices.tp_overlap == "ring" and not b.choices.sequence_parallel else True), lambda job, s: (
        "tp_overlap ring needs sequence_parallel; turn it on or use tp_overlap async")),
    Rule("gather", lambda job, b: (
        (b.dp * b.cp == 1) if _gathers_alone(b) else True), lambda job, s: (
        "overlap_param_gather needs overlap_grad_reduce in Megatron; turn both on or both off")),
)  # fmt: skip
"""In the order in which they are told. A later rule may take the earlier ones for granted."""


def _gathers_alone(b: StrategyBatch) -> bool:
    choices = b.choices
    gathers = choices.overlap_param_gather and choices.sharding != "none"
    return choices.stack == "megatron" and gathers and not choices.overlap_grad_reduce
