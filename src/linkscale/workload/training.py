"""What of a decoder is trained, and on what: all of it or adapters, on one document a sequence or on several.

An adapter (LoRA, Hu et al. 2021, arXiv 2106.09685) adds ``B A x`` to what a frozen linear layer returns, A of ``rank``
rows and B of ``rank`` columns. The base keeps its input gradients but has no weight gradients; everything that follows
(no gradients or optimizer states of frozen weights, no exchange of them, inputs that nobody needs for backward) is read
from the operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from linkscale.base.errors import InputError
from linkscale.base.model import Model
from linkscale.workload.ops import Attention, Elementwise, Experts, Gemm, Op, Router, Target

LoraTargets = Literal["qkv", "attention", "all-linear"]

TARGETS: dict[LoraTargets, frozenset[Target]] = {
    "qkv": frozenset({"qkv"}),
    "attention": frozenset({"qkv", "output"}),
    "all-linear": frozenset({"qkv", "output", "mlp"}),
}
"""Linear layers that each choice adapts. Routers, routed experts, tables and the output projection stay frozen."""

MOST_RANK = 65_536
MOST_UNEVEN = 100.0
"""Of a spread or a capacity: beyond it one expert would have all tokens."""


class Training(Model, frozen=True):
    """How a model is trained.

    ``lora_rank`` 0 trains all weights, else adapters of that rank on ``lora_targets``. ``packed_tokens``: mean length
    of the documents packed in a sequence, 0 where it is one document. ``expert_spread``: standard deviation of an
    expert's share of the tokens over the mean share, 0 where all are equally popular. ``capacity_factor``: tokens
    beyond this multiple of an expert's fair share are dropped, 0 where the model says.
    """

    lora_rank: int = 0
    lora_targets: LoraTargets = "all-linear"
    packed_tokens: int = 0
    expert_spread: float = 0.0
    capacity_factor: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.lora_rank <= MOST_RANK:
            raise InputError(
                f"lora_rank = {self.lora_rank}; it must be from 1 to {MOST_RANK}, or 0 to train everything"
            )
        for name in ("expert_spread", "capacity_factor"):
            if not 0.0 <= getattr(self, name) <= MOST_UNEVEN:
                raise InputError(f"{name} = {getattr(self, name)}; it must be from 0 to {MOST_UNEVEN:g}")
        if self.packed_tokens < 0:
            raise InputError(f"packed_tokens = {self.packed_tokens}; it must be at least 1, or 0 for one document")

    @property
    def adapters(self) -> bool:
        """Whether adapters are trained in place of the weights."""
        return self.lora_rank > 0


def packed(ops: Iterable[Op], tokens: int) -> tuple[Op, ...]:
    """Let attention stay within documents of so many tokens on average."""
    return tuple(
        msgspec.structs.replace(op, documents=tokens) if isinstance(op, Attention) else op for op in ops
    )  # fmt: skip


def routed(ops: Iterable[Op], training: Training) -> tuple[Op, ...]:
    """Give routed experts the popularity and the capacity that are stated."""
    stated: dict[str, float] = {}
    if training.expert_spread:
        stated["spread"] = training.expert_spread
    if training.capacity_factor:
        stated["capacity"] = training.capacity_factor
    return tuple(msgspec.structs.replace(op, **stated) if isinstance(op, Experts) else op for op in ops)


def adapted(ops: Iterable[Op], training: Training) -> tuple[Op, ...]:
    """Freeze the operations and hang adapters on the chosen linear layers among them."""
    return tuple(new for op in ops for new in _adapted(op, training))


def frozen(op: Op) -> Op:
    """Return an operation whose parameters are not trained: what only its weight gradient needs is not kept."""
    match op:
        case Gemm() | Router():
            return msgspec.structs.replace(op, trained=False, saves_input=False)
        case _ if hasattr(op, "trained"):
            return msgspec.structs.replace(op, trained=False)
        case _:
            return op


def _adapted(op: Op, training: Training) -> Iterator[Op]:
    if not (isinstance(op, Gemm) and op.target in TARGETS[training.lora_targets]):
        yield frozen(op)
        return
    # The adapter's first product reads the same input, so that it is kept here after all.
    yield msgspec.structs.replace(op, trained=False)
    yield from _adapter(op, training.lora_rank)


def _adapter(op: Gemm, rank: int) -> tuple[Op, ...]:
    """Return A, B, and what scales their result and adds it, cut as the base is.

    Before a column-parallel base A is whole on every tensor-parallel rank; after a row-parallel one it is cut along its
    input. Stacks that keep the parts of the base in products of their own have an A for each. The sums of ``rank``
    numbers per token over tensor-parallel ranks are left out: a thousandth of what the base exchanges.
    """
    down_shard: Literal["row", "none"] = "row" if op.shard == "row" else "none"
    up_shard: Literal["column", "none"] = "none" if op.shard == "none" else "column"
    region: Literal["sequence", "tensor"] = "tensor" if op.shard == "column" else "sequence"
    return (
        Gemm(name=f"{op.name} A", n=rank, k=op.k, shard=down_shard, saves_input=False, half=True, module=op.module,
             parts=op.parts),
        Gemm(name=f"{op.name} B", n=op.n, k=rank, shard=up_shard, boundary=False, half=True,
             kv_columns=op.kv_columns, kv_heads=op.kv_heads, module=op.module),
        Elementwise(name=f"{op.name} add", reads=3 * op.n, writes=2 * op.n, saves=0, region=region, module=op.module),
    )  # fmt: skip
