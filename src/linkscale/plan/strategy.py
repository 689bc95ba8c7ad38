"""Strategy: how a job is cut over GPUs. One strategy is a batch of length one.

Categorical choices are scalars of a batch and branch by ``match``; only numbers are arrays (DESIGN.md, rule 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from linkscale.base.errors import InputError
from linkscale.base.model import Model

Stack = Literal["megatron", "fsdp2", "fsdp1", "deepspeed", "ddp"]
Sharding = Literal["none", "zero1", "zero2", "zero3", "hsdp"]
Recompute = Literal["none", "selective", "full"]
Precision = Literal["fp16", "bf16", "fp8"]
CommDtype = Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4"]
Schedule = Literal["1f1b", "gpipe"]
AttentionKernel = Literal["flash", "unfused"]
TpOverlap = Literal["none", "async", "ring"]
CpComm = Literal["p2p", "all_gather", "a2a"]
Compression = Literal["none", "bf16", "fp16", "fp8", "int8", "int4", "topk", "powersgd"]

IntArray = npt.NDArray[np.int64]

DTYPE_BYTES: dict[str, float] = {
    "fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5,
}  # fmt: skip


class Choices(Model, frozen=True):
    """The categorical half of a strategy."""

    stack: Stack = "megatron"
    sequence_parallel: bool = True
    sharding: Sharding = "zero1"
    recompute: Recompute = "selective"
    schedule: Schedule = "1f1b"
    precision: Precision = "bf16"
    attention: AttentionKernel = "flash"
    compile: bool = False
    """torch.compile or an equivalent fusion of memory-bound operations."""
    fused_loss: bool = False
    """A loss that makes its gradient from the 16-bit logits in one kernel (a compiled or chunked cross entropy)."""
    grad_dtype: CommDtype = "fp32"
    """Type in which gradients are accumulated and reduced."""
    param_dtype: CommDtype = "bf16"
    """Type in which parameters are gathered."""
    compression: Compression = "none"
    hierarchical: bool = False
    overlap_grad_reduce: bool = True
    overlap_param_gather: bool = True
    overlap_p2p: bool = True
    cp_comm: CpComm = "p2p"
    """How context-parallel ranks meet each other's keys and values: ``p2p`` passes them round a ring behind attention,
    ``all_gather`` collects them before it, ``a2a`` (Ulysses) trades tokens for heads around it."""
    no_sync: bool = False
    """Fully sharded stacks: reduce gradients after the last micro-batch only, holding them whole until then."""
    tp_overlap: TpOverlap = "async"
    """What tensor-parallel communication hides behind: nothing; ``async``: Megatron's, the input gradient's
    reduction behind the weight gradient's GEMM; ``ring``: every exchange pipelined with its own GEMM."""


NUMBERS = ("tp", "pp", "vpp", "dp", "cp", "micro_batch", "recompute_layers", "shard_domain", "bucket_bytes")


class Strategy(Choices, frozen=True):
    """A strategy of one job: choices and numbers.

    ``dp`` counts data-parallel replicas of the dense part: GPUs = tp * cp * pp * dp. ``shard_domain`` is the
    group over which HSDP shards (1 where unused). ``recompute_layers``: full recompute of that many layers
    per pipeline stage (0 = all, when recompute is ``full``). ``bucket_bytes``: gradient bucket (0 = the stack's own).
    """

    tp: int = 1
    pp: int = 1
    vpp: int = 1
    dp: int = 1
    cp: int = 1
    micro_batch: int = 1
    recompute_layers: int = 0
    shard_domain: int = 1
    bucket_bytes: int = 0

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "vpp", "dp", "cp", "micro_batch", "shard_domain"):
            value = getattr(self, name)
            if value < 1:
                raise InputError(f"{name} = {value}; it must be at least 1")
        for name in ("recompute_layers", "bucket_bytes"):
            value = getattr(self, name)
            if value < 0:
                raise InputError(f"{name} = {value}; it must not be negative")

    @property
    def gpus(self) -> int:
        """GPUs that the strategy needs."""
        return self.tp * self.cp * self.pp * self.dp

    def choices(self) -> Choices:
        """Return the categorical half alone."""
        return Choices(**{f: getattr(self, f) for f in Choices.__struct_fields__})

    def batch(self) -> StrategyBatch:
        """Return this strategy as a batch of length one."""
        return stack_strategies([self])


@dataclass(frozen=True)
class StrategyBatch:
    """Strategies that share their choices: struct of int64 arrays, all of shape (strategies,)."""

    choices: Choices
    tp: IntArray
    pp: IntArray
    vpp: IntArray
    dp: IntArray
    cp: IntArray
    micro_batch: IntArray
    recompute_layers: IntArray
    shard_domain: IntArray
    bucket_bytes: IntArray

    def __len__(self) -> int:
        return len(self.tp)

    def row(self, index: int) -> Strategy:
        """Return one strategy of the batch."""
        numbers: dict[str, Any] = {name: int(getattr(self, name)[index]) for name in NUMBERS}
        return Strategy(**msgspec.structs.asdict(self.choices), **numbers)

    def take(self, index: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> StrategyBatch:
        """Return the batch of the given rows (an index or boolean mask)."""
        return StrategyBatch(self.choices, **{name: getattr(self, name)[index] for name in NUMBERS})


def stack_strategies(strategies: Sequence[Strategy]) -> StrategyBatch:
    """Stack strategies with equal choices into one batch."""
    choices = strategies[0].choices()
    if any(s.choices() != choices for s in strategies):
        raise ValueError("strategies of one batch must share their choices")
    return StrategyBatch(
        choices, **{name: np.array([getattr(s, name) for s in strategies], dtype=np.int64) for name in NUMBERS}
    )
