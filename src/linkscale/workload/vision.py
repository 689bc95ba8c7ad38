"""Vision towers: the encoders of images that some configurations carry beside their text model, as operations.

A tower's tokens are patches of images: their number depends on the data, so that a tower is counted here and not in
the FLOPs of a token of text. Parameters are compared with the real classes (tests/workload).
"""

from __future__ import annotations

from collections.abc import Callable

from linkscale.workload.architecture import NormKind
from linkscale.workload.fields import Fields
from linkscale.workload.ops import Attention, Elementwise, Embedding, Gemm, LayerGroup, Norm, Op
from linkscale.workload.parts import Tower


def _block(hidden: int, heads: int, ffn: int, *, bias: bool = True, gated: bool = False, norm: NormKind = "layernorm",
           qkv_bias: bool = True) -> tuple[Op, ...]:  # fmt: skip
    """One encoder layer: every patch meets every other."""
    dim, wide, affine = hidden // heads, ffn * (2 if gated else 1), norm == "layernorm"
    return (
        Norm(name="attention norm", kind=norm, size=hidden, region="sequence", bias=affine),
        Gemm(name="qkv", n=3 * hidden, k=hidden, shard="column", bias=qkv_bias),
        Attention(heads=heads, kv_heads=heads, qk_dim=dim, v_dim=dim, causal=False),
        Gemm(name="attention output", n=hidden, k=hidden, shard="row", bias=bias),
        Elementwise(name="attention add", reads=2 * hidden, writes=hidden, saves=0, region="sequence"),
        Norm(name="mlp norm", kind=norm, size=hidden, region="sequence", bias=affine),
        Gemm(name="up", n=wide, k=hidden, shard="column", bias=bias),
        Elementwise(name="activation", reads=wide, writes=ffn, saves=wide, region="tensor"),
        Gemm(name="down", n=hidden, k=ffn, shard="row", bias=bias),
        Elementwise(name="mlp add", reads=2 * hidden, writes=hidden, saves=0, region="sequence"),
    )


def _patches(hidden: int, values: int, *, bias: bool) -> Gemm:
    """The product that makes a vector of each patch: a convolution whose stride is its size."""
    return Gemm(name="patches", n=hidden, k=values, shard="none", bias=bias)


def _positions(rows: int, hidden: int) -> Embedding:
    return Embedding(name="patch positions", rows=rows, size=hidden, vocab_parallel=False)


def _joint(name: str, n: int, k: int, bias: bool) -> Gemm:
    return Gemm(name=name, n=n, k=k, shard="none", bias=bias)


def _norm(name: str, size: int, kind: NormKind = "layernorm") -> Norm:
    return Norm(name=name, kind=kind, size=size, region="sequence", bias=kind == "layernorm")


def _tower(layers: int, block: tuple[Op, ...], before: tuple[Op, ...], after: tuple[Op, ...]) -> Tower:
    return Tower(
        "vision",
        (LayerGroup("patches", 1, before), LayerGroup("encoder layer", layers, block), LayerGroup("joint", 1, after)),
    )


def qwen(f: Fields, text_hidden: int) -> Tower:
    """Qwen3-VL's and Qwen3.5's tower; more mergers where ``deepstack_visual_indexes`` lists layers."""
    hidden, merged = f.count("hidden_size"), f.count_or(2, "spatial_merge_size") ** 2
    values = f.count_or(3, "in_channels") * f.count_or(2, "temporal_patch_size") * f.count("patch_size") ** 2
    wide, out = hidden * merged, f.count_or(text_hidden, "out_hidden_size")
    deep = len(f.numbers("deepstack_visual_indexes") or [])
    mlp = (_joint("merge up", wide, wide, bias=True), _joint("merge down", out, wide, bias=True))
    return _tower(
        f.count("depth"), _block(hidden, f.count("num_heads"), f.count("intermediate_size")),
        (_patches(hidden, values, bias=True), _positions(f.count("num_position_embeddings"), hidden)),
        (_norm("merge norm", hidden), *mlp, *((_norm("deep merge norm", wide), *mlp) * deep)),
    )  # fmt: skip


def kimi(f: Fields, text_hidden: int) -> Tower:
    """Kimi-K2.5's tower (MoonViT); newer files name its fields as others do, older ones with ``vt_``."""
    hidden = f.count("hidden_size", "vt_hidden_size")
    heads = f.count("num_attention_heads", "vt_num_attention_heads")
    ffn = f.count("intermediate_size", "vt_intermediate_size")
    rows = f.count_or(64, "pos_emb_height", "init_pos_emb_height") * f.count_or(
        64, "pos_emb_width", "init_pos_emb_width"
    )
    merge = f.numbers("merge_kernel_size") or [2, 2]
    wide = hidden * merge[0] * merge[1]
    return _tower(
        f.count("num_hidden_layers", "vt_num_hidden_layers"), _block(hidden, heads, ffn),
        (_patches(hidden, 3 * f.count_or(14, "patch_size") ** 2, bias=True), _positions(rows, hidden)),
        (
            _norm("final norm", hidden), _norm("joint norm", hidden),
            _joint("joint in", wide, wide, bias=True), _joint("joint out", text_hidden, wide, bias=True),
        ),
    )  # fmt: skip


def llama4(f: Fields, text_hidden: int) -> Tower:
    """Llama 4's tower: a class token, norms around the layers, pixels shuffled into a two-layer adapter."""
    hidden, patch = f.count("hidden_size"), f.count_or(14, "patch_size")
    rows = (f.count_or(448, "image_size") // patch) ** 2 + 1
    middle, out = f.count_or(4096, "projector_input_dim"), f.count_or(4096, "projector_output_dim")
    heads, ffn = f.count("num_attention_heads"), f.count("intermediate_size")
    layers = f.count("num_hidden_layers")
    return _tower(
        layers, _block(hidden, heads, ffn),
        (
            _patches(hidden, f.count_or(3, "num_channels") * patch**2, bias=False), _positions(rows + 1, hidden),
            _norm("first norm", hidden),
        ),
        (
            _norm("last norm", hidden), _joint("adapter up", middle, ffn, bias=False),
            _joint("adapter down", out, middle, bias=False),
            _joint("joint", text_hidden, f.count_or(out, "vision_output_dim"), bias=False),
        ),
    )  # fmt: skip


def siglip(f: Fields, text_hidden: int) -> Tower:
    """Gemma 3's tower (SigLIP), pooled, normed and projected."""
    hidden, patch = f.count("hidden_size"), f.count_or(16, "patch_size")
    heads, ffn = f.count("num_attention_heads"), f.count("intermediate_size")
    block = _block(hidden, heads, ffn)
    pooled: tuple[Op, ...] = ()
    if f.flag("vision_use_head", True):
        attention, mlp = block[1:4], block[5:9]
        pooled = (_positions(1, hidden), *attention, *mlp)
    return _tower(
        f.count("num_hidden_layers"), block,
        (
            _patches(hidden, f.count_or(3, "num_channels") * patch**2, bias=True),
            _positions((f.count_or(224, "image_size") // patch) ** 2, hidden),
        ),
        (
            _norm("last norm", hidden), *pooled, _norm("joint norm", hidden, "rmsnorm"),
            _joint("joint", text_hidden, hidden, bias=False),
        ),
    )  # fmt: skip


def pixtral(f: Fields, text_hidden: int) -> Tower:
    """Mistral Small 3's tower (Pixtral): Llama's layer without causality, patches merged two by two."""
    hidden, ffn = f.count("hidden_size"), f.count("intermediate_size")
    block = _block(hidden, f.count("num_attention_heads"), ffn, bias=False, gated=True, norm="rmsnorm", qkv_bias=False)
    values = f.count_or(3, "num_channels") * f.count_or(16, "patch_size") ** 2
    return _tower(
        f.count("num_hidden_layers"), block,
        (_patches(hidden, values, bias=False), _norm("first norm", hidden, "rmsnorm")),
        (
            _norm("joint norm", hidden, "rmsnorm"), _joint("merge", hidden, 4 * hidden, bias=False),
            _joint("joint up", text_hidden, hidden, bias=False),
            _joint("joint down", text_hidden, text_hidden, bias=False),
        ),
    )  # fmt: skip


TOWERS: dict[str, Callable[[Fields, int], Tower]] = {
    "qwen3_vl": qwen, "qwen3_vl_moe": qwen, "qwen3_5": qwen, "qwen3_5_moe": qwen, "kimi_k25": kimi, "llama4": llama4,
    "gemma3": siglip, "mistral3": pixtral,
}  # fmt: skip
"""``model_type`` of a configuration with a text model nested → the reader of its ``vision_config``."""
