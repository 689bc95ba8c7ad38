"""Megatron-LM arguments of experts, latent attention and further-token prediction → kinds of layers, and choices.

Source of flags and defaults: NVIDIA/Megatron-LM megatron/training/arguments.py. The ranks of latent attention have no
defaults here, since arguments.py and the model's own configuration disagree on them.
"""

from __future__ import annotations

import math
from typing import Any

from linkscale.base.errors import InputError
from linkscale.plan.layer_pattern import MOST, layer_pattern
from linkscale.plan.megatron_flags import Flags
from linkscale.plan.strategy import A2aOverlap, Dispatcher, ExpertGemm
from linkscale.workload.layout import Shape, attention, cut_by, dense, layout
from linkscale.workload.parts import LatentAttention, LayerKind, Mixer, Mlp, Moe

DISPATCHERS: dict[str, Dispatcher | None] = {"allgather": "allgather", "alltoall": "alltoall", "flex": None}
BACKENDS: dict[str, Dispatcher] = {"deepep": "deepep", "hybridep": "hybridep"}


def expert_choices(flags: Flags, tp: int) -> dict[str, Any]:
    """Return the fields of a strategy that speak of experts."""
    found: dict[str, Any] = {"ep": flags.whole("expert-model-parallel-size", 1)}
    if not flags.optional("num-experts"):
        return found
    dispatcher = flags.choice("moe-token-dispatcher-type", DISPATCHERS, "allgather")
    reached: dict[str, Any] = {
        "etp": flags.whole("expert-tensor-parallel-size", tp),
        "dispatcher": dispatcher or flags.choice("moe-flex-dispatcher-backend", BACKENDS, "deepep"),
        "a2a_overlap": _overlap(flags),
        "expert_gemm": _products(flags),
    }
    return found | reached


def _products(flags: Flags) -> ExpertGemm:
    """Fused operations need grouped products (arguments.py: --use-transformer-engine-op-fuser)."""
    if not flags.on("moe-grouped-gemm"):
        return "sequential"
    return "fused" if flags.on("use-transformer-engine-op-fuser") else "grouped"


def _overlap(flags: Flags) -> A2aOverlap:
    if flags.on("overlap-moe-expert-parallel-comm"):
        return "1f1b"
    return "shared-expert" if flags.on("moe-shared-expert-overlap") else "none"


def layers_by_kind(flags: Flags, shape: Shape) -> Shape:
    """Return a shape with its kinds of layers, unless all are dense with plain attention and none predicts further."""
    latent, modules = flags.on("multi-latent-attention"), flags.optional("mtp-num-layers")
    if not (latent or modules or flags.optional("num-experts")):
        return shape
    layers = shape["layers"]
    if layers > MOST:
        raise flags.wrong(flags.flags["num-layers"], f"layers of several kinds are listed, at most {MOST}")
    mixer: Mixer = attention(shape)
    if latent:
        mixer = _latent(flags, shape)
        shape = shape | {
            "kv_heads": mixer.heads, "head_dim": mixer.nope_dim + mixer.rope_dim, "rotary_dim": mixer.rope_dim,
            "qk_norm": "none",
        }  # fmt: skip
    mlps = _mlps(flags, shape)
    found = {**shape, **cut_by(shape, *dict.fromkeys(mlps)), **layout([mixer] * layers, mlps)}
    if modules:
        # A module is one more of the last layer.
        kind = LayerKind("prediction layer", mixer, mlps[-1])
        found |= {"prediction_modules": modules, "prediction_kinds": (kind,)}
    return found


def _latent(flags: Flags, shape: Shape) -> LatentAttention:
    if not flags.on("qk-layernorm"):
        flags.assumptions.append("norms of latent queries, keys and values are counted, which --qk-layernorm turns on")
    return LatentAttention(
        heads=shape["heads"], query_rank=flags.whole("q-lora-rank", 0), rank=flags.required("kv-lora-rank"),
        nope_dim=flags.required("qk-head-dim"), rope_dim=flags.required("qk-pos-emb-head-dim"),
        value_dim=flags.required("v-head-dim"), out_bias=shape["attention_out_bias"],
    )  # fmt: skip


def _mlps(flags: Flags, shape: Shape) -> list[Mlp]:
    """Return the MLP of every layer: experts where ``moe-layer-freq`` says, every layer by default."""
    plain, layers = dense(shape), shape["layers"]
    if not flags.optional("num-experts"):
        return [plain] * layers
    moe = _moe(flags, shape)
    return [moe if routed else plain for routed in _pattern(flags, layers)]


def _pattern(flags: Flags, layers: int) -> list[int]:
    name = "moe-layer-freq"
    text = "".join(flags.flags[name].values) if name in flags.flags else "1"
    if text.isdigit():
        every = flags.whole(name, 1)
        return [int(i % every == 0) for i in range(layers)]
    try:
        pattern = layer_pattern(text)
    except ValueError as error:
        right = "a number, or a list such as ([0]*3+[1]*58), would be"
        raise flags.wrong(flags.flags[name], f"{str(error)[:40]!r} is not understood; {right}") from None
    if len(pattern) != layers or set(pattern) - {0, 1}:
        raise flags.wrong(flags.flags[name], f"must list 0 or 1 for each of {layers} layers; it lists {len(pattern)}")
    return pattern


def _moe(flags: Flags, shape: Shape) -> Moe:
    experts, groups = flags.required("num-experts"), flags.whole("moe-router-num-groups", 1)
    top_k = flags.whole("moe-router-topk", 2)
    if top_k > experts or experts % groups:
        raise InputError(
            f"{flags.args.where}: {experts} experts do not divide by {groups} groups"
            if experts % groups else f"{flags.args.where}: --moe-router-topk is {top_k} of {experts} experts"
        )  # fmt: skip
    bias = shape["mlp_bias"]
    return Moe(
        experts=experts, top_k=top_k, hidden=flags.whole("moe-ffn-hidden-size", shape["ffn_hidden"]),
        gated=shape["gated_mlp"], bias=bias, shared=flags.whole("moe-shared-expert-intermediate-size", 0),
        shared_bias=bias, shared_gate=flags.on("moe-shared-expert-gate"), latent=flags.whole("moe-latent-size", 0),
        balance_bias=flags.on("moe-router-enable-expert-bias"), groups=groups,
        top_groups=min(groups, flags.whole("moe-router-group-topk", groups)), capacity=_capacity(flags),
    )  # fmt: skip


def _capacity(flags: Flags) -> float | None:
    name = "moe-expert-capacity-factor"
    if name not in flags.flags:
        return None
    text = flags.text(name)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise flags.wrong(flags.flags[name], f"{text[:40]!r} is no number")
    # Below zero, Megatron drops nothing.
    return value if value > 0.0 else None
