"""Gradient and parameter exchange of data parallelism: what is moved, what hides, what stays exposed.

One function per kind of sharding, each the sum of the sentences in its docstring. ``window`` values are device
seconds in which the exchange may run; what it hides behind, it slows (it holds multiprocessors).
"""

from __future__ import annotations

from linkscale.cost.kernels import FloatArray
from linkscale.cost.network import Network
from linkscale.estimate.buckets import gradients, parameters
from linkscale.estimate.replicas import DpGroups, Message, StageWork
from linkscale.estimate.sharded import fully_sharded
from linkscale.plan.strategy import Choices


def dp_messages(
    work: StageWork, groups: DpGroups, bucket_bytes: FloatArray, choices: Choices, net: Network,
    memory_bytes_per_s: float,
) -> list[Message]:  # fmt: skip
    """Price the data-parallel exchange of one step by its kind of sharding."""
    match choices.sharding:
        case "zero3" | "hsdp":
            return fully_sharded(work, groups, choices, net, memory_bytes_per_s)
        case "zero2" if choices.stack in ("fsdp1", "fsdp2"):
            return fully_sharded(work, groups, choices, net, memory_bytes_per_s)
        case "none":
            return gradients("all_reduce", work, groups, bucket_bytes, choices, net)
        case "zero1" | "zero2":
            reduced = gradients("reduce_scatter", work, groups, bucket_bytes, choices, net)
            return [*reduced, *parameters(work, groups, bucket_bytes, choices, net)]
