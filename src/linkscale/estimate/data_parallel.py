"""Gradient and parameter exchange of data parallelism: what is moved, what hides, what stays exposed.

One function per kind of sharding, each the sum of the sentences in its docstring. ``window`` values are device
seconds in which the exchange may run; what it hides behind, it slows (it holds multiprocessors).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linkscale.cost.collectives import CollectiveTime, Kind, collective_s
from linkscale.cost.kernels import FloatArray
from linkscale.cost.network import Network
from linkscale.plan.strategy import DTYPE_BYTES, Choices
from linkscale.topology.groups import GroupGeometry, group_geometry

# Megatron's bucket: 40 M parameters, or 1 M per data-parallel rank where that is more, so that large groups do
# not become latency bound. PyTorch DDP's: 25 MiB.
MEGATRON_BUCKET_PARAMS = 40e6
MEGATRON_BUCKET_PARAMS_PER_RANK = 1e6
DDP_BUCKET_BYTES = 25.0 * 1024 * 1024


@dataclass(frozen=True)
class Message:
    """One kind of message in a step: arrays over strategies (``group`` is None where it is a single neighbour)."""

    group_name: str
    what: str
    kind: Kind
    size_bytes: FloatArray
    count: FloatArray
    one: CollectiveTime
    geometry: GroupGeometry
    exposed_s: FloatArray

    @property
    def time_s(self) -> FloatArray:
        """Seconds of all its calls."""
        return self.count * self.one.time_s


@dataclass(frozen=True)
class StageWork:
    """What the critical stage offers as cover: device seconds per micro-batch, and what it holds."""

    layers: FloatArray
    layer_params: FloatArray
    edge_params: FloatArray
    layer_forward_s: FloatArray
    layer_backward_s: FloatArray
    micro_batches: FloatArray
    pp: FloatArray
    vpp: FloatArray

    @property
    def params(self) -> FloatArray:
        """Parameters of the stage on one rank."""
        return self.layers * self.layer_params + self.edge_params


@dataclass(frozen=True)
class DpGroups:
    """Data-parallel ranks: the group that shards (or reduces), and the replicas of it under HSDP."""

    shard: GroupGeometry
    replica: GroupGeometry


def dp_groups(tp: FloatArray, cp: FloatArray, dp: FloatArray, shard_domain: FloatArray, choices: Choices, net: Network) -> DpGroups:  # noqa: E501
    """Lay the data-parallel ranks of every strategy on the domains."""
    ranks, stride = dp * cp, tp
    inner = np.where(choices.sharding == "hsdp", np.minimum(shard_domain, ranks), ranks)
    return DpGroups(
        group_geometry(inner, stride, net.domain_gpus),
        group_geometry(ranks / inner, stride * inner, net.domain_gpus),
    )


def dp_messages(work: StageWork, groups: DpGroups, bucket_bytes: FloatArray, choices: Choices, net: Network) -> list[Message]:  # noqa: E501
    """Price the data-parallel exchange of one step by its kind of sharding."""
    match choices.sharding:
        case "zero3" | "hsdp":
            return _fully_sharded(work, groups, choices, net)
        case "none":
            return [_gradients("all_reduce", work, groups, bucket_bytes, choices, net)]
        case "zero1" | "zero2":
            gradients = _gradients("reduce_scatter", work, groups, bucket_bytes, choices, net)
            return [gradients, _parameters(work, groups, choices, net)]


def _gradients(
    kind: Kind, work: StageWork, groups: DpGroups, bucket_bytes: FloatArray, choices: Choices, net: Network
) -> Message:
    """Gradients overlap only the last micro-batch's backward, per virtual stage; the last bucket is exposed.

    Chunks other than the first of a virtual pipeline finish up to ``pp`` micro-batches earlier each.
    """
    total = work.params * DTYPE_BYTES[choices.grad_dtype]
    bucket = np.minimum(total, np.where(bucket_bytes > 0, bucket_bytes, _own_bucket(groups, choices)))
    count = np.ceil(total / bucket)
    size = total / count
    one = collective_s(kind, size, groups.shard, net)
    all_s = count * one.time_s
    if not choices.overlap_grad_reduce:
        whole = collective_s(kind, total, groups.shard, net)
        return Message("dp", "gradients", kind, total, np.ones_like(total), whole, groups.shard, whole.time_s)
    chunk = work.layers * work.layer_backward_s / work.vpp
    early = (work.vpp - 1.0) * np.minimum(work.pp, work.micro_batches) * chunk
    exposed = np.maximum(one.time_s, np.maximum(all_s - chunk - early, all_s / work.vpp - chunk))
    exposed = exposed + _slowdown(all_s - exposed, one, net)
    return Message("dp", "gradients", kind, size, count, one, groups.shard, exposed)


def _own_bucket(groups: DpGroups, choices: Choices) -> FloatArray:
    if choices.stack != "megatron":
        return np.full(groups.shard.size.shape, DDP_BUCKET_BYTES)
    params = np.maximum(MEGATRON_BUCKET_PARAMS, MEGATRON_BUCKET_PARAMS_PER_RANK * groups.shard.size)
    return params * DTYPE_BYTES[choices.grad_dtype]


def _parameters(work: StageWork, groups: DpGroups, choices: Choices, net: Network) -> Message:
    """A distributed optimizer's parameters are gathered behind the next step's first forward; its first bucket is not."""
    total = work.params * DTYPE_BYTES[choices.param_dtype]
    bucket = np.minimum(total, _own_bucket(groups, choices) * DTYPE_BYTES[choices.param_dtype] / DTYPE_BYTES[choices.grad_dtype])  # noqa: E501
    count = np.ceil(total / bucket)
    one = collective_s("all_gather", total / count, groups.shard, net)
    all_s = count * one.time_s
    if not choices.overlap_param_gather:
        whole = collective_s("all_gather", total, groups.shard, net)
        return Message("dp", "parameters", "all_gather", total, np.ones_like(total), whole, groups.shard, whole.time_s)
    window = work.layers * work.layer_forward_s / work.vpp
    early = (work.vpp - 1.0) * np.minimum(work.pp, work.micro_batches) * window
    exposed = np.maximum(one.time_s, all_s - window - early)
    exposed = exposed + _slowdown(all_s - exposed, one, net)
    return Message("dp", "parameters", "all_gather", total / count, count, one, groups.shard, exposed)


def _fully_sharded(work: StageWork, groups: DpGroups, choices: Choices, net: Network) -> list[Message]:
    """Layers are gathered per micro-batch, forward and backward, one ahead, and their gradients reduced per micro-batch.

    Exposed: the first gather (the edge unit and the first layer), what a layer's exchange exceeds a layer's compute,
    and the last reduction. Under HSDP the shards are also all-reduced over the replicas, behind the same backward.
    """
    grad = DTYPE_BYTES[choices.grad_dtype]
    param = DTYPE_BYTES[choices.param_dtype]
    micro = work.micro_batches
    gather = collective_s("all_gather", work.layer_params * param, groups.shard, net)
    gather_edge = collective_s("all_gather", work.edge_params * param, groups.shard, net)
    reduce = collective_s("reduce_scatter", work.layer_params * grad, groups.shard, net)
    reduce_edge = collective_s("reduce_scatter", work.edge_params * grad, groups.shard, net)
    share = work.layer_params * grad / groups.shard.size
    across = collective_s("all_reduce", share, groups.replica, net)
    overlap = choices.overlap_param_gather, choices.overlap_grad_reduce
    others = work.layers - 1.0

    forward = np.maximum(0.0, gather.time_s - work.layer_forward_s) if overlap[0] else gather.time_s
    backward_all = gather.time_s + reduce.time_s + across.time_s
    late = np.maximum(0.0, backward_all - work.layer_backward_s) if overlap[1] else backward_all
    gather_exposed = micro * (gather_edge.time_s + gather.time_s + others * forward)
    # What backward cannot hide is charged to its exchanges in the order they queue: gathers first.
    late_gather = np.minimum(late, gather.time_s) * others * micro
    late_reduce = np.maximum(0.0, late - gather.time_s) * others * micro
    reduce_exposed = late_reduce + micro * (reduce.time_s + reduce_edge.time_s + across.time_s)
    hidden = micro * work.layers * (gather.time_s + backward_all) - gather_exposed - late_gather - late_reduce
    gather_exposed = gather_exposed + late_gather + _slowdown(np.maximum(0.0, hidden), gather, net)
    calls = 2.0 * work.layers * micro
    shard, replica = groups.shard, groups.replica
    return [
        Message("dp", "parameters", "all_gather", work.layer_params * param, calls, gather, shard, gather_exposed),
        Message("dp", "edge parameters", "all_gather", work.edge_params * param, micro, gather_edge, shard, micro * 0.0),
        Message("dp", "gradients", "reduce_scatter", work.layer_params * grad, calls / 2.0, reduce, shard, reduce_exposed),
        Message("dp", "edge gradients", "reduce_scatter", work.edge_params * grad, micro, reduce_edge, shard, micro * 0.0),
        Message("replica", "gradient shards", "all_reduce", share, calls / 2.0, across, replica, micro * 0.0),
    ]  # fmt: skip


def _slowdown(hidden_s: FloatArray, one: CollectiveTime, net: Network) -> FloatArray:
    """Seconds that compute loses while a collective runs beside it: the share of multiprocessors it holds."""
    return hidden_s * one.sms / net.sm_count
