"""Bytes on one GPU: weights, gradients and optimizer state by sharding; activations by recompute; the rest.

Sources: Rajbhandari et al. 2020 (ZeRO: what each stage shards); Korthikanti et al. 2022 (activations per layer:
``s*b*h*(34 + 5*a*s/h)`` bytes, and what sequence parallelism and recomputation leave of them).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linkscale.cost.kernels import FloatArray, Number
from linkscale.cost.layer import OpsCost, Slice, logits
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
# Bytes per logit at the peak: 16-bit logits and their gradient, the fp32 copy and its gradient; written out, the
# loss keeps the fp32 probabilities too. (What the loss moves, not keeps, is estimate.units.LOSS_BYTES.)
LOGIT_BYTES = {"kept": 16.0, "in_place": 12.0}


@dataclass(frozen=True)
class StateBytes:
    """Bytes of model state on one GPU."""

    weights: Number
    gradients: Number
    optimizer: Number


def state_bytes(
    layers: Number, edges: Number, unit: Number, shards: Number, choices: Choices, *, frozen: Number = 0.0,
    frozen_unit: Number = 0.0,
) -> StateBytes:  # fmt: skip
    """Bytes of a stage's parameters, held by a group of ``shards`` ranks.

    ``layers``, ``edges``: parameters of its layers and of its tables; ``unit``: of the largest unit gathered at once
    (one layer) where weights are sharded. Mixed precision keeps an fp32 master copy beside the optimizer's moments;
    for fully sharded stacks the master *is* the weight, so that their weights count 4 bytes sharded plus the units in
    flight. Of ``frozen`` parameters among these (``frozen_unit`` of a unit) there are 16-bit weights alone.
    """
    params = layers + edges
    # One rank alone gathers and scatters nothing: no unit is whole beside its shard.
    unit, frozen_unit = (np.where(np.asarray(shards) > 1.0, count, 0.0) for count in (unit, frozen_unit))
    trained, trained_unit = params - frozen, unit - frozen_unit
    grad, param = DTYPE_BYTES[choices.grad_dtype], DTYPE_BYTES[choices.param_dtype]
    form = FORMATS[choices.precision]
    copied = form.narrow and choices.param_dtype != "fp8"
    weights = 2.0 * params + (NARROW_COPIES * form.operand_bytes * layers if copied else 0.0)
    # An fp32 copy of 16-bit gradients lives only in the optimizer step, when activations are gone.
    moments = UPDATES[choices.optimizer].moments_bytes
    kept = MASTER_BYTES + moments
    match choices.sharding:
        case "none":
            return StateBytes(weights, grad * trained, kept * trained)
        case "zero1":
            return StateBytes(weights, grad * trained, kept * trained / shards)
        case "zero2":
            held = grad * trained if choices.no_sync else grad * trained / shards + grad * trained_unit
            return StateBytes(weights, held, kept * trained / shards)
        case "zero3" | "hsdp":
            # Two units gathered (the current and the prefetched one), one unit's gradient unsharded.
            gathered = (4.0 * trained + 2.0 * frozen) / shards + 2.0 * param * unit
            whole = grad * trained if choices.no_sync else 2.0 * trained_unit
            return StateBytes(gathered, 4.0 * trained / shards + whole, moments * trained / shards)


def layer_activation_bytes(cost: OpsCost, part: Slice, hidden: int) -> FloatArray:
    """Bytes that one layer keeps for backward, per micro-batch in flight, without full recomputation."""
    kept = cost.saved_bytes
    if part.choices.recompute == "selective":
        if part.choices.stack == "megatron":
            kept = kept - cost.dropped_bytes
        else:
            # The input, attention's output and the products that are not repeated stay.
            products = (1.0 - REPEATED_PRODUCTS) * cost.gemm_output_bytes + cost.attention_output_bytes
            kept = np.minimum(kept, checkpoint_bytes(part, hidden) + products)
    return np.asarray(kept)


def checkpoint_bytes(part: Slice, hidden: int) -> FloatArray:
    """Bytes of one layer's input, all that full recomputation keeps."""
    return 2.0 * hidden * part.region_tokens("sequence")


def logits_bytes(part: Slice, head: Gemm) -> FloatArray:
    """Peak bytes of logits and loss on the last stage; Megatron's loss works in place, others fuse when compiled."""
    in_place = part.choices.compile or part.choices.stack == "megatron"
    return logits(part, head) * LOGIT_BYTES["in_place" if in_place else "kept"]
