"""Bytes on one GPU: weights, gradients and optimizer state by sharding; activations by recompute; the rest.

Sources: Rajbhandari et al. 2020 (ZeRO: what each stage shards); Korthikanti et al. 2022 (activations per layer:
``s*b*h*(34 + 5*a*s/h)`` bytes, and what sequence parallelism and recomputation leave of them).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from linkscale.cost.kernels import FloatArray, Number
from linkscale.cost.layer import OpsCost, Slice, autocast, residual_bytes
from linkscale.plan.strategy import DTYPE_BYTES, Choices

# CUDA context and libraries; NCCL's buffers of one communicator (channels x peers x 4 MiB x protocols); and the
# allocator's unused share of what it holds.
CONTEXT_BYTES = 1.0e9
COMMUNICATOR_BYTES = 0.4e9
FRAGMENTATION = 0.05
# fp32 master weight and two fp32 moments. The fp32 copy of 16-bit gradients lives only in the optimizer step, when
# activations are gone.
ADAM_BYTES = 12.0
# Bytes per logit at the peak, in the backward of the loss. Written out: the fp32 log-probabilities kept for backward,
# their gradient and the logits' gradient in fp32; the 16-bit logits are gone by then. Fused: the 16-bit logits and
# their gradient. DTensor's vocabulary-parallel loss takes one step more.
LOGIT_BYTES = {"written": 12.0, "fused": 4.0, "vocabulary-parallel": 16.0}

BoolArray = npt.NDArray[np.bool_]
Moment = Literal["loss", "first", "second", "last", "root"]
"""When a GPU may be fullest: in the loss; in the backward of the first layer to run it, of the second (the first one's
gradients are being reduced) or of the last; at the end, when those of embedding and output projection are reduced."""


@dataclass(frozen=True)
class StageParams:
    """Parameters of one stage on one tensor-parallel rank."""

    total: Number
    layer: Number
    """Of one layer, the unit that is gathered and reduced at once."""
    root: Number
    """Of embedding, final norm and output projection, which fully sharded stacks gather together and keep gathered."""
    head: Number


@dataclass(frozen=True)
class StateBytes:
    """Bytes of model state on one GPU; ``idle``: what the pools of communication streams hold unused meanwhile."""

    weights: Number
    gradients: Number
    optimizer: Number
    idle: Number


def moments(choices: Choices) -> tuple[Moment, ...]:
    """Return when the fullest moment may be: where gradients only appear in backward, its end can be that."""
    return ("loss", "first", "second", "last", "root") if _from_torch(choices) else ("loss", "first")


def state_bytes(params: StageParams, shards: Number, choices: Choices, moment: Moment, again: BoolArray) -> StateBytes:
    """Bytes of a stage's state held by a group of ``shards`` ranks; ``again``: earlier micro-batches left gradients.

    Adam keeps two fp32 moments and mixed precision fp32 weights: in PyTorch's own stacks the weights themselves
    (4 bytes, sharded where they are, and 16-bit copies while in use), elsewhere a master copy.
    """
    gradients, idle = _gradients(params, shards, choices, moment, again)
    whole, replicas = params.total, 1.0 if choices.sharding == "none" else shards
    match choices.sharding:
        case "zero3" | "hsdp":
            gathered = np.minimum(2.0 * whole, _gathered(params, moment))
            return StateBytes(4.0 * whole / shards + gathered, gradients, 8.0 * whole / shards, idle)
        case "none" if autocast(choices):
            return StateBytes(4.0 * whole + _casts(params, choices, moment), gradients, 8.0 * whole, idle)
        case "zero2" if _from_torch(choices):
            return StateBytes(4.0 * whole / shards + 2.0 * whole, gradients, 8.0 * whole / shards, idle)
        case _:
            return StateBytes(2.0 * whole, gradients, ADAM_BYTES * whole / replicas, idle)


def _from_torch(choices: Choices) -> bool:
    """Whether gradients are freed after each step (``zero_grad``), and the fp32 weights are the model's own."""
    return choices.stack in ("fsdp2", "fsdp1", "ddp")


def _gathered(params: StageParams, moment: Moment) -> Number:
    """16-bit weights gathered: the root throughout; in backward a layer and the next one, if there is a next one."""
    layers = {"first": 2.0, "second": 2.0, "last": 1.0}.get(moment, 0.0)
    return 2.0 * (params.root + layers * params.layer)


def _casts(params: StageParams, choices: Choices, moment: Moment) -> Number:
    """16-bit copies that autocast makes of the weights.

    Cached to the end of forward, then kept for backward unless the layers run again.
    """
    if moment == "loss" or (choices.recompute == "none" and moment in ("first", "second")):
        return 2.0 * (params.total - params.root + params.head)
    return 2.0 * (0.0 if moment == "root" else params.layer)


def _gradients(
    params: StageParams, shards: Number, choices: Choices, moment: Moment, again: BoolArray
) -> tuple[Number, Number]:
    """Bytes of gradients, and of their idle pools."""
    grad, whole = DTYPE_BYTES[choices.grad_dtype], params.total
    done = np.where(again, whole, _done(params, choices, moment))
    if choices.sharding in ("none", "zero1"):
        # DistributedDataParallel reduces copies of the gradients, in buckets that stay.
        buckets = grad * done if choices.stack == "ddp" else 0.0
        return grad * whole + buckets, 0.0
    fully = choices.sharding != "zero2" or _from_torch(choices)
    size = 4.0 if fully else grad
    shard = size * whole / shards
    held = size * done / shards if _from_torch(choices) else shard
    if choices.no_sync:
        # Whole gradients of all layers wait for the last micro-batch.
        gradients = held + grad * whole * np.where(again, 1.0, 0.0) + 2.0 * params.layer
    else:
        gradients = np.minimum(held + _exchanged(params, grad, choices, moment), 4.0 * whole)
    # Gathered and reduced buffers live in the pools of their own streams: a pool never shrinks, nor lends.
    idle = shard - held + np.maximum(2.0 * params.root, 4.0 * params.layer) if choices.stack == "fsdp2" else 0.0
    return gradients, idle


def _done(params: StageParams, choices: Choices, moment: Moment) -> Number:
    """Parameters whose gradients are complete, of a step's first micro-batch."""
    match moment:
        case "loss" | "first":
            return params.head * (1.0 if autocast(choices) and moment == "first" else 0.0)
        case "second":
            return params.layer + (params.head if autocast(choices) else 0.0)
        case "last":
            waiting = params.root - params.head if autocast(choices) else params.root
            return np.maximum(0.0, params.total - params.layer - waiting)
        case "root":
            return params.total


def _exchanged(params: StageParams, grad: float, choices: Choices, moment: Moment) -> Number:
    """The last unit's gradient while it is reduced; the head's, as backward left it in 16 bits, waits for its root."""
    waiting = 2.0 * params.head if _from_torch(choices) else 0.0
    match moment:
        case "loss":
            return 0.0 * params.layer
        case "first":
            return waiting + (0.0 if _from_torch(choices) else grad * params.layer)
        case "second" | "last":
            return grad * params.layer + waiting
        case "root":
            return (2.0 + grad) * params.root


def layer_activation_bytes(cost: OpsCost, part: Slice, hidden: int) -> FloatArray:
    """Bytes that one layer keeps for backward, per micro-batch in flight, without full recomputation."""
    kept = cost.saved_bytes
    if part.choices.recompute == "selective":
        if part.choices.stack == "megatron":
            kept = kept - cost.attention_saved_bytes
        else:
            # Per-operation checkpointing keeps the input, attention's output and every second product.
            kept = np.minimum(kept, checkpoint_bytes(part, hidden) + _kept_products(cost, part.choices))
    return np.asarray(kept)


def _kept_products(cost: OpsCost, choices: Choices) -> Number:
    """The first, third, fifth ... product and attention; a compiler drops the last product, which nothing needs."""
    products = cost.product_bytes[:-1] if choices.compile else cost.product_bytes
    return sum(products[::2]) + cost.attention_output_bytes


def checkpoint_bytes(part: Slice, hidden: int) -> FloatArray:
    """Bytes of one layer's input, all that full recomputation keeps."""
    return residual_bytes(part.choices) * hidden * part.region_tokens("sequence")


def logits_bytes(part: Slice, vocab: int, shard_vocab: bool) -> FloatArray:
    """Peak bytes of logits and loss on the last stage."""
    rows = vocab / part.tp if shard_vocab else np.full_like(part.tp, vocab)
    if part.choices.fused_loss:
        return part.tokens * rows * LOGIT_BYTES["fused"]
    cut = (part.tp > 1) & shard_vocab & (part.choices.stack == "fsdp2")
    return part.tokens * rows * np.where(cut, LOGIT_BYTES["vocabulary-parallel"], LOGIT_BYTES["written"])
