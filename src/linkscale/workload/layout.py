"""Layers of several kinds: from one kind per layer to the kinds that there are and their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from linkscale.workload.fields import Fields
from linkscale.workload.parts import Dense, LayerKind, Mixer, Mlp, Moe, SelfAttention

Shape = dict[str, Any]
"""Keyword arguments of an Architecture, without its name."""


def layout(mixers: Sequence[Mixer | None], mlps: Sequence[Mlp | None]) -> Shape:
    """Return the kinds and the order of layers that pair a mixer and an MLP each."""
    pairs = list(zip(mixers, mlps, strict=True))
    distinct = list(dict.fromkeys(pairs))
    names = _names(distinct)
    kinds = tuple(LayerKind(name, *pair) for name, pair in zip(names, distinct, strict=True))
    return {"kinds": kinds, "order": tuple(distinct.index(pair) for pair in pairs), "layers": len(pairs)}


def _names(pairs: Sequence[tuple[Mixer | None, Mlp | None]]) -> list[str]:
    """Name each kind by what tells it from the others: the mixer, the MLP, or both."""
    if len(pairs) == 1:
        return ["layer"]
    mixers = {mixer for mixer, _ in pairs}
    mlps = {mlp for _, mlp in pairs}
    names = []
    for mixer, mlp in pairs:
        words = [_mixer_word(mixer)] if mixer and (len(mixers) > 1 or not mlp) else []
        words += [_mlp_word(mlp)] if mlp and (len(mlps) > 1 or not mixer) else []
        names.append(" + ".join(words))
    return names


def _mixer_word(mixer: Mixer) -> str:
    match mixer:
        case SelfAttention(window=int(window)):
            return f"window of {window}"
        case SelfAttention(chunk=int(chunk)):
            return f"chunks of {chunk}"
        case SelfAttention():
            return "full attention"
    words = {"LatentAttention": "latent attention", "DeltaNet": "delta net", "Mamba2": "Mamba-2",
             "Lightning": "lightning attention", "CompressedAttention": "compressed attention"}  # fmt: skip
    word = words[type(mixer).__name__]
    index = getattr(mixer, "index", None)
    if index is not None and not index.own:
        return f"{word}, index shared"
    ratio = getattr(mixer, "ratio", None)
    return word if ratio is None else f"{word} by {ratio}" if ratio else "window only"


def _mlp_word(mlp: Mlp) -> str:
    return "experts" if isinstance(mlp, Moe) else "dense"


def named_layers(f: Fields, field: str, layers: int, default: Callable[[int], str], known: set[str]) -> list[str]:
    """Return the name of every layer's kind: as a field lists them, or by a rule where it is left out."""
    stated = f.names(field)
    names = [default(i) for i in range(layers)] if stated is None else stated
    strange = sorted(set(names) - known)
    if strange:
        raise f.wrong(field, f"holds {strange[0]!r}, which is not understood yet; known: {sorted(known)}")
    if len(names) != layers:
        raise f.wrong(field, f"lists {len(names)} layers, but the model has {layers}")
    return names


def windows(f: Fields, layers: int, default: Callable[[int], str]) -> list[int | None]:
    """Return the window of every layer, None for full attention."""
    known = {"full_attention", "sliding_attention"}
    kinds = named_layers(f, "layer_types", layers, default, known)
    window = f.count_or(0, "sliding_window")
    if "sliding_attention" in kinds and not window:
        return [None] * layers
    return [window if kind == "sliding_attention" else None for kind in kinds]


def attention(shape: Shape, **changes: Any) -> SelfAttention:
    """Return the attention that the fields of a uniform shape describe, with changes."""
    rotary = (shape.get("rotary_dim") or shape["head_dim"]) if shape.get("positions", "rope") == "rope" else 0
    base = SelfAttention(
        heads=shape["heads"], kv_heads=shape["kv_heads"], head_dim=shape["head_dim"],
        qkv_bias=shape.get("qkv_bias", False), out_bias=shape.get("attention_out_bias", False),
        qk_norm=shape.get("qk_norm", "none"), rotary=rotary,
    )  # fmt: skip
    return msgspec.structs.replace(base, **changes)


def dense(shape: Shape) -> Dense:
    """Return the MLP that the fields of a uniform shape describe."""
    return Dense(shape["ffn_hidden"], shape["gated_mlp"], shape.get("mlp_bias", False))


def cut_by(shape: Shape, *mlps: Mlp | None) -> Shape:
    """Return the width of the narrowest MLP there is: what cutting the model must respect."""
    return {"ffn_hidden": min((mlp.hidden for mlp in mlps if mlp is not None), default=shape["ffn_hidden"])}
