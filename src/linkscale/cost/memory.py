"""Bytes on one GPU: weights, gradients and optimizer state by sharding; activations by recompute; the rest.

Sources: Rajbhandari et al. 2020 (ZeRO: what each stage shards); Korthikanti et al. 2022 (activations per layer:
``s*b*h*(34 + 5*a*s/h)`` bytes, and what sequence parallelism and recomputation leave of them).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linkscale.cost.kernels import FloatArray, Number
from linkscale.cost.layer import OpsCost, Slice
from linkscale.plan.strategy import DTYPE_BYTES, Choices

# CUDA context, libraries and NCCL's channel buffers; and the allocator's unused share of what it holds.
CONTEXT_BYTES = 1.5e9
FRAGMENTATION = 0.05


@dataclass(frozen=True)
class StateBytes:
    """Bytes of model state on one GPU."""

    weights: Number
    gradients: Number
    optimizer: Number


def state_bytes(params: Number, unit_params: Number, shards: Number, choices: Choices) -> StateBytes:
    """Bytes of ``params`` parameters held by a group of ``shards`` ranks.

    ``unit_params``: parameters of the largest unit gathered at once (one layer) where weights are sharded.
    Adam keeps two fp32 moments; mixed precision an fp32 master copy, which for fully sharded stacks *is* the
    weight, so that their weights count 4 bytes sharded plus the 16-bit units in flight.
    """
    grad = DTYPE_BYTES[choices.grad_dtype]
    match choices.sharding:
        case "none":
            return StateBytes(2.0 * params, grad * params, _adam(choices) * params)
        case "zero1":
            return StateBytes(2.0 * params, grad * params, _adam(choices) * params / shards)
        case "zero2":
            held = grad * params / shards + grad * unit_params
            return StateBytes(2.0 * params, held, _adam(choices) * params / shards)
        case "zero3" | "hsdp":
            # Two units gathered (the current and the prefetched one), one unit's gradient unsharded.
            weights = 4.0 * params / shards + 2.0 * 2.0 * unit_params
            whole = grad * params if choices.no_sync else 2.0 * unit_params
            return StateBytes(weights, 4.0 * params / shards + whole, 8.0 * params / shards)


def _adam(choices: Choices) -> float:
    """Bytes per parameter: fp32 master, two fp32 moments, and fp32 gradients where those kept are 16-bit."""
    return 12.0 + (4.0 if choices.grad_dtype != "fp32" and choices.stack == "megatron" else 0.0)


def layer_activation_bytes(cost: OpsCost, part: Slice, hidden: int) -> FloatArray:
    """Bytes that one layer keeps for backward, per micro-batch in flight, without full recomputation."""
    kept = cost.saved_bytes
    if part.choices.recompute == "selective":
        if part.choices.stack == "megatron":
            kept = kept - cost.attention_saved_bytes
        else:
            # Per-operation checkpointing keeps the input and every second product.
            kept = np.minimum(kept, checkpoint_bytes(part, hidden) + 0.5 * cost.gemm_output_bytes)
    return np.asarray(kept)


def checkpoint_bytes(part: Slice, hidden: int) -> FloatArray:
    """Bytes of one layer's input, all that full recomputation keeps."""
    return 2.0 * hidden * part.region_tokens("sequence")


def logits_bytes(part: Slice, vocab: int, shard_vocab: bool) -> FloatArray:
    """Peak bytes of logits and loss on the last stage: 16-bit logits, their fp32 copy and its gradient."""
    rows = vocab / part.tp if shard_vocab else np.full_like(part.tp, vocab)
    return part.tokens * rows * (2.0 + 4.0 + 4.0)
