"""Operations of a decoder: what a layer is made of, per token, before any parallelism.

A layer is what its operations are: the cost rooms price each operation by its type and never ask which
model it came from. All sizes are of the whole (unsharded) model; ``region`` and ``shard`` say how tensor and
sequence parallelism cut an operation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np

from linkscale.base.model import Model

Region = Literal["sequence", "tensor"]
"""``sequence``: outside the tensor-parallel block, every TP rank holds all tokens (1/tp of them under sequence
parallelism). ``tensor``: inside it, every TP rank holds 1/tp of the features of all tokens."""

Target = Literal["qkv", "output", "mlp"]
"""Linear layers that low-rank adapters are hung on: before attention or a scan, after it, of an MLP."""


Module = Literal["", "core_attn", "mla_up_proj", "layernorm", "mlp", "shared_experts", "moe", "moe_act"]
"""What Megatron-LM can compute again on its own (--recompute-modules); empty: nothing of the kind."""


class Gemm(Model, frozen=True, tag="gemm"):
    """A linear layer: (tokens, k) @ (k, n). FLOPs per token forward: ``2 * n * k`` (times ``copies``).

    ``shard``: ``column`` splits n over tp (input needs gathering), ``row`` splits k (output needs reducing),
    ``copies`` splits the copies (a block-diagonal product, as one per head), ``none`` is replicated.
    ``saves_input``: whether its input is kept for backward here (False where another operation keeps the same
    tensor, e.g. the up projection beside the gate projection). ``kv_columns``: of the n, those of ``kv_heads``
    key-value heads; where tp exceeds their number, several ranks hold a copy of one. ``vocab``: the n are a
    vocabulary, padded until ranks hold equal parts. ``boundary``: whether a column-parallel product gathers its input
    (False where another one beside it has gathered the same tokens). ``widths``: of the separate products that
    read this input where a framework does not stack them, in order (empty: one of width n).
    """

    name: str
    n: int
    k: int
    shard: Literal["column", "row", "copies", "none"]
    bias: bool = False
    copies: int = 1
    saves_input: bool = True
    kv_columns: int = 0
    kv_heads: int = 1
    vocab: bool = False
    boundary: bool = True
    beside_routing: bool = False
    """Whether it needs nothing of the routed experts, so that it may run while tokens are on their way to them."""
    module: Module = ""
    target: Target | None = None
    """What a choice of products to adapt calls it; None: never adapted."""
    parts: int = 1
    """Products that only Megatron makes one: queries, keys and values, or gate and up. Of an adapter's first product,
    how often stacks that keep them apart have it."""
    trained: bool = True
    half: bool = False
    """Runs in 16 bits whatever the layers run in."""
    widths: tuple[int, ...] = ()


class Attention(Model, frozen=True, tag="attention"):
    """Scaled dot-product attention. FLOPs per token forward: ``2 * heads * (qk_dim + v_dim) * keys``.

    ``keys`` that a query meets are all of the sequence, or fewer: the last ``window``, those of its own ``chunk`` of
    the sequence, or the ``selected`` ones that an index found. ``compressed``: beside a window, one key stands for
    every so many tokens of the whole sequence, of which at most ``selected`` are met (DeepSeek-V4).
    """

    heads: int
    kv_heads: int
    qk_dim: int
    v_dim: int
    causal: bool = True
    window: int | None = None
    dropout: bool = False
    """Dropout on the probabilities."""
    chunk: int | None = None
    selected: int | None = None
    compressed: int = 0
    shared_kv: bool = False
    """Keys are values too: one tensor."""
    documents: int = 0
    """Tokens on average of the documents packed in a sequence, each of which attends within itself; 0: one document."""

    def keys(self, seq: float, *, causal: bool) -> float:
        """Return the keys that a query meets on average: under a causal mask, only those before it.

        In packed documents, those of its own; without the mask they are counted twice, as before and after it.
        """
        if self.documents:
            return (1.0 if causal else 2.0) * self._keys_of_documents(seq, float(self.documents))
        if self.chunk is not None:
            chunk = min(float(self.chunk), seq)
            return chunk / 2.0 if causal else chunk
        narrowest, far, met = self._reach(seq)
        if not self.compressed:
            return _within(narrowest, seq) if causal else narrowest
        return _within(narrowest, seq) + _within(met, far) if causal else narrowest + met

    def length(self, seq: float) -> float:
        """Return the length of a whole sequence whose queries meet as many keys as those of its packed documents."""
        return 2.0 * _within_documents(seq, seq, float(self.documents)) if self.documents else seq

    def _reach(self, seq: float) -> tuple[float, float, float]:
        """Return the most keys that a query meets one by one, and how many compressed ones there are and are met."""
        if not self.compressed:
            return min((seq, *(float(n) for n in (self.window, self.selected) if n is not None))), 0.0, 0.0
        far, near = seq / self.compressed, min(seq, float(self.window or 0))
        return near, far, min(far, float(self.selected)) if self.selected is not None else far

    def _keys_of_documents(self, seq: float, mean: float) -> float:
        if self.chunk is not None:
            seq = min(float(self.chunk), seq)
        near, far, met = self._reach(seq)
        beyond = _within_documents(met, far, mean / self.compressed) if self.compressed else 0.0
        return _within_documents(near, seq, mean) + beyond


def _within(most: float, seq: float) -> float:
    """Keys before a query on average, ``most`` of them at most: the first queries have fewer."""
    return most * (1.0 - most / (2.0 * seq))


def _within_documents(most: float, seq: float, mean: float) -> float:
    """Keys of its own document before a query on average, ``most`` of them at most.

    A document ends after any token with probability ``1 / mean`` (lengths are exponential, cut at the sequence's ends),
    so that a query at place x meets ``mean (1 - exp(-min(x, most) / mean))``; this is the average over x. For long
    documents it becomes :func:`_within`.
    """
    ended = -float(np.expm1(-most / mean))
    return mean * (most - mean * ended + (seq - most) * ended) / seq


class Index(Model, frozen=True, tag="index"):
    """The search for the keys that sparse attention meets: every query scores every key by small heads, the best win.

    FLOPs per token forward: ``2 * heads * (dim + 1) * seq / compressed``; the one is the weighing of the heads.
    Source: DeepSeek-V3.2, arXiv 2512.02556, section 2.1.
    """

    heads: int
    dim: int
    selected: int
    compressed: int = 1


class Scan(Model, frozen=True, tag="scan"):
    """Linear attention or a state-space recurrence: a state of ``key_dim * value_dim`` per head, in chunks of tokens.

    ``heads`` hold a state each, ``groups`` of them share queries and keys. ``gates``: numbers per token that steer
    decay and step, beside queries, keys and values. The matrix products of the chunked form, per token (C is the
    chunk, K and V the dimensions):

    - ``linear`` (lightning attention): within a chunk ``C (K + V)``, with the state ``2 K V``, per head;
    - ``delta`` (gated delta rule): ``C (2K + V)`` and ``3 K V`` per head, and the triangular system, ``C (K + V) / 2``;
    - ``ssd`` (Mamba-2): ``C K`` per group, ``C V`` and ``2 K V`` per head;

    times two FLOPs each. Sources: Qin et al. 2024 (arXiv 2405.17381), Yang et al. 2024 (arXiv 2412.06464), Dao and
    Gu 2024 (arXiv 2405.21060, section 6).
    """

    kind: Literal["linear", "delta", "ssd"]
    heads: int
    groups: int
    key_dim: int
    value_dim: int
    chunk: int
    gates: int = 0

    def products(self) -> float:
        """Return the multiply-adds of one token, triangular systems included."""
        inside, state = self.chunk * self.heads, self.heads * self.key_dim * self.value_dim
        match self.kind:
            case "linear":
                return float(inside * (self.key_dim + self.value_dim) + 2 * state)
            case "delta":
                return float(inside * (2 * self.key_dim + self.value_dim) + 3 * state) + self.system()
            case "ssd":
                return float(self.chunk * self.groups * self.key_dim + inside * self.value_dim + 2 * state)

    def system(self) -> float:
        """Return the multiply-adds of one token in solving the triangular system of a delta rule."""
        return self.chunk * self.heads * (self.key_dim + self.value_dim) / 2.0 if self.kind == "delta" else 0.0


class Conv1d(Model, frozen=True, tag="conv1d"):
    """A short causal convolution along the sequence, one filter per channel. FLOPs: ``2 * kernel * channels``."""

    name: str
    channels: int
    kernel: int
    bias: bool = False
    trained: bool = True


class Router(Model, frozen=True, tag="router"):
    """Chooses ``top_k`` of ``experts`` for each token: a product of ``k`` by experts, and a search in its result.

    ``groups`` of experts of which ``top_groups`` may be chosen limit the nodes that a token goes to. ``bias`` is a
    trained one; the one that balances loads is no parameter (``balance_bias``).
    """

    experts: int
    k: int
    top_k: int
    bias: bool = False
    groups: int = 1
    top_groups: int = 1
    balance_bias: bool = False
    saves_input: bool = True
    trained: bool = True


class Experts(Model, frozen=True, tag="experts"):
    """Routed experts: MLPs of which each token passes ``top_k``, run as grouped products.

    Parameters: ``experts * (k * ffn * (1 or 2) + ffn * k)`` and biases. FLOPs per token forward: two per parameter of
    ``top_k`` experts. ``spread``: standard deviation of an expert's share of the choices over the mean share (0: all
    are equally popular). ``capacity``: tokens beyond this multiple of an expert's fair share are dropped and free
    places padded (None: dropless).
    """

    experts: int
    top_k: int
    k: int
    ffn: int
    gated: bool
    bias: bool = False
    capacity: float | None = None
    spread: float = 0.0
    trained: bool = True

    @property
    def wide(self) -> int:
        """Columns of the first product: twice ``ffn`` where gated."""
        return self.ffn * (2 if self.gated else 1)


class Weights(Model, frozen=True, tag="weights"):
    """Loose parameters that take part in no matrix product: attention sinks, decay rates, position biases."""

    name: str
    size: int
    region: Region
    trained: bool = True


class MixStreams(Model, frozen=True, tag="mix_streams"):
    """Residual streams mixed by a small matrix per token, and what a half of a layer returns added to each.

    FLOPs per token forward: ``2 * streams**2 * size``.
    """

    name: str
    streams: int
    size: int


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
    share: float = 1.0
    """Part of the tokens that have such a vector."""
    module: Module = ""
    trained: bool = True


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
    module: Module = ""


class Embedding(Model, frozen=True, tag="embedding"):
    """A lookup table of ``rows`` vectors; ``learned positions`` and token embeddings are both this."""

    name: str
    rows: int
    size: int
    vocab_parallel: bool = True
    trained: bool = True


Op = Gemm | Attention | Index | Scan | Conv1d | Router | Experts | Weights | MixStreams | Norm | Elementwise | Embedding


def module_of(op: Op) -> Module:
    """Return the module that an operation belongs to."""
    match op:
        case Attention():
            return "core_attn"
        case Router() | Experts():
            return "moe"
        case Gemm() | Norm() | Elementwise():
            return op.module
        case _:
            return ""


def trained_ops(ops: Iterable[Op]) -> tuple[Op, ...]:
    """Return the operations whose parameters are trained; those that have none are not among them."""
    return tuple(op for op in ops if getattr(op, "trained", False))


class LayerGroup(Model, frozen=True):
    """``count`` equal layers, each the same tuple of operations."""

    name: str
    count: int
    ops: tuple[Op, ...]
