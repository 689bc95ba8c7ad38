"""From an architecture to operations: what each layer computes, in order, and what it keeps for backward.

What is kept reproduces Korthikanti et al. 2022, eq. 1: ``s*b*h*(34 + 5*a*s/h)`` bytes for a GPT layer in 16 bits with
dropout. Norms keep their input (2 x 2h), the first product of attention and MLP theirs (2 x 2h), attention keeps
queries, keys and values (6h) and its scores (5as/h), the output projection and the down projection their input
(2h and 8h), the activation its input (8h), and each dropout its mask (2 x h).
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from linkscale.base.model import Model
from linkscale.workload.architecture import Architecture, NormPlace
from linkscale.workload.mixers import mixer_ops
from linkscale.workload.mlps import mlp_ops
from linkscale.workload.ops import Elementwise, Embedding, Gemm, LayerGroup, MixStreams, Norm, Op, Weights
from linkscale.workload.parts import LayerKind, Tower
from linkscale.workload.training import Training, adapted, frozen, packed, routed


class Prediction(Model, frozen=True):
    """A module that predicts one token further ahead: two norms, a product that joins two vectors, layers, a norm.

    Token table and output projection are the decoder's own, used once more. Source: DeepSeek-V3, arXiv 2412.19437,
    section 2.2.
    """

    modules: int
    joint: tuple[Op, ...]
    groups: tuple[LayerGroup, ...]


class Decoder(Model, frozen=True):
    """A decoder as operations: tables, groups of equal layers, the final norm, the output projection.

    ``tied``: the output projection shares the token table, so that its weights are counted once. ``order``: of which
    group each layer is, first to last; empty where the configuration does not say. ``prediction`` and ``towers`` stand
    beside the decoder.
    """

    embeddings: tuple[Op, ...]
    groups: tuple[LayerGroup, ...]
    final: tuple[Op, ...]
    head: Gemm
    tied: bool
    order: tuple[int, ...] = ()
    prediction: Prediction | None = None
    towers: tuple[Tower, ...] = ()


def decoder(arch: Architecture, *, absorbed: bool = False) -> Decoder:
    """Return the operations of an architecture; ``absorbed``: latent attention folds its matrices into the queries."""
    kinds = arch.layer_kinds()
    groups = tuple(LayerGroup(name=k.name, count=n, ops=_layer(arch, k, absorbed=absorbed)) for n, k in kinds)
    whole = Decoder(
        embeddings=_embeddings(arch),
        groups=groups,
        final=_final(arch),
        head=Gemm(name="output", n=arch.vocab, k=arch.hidden, shard="column", bias=arch.lm_head_bias, vocab=True),
        tied=arch.tied_embeddings,
        order=_order(arch),
        prediction=_prediction(arch, absorbed=absorbed),
        towers=arch.towers,
    )
    if arch.training.packed_tokens:
        whole = _in_layers(whole, lambda ops: packed(ops, arch.training.packed_tokens))
    if arch.training.expert_spread or arch.training.capacity_factor:
        whole = _in_layers(whole, lambda ops: routed(ops, arch.training))
    return _with_adapters(whole, arch.training) if arch.training.adapters else whole


Ops = tuple[Op, ...]


def _in_layers(whole: Decoder, change: Callable[[Ops], Ops]) -> Decoder:
    """Change the operations of every layer, those of modules that predict further tokens included."""

    def changed(groups: tuple[LayerGroup, ...]) -> tuple[LayerGroup, ...]:
        return tuple(replace(group, ops=change(group.ops)) for group in groups)

    further = whole.prediction and replace(whole.prediction, groups=changed(whole.prediction.groups))
    return replace(whole, groups=changed(whole.groups), prediction=further)


def _with_adapters(whole: Decoder, training: Training) -> Decoder:
    """Freeze a decoder and adapt its layers."""
    inside = _in_layers(whole, lambda ops: adapted(ops, training))
    further = inside.prediction and replace(inside.prediction, joint=_frozen(inside.prediction.joint))
    return replace(
        inside, embeddings=_frozen(whole.embeddings), final=_frozen(whole.final), prediction=further,
        head=replace(whole.head, trained=False, saves_input=False),
    )  # fmt: skip


def _frozen(ops: Ops) -> Ops:
    return tuple(frozen(op) for op in ops)


def _order(arch: Architecture) -> tuple[int, ...]:
    """Return the group of every layer; groups are the kinds that occur."""
    if not arch.kinds:
        return () if arch.windowed_layers else (0,) * arch.layers
    present = [i for i in range(len(arch.kinds)) if i in arch.order]
    return tuple(present.index(i) for i in arch.order)


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


def _final(arch: Architecture) -> tuple[Op, ...]:
    norm = (_norm(arch, "final norm"),) if arch.final_norm else ()
    return (*(_collapse(arch) if arch.streams > 1 else ()), *norm)


def _layer(arch: Architecture, kind: LayerKind, *, absorbed: bool = False) -> tuple[Op, ...]:
    """Operations of one layer in order; a parallel residual shares the first norm and adds once."""
    mixer = mixer_ops(arch, kind.mixer, absorbed=absorbed) if kind.mixer else ()
    if not (kind.mixer and kind.mlp):
        half = "attention" if kind.mixer else "mlp"
        inside = mixer if kind.mixer else mlp_ops(arch, kind.mlp) if kind.mlp else ()
        return _half(arch, half, inside)
    if not arch.parallel_residual:
        return (*_half(arch, "attention", mixer), *_half(arch, "mlp", mlp_ops(arch, kind.mlp)))
    shared = arch.norms == 1
    attention = (*_norms(arch, "attention", "input"), *mixer, *_norms(arch, "attention", "output"))
    # Both halves read the layer's input, kept once; one pass adds them and the residual.
    before = () if shared else _norms(arch, "mlp", "input")
    second = tuple(replace(norm, saves_input=False) for norm in before)
    mlp = mlp_ops(arch, kind.mlp, saves_input=not shared)
    return (*attention, *second, *mlp, *_norms(arch, "mlp", "output"), _residual(arch, "add", reads=3))


def _half(arch: Architecture, half: str, inside: tuple[Op, ...]) -> tuple[Op, ...]:
    """One half of a layer between its norms, and what adds it to the residual."""
    before, after = _norms(arch, half, "input"), _norms(arch, half, "output")
    if arch.streams == 1:
        return (*before, *inside, *after, _residual(arch, f"{half} add"))
    return (*_mix(arch, half), *before, *inside, *after, _spread(arch, half))


def _mix(arch: Architecture, half: str) -> tuple[Op, ...]:
    """Collapse the residual streams into one; weights for that, and for mixing them, come from all of them.

    Source: manifold-constrained hyper-connections, arXiv 2512.24880.
    """
    n, wide = arch.streams, arch.streams * arch.hidden
    weights = (2 + n) * n
    return (
        Norm(name=f"{half} streams norm", kind="rmsnorm", size=wide, region="sequence", weight=False),
        Gemm(name=f"{half} streams weights", n=weights, k=wide, shard="none"),
        Weights(name=f"{half} streams scales", size=weights + 3, region="sequence"),
        Elementwise(name=f"{half} streams collapse", reads=wide, writes=arch.hidden, saves=0, region="sequence"),
    )


def _spread(arch: Architecture, half: str) -> MixStreams:
    return MixStreams(name=f"{half} streams", streams=arch.streams, size=arch.hidden)


def _collapse(arch: Architecture) -> tuple[Op, ...]:
    n, wide = arch.streams, arch.streams * arch.hidden
    return (
        Norm(name="final streams norm", kind="rmsnorm", size=wide, region="sequence", weight=False),
        Gemm(name="final streams weights", n=n, k=wide, shard="none"),
        Weights(name="final streams scales", size=n + 1, region="sequence"),
        Elementwise(name="final streams collapse", reads=wide, writes=arch.hidden, saves=0, region="sequence"),
    )


def _prediction(arch: Architecture, *, absorbed: bool) -> Prediction | None:
    if not arch.prediction_modules:
        return None
    groups = [LayerGroup(name=k.name, count=1, ops=_layer(arch, k, absorbed=absorbed)) for k in arch.prediction_kinds]
    joint = (
        _norm(arch, "hidden norm"), _norm(arch, "token norm"),
        Gemm(name="joint", n=arch.hidden, k=2 * arch.hidden, shard="column"),
        *_final(arch),
    )  # fmt: skip
    return Prediction(modules=arch.prediction_modules, joint=joint, groups=tuple(groups))


def _norms(arch: Architecture, half: str, place: NormPlace) -> tuple[Norm, ...]:
    """Return the norm of one half of a layer at its input or output, where it has one."""
    if arch.norm_at not in (place, "both"):
        return ()
    if place == "output":
        return (_norm(arch, f"{half} output norm"),)
    return (replace(_norm(arch, f"{half} norm"), module="layernorm"),)


def _norm(arch: Architecture, name: str) -> Norm:
    return Norm(
        name=name, kind=arch.norm, size=arch.hidden, weight=arch.norm_weight, bias=arch.norm_bias, region="sequence"
    )


def _residual(arch: Architecture, name: str, reads: int = 2) -> Elementwise:
    mask = arch.hidden if arch.dropout else 0
    return Elementwise(
        name=name, reads=reads * arch.hidden, writes=arch.hidden, saves=0, region="sequence", mask_bytes=mask
    )
