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
from linkscale.plan.strategy import DTYPE_BYTES, Choices
from linkscale.workload.ops import Gemm

# CUDA context and libraries; NCCL's buffers of one communicator (channels x peers x 4 MiB x protocols); and the
# allocator's unused share of what it holds.
CONTEXT_BYTES = 1.0e9
COMMUNICATOR_BYTES = 0.4e9
FRAGMENTATION = 0.05
# Bytes per logit at the peak: 16-bit logits and their gradient, the fp32 copy and its gradient; written out, the
# loss keeps the fp32 probabilities too.
LOGIT_BYTES = {"written": 16.0, "fused": 12.0}


@dataclass(frozen=True)
class StateBytes:
    """Bytes of model state on one GPU."""

    weights: Number
    gradients: Number
    optimizer: Number


def state_bytes(params: Number, unit_params: Number, shards: Number, choices: Choices) -> StateBytes:
    """Bytes of ``params`` parameters held by a group of ``shards`` ranks.

    ``unit_params``: parameters of the largest unit gathered at once (one layer) where weights are sharded.
    Mixed precision keeps an fp32 master copy beside the optimizer's moments; for fully sharded stacks the master *is*
    the weight, so that their weights count 4 bytes sharded plus the 16-bit units in flight.
    """
    grad, moments = DTYPE_BYTES[choices.grad_dtype], UPDATES[choices.optimizer].moments_bytes
    # An fp32 copy of 16-bit gradients lives only in the optimizer step, when activations are gone.
    kept = MASTER_BYTES + moments
    match choices.sharding:
        case "none":
            return StateBytes(2.0 * params, grad * params, kept * params)
        case "zero1":
            return StateBytes(2.0 * params, grad * params, kept * params / shards)
        case "zero2":
            held = grad * params if choices.no_sync else grad * params / shards + grad * unit_params
            return StateBytes(2.0 * params, held, kept * params / shards)
        case "zero3" | "hsdp":
            # Two units gathered (the current and the prefetched one), one unit's gradient unsharded.
            weights = 4.0 * params / shards + 2.0 * 2.0 * unit_params
            whole = grad * params if choices.no_sync else 2.0 * unit_params
            return StateBytes(weights, 4.0 * params / shards + whole, moments * params / shards)


def layer_activation_bytes(cost: OpsCost, part: Slice, hidden: int) -> FloatArray:
    """Bytes that one layer keeps for backward, per micro-batch in flight, without full recomputation."""
    kept = cost.saved_bytes
    if part.choices.recompute == "selective":
        if part.choices.stack == "megatron":
            kept = kept - cost.attention_saved_bytes
        else:
            # Per-operation checkpointing keeps the input, attention's output and every second product.
            products = 0.5 * cost.gemm_output_bytes + cost.attention_output_bytes
            kept = np.minimum(kept, checkpoint_bytes(part, hidden) + products)
    return np.asarray(kept)


def checkpoint_bytes(part: Slice, hidden: int) -> FloatArray:
    """Bytes of one layer's input, all that full recomputation keeps."""
    return 2.0 * hidden * part.region_tokens("sequence")


def logits_bytes(part: Slice, head: Gemm) -> FloatArray:
    """Peak bytes of logits and loss on the last stage; Megatron's loss works in place, others fuse when compiled."""
    fused = part.choices.compile or part.choices.stack == "megatron"
    return logits(part, head) * LOGIT_BYTES["fused" if fused else "written"]
