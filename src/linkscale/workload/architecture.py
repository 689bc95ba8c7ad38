"""Architecture: the shape of a decoder, as its configuration states it.

An architecture is what a ``config.json`` says; :func:`linkscale.workload.layers.decoder` turns it into
operations, which is all that the cost rooms see.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from linkscale.base.errors import InputError
from linkscale.base.model import Model
from linkscale.workload.parts import Dense, LayerKind, Moe, SelfAttention, Tower
from linkscale.workload.training import Training

NormKind = Literal["layernorm", "rmsnorm"]
NormPlace = Literal["input", "output", "both"]
Positions = Literal["rope", "learned", "alibi", "none"]

# Larger numbers are typing errors, and would overflow exact float sums of parameters.
MOST = 2**31 - 1


class Architecture(Model, frozen=True):
    """A decoder-only transformer.

    Without ``kinds``, its layers are equal and dense, as the fields here say (but for windows). With them, ``kinds``
    are its kinds of layers and ``order`` says of which each layer is; ``heads``, ``kv_heads``, ``head_dim`` and
    ``ffn_hidden`` are then those that cutting the model must respect: the smallest.

    ``ffn_hidden`` is the width after the activation. ``norms`` counts norms before the halves of a layer: 2, or 1 where
    attention and MLP share one (parallel residual). ``norm_at``: whether a half norms its input, its output, or both.
    ``qk_norm``: queries and keys are normed per head or over all features. ``lm_head_bias``: bias on the output
    projection. ``rotary_dim``: features of each head that rotate (0: all). ``max_positions``: the longest
    sequence (0: not stated); a table of learned positions has so many rows, and OPT's ``spare_positions`` more.
    """

    name: str
    model_type: str
    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_hidden: int
    gated_mlp: bool
    activation: str = "silu"
    norm: NormKind = "rmsnorm"
    norm_weight: bool = True
    norm_bias: bool = False
    norm_at: NormPlace = "input"
    positions: Positions = "rope"
    max_positions: int = 0
    spare_positions: int = 0
    rotary_dim: int = 0
    tied_embeddings: bool = False
    qkv_bias: bool = False
    attention_out_bias: bool = False
    mlp_bias: bool = False
    lm_head_bias: bool = False
    qk_norm: Literal["none", "head", "full"] = "none"
    parallel_residual: bool = False
    norms: int = 2
    final_norm: bool = True
    embedding_norm: bool = False
    dropout: bool = False
    window: int | None = None
    windowed_layers: int = 0
    """Layers (of ``layers``) whose attention sees ``window`` tokens only."""
    kinds: tuple[LayerKind, ...] = ()
    order: tuple[int, ...] = ()
    streams: int = 1
    """Residual streams that every half of a layer mixes (DeepSeek-V4's hyper-connections)."""
    prediction_kinds: tuple[LayerKind, ...] = ()
    """Layers of one module that predicts a token further ahead, behind a product that joins two vectors to one."""
    prediction_modules: int = 0
    towers: tuple[Tower, ...] = ()
    training: Training = Training()
    """Which of its weights are trained: no matter of a configuration, but of the job."""
    notes: tuple[str, ...] = ()
    """What a reader of this configuration should know: what is left out, or taken as usual."""
    source: str = ""

    def __post_init__(self) -> None:
        for field in ("vocab", "hidden", "layers", "heads", "kv_heads", "head_dim", "ffn_hidden"):
            value = getattr(self, field)
            if not 1 <= value <= MOST:
                raise InputError(f"{self.name}: {field} = {value:g}; it must be a whole number from 1 to {MOST}")
        if self.heads % self.kv_heads:
            raise InputError(
                f"{self.name}: heads = {self.heads} does not divide by kv_heads = {self.kv_heads}; "
                "every key-value head serves the same number of query heads"
            )
        if self.positions == "learned" and not 1 <= self.max_positions <= MOST:
            raise InputError(f"{self.name}: max_positions = {self.max_positions:g}; learned positions have 1 or more")
        if not 0 <= self.windowed_layers <= self.layers:
            raise InputError(f"{self.name}: windowed_layers = {self.windowed_layers}; there are {self.layers} layers")
        self._check_order()

    def _check_order(self) -> None:
        if not self.kinds:
            return
        if len(self.order) != self.layers:
            raise InputError(f"{self.name}: order lists {len(self.order)} layers; there are {self.layers}")
        if not all(0 <= kind < len(self.kinds) for kind in self.order):
            raise InputError(f"{self.name}: order names a kind of layer beyond the {len(self.kinds)} there are")

    def with_layers(self, layers: int) -> Architecture:
        """Return the same model cut to its first layers, or made deeper by more of its last ones."""
        if not self.kinds:
            return msgspec.structs.replace(self, layers=layers, windowed_layers=min(self.windowed_layers, layers))
        order = self.order
        while len(order) < layers:
            order += order[-(layers - len(order)) :]
        return msgspec.structs.replace(self, layers=layers, order=order[:layers])

    def layer_kinds(self) -> tuple[tuple[int, LayerKind], ...]:
        """Return how many layers there are of each kind."""
        if self.kinds:
            return tuple((self.order.count(i), kind) for i, kind in enumerate(self.kinds) if i in self.order)
        plain, windowed = self.layers - self.windowed_layers, self.windowed_layers
        kinds = ((plain, self._uniform("layer", None)), (windowed, self._uniform("windowed layer", self.window)))
        return tuple((count, kind) for count, kind in kinds if count)

    def routed(self) -> tuple[Moe, ...]:
        """Return the mixtures of experts among the kinds of layers, those of prediction modules included."""
        return tuple(kind.mlp for kind in (*self.kinds, *self.prediction_kinds) if isinstance(kind.mlp, Moe))

    def tensor_widths(self) -> tuple[int, ...]:
        """Return the widths of MLPs that tensor parallelism cuts: all but those of routed experts."""
        if not self.kinds:
            return (self.ffn_hidden,)
        mlps = [kind.mlp for kind in self.kinds]
        shared = [mlp.shared for mlp in mlps if isinstance(mlp, Moe) and mlp.shared]
        return tuple(dict.fromkeys([*(mlp.hidden for mlp in mlps if isinstance(mlp, Dense)), *shared]))

    def _uniform(self, name: str, window: int | None) -> LayerKind:
        rotary = (self.rotary_dim or self.head_dim) if self.positions == "rope" else 0
        attention = SelfAttention(
            heads=self.heads, kv_heads=self.kv_heads, head_dim=self.head_dim, qkv_bias=self.qkv_bias,
            out_bias=self.attention_out_bias, qk_norm=self.qk_norm, rotary=rotary, window=window,
        )  # fmt: skip
        return LayerKind(name, attention, Dense(self.ffn_hidden, self.gated_mlp, self.mlp_bias))
