"""Dense families of recent years that vary Llama's layer: where it norms, rotates, looks and has biases."""

from __future__ import annotations

from linkscale.workload.families import attention_bias, cohere, llama_like, olmo2
from linkscale.workload.fields import Fields
from linkscale.workload.hybrid_families import latent_shape
from linkscale.workload.layout import Shape, attention, dense, layout, windows
from linkscale.workload.parts import SelfAttention


def _uniform(shape: Shape, mixers: list[SelfAttention]) -> Shape:
    return {**shape, **layout(mixers, [dense(shape)] * shape["layers"])}


def _windowed(f: Fields, shape: Shape, every: int, *, rotate_all: bool = True) -> Shape:
    """Return windows in all layers but every so-manieth, which may also be the one that does not rotate."""
    per_layer = windows(f, shape["layers"], lambda i: "sliding_attention" if (i + 1) % every else "full_attention")
    plain = attention(shape)
    still = plain.rotary if rotate_all else 0
    return _uniform(shape, [attention(shape, window=w, rotary=plain.rotary if w else still) for w in per_layer])


def cohere2(f: Fields) -> Shape:
    """Command R7B and A: Command R's layer with windows, and no rotation where attention is full."""
    every = f.count_or(4, "sliding_window_pattern")
    f.ignore("head_dim")
    return _windowed(f, cohere(f), every, rotate_all=False)


def olmo3(f: Fields) -> Shape:
    """OLMo 3: OLMo 2's layer with windows in three layers of four."""
    return _windowed(f, olmo2(f), 4)


def exaone4(f: Fields) -> Shape:
    """EXAONE 4: norms on what each half returns and on every query and key head, often windows."""
    shape = {**llama_like(f), "norm_at": "output", "qk_norm": "head"}
    pattern = f.data.get("sliding_window_pattern")
    f.ignore("sliding_window_pattern")
    if isinstance(pattern, str):  # as 'LLLG': the last letter's layer is full
        pattern = len(pattern)
    if not f.count_or(0, "sliding_window"):
        f.ignore("layer_types")
        return _uniform(shape, [attention(shape)] * shape["layers"])
    return _windowed(f, shape, pattern if isinstance(pattern, int) and pattern > 0 else 4, rotate_all=False)


def smollm3(f: Fields) -> Shape:
    """SmolLM3: Llama's layer, of which every fourth does not rotate."""
    if f.flag("use_sliding_window", False):
        raise f.wrong("use_sliding_window", "= true is not understood yet; no published SmolLM3 has windows")
    f.ignore("sliding_window", "layer_types", "max_window_layers")
    shape = {**llama_like(f, tied=True, grouped=True), **attention_bias(f), "mlp_bias": f.flag("mlp_bias", False)}
    every, layers = f.count_or(4, "no_rope_layer_interval"), shape["layers"]
    rotates = f.numbers("no_rope_layers") or [int((i + 1) % every != 0) for i in range(layers)]
    if len(rotates) != layers:
        raise f.wrong("no_rope_layers", f"lists {len(rotates)} layers, but the model has {layers}")
    return _uniform(shape, [attention(shape, **({} if on else {"rotary": 0})) for on in rotates])


def seed_oss(f: Fields) -> Shape:
    """Seed-OSS: biases on query, key and value, perhaps on the output."""
    shape = {**llama_like(f, grouped=True, head_dim=True), "qkv_bias": f.flag("attention_bias", True)}
    return {
        **shape, "attention_out_bias": f.flag("attention_out_bias", False), "mlp_bias": f.flag("mlp_bias", False),
        "dropout": f.share("residual_dropout", 0.1) > 0,
    }  # fmt: skip


def ernie4_5(f: Fields) -> Shape:
    """ERNIE 4.5, dense: Llama's layer, biases everywhere or nowhere."""
    bias = f.flag("use_bias", False)
    shape = llama_like(f, tied=True, grouped=True, head_dim=True)
    return {**shape, "qkv_bias": bias, "attention_out_bias": bias, "mlp_bias": bias}


def hunyuan_v1_dense(f: Fields) -> Shape:
    """Hunyuan, dense: norms on every query and key head."""
    return {**llama_like(f), **attention_bias(f), "qk_norm": "head"}


def arcee(f: Fields) -> Shape:
    """AFM: Llama's layer with a squared ReLU without a gate."""
    return {
        **llama_like(f), **attention_bias(f), "gated_mlp": False, "mlp_bias": f.flag("mlp_bias", False),
        "activation": f.text("hidden_act", "relu2"),
    }  # fmt: skip


def minicpm3(f: Fields) -> Shape:
    """MiniCPM3: latent attention before a dense MLP."""
    shape, mixer = latent_shape(f, tied=True)
    return {**shape, **layout([mixer] * shape["layers"], [dense(shape)] * shape["layers"])}


RECENT_FAMILIES = {
    family.__name__: family
    for family in (cohere2, olmo3, exaone4, smollm3, seed_oss, ernie4_5, hunyuan_v1_dense, arcee, minicpm3)
}
