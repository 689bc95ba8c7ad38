"""Layers gathered when they are needed, gradients reduced to the shards that a rank keeps: ZeRO-3, FSDP, HSDP."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linkscale.cost.collectives import CollectiveTime, Kind, collective_s
from linkscale.cost.kernels import FloatArray
from linkscale.cost.network import Network
from linkscale.estimate.replicas import DpGroups, Message, Replicas, StageWork, shares, slowdown
from linkscale.plan.strategy import DTYPE_BYTES, Choices
from linkscale.topology.groups import GroupGeometry

# Matrices of a layer's routed experts, each one tensor for all of them.
EXPERT_TENSORS = 2.0


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


@dataclass(frozen=True)
class _Layer:
    """Exchanges of a layer's parameters of one kind: gathered, reduced, and summed over the replicas of a shard."""

    prefix: str
    params: FloatArray
    trained: FloatArray
    groups: Replicas
    gather: _Exchange
    reduce: _Exchange
    across: _Exchange


def _layer(
    prefix: str, params: FloatArray, trained: FloatArray, tensors: tuple[float, float], groups: Replicas,
    choices: Choices, net: Network,
) -> _Layer:  # fmt: skip
    """Price a layer: all of its parameters are gathered, the gradients of those that are trained reduced.

    ``tensors``: how many hold them, and how many hold what is trained.
    """
    grad, param = DTYPE_BYTES[choices.grad_dtype], DTYPE_BYTES[choices.param_dtype]
    # DeepSpeed exchanges parameter by parameter, FSDP a layer at once.
    pieces = [max(count, 1.0) if choices.stack == "deepspeed" else 1.0 for count in tensors]
    return _Layer(
        prefix, params, trained, groups,
        _exchange("all_gather", params * param, pieces[0], groups.shard, net),
        _exchange("reduce_scatter", trained * grad, pieces[1], groups.shard, net),
        _exchange("all_reduce", trained * grad / groups.shard.size, 1.0, groups.replica, net),
    )  # fmt: skip


def _sum(seconds: list[FloatArray]) -> FloatArray:
    return np.asarray(sum(seconds[1:], seconds[0]))


def fully_sharded(
    work: StageWork, groups: DpGroups, choices: Choices, net: Network, memory_bytes_per_s: float
) -> list[Message]:
    """Layers are gathered per micro-batch, forward and backward, one ahead; gradients are reduced per micro-batch.

    Exposed: the first gather (the edge unit and the first layer), what a layer's exchange exceeds a layer's compute,
    the last reduction, and the copies between a layer's tensors and the exchanged buffer. Under HSDP the shards are
    also all-reduced over the replicas, behind the same backward. ZeRO-2 of these stacks (``reshard_after_forward``
    off) keeps a layer whole from forward to backward; the edge unit is kept so in any case. Routed experts are a unit
    of their own in each layer, exchanged among their own replicas.
    """
    held, trained, whole = work.held, work.trained, (EXPERT_TENSORS, EXPERT_TENSORS)
    units = [_layer("", held.layer, trained.layer, (held.tensors, trained.tensors), groups.dense, choices, net)]
    if work.routed:
        units.append(_layer("expert ", held.expert, trained.expert, whole, groups.experts, choices, net))
    edge = _layer("edge ", held.edge, trained.edge, (1.0, 1.0), groups.dense, choices, net)
    gather_s, reduce_s = _sum([u.gather.time_s for u in units]), _sum([u.reduce.time_s for u in units])
    across_s = _sum([u.across.time_s for u in units])

    forward, backward, reducing = _times(work, choices)
    others, reduced = work.layers - 1.0, reducing * (work.layers - 1.0)
    again = np.where(backward > 0, 1.0, 0.0)
    late_forward = _late(gather_s, work.layer_forward_s, choices.overlap_param_gather)
    late = _late(again * gather_s + reduce_s + across_s, work.layer_backward_s, choices.overlap_grad_reduce)
    # What backward cannot hide is charged in the order it queues: the gather, the reduction, the replicas.
    late_gather = again * np.minimum(late, gather_s)
    late_reduce = np.minimum(late - late_gather, reduce_s)
    late_across = late - late_gather - late_reduce

    def exposed(first: FloatArray, late_s: FloatArray, whole_s: FloatArray) -> FloatArray:
        return first + late_s + slowdown(whole_s - late_s, units[0].gather.one, net)

    late_gathers = others * (forward * late_forward + backward * late_gather)
    gathers = exposed(forward * gather_s, late_gathers, others * (forward + backward) * gather_s)
    reductions = exposed(reducing * reduce_s, reduced * late_reduce, reduced * reduce_s)
    replicas = exposed(reducing * across_s, reduced * late_across, reduced * across_s)
    messages = []
    parts = zip(*(shares([getattr(u, kind).time_s for u in units]) for kind in ("gather", "reduce", "across")),
                 strict=True)  # fmt: skip
    for unit, (gathered, scattered, summed) in zip(units, parts, strict=True):
        shard, replica = unit.groups.shard, unit.groups.replica
        copied, packed = (work.layers * params / memory_bytes_per_s for params in (unit.params, unit.trained))
        unpack = copied * (forward + backward) * (2.0 * DTYPE_BYTES[choices.param_dtype])
        pack = packed * work.micro_batches * (2.0 * DTYPE_BYTES[choices.grad_dtype])
        messages += [
            _message(f"{unit.prefix}parameters", "all_gather", unit.gather, work.layers * (forward + backward), shard,
                     gathered * gathers, unpack),
            _message(f"{unit.prefix}gradients", "reduce_scatter", unit.reduce, work.layers * reducing, shard,
                     scattered * reductions, pack),
            _message(f"{unit.prefix}gradient shards", "all_reduce", unit.across, work.layers * reducing, replica,
                     summed * replicas),
        ]  # fmt: skip
    shard, replica = edge.groups.shard, edge.groups.replica
    return [
        *messages,
        _message("edge parameters", "all_gather", edge.gather, forward, shard, forward * edge.gather.time_s),
        _message("edge gradients", "reduce_scatter", edge.reduce, reducing, shard, reducing * edge.reduce.time_s),
        _message("edge shards", "all_reduce", edge.across, reducing, replica, reducing * edge.across.time_s),
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
