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
from linkscale.plan.strategy import DTYPE_BYTES, Choices, Stack
from linkscale.topology.groups import GroupGeometry, group_geometry

# Megatron's bucket: 40 M parameters, or 1 M per data-parallel rank where that is more, so that large groups do
# not become latency bound (--ddp-bucket-size). PyTorch DDP's: 25 MiB (bucket_cap_mb). DeepSpeed's: 500 M elements
# (reduce_bucket_size, allgather_bucket_size). FSDP's is a layer.
MEGATRON_BUCKET_PARAMS = 40e6
MEGATRON_BUCKET_PARAMS_PER_RANK = 1e6
DDP_BUCKET_BYTES = 25.0 * 1024 * 1024
DEEPSPEED_BUCKET_PARAMS = 5e8


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
    copies_s: FloatArray | float = 0.0
    """Seconds in which the device packs and unpacks the buffers of all its calls."""

    @property
    def time_s(self) -> FloatArray:
        """Seconds of all its calls."""
        return self.count * self.one.time_s + self.copies_s


@dataclass(frozen=True)
class StageWork:
    """What the critical stage offers as cover: device seconds per micro-batch, and what it holds."""

    layers: FloatArray
    width: int
    """Features of the model, the shorter side of most weights."""
    layer_params: FloatArray
    layer_tensors: float
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


def dp_groups(
    tp: FloatArray, cp: FloatArray, dp: FloatArray, shard_domain: FloatArray, choices: Choices, net: Network
) -> DpGroups:
    """Lay the data-parallel ranks of every strategy on the domains."""
    ranks, stride = dp * cp, tp
    inner = np.where(choices.sharding == "hsdp", np.minimum(shard_domain, ranks), ranks)
    return DpGroups(
        group_geometry(inner, stride, net.domain_gpus),
        group_geometry(ranks / inner, stride * inner, net.domain_gpus),
    )


def dp_messages(
    work: StageWork, groups: DpGroups, bucket_bytes: FloatArray, choices: Choices, net: Network,
    memory_bytes_per_s: float,
) -> list[Message]:  # fmt: skip
    """Price the data-parallel exchange of one step by its kind of sharding."""
    match choices.sharding:
        case "zero3" | "hsdp":
            return _fully_sharded(work, groups, choices, net, memory_bytes_per_s)
        case "zero2" if choices.stack in ("fsdp1", "fsdp2"):
            return _fully_sharded(work, groups, choices, net, memory_bytes_per_s)
        case "none":
            return [_gradients("all_reduce", work, groups, bucket_bytes, choices, net)]
        case "zero1" | "zero2":
            gradients = _gradients("reduce_scatter", work, groups, bucket_bytes, choices, net)
            return [gradients, _parameters(work, groups, bucket_bytes, choices, net)]


def _gradients(
    kind: Kind, work: StageWork, groups: DpGroups, bucket_bytes: FloatArray, choices: Choices, net: Network
) -> Message:
    """Gradients overlap only the last micro-batch's backward; ranks that keep a shard of them reduce in every one."""
    return _bucketed(
        "gradients", kind, DTYPE_BYTES[choices.grad_dtype], _bucket_params(work, groups, bucket_bytes, choices), work,
        groups.shard, net, layer_s=work.layer_backward_s if choices.overlap_grad_reduce else None,
        every=choices.sharding == "zero2" and not choices.no_sync,
    )  # fmt: skip


def _parameters(work: StageWork, groups: DpGroups, bucket_bytes: FloatArray, choices: Choices, net: Network) -> Message:
    """Parameters of a distributed optimizer are gathered behind the next step's first forward, but for one bucket."""
    return _bucketed(
        "parameters", "all_gather", DTYPE_BYTES[choices.param_dtype],
        _bucket_params(work, groups, bucket_bytes, choices), work, groups.shard, net,
        layer_s=work.layer_forward_s if choices.overlap_param_gather else None, every=False,
    )  # fmt: skip


def _bucket_params(work: StageWork, groups: DpGroups, bucket_bytes: FloatArray, choices: Choices) -> FloatArray:
    """Parameters of a bucket: what was asked for in bytes of gradients, or the stack's own."""
    grad = DTYPE_BYTES[choices.grad_dtype]
    return np.where(bucket_bytes > 0, bucket_bytes / grad, _own_bucket_params(work, groups, choices.stack, grad))


def _own_bucket_params(work: StageWork, groups: DpGroups, stack: Stack, grad_bytes: float) -> FloatArray | float:
    match stack:
        case "megatron":
            return np.maximum(MEGATRON_BUCKET_PARAMS, MEGATRON_BUCKET_PARAMS_PER_RANK * groups.shard.size)
        case "fsdp1" | "fsdp2":
            return work.layer_params
        case "deepspeed":
            return DEEPSPEED_BUCKET_PARAMS
        case "ddp":
            return DDP_BUCKET_BYTES / grad_bytes


def _bucketed(
    what: str, kind: Kind, param_bytes: float, bucket_params: FloatArray, work: StageWork, group: GroupGeometry,
    net: Network, *, layer_s: FloatArray | None, every: bool,
) -> Message:  # fmt: skip
    """Exchange a stage's parameters or gradients in buckets, once a step or for ``every`` micro-batch.

    ``layer_s``: seconds per layer of the pass that it hides behind (None: behind nothing, and in one piece). One
    bucket is exposed: the first that is gathered, the last that is reduced. Chunks of a virtual pipeline other than
    the first run up to ``pp`` micro-batches later forward and earlier backward, each, which is cover as well.
    """
    total = work.params * param_bytes
    times = work.micro_batches if every else np.ones_like(total)
    if layer_s is None:
        one = collective_s(kind, total, group, net)
        return Message("dp", what, kind, total, times, one, group, times * one.time_s)
    count = np.ceil(total / np.minimum(total, bucket_params * param_bytes))
    one = collective_s(kind, total / count, group, net)
    all_s = count * one.time_s
    chunk = work.layers * layer_s / work.vpp
    apart = 1.0 if every else np.minimum(work.pp, work.micro_batches)
    early = (work.vpp - 1.0) * apart * chunk
    exposed = np.maximum(one.time_s, np.maximum(all_s - chunk - early, all_s / work.vpp - chunk))
    exposed = times * (exposed + _slowdown(all_s - exposed, one, net))
    return Message("dp", what, kind, total / count, times * count, one, group, exposed)


@dataclass(frozen=True)
class _Exchange:
    """One exchange of a layer: the collective of one piece and the seconds of all pieces."""

    one: CollectiveTime
    size_bytes: FloatArray
    pieces: float

    @property
    def time_s(self) -> FloatArray:
        """Seconds for one layer."""
        return self.pieces * self.one.time_s


def _exchange(kind: Kind, layer_bytes: FloatArray, pieces: float, group: GroupGeometry, net: Network) -> _Exchange:
    size = layer_bytes / pieces
    return _Exchange(collective_s(kind, size, group, net), size, pieces)


def _fully_sharded(
    work: StageWork, groups: DpGroups, choices: Choices, net: Network, memory_bytes_per_s: float
) -> list[Message]:
    """Layers are gathered per micro-batch, forward and backward, one ahead; gradients are reduced per micro-batch.

    Exposed: the first gather (the edge unit and the first layer), what a layer's exchange exceeds a layer's compute,
    the last reduction, and the copies between a layer's tensors and the exchanged buffer. Under HSDP the shards are
    also all-reduced over the replicas, behind the same backward. ZeRO-2 of these stacks (``reshard_after_forward``
    off) keeps a layer whole from forward to backward; the edge unit is kept so in any case.
    """
    grad, param = DTYPE_BYTES[choices.grad_dtype], DTYPE_BYTES[choices.param_dtype]
    # DeepSpeed exchanges parameter by parameter, FSDP a layer at once.
    pieces = work.layer_tensors if choices.stack == "deepspeed" else 1.0
    shard, replica, micro, layers = groups.shard, groups.replica, work.micro_batches, work.layers
    gather = _exchange("all_gather", work.layer_params * param, pieces, shard, net)
    reduce = _exchange("reduce_scatter", work.layer_params * grad, pieces, shard, net)
    gather_edge = _exchange("all_gather", work.edge_params * param, 1.0, shard, net)
    reduce_edge = _exchange("reduce_scatter", work.edge_params * grad, 1.0, shard, net)
    across = _exchange("all_reduce", work.layer_params * grad / shard.size, 1.0, replica, net)
    across_edge = _exchange("all_reduce", work.edge_params * grad / shard.size, 1.0, replica, net)

    forward, backward, reducing = _times(work, choices)
    others, reduced = layers - 1.0, reducing * (layers - 1.0)
    again = np.where(backward > 0, 1.0, 0.0)
    exchanges = again * gather.time_s + reduce.time_s + across.time_s
    late_forward = _late(gather.time_s, work.layer_forward_s, choices.overlap_param_gather)
    late = _late(exchanges, work.layer_backward_s, choices.overlap_grad_reduce)
    # What backward cannot hide is charged in the order it queues: the gather, the reduction, the replicas.
    late_gather = again * np.minimum(late, gather.time_s)
    late_reduce = np.minimum(late - late_gather, reduce.time_s)
    late_across = late - late_gather - late_reduce

    def exposed(first: FloatArray, late_s: FloatArray, whole_s: FloatArray) -> FloatArray:
        return first + late_s + _slowdown(whole_s - late_s, gather.one, net)

    copied = layers * work.layer_params / memory_bytes_per_s
    unpack, pack = copied * (forward + backward) * (2.0 * param), copied * micro * (2.0 * grad)
    late_gathers = others * (forward * late_forward + backward * late_gather)
    gathers = exposed(forward * gather.time_s, late_gathers, others * (forward + backward) * gather.time_s)
    reductions = exposed(reducing * reduce.time_s, reduced * late_reduce, reduced * reduce.time_s)
    replicas = exposed(reducing * across.time_s, reduced * late_across, reduced * across.time_s)
    return [
        _message("parameters", "all_gather", gather, layers * (forward + backward), shard, gathers, unpack),
        _message("edge parameters", "all_gather", gather_edge, forward, shard, forward * gather_edge.time_s),
        _message("gradients", "reduce_scatter", reduce, layers * reducing, shard, reductions, pack),
        _message("edge gradients", "reduce_scatter", reduce_edge, reducing, shard, reducing * reduce_edge.time_s),
        _message("gradient shards", "all_reduce", across, layers * reducing, replica, replicas),
        _message("edge shards", "all_reduce", across_edge, reducing, replica, reducing * across_edge.time_s),
    ]


def _times(work: StageWork, choices: Choices) -> tuple[FloatArray, FloatArray, FloatArray]:
    """How often a layer is gathered forward, gathered backward, and reduced.

    PyTorch's pipeline stages reduce after their last backward only, and until then leave whole what backward has
    gathered: whatever the schedule, a layer is gathered once more than there are micro-batches.
    """
    micro, torch = work.micro_batches, choices.stack in ("fsdp1", "fsdp2")
    once = np.ones_like(micro)
    forward = np.where(work.pp > 1, once, micro) if torch else micro
    kept = torch and choices.sharding == "zero2"
    return forward, np.zeros_like(micro) if kept else micro, once if choices.no_sync else forward


def _late(exchange_s: FloatArray, cover_s: FloatArray, overlap: bool) -> FloatArray:
    return np.maximum(0.0, exchange_s - cover_s) if overlap else exchange_s


def _message(
    what: str, kind: Kind, exchange: _Exchange, times: FloatArray, group: GroupGeometry, exposed_s: FloatArray,
    copies_s: FloatArray | float = 0.0,
) -> Message:  # fmt: skip
    """Nothing hides the copies: they run on the device's own streams."""
    count, exposed = times * exchange.pieces, exposed_s + copies_s
    return Message("dp", what, kind, exchange.size_bytes, count, exchange.one, group, exposed, copies_s)


def _slowdown(hidden_s: FloatArray, one: CollectiveTime, net: Network) -> FloatArray:
    """Seconds that compute loses while a collective runs beside it: the share of multiprocessors it holds."""
    return hidden_s * one.sms / net.sm_count
