"""Constraints: what the user has already decided, and the limits a plan must keep."""

from __future__ import annotations

from typing import Any

import msgspec

from linkscale.base.errors import InputError
from linkscale.base.model import Model
from linkscale.plan.strategy import (
    LEAST,
    NUMBERS,
    A2aOverlap,
    AttentionKernel,
    Choices,
    CommDtype,
    Compression,
    CpComm,
    CudaGraphs,
    Dispatcher,
    ExpertGemm,
    Optimizer,
    Precision,
    Recompute,
    Schedule,
    Sharding,
    Stack,
    TpOverlap,
)

CHOICES = Choices.__struct_fields__


LEAST_MEMORY_BYTES = 1e6
"""Below this a limit of memory is a number of gigabytes that lacks its unit."""


class Constraints(Model, frozen=True):
    """Fields of a strategy that are fixed (None: free), the values that others may take, and limits.

    ``vary`` lists values by field, in place of those that are searched by default; a field that is fixed has one.

    ``max_memory_bytes`` is of one GPU, on top of its capacity. ``gpus`` lists GPU counts to try (empty: the whole
    cluster); each count uses the first so many GPUs.
    """

    stack: Stack | None = None
    sequence_parallel: bool | None = None
    sharding: Sharding | None = None
    recompute: Recompute | None = None
    recompute_modules: str | None = None
    schedule: Schedule | None = None
    precision: Precision | None = None
    attention: AttentionKernel | None = None
    cuda_graphs: CudaGraphs | None = None
    compile: bool | None = None
    fused_loss: bool | None = None
    optimizer: Optimizer | None = None
    grad_dtype: CommDtype | None = None
    flat_gradients: bool | None = None
    planned_memory: bool | None = None
    param_dtype: CommDtype | None = None
    compression: Compression | None = None
    hierarchical: bool | None = None
    overlap_grad_reduce: bool | None = None
    overlap_param_gather: bool | None = None
    overlap_p2p: bool | None = None
    cp_comm: CpComm | None = None
    no_sync: bool | None = None
    tp_overlap: TpOverlap | None = None
    dispatcher: Dispatcher | None = None
    a2a_overlap: A2aOverlap | None = None
    expert_gemm: ExpertGemm | None = None
    dispatch_dtype: CommDtype | None = None
    combine_dtype: CommDtype | None = None
    offload_optimizer: bool | None = None
    offload_params: bool | None = None

    tp: int | None = None
    pp: int | None = None
    vpp: int | None = None
    dp: int | None = None
    cp: int | None = None
    micro_batch: int | None = None
    recompute_layers: int | None = None
    shard_domain: int | None = None
    bucket_bytes: int | None = None
    ep: int | None = None
    etp: int | None = None
    offload_layers: int | None = None

    max_memory_bytes: float | None = None
    gpus: tuple[int, ...] = ()
    vary: dict[str, tuple[Any, ...]] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"{name} = {value}; it must be at least {least}")
        if self.max_memory_bytes is not None and not self.max_memory_bytes > 0:
            raise InputError(f"max_memory_bytes = {self.max_memory_bytes:g}; it must be more than 0")
        if self.max_memory_bytes is not None and self.max_memory_bytes < LEAST_MEMORY_BYTES:
            size = f"{self.max_memory_bytes:g}"
            raise InputError(f"max_memory_bytes = {size}: bytes, and no GPU has so few; write '{size} GB'")
        if any(count < 1 for count in self.gpus):
            raise InputError(f"gpus = {min(self.gpus)}; it must be at least 1")

    def fixed(self) -> dict[str, object]:
        """Return the fixed fields of the strategy by name."""
        names = (*CHOICES, *NUMBERS)
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}
