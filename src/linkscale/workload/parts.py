"""Parts of a layer: what mixes tokens (attention, a scan) and what follows (an MLP, experts), as plain values.

A configuration is read into these; :mod:`linkscale.workload.mixers` and :mod:`linkscale.workload.mlps` turn them into
operations. A field's unit is features, heads, tokens or experts; widths of the model itself are the architecture's.
"""

from __future__ import annotations

from typing import Literal

from linkscale.base.model import Model
from linkscale.workload.ops import LayerGroup


class SelfAttention(Model, frozen=True, tag="attention"):
    """Attention with query heads that share key-value heads.

    ``value_dim`` 0: as wide as keys. ``rotary``: features of a head that rotate. ``gate``: what attention returns is
    multiplied by a gate computed from the layer's input, one number per feature or per head. ``sinks``: one learned
    score per head that draws attention to nothing. ``qk_norm_weight`` False: norms without parameters.
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int = 0
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: Literal["none", "head", "full"] = "none"
    qk_norm_weight: bool = True
    rotary: int = 0
    window: int | None = None
    chunk: int | None = None
    gate: Literal["none", "feature", "head"] = "none"
    sinks: bool = False


class SparseIndex(Model, frozen=True):
    """The index of sparse attention: ``selected`` keys per query. ``own`` False: another layer's choice is used."""

    heads: int
    dim: int
    selected: int
    own: bool = True


class LatentAttention(Model, frozen=True, tag="latent"):
    """Multi-head latent attention: keys and values are unfolded from ``rank`` features per token.

    ``query_rank`` 0: queries come straight from the layer's input. Source: DeepSeek-V2, arXiv 2405.04434, section 2.1.
    """

    heads: int
    query_rank: int
    rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    bias: bool = False
    out_bias: bool = False
    query_bias: bool = False
    index: SparseIndex | None = None


class CompressedAttention(Model, frozen=True, tag="compressed"):
    """DeepSeek-V4's attention: one key-value head of which keys are values, a window, and compressed keys beyond it.

    ``ratio`` tokens make one compressed key (0: none); ``overlap``: from twice as many, half of them its neighbour's.
    The output projection is ``out_groups`` products of rank ``out_rank``, then one.
    """

    heads: int
    head_dim: int
    rotary: int
    query_rank: int
    out_groups: int
    out_rank: int
    window: int
    ratio: int = 0
    overlap: bool = False
    index: SparseIndex | None = None


class DeltaNet(Model, frozen=True, tag="delta_net"):
    """Gated delta net: a short convolution, then a state per value head. Source: Yang et al. 2024, arXiv 2412.06464.

    ``channel_decay``: every key feature decays at a rate of its own, computed through ``head_dim`` features, and so is
    the output gate (Kimi Delta Attention, arXiv 2510.26692).
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    channel_decay: bool = False


class Mamba2(Model, frozen=True, tag="mamba2"):
    """Mamba-2: a gated state-space layer. Source: Dao and Gu 2024, arXiv 2405.21060.

    ``norm``: an RMS norm over all inner features, gated.
    """

    heads: int
    head_dim: int
    groups: int
    state: int
    kernel: int
    chunk: int
    conv_bias: bool = True
    bias: bool = False
    norm: bool = True


class Lightning(Model, frozen=True, tag="lightning"):
    """Lightning attention: linear attention with a fixed decay, normed, gated. Source: MiniMax-01, arXiv 2501.08313."""

    heads: int
    head_dim: int
    chunk: int


Mixer = SelfAttention | LatentAttention | CompressedAttention | DeltaNet | Mamba2 | Lightning


class Dense(Model, frozen=True, tag="dense"):
    """A plain MLP; ``hidden`` is its width after the activation."""

    hidden: int
    gated: bool
    bias: bool = False


class Moe(Model, frozen=True, tag="moe"):
    """A mixture of experts, each an MLP of width ``hidden``.

    ``shared``: width of the experts that every token passes, together (0: none); ``shared_gate``: one learned number
    per token scales them. ``latent``: features that experts work in, projected from and to the model's (0: the model's
    own). ``groups``/``top_groups`` limit the groups of experts a token may choose from. ``capacity``, ``spread``: see
    :class:`linkscale.workload.ops.Experts`.
    """

    experts: int
    top_k: int
    hidden: int
    gated: bool = True
    bias: bool = False
    shared: int = 0
    shared_bias: bool = False
    shared_gate: bool = False
    latent: int = 0
    latent_bias: bool = False
    router_bias: bool = False
    balance_bias: bool = False
    groups: int = 1
    top_groups: int = 1
    capacity: float | None = None
    spread: float = 0.0


Mlp = Dense | Moe


class LayerKind(Model, frozen=True):
    """One kind of layer: a mixer, an MLP, or both. ``name`` tells it from the model's other kinds."""

    name: str
    mixer: Mixer | None = None
    mlp: Mlp | None = None


class Tower(Model, frozen=True):
    """An encoder of images beside the decoder, as operations: its layers, and what joins it to the text.

    ``trained`` False: its weights are frozen, as in most post-training; text tokens never pass it.
    """

    name: str
    groups: tuple[LayerGroup, ...]
    trained: bool = False
