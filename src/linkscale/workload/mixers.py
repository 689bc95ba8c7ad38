"""What mixes tokens, as operations: attention of every kind, linear attention, state-space layers."""

from __future__ import annotations

from linkscale.workload.architecture import Architecture
from linkscale.workload.ops import Attention, Conv1d, Elementwise, Gemm, Index, Module, Norm, Op, Scan, Weights
from linkscale.workload.parts import (
    CompressedAttention,
    DeltaNet,
    LatentAttention,
    Lightning,
    Mamba2,
    Mixer,
    SelfAttention,
    SparseIndex,
)

DELTA_CHUNK = 64
"""Tokens that the published kernels of gated delta nets take at a time (flash-linear-attention)."""


def mixer_ops(arch: Architecture, mixer: Mixer, *, absorbed: bool = False) -> tuple[Op, ...]:
    """Return the operations of a mixer, without the norm before it."""
    match mixer:
        case SelfAttention():
            return self_attention(arch, mixer)
        case LatentAttention():
            return latent_attention(arch, mixer, absorbed=absorbed)
        case CompressedAttention():
            return compressed_attention(arch, mixer)
        case DeltaNet():
            return delta_net(arch, mixer)
        case Mamba2():
            return mamba2(arch, mixer)
        case Lightning():
            return lightning(arch, mixer)


def self_attention(arch: Architecture, a: SelfAttention) -> tuple[Op, ...]:
    """Attention with grouped heads: one product for queries, keys, values and the gate, the core, the output."""
    value_dim = a.value_dim or a.head_dim
    returned = a.heads * value_dim
    gate = {"none": 0, "feature": returned, "head": a.heads}[a.gate]
    pairs = a.kv_heads * (a.head_dim + value_dim)
    widths = (a.heads * a.head_dim, a.kv_heads * a.head_dim, a.kv_heads * value_dim, *([gate] if gate else []))
    ops: list[Op] = [
        Gemm(name="qkv", target="qkv", parts=3, n=sum(widths), k=arch.hidden, shard="column", bias=a.qkv_bias,
             kv_columns=pairs, kv_heads=a.kv_heads, widths=widths),
        *_qk_norms(arch, a),
    ]  # fmt: skip
    if a.rotary:
        ops.append(_rotary((a.heads + a.kv_heads) * a.rotary))
    ops.append(
        Attention(
            heads=a.heads, kv_heads=a.kv_heads, qk_dim=a.head_dim, v_dim=value_dim, window=a.window, chunk=a.chunk,
            dropout=arch.dropout,
        )
    )  # fmt: skip
    if a.sinks:
        ops.append(Weights(name="sinks", size=a.heads, region="tensor"))
    if gate:
        ops.append(Elementwise(name="gate", reads=returned + gate, writes=returned, saves=returned + gate,
                               region="tensor"))  # fmt: skip
    ops.append(_output(arch, returned, a.out_bias))
    return tuple(ops)


def _qk_norms(arch: Architecture, a: SelfAttention) -> tuple[Op, ...]:
    if a.qk_norm == "none":
        return ()
    heads = (("query norm", a.heads), ("key norm", a.kv_heads))
    kind, weight = arch.norm, a.qk_norm_weight
    if a.qk_norm == "full":
        return tuple(Norm(name=n, kind=kind, size=h * a.head_dim, region="tensor", weight=weight) for n, h in heads)
    return tuple(Norm(name=n, kind=kind, size=a.head_dim, copies=h, region="tensor", weight=weight) for n, h in heads)


def latent_attention(arch: Architecture, a: LatentAttention, *, absorbed: bool = False) -> tuple[Op, ...]:
    """Latent attention: unfolded keys and values, or (``absorbed``) queries folded into the latent space.

    Absorbed, all heads share one key of ``rank + rope_dim`` features and one value of ``rank``; the unfolding becomes
    a product per head before and one after the core. The parameters are the same.
    """
    width = a.nope_dim + a.rope_dim
    ops: list[Op] = [*_latent_queries(arch, a, width)]
    ops += [
        Gemm(
            name="kv down",
            target="qkv",
            n=a.rank + a.rope_dim,
            k=arch.hidden,
            shard="none",
            bias=a.bias,
            saves_input=False,
        ),
        Norm(name="kv norm", kind="rmsnorm", size=a.rank, region="sequence", module="mla_up_proj"),
        _rotary((a.heads + 1) * a.rope_dim, module="mla_up_proj"),
    ]
    if a.index is not None:
        ops += _index(arch, a.index, a.query_rank or arch.hidden, rotary=a.rope_dim)
    selected = a.index.selected if a.index is not None else None
    if absorbed:
        ops += [
            Gemm(name="query absorption", n=a.rank, k=a.nope_dim, shard="copies", copies=a.heads),
            Attention(heads=a.heads, kv_heads=1, qk_dim=a.rank + a.rope_dim, v_dim=a.rank, selected=selected,
                      shared_kv=True),
            Gemm(name="value absorption", n=a.value_dim, k=a.rank, shard="copies", copies=a.heads),
        ]  # fmt: skip
    else:
        unfolded = a.heads * (a.nope_dim + a.value_dim)
        ops += [
            Gemm(
                name="kv up", target="qkv", n=unfolded, k=a.rank, shard="column", boundary=False, module="mla_up_proj"
            ),
            Attention(heads=a.heads, kv_heads=a.heads, qk_dim=width, v_dim=a.value_dim, selected=selected),
        ]
    ops.append(_output(arch, a.heads * a.value_dim, a.out_bias))
    return tuple(ops)


def _latent_queries(arch: Architecture, a: LatentAttention, width: int) -> tuple[Op, ...]:
    if not a.query_rank:
        return (Gemm(name="query", target="qkv", n=a.heads * width, k=arch.hidden, shard="column", bias=a.query_bias),)
    return (
        Gemm(name="query down", target="qkv", n=a.query_rank, k=arch.hidden, shard="none", bias=a.bias),
        Norm(name="query norm", kind="rmsnorm", size=a.query_rank, region="sequence", module="mla_up_proj"),
        Gemm(name="query up", target="qkv", n=a.heads * width, k=a.query_rank, shard="column", module="mla_up_proj"),
    )


def _index(arch: Architecture, index: SparseIndex, query_width: int, rotary: int) -> tuple[Op, ...]:
    """DeepSeek-V3.2's index: small heads from the queries' latent, one normed key per token. Trained apart."""
    if not index.own:
        return ()
    return (
        Gemm(name="index query", n=index.heads * index.dim, k=query_width, shard="none", saves_input=False),
        Gemm(name="index key", n=index.dim, k=arch.hidden, shard="none", saves_input=False),
        Norm(name="index key norm", kind="layernorm", size=index.dim, region="sequence", bias=True),
        Gemm(name="index weights", n=index.heads, k=arch.hidden, shard="none", saves_input=False),
        _rotary((index.heads + 1) * rotary),
        Index(heads=index.heads, dim=index.dim, selected=index.selected),
    )


def compressed_attention(arch: Architecture, a: CompressedAttention) -> tuple[Op, ...]:
    """DeepSeek-V4's attention: latent queries, one key that is its value, compressed keys, an output in two steps."""
    returned, middle = a.heads * a.head_dim, a.out_groups * a.out_rank
    ops: list[Op] = [
        Gemm(name="query down", target="qkv", n=a.query_rank, k=arch.hidden, shard="none"),
        Norm(name="query down norm", kind="rmsnorm", size=a.query_rank, region="sequence"),
        Gemm(name="query up", target="qkv", n=returned, k=a.query_rank, shard="column"),
        Norm(name="query norm", kind="rmsnorm", size=a.head_dim, copies=a.heads, region="tensor", weight=False),
        Gemm(name="key", target="qkv", n=a.head_dim, k=arch.hidden, shard="none", saves_input=False),
        Norm(name="key norm", kind="rmsnorm", size=a.head_dim, region="sequence"),
        _rotary((2 * a.heads + 1) * a.rotary),
    ]
    if a.ratio:
        ops += _compressor(arch, "compressed", a.head_dim, a.ratio, overlap=a.overlap)
    if a.index is not None:
        ops += _compressor(arch, "index", a.index.dim, a.ratio, overlap=a.overlap)
        ops += [
            Gemm(name="index query", n=a.index.heads * a.index.dim, k=a.query_rank, shard="none", saves_input=False),
            Gemm(name="index weights", n=a.index.heads, k=arch.hidden, shard="none", saves_input=False),
            Index(heads=a.index.heads, dim=a.index.dim, selected=a.index.selected, compressed=a.ratio),
        ]
    ops += [
        Attention(heads=a.heads, kv_heads=1, qk_dim=a.head_dim, v_dim=a.head_dim, window=a.window,
                  selected=a.index.selected if a.index else None, compressed=a.ratio, shared_kv=True),
        Weights(name="sinks", size=a.heads, region="tensor"),
        Gemm(name="output groups", n=a.out_rank, k=returned // a.out_groups, shard="copies", copies=a.out_groups),
        _output(arch, middle, bias=False),
    ]  # fmt: skip
    return tuple(ops)


def _compressor(arch: Architecture, name: str, dim: int, ratio: int, *, overlap: bool) -> tuple[Op, ...]:
    """Keys of ``ratio`` tokens joined to one by a softmax over gates; with overlap, two series of them."""
    wide = dim * (2 if overlap else 1)
    return (
        Gemm(name=f"{name} key", n=wide, k=arch.hidden, shard="none", saves_input=False),
        Gemm(name=f"{name} gate", n=wide, k=arch.hidden, shard="none", saves_input=False),
        Weights(name=f"{name} position bias", size=ratio * wide, region="sequence"),
        Elementwise(name=f"{name} pooling", reads=2 * wide, writes=-(-dim // ratio), saves=2 * wide, region="sequence"),
        Norm(name=f"{name} key norm", kind="rmsnorm", size=dim, region="sequence", share=1.0 / ratio),
    )


def delta_net(arch: Architecture, d: DeltaNet) -> tuple[Op, ...]:
    """Gated delta net: convolved queries, keys and values, a gated scan, a gated norm, the output."""
    keys, values = d.key_heads * d.key_dim, d.value_heads * d.value_dim
    mixed = 2 * keys + values
    decays = keys if d.channel_decay else d.value_heads
    ops: list[Op] = [
        *_delta_inputs(arch, d, mixed, values),
        Conv1d(name="convolution", channels=mixed, kernel=d.kernel),
        Weights(name="decay", size=d.value_heads + decays, region="tensor"),
        Scan(kind="delta", heads=d.value_heads, groups=d.key_heads, key_dim=d.key_dim, value_dim=d.value_dim,
             chunk=DELTA_CHUNK, gates=decays + d.value_heads),
        Norm(name="head norm", kind="rmsnorm", size=d.value_dim, copies=d.value_heads, region="tensor"),
        Elementwise(name="gate", reads=2 * values, writes=values, saves=2 * values, region="tensor"),
        _output(arch, values, bias=False),
    ]  # fmt: skip
    return tuple(ops)


def _delta_inputs(arch: Architecture, d: DeltaNet, mixed: int, values: int) -> tuple[Op, ...]:
    if not d.channel_decay:
        wide = mixed + values + 2 * d.value_heads  # and the output gate, the step and the decay of every head
        return (Gemm(name="qkv, gate, step, decay", target="qkv", n=wide, k=arch.hidden, shard="column"),)
    keys = d.key_heads * d.key_dim
    return (
        Gemm(name="qkv, step", target="qkv", n=mixed + d.value_heads, k=arch.hidden, shard="column"),
        Gemm(name="decay down", n=d.value_dim, k=arch.hidden, shard="none", saves_input=False),
        Gemm(name="decay up", n=keys, k=d.value_dim, shard="column", boundary=False),
        Gemm(name="gate down", n=d.value_dim, k=arch.hidden, shard="none", saves_input=False),
        Gemm(name="gate up", n=values, k=d.value_dim, shard="column", boundary=False),
    )


def mamba2(arch: Architecture, m: Mamba2) -> tuple[Op, ...]:
    """Mamba-2: one product in, a convolution, the scan with its skip, a gated norm, one product out."""
    inner, states = m.heads * m.head_dim, m.groups * m.state
    convolved = inner + 2 * states
    ops: list[Op] = [
        Gemm(name="input", target="qkv", n=inner + convolved + m.heads, k=arch.hidden, shard="column", bias=m.bias),
        Conv1d(name="convolution", channels=convolved, kernel=m.kernel, bias=m.conv_bias),
        Weights(name="decay, skip, step bias", size=3 * m.heads, region="tensor"),
        Scan(kind="ssd", heads=m.heads, groups=m.groups, key_dim=m.state, value_dim=m.head_dim, chunk=m.chunk,
             gates=m.heads),
        Elementwise(name="gate", reads=2 * inner, writes=inner, saves=2 * inner, region="tensor"),
    ]  # fmt: skip
    if m.norm:
        ops.append(Norm(name="gated norm", kind="rmsnorm", size=inner, region="tensor"))
    ops.append(_output(arch, inner, m.bias))
    return tuple(ops)


def lightning(arch: Architecture, a: Lightning) -> tuple[Op, ...]:
    """Lightning attention: activated queries, keys and values, a scan, a norm, a gate, the output."""
    inner = a.heads * a.head_dim
    return (
        Gemm(name="qkv, gate", target="qkv", n=4 * inner, k=arch.hidden, shard="column"),
        Elementwise(name=arch.activation, reads=3 * inner, writes=3 * inner, saves=3 * inner, region="tensor"),
        Scan(kind="linear", heads=a.heads, groups=a.heads, key_dim=a.head_dim, value_dim=a.head_dim, chunk=a.chunk),
        Norm(name="inner norm", kind="rmsnorm", size=inner, region="tensor"),
        Elementwise(name="gate", reads=2 * inner, writes=inner, saves=2 * inner, region="tensor"),
        _output(arch, inner, bias=False),
    )


def _rotary(features: int, module: Module = "") -> Elementwise:
    return Elementwise(name="rotary", reads=features, writes=features, saves=0, region="tensor", module=module)


def _output(arch: Architecture, k: int, bias: bool) -> Gemm:
    return Gemm(name="attention output", target="output", n=arch.hidden, k=k, shard="row", bias=bias)
