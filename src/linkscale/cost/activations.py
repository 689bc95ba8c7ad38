"""Activations of one layer alone: what the estimator's own functions say of one GPU that holds the whole layer."""

from __future__ import annotations

import numpy as np

from linkscale.cost.device import Device
from linkscale.cost.layer import Slice, ops_cost
from linkscale.cost.memory import checkpoint_bytes, layer_activation_bytes
from linkscale.plan.precision import FORMATS
from linkscale.plan.strategy import AttentionKernel, Choices, Recompute
from linkscale.profile.values import AttentionCurve
from linkscale.workload.ops import LayerGroup

# Bytes do not depend on rates: any will do.
_FLAT = AttentionCurve(
    seq=(1.0, 2.0), forward_causal_flops_per_s={"64": (1.0, 1.0)}, forward_full_flops_per_s={"64": (1.0, 1.0)},
    backward_ratio=1.0, source="unit rates",
)  # fmt: skip


def kept_bytes_per_token(
    group: LayerGroup, hidden: int, seq_len: int, recompute: Recompute, attention: AttentionKernel
) -> float:
    """Return the bytes per token that one 16-bit layer keeps for backward on one GPU, as Megatron-LM runs it.

    Nothing, the attention core (``selective``) or all but the layer's input (``full``) is computed again.
    Source: Korthikanti et al. 2022, section 4 and 5 (34 h + 5 a s bytes for a GPT layer with dropout).
    """
    choices = Choices(stack="megatron", precision="bf16", recompute=recompute, attention=attention)
    one, tokens = np.ones(1), np.full(1, float(seq_len))
    part = Slice(tp=one, micro_batch=one, queries=tokens, seq=float(seq_len), choices=choices)
    if recompute == "full":
        return float(checkpoint_bytes(part, hidden)[0]) / seq_len
    kept = layer_activation_bytes(ops_cost(group.ops, part, _unit_device(attention)), part, hidden)
    return float(kept[0]) / seq_len


def _unit_device(attention: AttentionKernel) -> Device:
    return Device(
        gemm_flops_per_s=1.0, half_flops_per_s=1.0, memory_bytes_per_s=1.0, sm_count=1.0, k_half=1.0,
        kernel_fixed_s=0.0, attention=_FLAT if attention == "flash" else None, op_launch_s=0.0,
        operand=FORMATS["bf16"], clock=1.0,
    )  # fmt: skip
