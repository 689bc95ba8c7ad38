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
Precision = Literal["fp16", "bf16", "fp8", "fp8-block", "mxfp8", "nvfp4"]
CommDtype = Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4"]
Schedule = Literal["1f1b", "gpipe", "zb-h1", "zb-v", "dualpipe"]
Optimizer = Literal["adamw", "adamw-bf16", "adamw-8bit", "sgd", "muon"]
CudaGraphs = Literal["none", "partial", "full"]
AttentionKernel = Literal["flash", "unfused"]
TpOverlap = Literal["none", "async", "bulk", "ring"]
Dispatcher = Literal["alltoall", "allgather", "deepep", "hybridep"]
A2aOverlap = Literal["none", "shared-expert", "1f1b"]
ExpertGemm = Literal["grouped", "sequential", "fused"]
CpComm = Literal["p2p", "all_gather", "a2a"]
Compression = Literal["none", "bf16", "fp16", "fp8", "int8", "int4", "topk", "powersgd"]

IntArray = npt.NDArray[np.int64]

DTYPE_BYTES: dict[str, float] = {
    "fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5,
}  # fmt: skip


DEFAULT_MODULES = "core_attn"


class Choices(Model, frozen=True):
    """The categorical half of a strategy."""

    stack: Stack = "megatron"
    sequence_parallel: bool = True
    sharding: Sharding = "zero1"
    recompute: Recompute = "selective"
    recompute_modules: str = DEFAULT_MODULES
    """What ``selective`` recomputes in Megatron: names of ``MODULES``, separated by commas."""
    schedule: Schedule = "1f1b"
    precision: Precision = "bf16"
    """Of the products. One scale serves: ``fp8`` a tensor, ``fp8-block`` 128 numbers, ``mxfp8`` 32, ``nvfp4`` 16.
    """
    attention: AttentionKernel = "flash"
    cuda_graphs: CudaGraphs = "none"
    """How much of a step the host launches as recorded graphs: ``partial`` leaves out attention (or experts)."""
    compile: bool = False
    """torch.compile or an equivalent fusion of memory-bound operations."""
    fused_loss: bool = False
    """A loss that makes its gradient from the 16-bit logits in one kernel (a compiled or chunked cross entropy)."""
    optimizer: Optimizer = "adamw"
    """``adamw`` keeps fp32 moments, ``-bf16`` and ``-8bit`` shorter ones; ``muon`` orthogonalises its momentum."""
    grad_dtype: CommDtype = "fp32"
    """Type in which gradients are accumulated and reduced."""
    flat_gradients: bool = False
    """Gradients pass through buffers as long as all of them on their way to the optimizer, as DeepSpeed's do."""
    planned_memory: bool = False
    """Tensors have their places before the program runs (XLA, OneFlow): an allocator wastes nothing between them."""
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
    """Where gradients are sharded: reduce them after the last micro-batch only, holding them whole until then."""
    tp_overlap: TpOverlap = "async"
    """What tensor-parallel communication hides behind: nothing; ``async``: Megatron's, the input gradient's
    reduction behind the weight gradient's GEMM; ``bulk``: the same by Transformer Engine's kernels; ``ring``: every
    exchange pipelined with its own GEMM."""
    dispatcher: Dispatcher = "alltoall"
    """How tokens reach their experts: ``alltoall`` sends every copy, ``allgather`` all tokens to all ranks; ``deepep``
    and ``hybridep`` send a token once to every node that holds experts of its, and fan it out there."""
    a2a_overlap: A2aOverlap = "none"
    """What the exchange of tokens hides behind: the experts that all tokens pass, or (``1f1b``) the other direction of
    another micro-batch."""
    expert_gemm: ExpertGemm = "grouped"
    """How experts are multiplied: together, one by one, or by one kernel that activates and casts as well."""
    dispatch_dtype: CommDtype = "bf16"
    """Type in which tokens are sent to their experts."""
    combine_dtype: CommDtype = "bf16"
    """Type in which experts' results are sent back."""
    offload_optimizer: bool = False
    """Optimizer states live in host memory and the host updates them; gradients go there, weights come back."""
    offload_params: bool = False
    """Shards of the weights live in host memory and come when their layer is gathered."""


LEAST = {
    "tp": 1, "pp": 1, "vpp": 1, "dp": 1, "cp": 1, "micro_batch": 1, "recompute_layers": 0, "shard_domain": 1,
    "bucket_bytes": 0, "ep": 1, "etp": 1, "offload_layers": 0,
}  # fmt: skip
"""The numbers of a strategy and the least that each may be."""

NUMBERS = tuple(LEAST)

MODULES = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts")
"""Modules that Megatron-LM recomputes on their own (--recompute-modules)."""


def modules(text: str) -> frozenset[str]:
    """Return the modules that a list names; raises InputError for an unknown or an empty one.

    >>> sorted(modules("moe_act,layernorm"))
    ['layernorm', 'moe_act']
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in MODULES:
            raise InputError(f"recompute_modules names {name!r}; choose from {', '.join(MODULES)}")
    return frozenset(names)


ROUTING = ("dispatcher", "a2a_overlap", "expert_gemm", "dispatch_dtype", "combine_dtype")
"""Choices that say something about routed experts only."""


def repeated_modules(choices: Choices) -> frozenset[str]:
    """Return the modules that are computed again on their own: those of Megatron's selective recomputation."""
    chosen = choices.recompute == "selective" and choices.stack == "megatron"
    return modules(choices.recompute_modules) if chosen else frozenset()


class Strategy(Choices, frozen=True):
    """A strategy of one job: choices and numbers.

    ``dp`` counts data-parallel replicas of the dense part: GPUs = tp * cp * pp * dp. ``shard_domain`` is the
    group over which HSDP shards (1 where unused). ``recompute_layers``: full recompute of that many layers
    per pipeline stage (0 = all, when recompute is ``full``). ``bucket_bytes``: gradient bucket (0 = the stack's own).
    ``ep``, ``etp``: ranks over which routed experts are divided, and over which one expert is cut; both are folded over
    the ranks of a stage, so that ``edp`` replicas of experts are left. ``offload_layers``: layers per stage whose
    activations wait for backward in host memory.
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
    ep: int = 1
    etp: int = 1
    offload_layers: int = 0

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value < least:
                raise InputError(f"{name} = {value}; it must be at least {least}")
        if self.recompute_modules != DEFAULT_MODULES:
            modules(self.recompute_modules)
            if not repeated_modules(self):
                raise InputError("recompute_modules belongs to recompute selective of the megatron stack; leave it out")

    @property
    def gpus(self) -> int:
        """GPUs that the strategy needs."""
        return self.tp * self.cp * self.pp * self.dp

    @property
    def edp(self) -> int:
        """Data-parallel replicas of routed experts."""
        return self.tp * self.cp * self.dp // (self.ep * self.etp)

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
    ep: IntArray
    etp: IntArray
    offload_layers: IntArray

    def __len__(self) -> int:
        return len(self.tp)

    def row(self, index: int) -> Strategy:
        """Return one strategy of the batch."""
        numbers: dict[str, Any] = {name: int(getattr(self, name)[index]) for name in NUMBERS}
        return Strategy(**msgspec.structs.asdict(self.choices), **numbers)

    def take(self, index: npt.NDArray[np.intp] | npt.NDArray[np.bool_] | slice) -> StrategyBatch:
        """Return the batch of the given rows (an index, a mask, or a slice, which copies nothing)."""
        return StrategyBatch(self.choices, **{name: getattr(self, name)[index] for name in NUMBERS})


def stack_strategies(strategies: Sequence[Strategy]) -> StrategyBatch:
    """Stack strategies with equal choices into one batch."""
    choices = strategies[0].choices()
    if any(s.choices() != choices for s in strategies):
        raise ValueError("strategies of one batch must share their choices")
    return StrategyBatch(
        choices, **{name: np.array([getattr(s, name) for s in strategies], dtype=np.int64) for name in NUMBERS}
    )
