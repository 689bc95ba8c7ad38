"""From an architecture to operations: what each layer computes, in order, and what it keeps for backward.

What is kept reproduces Korthikanti et al. 2022, eq. 1: ``s*b*h*(34 + 5*a*s/h)`` bytes for a GPT layer in 16 bits with
dropout. Norms keep their input (2 x 2h), the first product of attention and MLP theirs (2 x 2h), attention keeps
queries, keys and values (6h) and its scores (5as/h), the output projection and the down projection their input
(2h and 8h), the activation its input (8h), and each dropout its mask (2 x h).
"""

from __future__ import annotations

import msgspec

from linkscale.base.model import Model
from linkscale.workload.architecture import Architecture, NormPlace
from linkscale.workload.ops import Attention, Elementwise, Embedding, Gemm, LayerGroup, Norm, Op


class Decoder(Model, frozen=True):
    """A decoder as operations: tables, groups of equal layers, the final norm, the output projection.

    ``tied``: the output projection shares the token table, so that its weights are counted once.
    """

    embeddings: tuple[Op, ...]
    groups: tuple[LayerGroup, ...]
    final: tuple[Op, ...]
    head: Gemm
    tied: bool


def decoder(arch: Architecture) -> Decoder:
    """Return the operations of an architecture."""
    groups = []
    plain = arch.layers - arch.windowed_layers
    if plain:
        groups.append(LayerGroup(name="layer", count=plain, ops=_layer(arch, None)))
    if arch.windowed_layers:
        groups.append(LayerGroup(name="windowed layer", count=arch.windowed_layers, ops=_layer(arch, arch.window)))
    return Decoder(
        embeddings=_embeddings(arch),
        groups=tuple(groups),
        final=(_norm(arch, "final norm"),) if arch.final_norm else (),
        head=Gemm(name="output", n=arch.vocab, k=arch.hidden, shard="column", bias=arch.lm_head_bias),
        tied=arch.tied_embeddings,
    )


def _embeddings(arch: Architecture) -> tuple[Op, ...]:
    ops: list[Op] = [Embedding(name="tokens", rows=arch.vocab, size=arch.hidden)]
    if arch.positions == "learned":
        rows = arch.max_positions + arch.spare_positions
        ops.append(Embedding(name="positions", rows=rows, size=arch.hidden, vocab_parallel=False))
    if arch.embedding_norm:
        ops.append(_norm(arch, "embedding norm"))
    if arch.dropout:
        ops.append(_residual(arch, "embedding dropout", reads=1))
    return tuple(ops)


def _layer(arch: Architecture, window: int | None) -> tuple[Op, ...]:
    """Operations of one layer in order; a parallel residual shares the first norm and adds once."""
    shared = arch.norms == 1
    attention = (*_norms(arch, "attention", "input"), *_attention(arch, window), *_norms(arch, "attention", "output"))
    before = () if shared else _norms(arch, "mlp", "input")
    after = _norms(arch, "mlp", "output")
    if arch.parallel_residual:
        # Both halves read the layer's input, kept once; one pass adds them and the residual.
        second = tuple(msgspec.structs.replace(norm, saves_input=False) for norm in before)
        mlp = _mlp(arch, saves_input=not shared)
        return (*attention, *second, *mlp, *after, _residual(arch, "add", reads=3))
    return (*attention, _residual(arch, "attention add"), *before, *_mlp(arch), *after, _residual(arch, "mlp add"))


def _norms(arch: Architecture, half: str, place: NormPlace) -> tuple[Norm, ...]:
    """Return the norm of one half of a layer at its input or output, where it has one."""
    if arch.norm_at not in (place, "both"):
        return ()
    return (_norm(arch, f"{half} norm" if place == "input" else f"{half} output norm"),)


def _attention(arch: Architecture, window: int | None) -> tuple[Op, ...]:
    queries, pairs = arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim
    ops: list[Op] = [
        Gemm(
            name="qkv",
            n=queries + 2 * pairs,
            k=arch.hidden,
            shard="column",
            bias=arch.qkv_bias,
            parts=(queries, pairs, pairs),
        ),
        *_qk_norms(arch),
    ]
    if arch.positions == "rope":
        turned = (arch.heads + arch.kv_heads) * (arch.rotary_dim or arch.head_dim)
        ops.append(Elementwise(name="rotary", reads=turned, writes=turned, saves=0, region="tensor"))
    ops.append(
        Attention(
            heads=arch.heads, kv_heads=arch.kv_heads, qk_dim=arch.head_dim, v_dim=arch.head_dim, window=window,
            dropout=arch.dropout,
        )
    )  # fmt: skip
    ops.append(Gemm(name="attention output", n=arch.hidden, k=queries, shard="row", bias=arch.attention_out_bias))
    return tuple(ops)


def _qk_norms(arch: Architecture) -> tuple[Op, ...]:
    if arch.qk_norm == "none":
        return ()
    heads = (("query norm", arch.heads), ("key norm", arch.kv_heads))
    if arch.qk_norm == "full":
        return tuple(Norm(name=n, kind=arch.norm, size=h * arch.head_dim, region="tensor") for n, h in heads)
    return tuple(Norm(name=n, kind=arch.norm, size=arch.head_dim, copies=h, region="tensor") for n, h in heads)


def _mlp(arch: Architecture, *, saves_input: bool = True) -> tuple[Op, ...]:
    parts = (arch.ffn_hidden,) * (2 if arch.gated_mlp else 1)
    wide, between = sum(parts), arch.ffn_hidden if arch.gated_mlp else 0
    return (
        Gemm(
            name="up", n=wide, k=arch.hidden, shard="column", bias=arch.mlp_bias, saves_input=saves_input, parts=parts
        ),
        Elementwise(
            name=arch.activation,
            reads=wide,
            writes=arch.ffn_hidden,
            saves=wide,
            saves_between=between,
            region="tensor",
        ),
        Gemm(name="down", n=arch.hidden, k=arch.ffn_hidden, shard="row", bias=arch.mlp_bias),
    )


def _norm(arch: Architecture, name: str) -> Norm:
    return Norm(
        name=name, kind=arch.norm, size=arch.hidden, weight=arch.norm_weight, bias=arch.norm_bias, region="sequence"
    )


def _residual(arch: Architecture, name: str, reads: int = 2) -> Elementwise:
    mask = arch.hidden if arch.dropout else 0
    return Elementwise(
        name=name, reads=reads * arch.hidden, writes=arch.hidden, saves=0, region="sequence", mask_bytes=mask
    )
