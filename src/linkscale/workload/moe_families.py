"""Families of mixtures of experts with attention over heads: ``config.json`` fields → the fields of an Architecture.

The rules of :mod:`linkscale.workload.families` hold: a field left out takes its class's value, or is required.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from linkscale.workload.families import attention_bias, gpt_like, llama_like, rotary
from linkscale.workload.fields import Fields
from linkscale.workload.layout import Shape, attention, cut_by, dense, layout, windows
from linkscale.workload.parts import Dense, LayerKind, Mixer, Mlp, Moe, SelfAttention


def uniform(shape: Shape, moe: Moe) -> Shape:
    """Return a shape of which every layer is the same attention and the same experts."""
    layers = shape["layers"]
    return {**shape, **cut_by(shape, moe), **layout([attention(shape)] * layers, [moe] * layers)}


def routed(f: Fields, experts: tuple[str, ...], hidden: str, *, top_k: str = "num_experts_per_tok") -> Moe:
    """Return the experts that fields of these names describe."""
    count = f.count(*experts)
    chosen = f.count(top_k)
    if chosen > count:
        raise f.wrong(top_k, f"= {chosen}, but there are {count} experts")
    return Moe(experts=count, top_k=chosen, hidden=f.count(hidden))


def grouped(f: Fields, moe: Moe) -> Moe:
    """Add DeepSeek's routing limited to groups of experts, which lie on nodes."""
    groups = f.number_or(1, "n_group") or 1
    if moe.experts % groups:
        raise f.wrong("n_group", f"= {groups} does not divide {moe.experts} experts")
    limited = f.number_or(groups, "topk_group") or groups
    return msgspec.structs.replace(moe, groups=groups, top_groups=min(groups, limited))


def first_dense(f: Fields, layers: int, plain: Dense, moe: Moe, default: int) -> list[Mlp]:
    """Return the MLP of every layer: the first ones dense, or as ``mlp_layer_types`` lists them."""
    kinds = f.names("mlp_layer_types")
    first = f.number_or(default, "first_k_dense_replace")
    if kinds is None:
        kinds = ["dense" if i < first else "sparse" for i in range(layers)]
    if len(kinds) != layers or set(kinds) - {"dense", "sparse"}:
        raise f.wrong("mlp_layer_types", f"must list 'dense' or 'sparse' for each of {layers} layers")
    if f.number_or(1, "moe_layer_freq") > 1:
        raise f.wrong("moe_layer_freq", "beyond 1 is not understood; mlp_layer_types would be")
    return [plain if kind == "dense" else moe for kind in kinds]


def predicted(modules: int, mixer: Mixer | None, mlp: Mlp | None, note: str = "") -> Shape:
    """Return modules that predict further tokens, each one layer of a kind."""
    if not modules:
        return {}
    kind = LayerKind("prediction layer", mixer, mlp)
    return {"prediction_kinds": (kind,), "prediction_modules": modules, "notes": (note,) if note else ()}


def mixtral(f: Fields) -> Shape:
    """Mixtral: Mistral's layer with experts."""
    shape = llama_like(f, grouped=True)
    moe = routed(f, ("num_local_experts", "num_experts"), "intermediate_size")
    per_layer = windows(f, shape["layers"], lambda _: "sliding_attention")
    return {**shape, **layout([attention(shape, window=w) for w in per_layer], [moe] * shape["layers"])}


def qwen2_moe(f: Fields) -> Shape:
    """Qwen2-MoE: biases on query, key and value, a gated shared expert."""
    return _qwen_moe(f, {**llama_like(f, grouped=True), "qkv_bias": f.flag("qkv_bias", True)}, shared=True)


def qwen3_moe(f: Fields) -> Shape:
    """Qwen3-MoE: Qwen3's layer with experts, all of them routed."""
    shape = {**llama_like(f, grouped=True, head_dim=True), **attention_bias(f), "qk_norm": "head"}
    return _qwen_moe(f, shape, shared=False)


def _qwen_moe(f: Fields, shape: Shape, *, shared: bool) -> Shape:
    moe = routed(f, ("num_experts", "num_local_experts"), "moe_intermediate_size")
    if shared:
        moe = msgspec.structs.replace(moe, shared=f.count("shared_expert_intermediate_size"), shared_gate=True)
    layers = shape["layers"]
    mlps = sparse_steps(f, layers, dense(shape), moe)
    window = f.count_or(0, "sliding_window") if f.flag("use_sliding_window", False) else 0
    first = f.number_or(layers, "max_window_layers")
    mixers = [attention(shape, window=window if window and i >= first else None) for i in range(layers)]
    return {**shape, **cut_by(shape, *mlps), **layout(mixers, mlps)}


def sparse_steps(f: Fields, layers: int, plain: Dense, moe: Moe) -> list[Mlp]:
    """Return the MLP of every layer: experts in every ``decoder_sparse_step``-th, but for ``mlp_only_layers``."""
    step = f.count_or(1, "decoder_sparse_step")
    only = set(f.numbers("mlp_only_layers") or [])
    return [moe if i not in only and (i + 1) % step == 0 else plain for i in range(layers)]


def olmoe(f: Fields) -> Shape:
    """OLMoE: norms over all query and key features, experts."""
    shape = {**llama_like(f), **attention_bias(f), "qk_norm": "full"}
    return uniform(shape, routed(f, ("num_experts", "num_local_experts"), "intermediate_size"))


def phimoe(f: Fields) -> Shape:
    """Phi-3.5-MoE: layer norms with biases, experts, often a window."""
    shape = {**llama_like(f, grouped=True), **attention_bias(f), "norm": "layernorm", "norm_bias": True}
    shape["lm_head_bias"] = f.flag("lm_head_bias", False)
    moe = routed(f, ("num_local_experts", "num_experts"), "intermediate_size")
    window = f.count_or(0, "sliding_window") or None
    return {**shape, **layout([attention(shape, window=window)] * shape["layers"], [moe] * shape["layers"])}


def granitemoe(f: Fields) -> Shape:
    """Granite-MoE: Granite's layer with experts."""
    shape = {**llama_like(f), **attention_bias(f)}
    return uniform(shape, routed(f, ("num_local_experts", "num_experts"), "intermediate_size"))


def gpt_oss(f: Fields) -> Shape:
    """GPT-OSS: biases everywhere, sinks, every other layer with a window, experts with biases."""
    if "sliding_window" not in f.data:
        raise f.wrong("sliding_window", "is missing; state its tokens, or null for none")
    shape = {**llama_like(f, grouped=True, head_dim=True), **attention_bias(f, True)}
    moe = routed(f, ("num_local_experts", "num_experts"), "intermediate_size")
    moe = msgspec.structs.replace(moe, bias=True, router_bias=True)
    f.ignore("experts_per_token")
    per_layer = windows(f, shape["layers"], lambda i: "full_attention" if i % 2 else "sliding_attention")
    mixers = [attention(shape, window=w, sinks=True) for w in per_layer]
    return {**shape, **layout(mixers, [moe] * shape["layers"])}


def llama4_text(f: Fields) -> Shape:
    """Llama 4: three layers of four attend within chunks and rotate, experts beside a shared one in some or all."""
    shape = {**llama_like(f, grouped=True, head_dim=True), **attention_bias(f)}
    layers, hidden = shape["layers"], shape["ffn_hidden"]
    moe = msgspec.structs.replace(
        routed(f, ("num_local_experts", "num_experts"), "intermediate_size"), shared=hidden, shared_bias=False
    )
    sparse = f.numbers("moe_layers")
    step = f.count_or(1, "interleave_moe_layer_step")
    plain = Dense(f.count_or(hidden, "intermediate_size_mlp"), gated=True)
    mlps: list[Mlp] = [moe if (i in sparse if sparse is not None else (i + 1) % step == 0) else plain
                       for i in range(layers)]  # fmt: skip
    return {**shape, **cut_by(shape, *mlps), **layout(_llama4_attention(f, shape), mlps)}


def _llama4_attention(f: Fields, shape: Shape) -> list[SelfAttention]:
    layers = shape["layers"]
    every = f.count_or(4, "no_rope_layer_interval")
    rotates = f.numbers("no_rope_layers") or [int((i + 1) % every != 0) for i in range(layers)]
    chunk = f.count_or(0, "attention_chunk_size") or None
    norm = "head" if f.flag("use_qk_norm", True) else "none"
    if len(rotates) != layers:
        raise f.wrong("no_rope_layers", f"lists {len(rotates)} layers, but the model has {layers}")
    kinds = f.names("layer_types") or ["chunked_attention" if on and chunk else "full_attention" for on in rotates]
    if len(kinds) != layers or set(kinds) - {"chunked_attention", "full_attention"}:
        raise f.wrong("layer_types", f"must list 'chunked_attention' or 'full_attention' for each of {layers} layers")
    return [
        attention(
            shape, chunk=chunk if kind == "chunked_attention" else None, rotary=shape["head_dim"] if on else 0,
            qk_norm=norm if on else "none", qk_norm_weight=False,
        )
        for kind, on in zip(kinds, rotates, strict=True)
    ]  # fmt: skip


def minimax_m2(f: Fields) -> Shape:
    """MiniMax-M2: norms over all query and key features, part of a head rotates, experts chosen with a bias."""
    shape = {**llama_like(f, grouped=True, head_dim=True), "qk_norm": "full"}
    shape["rotary_dim"] = f.count_or(shape["head_dim"], "rotary_dim")
    if not f.flag("use_qk_norm", True):
        raise f.wrong("use_qk_norm", "= false is not understood; MiniMax-M2 norms queries and keys")
    if f.number_or(0, "shared_intermediate_size"):
        raise f.wrong("shared_intermediate_size", "beyond 0 is not understood; no published MiniMax-M2 has it")
    moe = routed(f, ("num_local_experts", "num_experts"), "intermediate_size")
    moe = msgspec.structs.replace(moe, balance_bias=f.flag("use_routing_bias", True))
    modules = f.number_or(0, "num_mtp_modules") if f.flag("use_mtp", False) else 0
    f.ignore("mtp_transformer_layers")
    found = uniform(shape, moe)
    note = "its prediction modules are counted like DeepSeek-V3's: the configuration states their number only"
    return {**found, **predicted(modules, attention(shape), moe, note)}


def glm4_moe(f: Fields) -> Shape:
    """GLM-4.5: first layers dense, shared experts, half of each head rotates."""
    shape = {**llama_like(f, grouped=True), "qkv_bias": f.flag("attention_bias", False)}
    shape["qk_norm"] = "head" if f.flag("use_qk_norm", False) else "none"
    shape["rotary_dim"] = rotary(f, shape["head_dim"], 0.5)
    return deepseek_layers(f, shape, [attention(shape)] * shape["layers"], first=1)


def dots1(f: Fields) -> Shape:
    """dots.llm1: first layers dense, shared experts, norms on every query and key head."""
    shape = {**llama_like(f, grouped=True), **attention_bias(f), "qk_norm": "head"}
    per_layer = windows(f, shape["layers"], lambda _: "full_attention")
    return deepseek_layers(f, shape, [attention(shape, window=w) for w in per_layer], first=0)


def deepseek_layers(f: Fields, shape: Shape, mixers: Sequence[Mixer | None], first: int) -> Shape:
    """Return layers with DeepSeek's experts: shared ones, routing by groups, a balancing bias, the first dense."""
    moe = grouped(f, routed(f, ("n_routed_experts", "num_experts", "num_local_experts"), "moe_intermediate_size"))
    shared = f.number_or(0, "n_shared_experts") * moe.hidden
    moe = msgspec.structs.replace(moe, shared=shared, balance_bias=f.text("topk_method", "") == "noaux_tc")
    mlps = first_dense(f, shape["layers"], dense(shape), moe, first)
    modules = f.number_or(0, "num_nextn_predict_layers")
    return {
        **shape, **cut_by(shape, *mlps), **layout(mixers, mlps),
        **predicted(modules, mixers[-1], moe),
    }  # fmt: skip


def ernie4_5_moe(f: Fields) -> Shape:
    """ERNIE 4.5: experts from one layer on, shared ones beside, a balancing bias that counts as a parameter."""
    shape = llama_like(f, tied=True, grouped=True)
    bias = f.flag("use_bias", False)
    shape.update(qkv_bias=bias, attention_out_bias=bias, mlp_bias=bias)
    moe = routed(f, ("moe_num_experts",), "moe_intermediate_size", top_k="moe_k")
    shared = f.number_or(0, "moe_num_shared_experts") * moe.hidden
    moe = msgspec.structs.replace(moe, shared=shared, shared_bias=bias, router_bias=True)
    layers = shape["layers"]
    start, step = f.number_or(1, "moe_layer_start_index"), f.count_or(1, "moe_layer_interval")
    last = f.data.get("moe_layer_end_index", -1)
    f.ignore("moe_layer_end_index")
    end = layers - 1 if last in (-1, None) else last
    mlps: list[Mlp] = [moe if (i + 1) % step == 0 and start <= i <= end else dense(shape) for i in range(layers)]
    return {**shape, **cut_by(shape, *mlps), **layout([attention(shape)] * layers, mlps)}


def hunyuan_v1_moe(f: Fields) -> Shape:
    """Hunyuan: norms on every query and key head, experts beside a shared one."""
    shape = {**llama_like(f), **attention_bias(f), "qk_norm": "head"}
    for name in ("num_experts", "moe_topk"):
        if isinstance(f.data.get(name), list):
            raise f.wrong(name, "by layer is not understood yet; one number for all would be")
    f.ignore("moe_layer_num_skipped")
    moe = routed(f, ("num_experts", "num_local_experts"), "intermediate_size", top_k="moe_topk")
    return uniform(shape, msgspec.structs.replace(moe, shared=shape["ffn_hidden"]))


def dbrx(f: Fields) -> Shape:
    """DBRX: layer norms without biases, wide attention, experts."""
    ffn, heads = f.part("ffn_config"), f.part("attn_config")
    shape = gpt_like(f, tied=False, bias=False)
    shape.update(norm_bias=False, kv_heads=heads.count("kv_n_heads"), gated_mlp=True, activation="silu")
    shape["ffn_hidden"] = ffn.count("ffn_hidden_size")
    return uniform(shape, routed(ffn, ("moe_num_experts",), "ffn_hidden_size", top_k="moe_top_k"))


def grok(f: Fields) -> Shape:
    """Grok-1: norms before and after each half, experts with a gated GELU, tied embedding.

    Source: github.com/xai-org/grok-1, run.py and model.py.
    """
    shape = llama_like(f, grouped=True, tied=True)
    shape.update(norm_at="both", activation="gelu")
    moe = routed(f, ("num_experts", "num_local_experts"), "intermediate_size", top_k=_top_k_name(f))
    return uniform(shape, moe)


def _top_k_name(f: Fields) -> str:
    return "num_selected_experts" if "num_selected_experts" in f.data else "num_experts_per_tok"


MOE_FAMILIES = {
    "grok-1": grok,
    **{
        family.__name__: family
        for family in (
            mixtral, qwen2_moe, qwen3_moe, olmoe, phimoe, granitemoe, gpt_oss, llama4_text, minimax_m2, glm4_moe, dots1,
            ernie4_5_moe, hunyuan_v1_moe, dbrx,
        )
    },
}  # fmt: skip
