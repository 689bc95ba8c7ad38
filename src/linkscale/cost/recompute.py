"""Recomputation of single modules: what of a layer's forward is repeated, and what backward need not find kept.

As Megatron-LM's --recompute-modules (core/transformer/transformer_config.py): ``core_attn`` the attention core;
``layernorm`` the norms before attention and MLP; ``mla_up_proj`` norms, products and rotation that unfold latent
queries, keys and values; ``moe_act`` the activation of routed experts; ``mlp`` that of dense layers, ``moe`` router,
experts and exchange, ``shared_experts`` the experts that every token passes. The first four drop what they return, the
others keep their input alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from linkscale.workload.ops import Gemm, Norm, Op, Router, module_of

if TYPE_CHECKING:
    from linkscale.cost.device import Device
    from linkscale.cost.kernels import Number
    from linkscale.cost.layer import OpsCost, Slice


def repeats(op: Op, chosen: frozenset[str]) -> bool:
    """Whether an operation is computed again as one of its module."""
    module = module_of(op)
    inside = "moe" if module == "shared_experts" else module
    return module != "core_attn" and (module in chosen or inside in chosen)


def dropped_bytes(op: Op, saved: Number, part: Slice, dev: Device) -> Number:
    """Bytes that an operation which is computed again no longer keeps; ``saved``: what it kept otherwise."""
    match op:
        case Norm(module="layernorm") if op.trained:  # behind a frozen one nobody keeps it, but for adapters
            return dev.operand.operand_bytes * op.size * part.region_tokens(op.region)
        case Norm():
            return 0.0
        case Gemm(shard="column") if op.module != "mla_up_proj":
            return 0.0
        case Router() if op.saves_input:
            return saved - 2.0 * op.k * part.region_tokens("sequence")
        case _:
            return saved


def add_cores(total: OpsCost, chosen: frozenset[str]) -> None:
    """Add what is repeated of the attention core and of the activation of experts, and what they need not find kept."""
    if "core_attn" in chosen:
        total.repeated_s += total.attention_forward_s
        total.dropped_bytes += total.attention_saved_bytes
    if "mla_up_proj" in chosen and total.unfolded:
        total.dropped_bytes += total.attention_input_bytes
    if "moe_act" in chosen and "moe" not in chosen:
        total.repeated_s += total.activation_s
        total.dropped_bytes += total.activation_bytes
