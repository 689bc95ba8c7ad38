"""Families with latent, compressed or linear attention, and hybrids: ``config.json`` → fields of an Architecture."""

from __future__ import annotations

import msgspec

from linkscale.workload.families import attention_bias, llama_like, rotary
from linkscale.workload.fields import Fields
from linkscale.workload.layout import Shape, attention, cut_by, dense, layout, named_layers
from linkscale.workload.moe_families import deepseek_layers, grouped, predicted, routed, sparse_steps
from linkscale.workload.parts import (
    CompressedAttention,
    DeltaNet,
    LatentAttention,
    LayerKind,
    Lightning,
    Mamba2,
    Mixer,
    Mlp,
    Moe,
    SelfAttention,
    SparseIndex,
)


def latent_shape(f: Fields, *, tied: bool = False, stated: bool = True) -> tuple[Shape, LatentAttention]:
    """Return the plain fields of a model with latent attention, and its attention.

    ``stated``: the class has a query rank of its own, so that a file must say which, or null.
    """
    if stated and "q_lora_rank" not in f.data:
        raise f.wrong("q_lora_rank", "is missing; state its features, or null for queries without a latent")
    heads = f.count("num_attention_heads")
    nope, rope = f.count("qk_nope_head_dim"), f.count("qk_rope_head_dim")
    bias = f.flag("attention_bias", False)
    mixer = LatentAttention(
        heads=heads, query_rank=f.number_or(0, "q_lora_rank"), rank=f.count("kv_lora_rank"), nope_dim=nope,
        rope_dim=rope, value_dim=f.count("v_head_dim"), bias=bias, out_bias=bias,
    )  # fmt: skip
    f.ignore("head_dim", "num_key_value_heads", "qk_head_dim")
    shape = {
        "vocab": f.count("vocab_size"), "hidden": f.count("hidden_size"), "layers": f.count("num_hidden_layers"),
        "heads": heads, "kv_heads": heads, "head_dim": nope + rope, "ffn_hidden": f.count("intermediate_size"),
        "gated_mlp": True, "activation": f.text("hidden_act", "silu"), "rotary_dim": rope,
        "tied_embeddings": f.flag("tie_word_embeddings", tied), "mlp_bias": f.flag("mlp_bias", False),
        "max_positions": f.count_or(0, "max_position_embeddings"),
    }  # fmt: skip
    return shape, mixer


def deepseek_v2(f: Fields) -> Shape:
    """DeepSeek-V2: latent attention, first layers dense, shared experts."""
    shape, mixer = latent_shape(f)
    return deepseek_layers(f, shape, [mixer] * shape["layers"], first=0)


def deepseek_v3(f: Fields) -> Shape:
    """DeepSeek-V3, R1 and Kimi-K2: latent attention, three layers dense, experts chosen by groups with a bias."""
    shape, mixer = latent_shape(f)
    return deepseek_layers(f, shape, [mixer] * shape["layers"], first=3)


def glm4_moe_lite(f: Fields) -> Shape:
    """GLM-4.7-Flash: DeepSeek-V3's layer, one layer dense."""
    shape, mixer = latent_shape(f)
    return deepseek_layers(f, shape, [mixer] * shape["layers"], first=1)


def deepseek_v32(f: Fields) -> Shape:
    """DeepSeek-V3.2: DeepSeek-V3 that attends to the keys an index selects."""
    shape, mixer = latent_shape(f)
    indexed = msgspec.structs.replace(mixer, index=_index(f))
    return deepseek_layers(f, shape, [indexed] * shape["layers"], first=3)


def glm_moe_dsa(f: Fields) -> Shape:
    """GLM-5: DeepSeek-V3.2's layer; some layers use the choice of an earlier layer's index."""
    shape, mixer = latent_shape(f)
    layers = shape["layers"]
    own, index = _own_index(f, layers), _index(f)
    mixers: list[Mixer | None] = [
        msgspec.structs.replace(mixer, index=msgspec.structs.replace(index, own=mine)) for mine in own
    ]
    found = deepseek_layers(f, shape, mixers, first=3)
    if found.get("prediction_kinds"):
        last = found["prediction_kinds"][0]
        whole = msgspec.structs.replace(mixer, index=index)
        found["prediction_kinds"] = (msgspec.structs.replace(last, mixer=whole),)
    return found


def _index(f: Fields) -> SparseIndex:
    return SparseIndex(heads=f.count("index_n_heads"), dim=f.count("index_head_dim"), selected=f.count("index_topk"))


def _own_index(f: Fields, layers: int) -> list[bool]:
    every, offset = f.count_or(1, "index_topk_freq"), f.number_or(2, "index_skip_topk_offset")
    pattern = f.data.get("index_topk_pattern")
    f.ignore("index_topk_pattern")
    stated = f.names("indexer_types")
    if stated is None and isinstance(pattern, str):
        stated = [{"F": "full", "S": "shared"}.get(letter, letter) for letter in pattern]
    kinds = stated or ["full" if max(i - offset + 1, 0) % every == 0 else "shared" for i in range(layers)]
    if len(kinds) != layers or set(kinds) - {"full", "shared"}:
        raise f.wrong("indexer_types", f"must list 'full' or 'shared' for each of {layers} layers")
    return [kind == "full" for kind in kinds]


COMPRESSED = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
"""What DeepSeek-V4's ratios are called in newer files."""


def deepseek_v4(f: Fields) -> Shape:
    """DeepSeek-V4: a window and compressed keys, some searched by an index; residual streams; all layers sparse."""
    heads, dim, layers = f.count("num_attention_heads"), f.count("head_dim"), f.count("num_hidden_layers")
    turned = f.count_or(int(dim * f.share("partial_rotary_factor", 0.125)), "qk_rope_head_dim")
    f.ignore("num_key_value_heads", "num_hash_layers", "mlp_layer_types")
    moe = routed(f, ("n_routed_experts", "num_local_experts"), "moe_intermediate_size")
    moe = msgspec.structs.replace(moe, shared=f.number_or(1, "n_shared_experts") * moe.hidden, balance_bias=True)
    base = CompressedAttention(
        heads=heads, head_dim=dim, rotary=turned, query_rank=f.count("q_lora_rank"), out_groups=f.count("o_groups"),
        out_rank=f.count("o_lora_rank"), window=f.count("sliding_window"),
    )  # fmt: skip
    mixers: list[Mixer | None] = [_v4_attention(f, base, kind) for kind in _v4_kinds(f, layers)]
    shape = {
        "vocab": f.count("vocab_size"), "hidden": f.count("hidden_size"), "heads": heads, "kv_heads": 1,
        "head_dim": dim, "gated_mlp": True, "activation": f.text("hidden_act", "silu"), "rotary_dim": turned,
        "ffn_hidden": moe.hidden, "tied_embeddings": f.flag("tie_word_embeddings", False),
        "max_positions": f.count_or(0, "max_position_embeddings"), "streams": f.count("hc_mult"),
    }  # fmt: skip
    modules = f.number_or(0, "num_nextn_predict_layers")
    note = "its prediction module is counted like DeepSeek-V3's, with a window and without compressed keys"
    return {**shape, **layout(mixers, [moe] * layers), **predicted(modules, base, moe, note)}


def _v4_kinds(f: Fields, layers: int) -> list[str]:
    stated, ratios = f.names("layer_types"), f.numbers("compress_ratios")
    if stated is None and ratios is not None:
        strange = sorted(set(ratios) - set(COMPRESSED))
        if strange:
            raise f.wrong("compress_ratios", f"holds {strange[0]}, which is not understood; known: 0, 4, 128")
        stated = [COMPRESSED[ratio] for ratio in ratios]
    if stated is None:
        raise f.wrong("layer_types", "is missing; state the kind of every layer, or compress_ratios")
    if len(stated) < layers or set(stated) - set(COMPRESSED.values()):
        raise f.wrong("layer_types", f"must list one of {sorted(COMPRESSED.values())} for each of {layers} layers")
    return stated[:layers]


def _v4_attention(f: Fields, base: CompressedAttention, kind: str) -> CompressedAttention:
    rates = f.part("compress_rates")
    match kind:
        case "compressed_sparse_attention":
            return msgspec.structs.replace(base, ratio=rates.count_or(4, kind), overlap=True, index=_index(f))
        case "heavily_compressed_attention":
            return msgspec.structs.replace(base, ratio=rates.count_or(128, kind))
        case _:
            return base


def qwen3_5_text(f: Fields) -> Shape:
    """Qwen3.5: three gated delta nets to one gated attention, a dense MLP."""
    shape = _qwen_hybrid_shape(f)
    layers, mlp = shape["layers"], dense(shape)
    mixers = _qwen_mixers(f, shape)
    return {**shape, **layout(mixers, [mlp] * layers), **_qwen_prediction(f, shape, mlp)}


def qwen3_5_moe_text(f: Fields) -> Shape:
    """Qwen3.5-MoE: Qwen3.5's mixers, experts beside a gated shared one in every layer."""
    shape = _qwen_hybrid_shape(f, dense_mlp=False)
    moe = _qwen_experts(f)
    mixers = _qwen_mixers(f, shape)
    return {
        **shape, **cut_by(shape, moe), **layout(mixers, [moe] * shape["layers"]), **_qwen_prediction(f, shape, moe),
    }  # fmt: skip


def qwen3_next(f: Fields) -> Shape:
    """Qwen3-Next: Qwen3.5-MoE's layer, with dense layers where the configuration says so."""
    shape = _qwen_hybrid_shape(f)
    moe = _qwen_experts(f)
    mlps = sparse_steps(f, shape["layers"], dense(shape), moe)
    return {
        **shape, **cut_by(shape, *mlps), **layout(_qwen_mixers(f, shape), mlps), **_qwen_prediction(f, shape, moe),
    }  # fmt: skip


def _qwen_hybrid_shape(f: Fields, *, dense_mlp: bool = True) -> Shape:
    shape = llama_like(f, grouped=True, head_dim=True, mlp=dense_mlp)
    shape = {**shape, **attention_bias(f), "qk_norm": "head"}
    shape["rotary_dim"] = rotary(f, shape["head_dim"], 0.25)
    if not f.flag("attn_output_gate", True):
        raise f.wrong("attn_output_gate", "= false is not understood; the family's attention is gated")
    return shape


def _qwen_experts(f: Fields) -> Moe:
    moe = routed(f, ("num_experts", "num_local_experts"), "moe_intermediate_size")
    return msgspec.structs.replace(moe, shared=f.count("shared_expert_intermediate_size"), shared_gate=True)


def _qwen_mixers(f: Fields, shape: Shape) -> list[Mixer | None]:
    every = f.count_or(4, "full_attention_interval")
    kinds = named_layers(
        f, "layer_types", shape["layers"], lambda i: "linear_attention" if (i + 1) % every else "full_attention",
        {"linear_attention", "full_attention"},
    )  # fmt: skip
    net = DeltaNet(
        key_heads=f.count("linear_num_key_heads"), value_heads=f.count("linear_num_value_heads"),
        key_dim=f.count("linear_key_head_dim"), value_dim=f.count("linear_value_head_dim"),
        kernel=f.count("linear_conv_kernel_dim"),
    )  # fmt: skip
    if net.value_heads % net.key_heads:
        raise f.wrong("linear_num_value_heads", f"= {net.value_heads} does not divide by {net.key_heads} key heads")
    return [net if kind == "linear_attention" else _gated(shape) for kind in kinds]


def _gated(shape: Shape) -> SelfAttention:
    return attention(shape, gate="feature")


def _qwen_prediction(f: Fields, shape: Shape, mlp: Mlp) -> Shape:
    f.ignore("mtp_use_dedicated_embeddings", "mlp_only_layers")
    return predicted(f.number_or(0, "mtp_num_hidden_layers"), _gated(shape), mlp)


def minimax(f: Fields) -> Shape:
    """MiniMax-01: lightning attention with full attention now and then, experts in every layer."""
    shape = llama_like(f, grouped=True)
    layers = shape["layers"]
    old = f.numbers("attn_type_list")
    kinds = named_layers(
        f, "layer_types", layers, lambda i: _minimax_kind(i, old), {"linear_attention", "full_attention"}
    )
    linear = Lightning(shape["heads"], shape["head_dim"], f.count_or(256, "block_size"))
    mixers = [linear if kind == "linear_attention" else attention(shape) for kind in kinds]
    moe = routed(f, ("num_local_experts", "num_experts"), "intermediate_size")
    if f.number_or(0, "shared_intermediate_size"):
        raise f.wrong("shared_intermediate_size", "beyond 0 is not understood; no published MiniMax has it")
    return {**shape, **layout(mixers, [moe] * layers)}


def _minimax_kind(layer: int, old: list[int] | None) -> str:
    full = old[layer] == 1 if old is not None and layer < len(old) else layer % 2 == 0
    return "full_attention" if full else "linear_attention"


def kimi_linear(f: Fields) -> Shape:
    """Kimi Linear: three Kimi delta nets to one latent attention without rotation, experts from the second layer on."""
    shape, mixer = latent_shape(f, stated=False)
    net, kinds = _kimi_delta(f, shape["layers"])
    shape["positions"] = "none"
    moe = routed(f, ("num_experts",), "moe_intermediate_size", top_k=_first(f, "num_experts_per_token"))
    shared = f.number_or(1, "num_shared_experts") * moe.hidden
    moe = msgspec.structs.replace(moe, shared=shared, balance_bias=True)
    f.ignore("num_expert_group", "topk_group", "use_grouped_topk", "moe_router_activation_func")
    dense_first = f.number_or(1, "first_k_dense_replace")
    sparse = f.names("mlp_layer_types") or ["dense" if i < dense_first else "sparse" for i in range(shape["layers"])]
    mlps: list[Mlp] = [moe if kind == "sparse" else dense(shape) for kind in sparse]
    mixers = [net if kind == "linear_attention" else mixer for kind in kinds]
    f.ignore("moe_layer_freq", "num_nextn_predict_layers")
    return {**shape, **cut_by(shape, *mlps), **layout(mixers, mlps)}


def _first(f: Fields, name: str) -> str:
    return name if name in f.data else "num_experts_per_tok"


def _kimi_delta(f: Fields, layers: int) -> tuple[DeltaNet, list[str]]:
    old = f.part("linear_attn_config")
    full = {i - 1 for i in old.numbers("full_attn_layers") or []}
    old.ignore("kda_layers")
    kinds = named_layers(
        f, "layer_types", layers,
        lambda i: "full_attention" if (i in full if full else i and i % 4 == 0) else "linear_attention",
        {"linear_attention", "full_attention"},
    )  # fmt: skip
    source, names = (old, ("num_heads", "head_dim", "short_conv_kernel_size")) if old.data else (
        f, ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"))  # fmt: skip
    heads, dim, kernel = (source.count(name) for name in names)
    return DeltaNet(heads, heads, dim, dim, kernel, channel_decay=True), kinds


NEMOTRON_LETTERS = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
NEMOTRON_WORDS = {"linear_attention": "mamba", "full_attention": "attention"}


def nemotron_h(f: Fields) -> Shape:
    """Nemotron-H and Nemotron 3: layers of one half each: Mamba-2, attention, an MLP, or experts."""
    kinds = _nemotron_kinds(f)
    shape = llama_like(f, grouped=True, head_dim=True, mlp="mlp" in kinds, layers=len(kinds))
    if f.flag("attention_bias", False):
        raise f.wrong("attention_bias", "= true is not understood; the family's attention has no biases")
    shape = {**shape, "gated_mlp": False, "activation": f.text("mlp_hidden_act", "relu2"),
             "mlp_bias": f.flag("mlp_bias", False), "positions": "none", "layers": len(kinds)}  # fmt: skip
    parts = _nemotron_parts(f, shape, {*kinds, *_nemotron_predicted(f)})
    found = layout(*zip(*(parts[kind] for kind in kinds), strict=True))
    moe = parts.get("moe", (None, None))[1]
    return {**shape, **cut_by(shape, *(mlp for _, mlp in parts.values() if mlp), moe), **found,
            **_nemotron_prediction(f, parts)}  # fmt: skip


def _nemotron_kinds(f: Fields) -> list[str]:
    pattern = f.text("hybrid_override_pattern", "")
    stated = f.names("layers_block_type") or f.names("layer_types")
    if pattern and not stated:
        stated = [NEMOTRON_LETTERS.get(letter, letter) for letter in pattern]
    if not stated:
        raise f.wrong("layers_block_type", "is missing; state the kind of every layer, or hybrid_override_pattern")
    return _nemotron_words(f, "layers_block_type" if not pattern else "hybrid_override_pattern", stated)


def _nemotron_words(f: Fields, field: str, kinds: list[str]) -> list[str]:
    words = [NEMOTRON_WORDS.get(kind, kind) for kind in kinds]
    strange = sorted(set(words) - set(NEMOTRON_LETTERS.values()))
    if strange:
        raise f.wrong(field, f"holds {strange[0]!r}, which is not understood; known: {sorted(NEMOTRON_LETTERS)}")
    return words


def _nemotron_parts(f: Fields, shape: Shape, kinds: set[str]) -> dict[str, tuple[Mixer | None, Mlp | None]]:
    """Return the mixer or MLP of every kind of layer that occurs."""
    if "moe" not in kinds:
        f.ignore("n_routed_experts", "n_shared_experts", "moe_intermediate_size", "num_experts_per_tok",
                 "moe_shared_expert_intermediate_size", "moe_latent_size")  # fmt: skip
    f.ignore("expand", "num_hidden_layers", "layer_types", "mamba_proj_bias")
    return {kind: _nemotron_part(f, shape, kind) for kind in sorted(kinds)}


def _nemotron_part(f: Fields, shape: Shape, kind: str) -> tuple[Mixer | None, Mlp | None]:
    match kind:
        case "mamba":
            return _nemotron_mamba(f), None
        case "attention":
            return attention(shape), None
        case "mlp":
            return None, dense(shape)
        case _:
            return None, _nemotron_experts(f)


def _nemotron_mamba(f: Fields) -> Mamba2:
    return Mamba2(
        heads=f.count("mamba_num_heads"), head_dim=f.count("mamba_head_dim"), groups=f.count("n_groups"),
        state=f.count("ssm_state_size"), kernel=f.count("conv_kernel"), chunk=f.count_or(128, "chunk_size"),
        conv_bias=f.flag("use_conv_bias", True), bias=f.flag("use_bias", False),
    )  # fmt: skip


def _nemotron_experts(f: Fields) -> Moe:
    moe = grouped(f, routed(f, ("n_routed_experts",), "moe_intermediate_size"))
    shared = f.count("moe_shared_expert_intermediate_size") if f.number_or(1, "n_shared_experts") else 0
    bias = f.flag("mlp_bias", False)
    return msgspec.structs.replace(
        moe, gated=False, shared=shared, shared_bias=bias, latent=f.number_or(0, "moe_latent_size"), latent_bias=bias,
        balance_bias=True,
    )  # fmt: skip


def _nemotron_predicted(f: Fields) -> list[str]:
    if not f.number_or(0, "num_nextn_predict_layers"):
        f.ignore("mtp_layers_block_type", "mtp_hybrid_override_pattern")
        return []
    letters = f.text("mtp_hybrid_override_pattern", "")
    stated = f.names("mtp_layers_block_type") or [NEMOTRON_LETTERS.get(c, c) for c in letters]
    return _nemotron_words(f, "mtp_layers_block_type", stated or ["attention", "moe"])


def _nemotron_prediction(f: Fields, parts: dict[str, tuple[Mixer | None, Mlp | None]]) -> Shape:
    kinds = _nemotron_predicted(f)
    modules = f.number_or(0, "num_nextn_predict_layers")
    if not modules:
        return {}
    return {
        "prediction_modules": modules,
        "prediction_kinds": tuple(LayerKind(f"prediction {kind}", *parts[kind]) for kind in kinds),
    }


HYBRID_FAMILIES = {
    "kimi_k2": deepseek_v3,
    **{
        family.__name__: family
        for family in (
            deepseek_v2, deepseek_v3, deepseek_v32, deepseek_v4, glm_moe_dsa, glm4_moe_lite, qwen3_5_text,
            qwen3_5_moe_text, qwen3_next, minimax, kimi_linear, nemotron_h,
        )
    },
}  # fmt: skip
