"""Architecture: the shape of a decoder, as its configuration states it.

An architecture is what a ``config.json`` says; :func:`linkscale.workload.layers.decoder` turns it into
operations, which is all that the cost rooms see.
"""

from __future__ import annotations

from typing import Literal

from linkscale.base.errors import InputError
from linkscale.base.model import Model

NormKind = Literal["layernorm", "rmsnorm"]
NormPlace = Literal["input", "output", "both"]
Positions = Literal["rope", "learned", "alibi", "none"]

# Larger numbers are typing errors, and would overflow exact float sums of parameters.
MOST = 2**31 - 1


class Architecture(Model, frozen=True):
    """A dense decoder-only transformer.

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
