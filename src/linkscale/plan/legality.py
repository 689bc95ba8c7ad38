"""Which strategies can run at all: one table of rules, asked one by one with a message or for a whole batch.

A rule is about divisibility and about what a stack supports, never about speed or memory. ``predict`` raises the
message of the first broken rule; the search keeps the rows where every mask is True. Messages name the values and
the way out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from linkscale.base.errors import InputError
from linkscale.plan.expert_legality import EXPERT_RULES
from linkscale.plan.offload_legality import OFFLOAD_RULES
from linkscale.plan.rules import BoolArray, Job, Rule, every
from linkscale.plan.strategy import LEAST, NUMBERS, Sharding, Stack, Strategy, StrategyBatch

if TYPE_CHECKING:
    from linkscale.workload.architecture import Architecture

MOST = 2**31 - 1
"""Largest number a field may hold: keeps products of two of them inside 64 bits."""

OUTER_LAYERS = 3
"""Layers fewer that the first and the last interleaved chunk may hold together."""

SHARDINGS: dict[Stack, tuple[Sharding, ...]] = {
    "megatron": ("none", "zero1", "zero2", "zero3", "hsdp"),
    "fsdp2": ("zero2", "zero3", "hsdp"),
    "fsdp1": ("none", "zero2", "zero3", "hsdp"),
    "deepspeed": ("none", "zero1", "zero2", "zero3", "hsdp"),
    "ddp": ("none", "zero1"),
}
"""What each stack can shard: Megatron-LM's distributed optimizer and Megatron-FSDP; ``reshard_after_forward`` of
fully_shard; FSDP1's ShardingStrategy; DeepSpeed's stages and MiCS; DDP with ZeroRedundancyOptimizer."""


def check(arch: Architecture, gpus: int, strategy: Strategy, seq_len: int, global_batch: int) -> None:
    """Raise InputError with the first broken rule's message; return when the strategy can run."""
    numbers = {"gpus": gpus, "seq_len": seq_len, "global_batch": global_batch}
    numbers |= {name: getattr(strategy, name) for name in NUMBERS}
    for name, value in numbers.items():
        least = LEAST.get(name, 1)
        if not least <= value <= MOST:
            raise InputError(f"{name} = {shown(value)}; it must be from {least} to {MOST}")
    broken = first_broken(arch, gpus, strategy, seq_len, global_batch)
    if broken is not None:
        raise InputError(broken[1])


def first_broken(
    arch: Architecture, gpus: int, strategy: Strategy, seq_len: int, global_batch: int
) -> tuple[int, str] | None:
    """Return the place in ``RULES`` of the first broken rule and its message; None when the strategy can run."""
    job, batch = Job(arch, gpus, seq_len, global_batch), strategy.batch()
    for place, rule in enumerate(RULES):
        if not np.all(rule.mask(job, batch)):
            return place, rule.message(job, strategy)
    return None


def legal_mask(
    arch: Architecture, gpus: int, batch: StrategyBatch, seq_len: int, global_batch: int, skip: tuple[str, ...] = ()
) -> BoolArray:
    """Return which strategies of a batch keep every rule, but for those whose names are skipped."""
    job = Job(arch, gpus, seq_len, global_batch)
    keep = np.ones(len(batch), dtype=bool)
    for rule in (rule for rule in RULES if rule.name not in skip):
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


def _widths(job: Job, b: StrategyBatch) -> BoolArray:
    return every(b, (width % b.tp == 0 for width in job.arch.tensor_widths()))


def _widths_not(job: Job, s: Strategy) -> str:
    width = next(width for width in job.arch.tensor_widths() if width % s.tp)
    return f"ffn_hidden = {width} does not divide by tp = {s.tp}; use another tp"


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
    """Chunks hold equally many layers, but for up to three that the outer ones leave to embedding, prediction and loss.

    Megatron can count the embedding and the loss as a layer each (account-for-loss-in-pipeline-split), as for the 126
    layers of Llama 3.1 405B, or take any order (pipeline-model-parallel-layout), as for the 61 of DeepSeek-V3.
    """
    short = -job.arch.layers % (b.pp * b.vpp)
    return np.asarray((b.vpp == 1) | (short <= OUTER_LAYERS))


def _interleaved_not(job: Job, s: Strategy) -> str:
    layers = job.arch.layers
    return (
        f"{layers} layers do not divide by pp*vpp = {s.pp}*{s.vpp} = {s.pp * s.vpp}, nor do {layers + 1} to "
        f"{layers + OUTER_LAYERS} with embedding, prediction and loss counted as layers; use another vpp, or vpp = 1, "
        "where stages may be uneven"
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
    """GPipe, ZB-H1 and DualPipe hold one chunk a stage, ZB-V two; DualPipe feeds both ends of an even one alike."""
    alone = np.asarray(b.pp == 1)
    match b.choices.schedule:
        case "gpipe" | "zb-h1":
            return np.asarray(b.vpp == 1)
        case "zb-v":
            return np.asarray(alone | (b.vpp == 2))
        case "dualpipe":
            micro_batches = job.global_batch // np.maximum(b.dp * b.micro_batch, 1)
            halves = (micro_batches >= 2 * b.pp) & (micro_batches % 2 == 0)
            return np.asarray(alone | ((b.vpp == 1) & (b.pp % 2 == 0) & halves))
        case "1f1b":
            return True


def _schedule_not(job: Job, s: Strategy) -> str:
    if s.schedule == "dualpipe":
        micro_batches = job.global_batch // (s.dp * s.micro_batch)
        return (
            f"schedule dualpipe needs an even pp, vpp = 1 and an even number of micro-batches, 2*pp = {2 * s.pp} at "
            f"least; here pp = {s.pp}, vpp = {s.vpp} and {micro_batches} micro-batches"
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
    Rule("ffn", _widths, _widths_not),
    *EXPERT_RULES,
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
    *OFFLOAD_RULES,
    Rule("pipelined", _pipelined, _pipelined_not),
    Rule("tensor", lambda job, b: (b.tp == 1) if b.choices.stack == "ddp" else True, lambda job, s: (
        f"stack ddp has no tensor parallelism, but tp = {s.tp}; use tp = 1 or stack megatron")),
    Rule("ring", lambda job, b: (
        (b.tp == 1) if b.choices.tp_overlap in ("bulk", "ring") and not b.choices.sequence_parallel else True),
        lambda job, s: f"tp_overlap {s.tp_overlap} needs sequence_parallel; turn it on or use tp_overlap async"),
    Rule("gather", lambda job, b: (
        (b.dp * b.cp == 1) if _gathers_alone(b) else True), lambda job, s: (
        "overlap_param_gather needs overlap_grad_reduce in Megatron; turn both on or both off")),
)  # fmt: skip
"""In the order in which they are told. A later rule may take the earlier ones for granted."""


def _gathers_alone(b: StrategyBatch) -> bool:
    choices = b.choices
    gathers = choices.overlap_param_gather and choices.sharding != "none"
    return choices.stack == "megatron" and gathers and not choices.overlap_grad_reduce
