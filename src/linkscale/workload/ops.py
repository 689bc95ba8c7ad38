"""Operations of a decoder: what a layer is made of, per token, before any parallelism.

A layer is what its operations are: the cost rooms price each operation by its type and never ask which
model it came from. All sizes are of the whole (unsharded) model; ``region`` and ``shard`` say how tensor and
sequence parallelism cut an operation.
"""

from __future__ import annotations

from typing import Literal

from linkscale.base.model import Model

Region = Literal["sequence", "tensor"]
"""``sequence``: outside the tensor-parallel block, every TP rank holds all tokens (1/tp of them under sequence
parallelism). ``tensor``: inside it, every TP rank holds 1/tp of the features of all tokens."""


class Gemm(Model, frozen=True, tag="gemm"):
    """A linear layer: (tokens, k) @ (k, n). FLOPs per token forward: ``2 * n * k`` (times ``copies``).

    ``shard``: ``column`` splits n over tp (input needs gathering), ``row`` splits k (output needs reducing),
    ``none`` is replicated. ``saves_input``: whether its input is kept for backward here (False where another
    operation keeps the same tensor, e.g. the up projection beside the gate projection). ``parts``: widths of the
    separate products that read this input where a framework does not stack them, in order (empty: one of width n).
    """

    name: str
    n: int
    k: int
    shard: Literal["column", "row", "none"]
    bias: bool = False
    copies: int = 1
    saves_input: bool = True
    parts: tuple[int, ...] = ()


class Attention(Model, frozen=True, tag="attention"):
    """Scaled dot-product attention. FLOPs per token forward, full: ``2 * heads * (qk_dim + v_dim) * seq``."""

    heads: int
    kv_heads: int
    qk_dim: int
    v_dim: int
    causal: bool = True
    window: int | None = None
    dropout: bool = False
    """Dropout on the probabilities."""


class Norm(Model, frozen=True, tag="norm"):
    """Layer or RMS norm over ``size`` features, on ``copies`` vectors per token (q/k norms: one per head).

    Parameters: ``size`` (+ ``size`` for a bias), shared by the copies. ``saves_input``: whether its input is kept for
    backward here (False where another operation keeps the same tensor, e.g. the other norm of a parallel residual).
    """

    name: str
    kind: Literal["layernorm", "rmsnorm"]
    size: int
    region: Region
    copies: int = 1
    weight: bool = True
    bias: bool = False
    saves_input: bool = True


class Elementwise(Model, frozen=True, tag="elementwise"):
    """A memory-bound operation, in elements per token: reads, writes, and what backward keeps.

    ``fusable``: compiled or fused stacks merge it into its neighbour. ``saves_between``: what backward keeps besides
    where it runs as written, one kernel after the other (a gated MLP's activated gate, before the product).
    """

    name: str
    reads: int
    writes: int
    saves: int
    region: Region
    fusable: bool = True
    saves_between: int = 0
    mask_bytes: int = 0
    """Bytes per token of a dropout mask, written forward and read backward."""


class Embedding(Model, frozen=True, tag="embedding"):
    """A lookup table of ``rows`` vectors; ``learned positions`` and token embeddings are both this."""

    name: str
    rows: int
    size: int
    vocab_parallel: bool = True


Op = Gemm | Attention | Norm | Elementwise | Embedding


class LayerGroup(Model, frozen=True):
    """``count`` equal layers, each the same tuple of operations."""

    name: str
    count: int
    ops: tuple[Op, ...]
