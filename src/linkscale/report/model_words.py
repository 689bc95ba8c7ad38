"""Words for what a layer is made of, for the page of ``model``."""

from __future__ import annotations

from linkscale.workload.architecture import Architecture
from linkscale.workload.parts import (
    CompressedAttention,
    DeltaNet,
    Dense,
    LatentAttention,
    Lightning,
    Mamba2,
    Mixer,
    Mlp,
    Moe,
    SelfAttention,
    SparseIndex,
)


def mixer_words(mixer: Mixer) -> str:
    """Describe a mixer in a line."""
    match mixer:
        case SelfAttention():
            return _self_attention(mixer)
        case LatentAttention():
            return (
                f"latent attention, {mixer.heads} heads of {mixer.nope_dim}+{mixer.rope_dim}, values of "
                f"{mixer.value_dim}, from {mixer.rank} features{_index(mixer.index)}"
            )
        case CompressedAttention():
            far = f", and one key for every {mixer.ratio} tokens" if mixer.ratio else ""
            return (
                f"{mixer.heads} heads of {mixer.head_dim}, one for keys and values · window of {mixer.window:,}"
                f"{far}{_index(mixer.index)}"
            )
        case DeltaNet():
            return (
                f"gated delta net, {mixer.value_heads} heads of {mixer.value_dim}, {mixer.key_heads} of "
                f"{mixer.key_dim} for keys"
            )
        case Mamba2():
            return f"Mamba-2, {mixer.heads} heads of {mixer.head_dim}, state of {mixer.state}"
        case Lightning():
            return f"lightning attention, {mixer.heads} heads of {mixer.head_dim}"


def _self_attention(a: SelfAttention) -> str:
    grouped = "" if a.kv_heads == a.heads else f", {a.kv_heads} for keys and values"
    dims = f"{a.head_dim}" if a.value_dim in (0, a.head_dim) else f"{a.head_dim}, values of {a.value_dim}"
    seen = f" · window of {a.window:,}" if a.window else f" · chunks of {a.chunk:,}" if a.chunk else ""
    more = [word for word, on in (("gated", a.gate != "none"), ("sinks", a.sinks)) if on]
    return f"{a.heads} heads of {dims}{grouped}{seen}{''.join(f' · {word}' for word in more)}"


def _index(index: SparseIndex | None) -> str:
    if index is None:
        return ""
    whose = "" if index.own else " by an earlier layer"
    return f" · {index.selected:,} keys chosen{whose}"


def mlp_words(arch: Architecture, mlp: Mlp) -> str:
    """Describe an MLP or experts in a line."""
    gated = "gated " if mlp.gated else ""
    match mlp:
        case Dense():
            return f"MLP of {mlp.hidden:,}, {gated}{arch.activation}"
        case Moe():
            return f"{mlp.top_k} of {mlp.experts} experts of {mlp.hidden:,}{_beside(mlp)}, {gated}{arch.activation}"


def _beside(moe: Moe) -> str:
    groups = f" from {moe.top_groups} of {moe.groups} groups" if moe.top_groups < moe.groups else ""
    shared = f" and {moe.shared:,} shared" if moe.shared else ""
    latent = f", inside {moe.latent:,} features" if moe.latent else ""
    return f"{groups}{shared}{latent}"
