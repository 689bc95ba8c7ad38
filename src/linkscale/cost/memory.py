"""Bytes on one GPU at one moment of a step: weights, gradients and optimizer state by sharding; activations; the loss.

Sources: Rajbhandari et al. 2020 (ZeRO: what each stage shards); Korthikanti et al. 2022 (activations per layer:
``s*b*h*(34 + 5*a*s/h)`` bytes, and what sequence parallelism and recomputation leave of them); PyTorch's own stacks
follow ``torch.distributed.fsdp`` and ``torch.nn.parallel`` 2.13, held to its memory tracker (tests/oracles).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from linkscale.cost.kernels import FloatArray, Number
from linkscale.cost.layer import OpsCost, Slice, autocast, logits, residual_bytes
from linkscale.cost.optimizer import MASTER_BYTES, UPDATES
from linkscale.plan.precision import FORMATS
from linkscale.plan.strategy import DTYPE_BYTES, Choices
from linkscale.workload.ops import Gemm

# CUDA context and libraries; NCCL's buffers of one communicator (channels x peers x 4 MiB x protocols); and the
# allocator's unused share of what it holds.
CONTEXT_BYTES = 1.0e9
COMMUNICATOR_BYTES = 0.4e9
FRAGMENTATION = 0.05
# Transformer Engine keeps a narrow copy of a layer's weights and its transpose, beside those in 16 bits or, where
# parameters are gathered in 8 bits, in their place.
NARROW_COPIES = 2.0
# Per-operation checkpointing keeps every second product of a layer and computes the others again.
REPEATED_PRODUCTS = 0.5
# Bytes per logit at the peak, in the backward of the loss. Written out: the fp32 log-probabilities kept for backward,
# their gradient and the logits' gradient in fp32; the 16-bit logits are gone by then. Fused: the 16-bit logits and
# their gradient. DTensor's vocabulary-parallel loss takes one step more. (What the loss moves, not keeps, is
# estimate.units.LOSS_BYTES.)
LOGIT_BYTES = {"written": 12.0, "fused": 4.0, "vocabulary-parallel": 16.0}
HALF_LOGIT_BYTES = 2.0

Moment = Literal["loss", "first", "second", "last", "table", "update"]
"""When a GPU may be fullest: in the loss; in the backward of the first layer to run it, of the second (the first one's
gradients are being reduced) or of the last; when those of the embedding are reduced at the end; in the optimizer."""


@dataclass(frozen=True)
class HeldParams:
    """Parameters of one stage on one tensor-parallel rank."""

    layers: Number
    unit: Number
    """Of one layer, what is gathered and reduced at once; so are the two below."""
    table: Number = 0.0
    """Of the embedding."""
    head: Number = 0.0
    """Of final norm and output projection."""

    @cached_property
    def total(self) -> Number:
        """All of them."""
        return self.layers + self.table + self.head


@dataclass(frozen=True)
class StateBytes:
    """Bytes of model state on one GPU; ``idle``: what is held for it at other moments and fits nothing else."""

    weights: Number
    gradients: Number
    optimizer: Number
    idle: Number = 0.0


def moments(choices: Choices) -> tuple[Moment, ...]:
    """Return when the fullest moment may be: where gradients only appear in backward, its end can be that."""
    if from_torch(choices):
        return ("loss", "first", "second", "last", "table")
    return ("loss", "first", "update") if DTYPE_BYTES[choices.grad_dtype] < MASTER_BYTES else ("loss", "first")


def from_torch(choices: Choices) -> bool:
    """Whether gradients are freed after each step (``zero_grad``), and the fp32 weights are the model's own."""
    return choices.stack in ("fsdp2", "fsdp1", "ddp")


def state_bytes(
    params: HeldParams, shards: Number, choices: Choices, moment: Moment = "second", again: Number = 0.0, *,
    trained: HeldParams | None = None,
) -> StateBytes:  # fmt: skip
    """Bytes of a stage's parameters at a moment, held by a group of ``shards`` ranks.

    ``again``: whether (1) gradients of earlier micro-batches exist. ``trained``: those of the parameters that are
    trained (None: all); of the others there are 16-bit weights alone. Mixed precision keeps an fp32 master copy beside
    the optimizer's moments. In PyTorch's own stacks the master *is* the weight, and copies in 16 bits live while they
    are in use; so it is counted for full sharding in every stack: 4 bytes sharded plus the units in flight.
    """
    stage = _Held(params, trained or params, shards, choices)
    if from_torch(choices):
        return _torch_state(stage, moment, again)
    if choices.sharding in ("zero3", "hsdp"):
        return _sharded_state(stage)
    gradients, idle = _kept_gradients(stage, moment)
    kept = MASTER_BYTES + UPDATES[choices.optimizer].moments_bytes
    return StateBytes(_half_weights(params, choices), gradients, kept * stage.trained.total / stage.ranks, idle)


def complete_share(trained: HeldParams, choices: Choices, moment: Moment, again: Number) -> Number:
    """Share of the gradients that have been reduced at a moment; all of them where they stay from step to step."""
    if not from_torch(choices):
        return 1.0
    total = np.maximum(trained.total, 1.0)
    return np.where(np.asarray(again) * (not choices.no_sync), 1.0, _done(trained, moment) / total)


@dataclass(frozen=True)
class _Held:
    """What a stage holds, and among how many ranks."""

    params: HeldParams
    trained: HeldParams
    shards: Number
    choices: Choices

    @property
    def ranks(self) -> Number:
        """Ranks that share the optimizer's state."""
        return 1.0 if self.choices.sharding == "none" else self.shards

    @property
    def several(self) -> Number:
        """Whether (1) there are other ranks: for one alone no unit is whole beside its shard."""
        return np.where(np.asarray(self.shards) > 1.0, 1.0, 0.0)

    @property
    def full_weights(self) -> Number:
        """Weights where the master copy of those that are trained is the weight itself."""
        return MASTER_BYTES * self.trained.total + 2.0 * (self.params.total - self.trained.total)


def _sharded_state(stage: _Held) -> StateBytes:
    """Fully sharded: two units gathered (the current and the prefetched one), one unit's gradient whole."""
    choices, trained, shards = stage.choices, stage.trained.total, stage.ranks
    gathered = 2.0 * DTYPE_BYTES[choices.param_dtype] * stage.several * stage.params.unit
    whole = DTYPE_BYTES[choices.grad_dtype] * trained if choices.no_sync else 2.0 * stage.several * stage.trained.unit
    moments = UPDATES[choices.optimizer].moments_bytes * trained / shards
    return StateBytes(stage.full_weights / shards + gathered, MASTER_BYTES * trained / shards + whole, moments)


def _half_weights(params: HeldParams, choices: Choices) -> Number:
    """16-bit weights, and where products are narrower the copies that Transformer Engine keeps for them."""
    form = FORMATS[choices.precision]
    copied = form.narrow and choices.param_dtype != "fp8"
    return 2.0 * params.total + (NARROW_COPIES * form.operand_bytes * params.layers if copied else 0.0)


def _kept_gradients(stage: _Held, moment: Moment) -> tuple[Number, Number]:
    """Gradients that stay from step to step, and what the update needs for them besides.

    The fp32 copy of 16-bit gradients lives only in the update, when activations are gone. One flat copy of them, and
    the flat 16-bit gradient that it is made of, fit in nothing that activations leave (DeepSpeed, ``FP16_Optimizer``
    and ZeRO). Its ``BF16_Optimizer`` adds 16-bit gradients to flat fp32 ones and reduces a 16-bit copy of those.
    """
    choices, total, ranks = stage.choices, stage.trained.total, stage.ranks
    grad, flat, cut = DTYPE_BYTES[choices.grad_dtype], choices.flat_gradients, choices.sharding == "zero2"
    unit = stage.several * stage.trained.unit
    held = grad * total / ranks + grad * unit if cut and not choices.no_sync else grad * total
    if grad < MASTER_BYTES:
        update = (MASTER_BYTES + (grad if flat and not cut else 0.0)) * total / ranks
    else:
        update = 2.0 * total if flat and not cut else 0.0
        held = held + update  # the 16-bit gradients of the last backward
    if moment == "update":
        return held + update, 0.0
    return held, update if flat else 0.0


def _torch_state(stage: _Held, moment: Moment, again: Number) -> StateBytes:
    """State under PyTorch's own stacks."""
    choices, ranks = stage.choices, stage.ranks
    gradients, idle = _torch_gradients(stage, moment, again)
    moments = UPDATES[choices.optimizer].moments_bytes * stage.trained.total / ranks
    if choices.sharding in ("none", "zero1"):
        return StateBytes(stage.full_weights + _casts(stage.trained, choices, moment), gradients, moments, idle)
    gathered = stage.several * _gathered(stage.params, choices, moment)
    return StateBytes(stage.full_weights / ranks + gathered, gradients, moments, idle)


def _gathered(params: HeldParams, choices: Choices, moment: Moment) -> Number:
    """Whole units of weights, in the types that products read."""
    width = DTYPE_BYTES[choices.param_dtype]
    if choices.sharding == "zero2" and (choices.no_sync or moment in ("loss", "first", "second")):
        # Kept from forward on, until backward has passed.
        head = 2.0 * params.head if choices.no_sync or moment == "loss" else 0.0
        passed = width * params.unit if moment == "second" and not choices.no_sync else 0.0
        return 2.0 * params.table + head + np.maximum(0.0, width * params.layers - passed)
    # In backward a unit and the next one: of the last layer, and for the embedding, the other is a table.
    match moment:
        case "loss":
            return 2.0 * params.head + np.zeros_like(params.unit)
        case "first" | "second":
            return width * np.minimum(2.0 * params.unit, params.layers)
        case "last":
            return width * np.minimum(params.unit, params.layers) + 2.0 * params.table
        case _:
            return 2.0 * params.table


def _casts(params: HeldParams, choices: Choices, moment: Moment) -> Number:
    """16-bit copies that autocast makes; they outlive forward where backward needs them and layers do not run again."""
    if not autocast(choices):
        return 2.0 * params.total
    if FORMATS[choices.precision].narrow:
        return _half_weights(params, choices) - 2.0 * params.total
    if choices.recompute == "none" and moment in ("loss", "first", "second"):
        return 2.0 * (params.layers + params.head)
    match moment:
        case "loss":
            return 2.0 * params.head
        case "table":
            return 0.0 * params.unit
        case _:
            return 2.0 * params.unit


def _torch_gradients(stage: _Held, moment: Moment, again: Number) -> tuple[Number, Number]:
    """Gradients that a step makes and frees, and the pools of communication streams, which neither shrink nor lend."""
    choices, trained, several = stage.choices, stage.trained, stage.several
    grad, total = DTYPE_BYTES[choices.grad_dtype], trained.total
    done = complete_share(trained, choices, moment, again) * total
    if choices.sharding in ("none", "zero1"):
        # DistributedDataParallel reduces copies of the gradients, in buckets that stay.
        buckets = several * grad * total if choices.stack == "ddp" else 0.0
        return MASTER_BYTES * done + buckets, 0.0
    waiting = several * _exchanged(trained, grad, moment)
    if choices.no_sync:
        # Whole gradients of all layers wait for the last micro-batch, which reduces them one by one.
        waiting = np.where(again, grad * (total - done) + 2.0 * several * trained.unit, waiting)
    held, shard = MASTER_BYTES * done / stage.ranks, MASTER_BYTES * total / stage.ranks
    gathered = stage.params
    largest = np.maximum(np.maximum(gathered.table, gathered.head), 2.0 * gathered.unit)
    pools = 2.0 * several * largest if choices.stack == "fsdp2" else 0.0
    return held + waiting, shard - held + pools


def _done(params: HeldParams, moment: Moment) -> Number:
    """Parameters whose gradients are complete, of a step's first micro-batch."""
    match moment:
        case "first":
            return params.head
        case "second":
            return params.head + params.unit
        case "last":
            return params.head + np.maximum(0.0, params.layers - params.unit)
        case "table":
            return params.total
        case _:
            return 0.0 * params.total


def _exchanged(params: HeldParams, grad: float, moment: Moment) -> Number:
    """A unit's whole gradient, held while it is reduced until the next one's; the embedding's beside its 16-bit one."""
    match moment:
        case "first":
            return grad * params.head
        case "second" | "last":
            return grad * params.unit
        case "table":
            return (2.0 + grad) * params.table
        case _:
            return 0.0 * params.unit


def layer_activation_bytes(cost: OpsCost, part: Slice, hidden: int) -> FloatArray:
    """Bytes that one layer keeps for backward, per micro-batch in flight, without full recomputation."""
    kept = cost.saved_bytes
    if part.choices.recompute == "selective":
        if part.choices.stack == "megatron":
            kept = kept - cost.dropped_bytes
        else:
            kept = np.minimum(kept, checkpoint_bytes(part, hidden) + _kept_products(cost, part.choices))
    return np.asarray(kept)


def _kept_products(cost: OpsCost, choices: Choices) -> Number:
    """The first, third, fifth ... product and attention's; a compiler drops the last product, which nothing needs."""
    products = cost.product_bytes[:-1] if choices.compile else cost.product_bytes
    return sum(products[::2]) + cost.attention_output_bytes


def checkpoint_bytes(part: Slice, hidden: int) -> FloatArray:
    """Bytes of one layer's input, all that full recomputation keeps."""
    return residual_bytes(part.choices) * hidden * part.region_tokens("sequence")


def logits_bytes(part: Slice, head: Gemm) -> FloatArray:
    """Peak bytes of logits and loss on the last stage."""
    count = logits(part, head)
    if part.choices.fused_loss:
        return LOGIT_BYTES["fused"] * count
    cut = (part.tp > 1) & (head.shard == "column") & (part.choices.stack == "fsdp2")
    return np.where(cut, LOGIT_BYTES["vocabulary-parallel"], LOGIT_BYTES["written"]) * count


def idle_logits_bytes(part: Slice, head: Gemm) -> FloatArray:
    """Bytes of 16-bit logits, dead by the peak of a loss that is written out: a block too small for what follows."""
    return HALF_LOGIT_BYTES * logits(part, head) * (0.0 if part.choices.fused_loss else 1.0)
