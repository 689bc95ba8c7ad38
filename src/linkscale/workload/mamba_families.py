"""More hybrids and mixtures: state-space layers in every layer's first half, windows with heads of their own."""

from __future__ import annotations

import msgspec

from linkscale.workload.families import attention_bias, llama_like, rotary
from linkscale.workload.fields import Fields
from linkscale.workload.layout import Shape, attention, cut_by, dense, layout, named_layers, windows
from linkscale.workload.moe_families import deepseek_layers, routed
from linkscale.workload.parts import Dense, Mamba2, Mixer, Mlp


def mamba_of(f: Fields, hidden: int) -> Mamba2:
    """Return the Mamba-2 that fields with ``mamba_`` before their names describe (Bamba, Granite 4)."""
    heads = f.count("mamba_n_heads")
    automatic = f.data.get("mamba_d_head") == "auto"
    if automatic:
        f.ignore("mamba_d_head")
    dim = f.count_or(2, "mamba_expand") * hidden // heads if automatic else f.count("mamba_d_head")
    return Mamba2(
        heads=heads, head_dim=dim, groups=f.count_or(1, "mamba_n_groups"), state=f.count("mamba_d_state"),
        kernel=f.count_or(4, "mamba_d_conv"), chunk=f.count_or(256, "mamba_chunk_size"),
        conv_bias=f.flag("mamba_conv_bias", True), bias=f.flag("mamba_proj_bias", False),
    )  # fmt: skip


def bamba(f: Fields) -> Shape:
    """Bamba: Mamba-2, or attention of which half a head rotates, before a dense MLP."""
    shape = {**llama_like(f, grouped=True), **attention_bias(f), "mlp_bias": f.flag("mlp_bias", False)}
    shape["rotary_dim"] = rotary(f, shape["head_dim"], 0.5)
    full, layers = set(f.numbers("attn_layer_indices") or []), shape["layers"]
    net = mamba_of(f, shape["hidden"])
    f.ignore("mamba_expand")
    mixers: list[Mixer | None] = [attention(shape) if i in full else net for i in range(layers)]
    return {**shape, **layout(mixers, [dense(shape)] * layers)}


def granitemoehybrid(f: Fields) -> Shape:
    """Granite 4: Mamba-2 or attention, before a shared MLP and perhaps experts."""
    shape = {**llama_like(f, grouped=True), **attention_bias(f)}
    if f.text("position_embedding_type", "nope") != "rope":
        shape["positions"] = "none"
    layers, field = shape["layers"], "layers_block_type" if "layers_block_type" in f.data else "layer_types"
    known = {"mamba", "linear_attention", "attention", "full_attention"}
    kinds = named_layers(f, field, layers, lambda _: "mamba", known)
    net = mamba_of(f, shape["hidden"]) if {"mamba", "linear_attention"} & set(kinds) else None
    f.ignore("mamba_expand", "mamba_d_conv", "mamba_d_head", "mamba_d_state", "mamba_n_groups", "mamba_n_heads",
             "mamba_chunk_size", "mamba_conv_bias", "mamba_proj_bias", "layer_types", "layers_block_type")  # fmt: skip
    mixers: list[Mixer | None] = [net if kind in ("mamba", "linear_attention") else attention(shape) for kind in kinds]
    mlp = _granite_mlp(f)
    return {**shape, **cut_by(shape, mlp), **layout(mixers, [mlp] * layers)}


def granitemoeshared(f: Fields) -> Shape:
    """Granite-MoE with a shared MLP beside its experts."""
    shape = {**llama_like(f), **attention_bias(f)}
    mlp = _granite_mlp(f)
    return {**shape, **cut_by(shape, mlp), **layout([attention(shape)] * shape["layers"], [mlp] * shape["layers"])}


def _granite_mlp(f: Fields) -> Mlp:
    shared = f.number_or(0, "shared_intermediate_size")
    if not f.number_or(0, "num_local_experts"):
        f.ignore("num_experts_per_tok")
        return Dense(shared, gated=True)
    moe = routed(f, ("num_local_experts",), "intermediate_size")
    return msgspec.structs.replace(moe, shared=shared)


def mimo_v2_flash(f: Fields) -> Shape:
    """MiMo-V2-Flash: windows with sinks and twice the key-value heads in five layers of six, then experts."""
    shape = {**llama_like(f, grouped=True, head_dim=True), "qkv_bias": f.flag("attention_bias", False)}
    value, layers = f.count("v_head_dim"), shape["layers"]
    shape["rotary_dim"] = rotary(f, shape["head_dim"], 0.334)
    old = f.numbers("hybrid_layer_pattern")
    if old is not None and len(old) != layers:
        raise f.wrong("hybrid_layer_pattern", f"lists {len(old)} layers, but the model has {layers}")
    full = attention(shape, value_dim=value)
    near = msgspec.structs.replace(full, kv_heads=2 * shape["kv_heads"], sinks=True)
    _same_heads(f, near.kv_heads, full.heads, full.head_dim, value)
    per_layer = windows(f, layers, lambda i: _mimo_kind(i, old))
    f.ignore("sliding_window_size", "moe_layer_freq", "n_shared_experts", "attention_chunk_size")
    found = deepseek_layers(
        Fields({**f.data, "moe_layer_freq": None, "sliding_window": None}, f.where, f.prefix, f.used),
        shape, [msgspec.structs.replace(near, window=w) if w else full for w in per_layer], first=1,
    )  # fmt: skip
    return {**found, "kv_heads": shape["kv_heads"]}


def _mimo_kind(layer: int, old: list[int] | None) -> str:
    near = old[layer] == 1 if old is not None else layer != 0 and (layer + 1) % 6 != 0
    return "sliding_attention" if near else "full_attention"


def _same_heads(f: Fields, kv_heads: int, heads: int, dim: int, value: int) -> None:
    """Refuse heads of windows other than those that the family's class gives them."""
    for name, ours in (("swa_num_key_value_heads", kv_heads), ("swa_num_attention_heads", heads),
                       ("swa_head_dim", dim), ("swa_v_head_dim", value)):  # fmt: skip
        if f.count_or(ours, name) != ours:
            raise f.wrong(name, f"= {f.count(name)} is not understood; {ours} would be")


MAMBA_FAMILIES = {family.__name__: family for family in (bamba, granitemoehybrid, granitemoeshared, mimo_v2_flash)}
