"""Records the collectives that real code issues, under a process group that moves nothing. Needs torch.

Sizes follow NCCL and Linkscale: the vector of one rank for all-reduce, the whole (ranks * shard) for all-gather and
reduce-scatter, a rank's buffer for all-to-all, the message for send. Receives are the other end of sends and are not
counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: no real collectives to compare with")

import torch.distributed as dist  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

__all__ = ["Call", "Recorder", "dist", "torch", "world"]


class Call(NamedTuple):
    """One collective: kind, ranks of its group, bytes."""

    kind: str
    ranks: int
    size_bytes: int


# Operator: kind, index of the tensor whose bytes count, index of the group.
C10D = {
    "allreduce_": ("all_reduce", 0, 1),
    "_allgather_base_": ("all_gather", 0, 2),
    "allgather_": ("all_gather", 0, 2),
    "_reduce_scatter_base_": ("reduce_scatter", 1, 2),
    "reduce_scatter_": ("reduce_scatter", 1, 2),
    # Coalesced: several buffers in one launch, and one call here.
    "allreduce_coalesced_": ("all_reduce", 0, 1),
    "allgather_into_tensor_coalesced_": ("all_gather", 0, 2),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", 1, 2),
    "alltoall_base_": ("all_to_all", 1, 2),
    "alltoall_": ("all_to_all", 1, 2),
    "send": ("send_recv", 0, 1),
}
# Functional operators name the group last; the gathered size is the shard's times the ranks.
FUNCTIONAL = {
    "all_reduce": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
}
UNCOUNTED = {
    "recv_",
    "wait_tensor",
    "broadcast_",
    "broadcast",
    "barrier",
    "_wrap_tensor_autograd",
    "_unwrap_tensor_autograd",
}


class Recorder(TorchDispatchMode):
    """Lists collectives in the order of their calls, and what their groups are described as."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.groups: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # A distributed tensor turns itself into local tensors and collectives first.
        if any(t is not torch.Tensor and t.__name__ in ("DTensor", "AsyncCollectiveTensor") for t in types):
            return NotImplemented
        namespace, name = func._schema.name.split("::")
        if namespace == "c10d":
            self._note_c10d(name, args)
        elif namespace == "_c10d_functional":
            self._note_functional(name, args)
        return func(*args, **(kwargs or {}))

    def _note_c10d(self, name: str, args: Any) -> None:
        if name in UNCOUNTED:
            return
        kind, tensor, group = C10D[name]
        self._note(kind, dist.ProcessGroup.unbox(args[group]), _bytes(args[tensor]))

    def _note_functional(self, name: str, args: Any) -> None:
        if name in UNCOUNTED:
            return
        kind = FUNCTIONAL[name]
        group = dist.distributed_c10d._resolve_process_group(args[-1]) if isinstance(args[-1], str) else args[-1]
        size = _bytes(args[0]) * (group.size() if kind == "all_gather" else 1)
        if kind == "all_to_all" and sum(n > 0 for n in args[2]) == 1:  # a permutation: one message to one neighbour
            kind = "send_recv"
        self._note(kind, group, size)

    def _note(self, kind: str, group: Any, size_bytes: int) -> None:
        self.calls.append(Call(kind, group.size(), size_bytes))
        self.groups.append(group.group_desc)

    def table(self, *groups: str) -> Counter[Call]:
        """Return how often each call was made, of all groups or of those described so; one rank exchanges nothing."""
        calls = zip(self.calls, self.groups, strict=True)
        return Counter(call for call, group in calls if call.ranks > 1 and (not groups or group in groups))


def _bytes(value: Any) -> int:
    if isinstance(value, list | tuple):
        return sum(_bytes(v) for v in value)
    return int(value.numel() * value.element_size())


@contextmanager
def world(ranks: int, rank: int = 0) -> Iterator[None]:
    """Stand as one rank in a world whose collectives return at once."""
    torch.set_num_threads(1)  # threads that wait for each other take longer than these small products
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()
