"""What data-parallel ranks exchange and hold: messages, a stage's parameters and cover, the groups of ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linkscale.cost.collectives import CollectiveTime, Kind
from linkscale.cost.kernels import FloatArray
from linkscale.cost.network import Network
from linkscale.estimate.numbers import Numbers
from linkscale.estimate.parameters import StageParams
from linkscale.plan.strategy import Choices
from linkscale.topology.groups import GroupGeometry, group_geometry


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
    held: StageParams
    trained: StageParams
    """Those of the parameters held that gradients and updates are of."""
    layer_forward_s: FloatArray
    layer_backward_s: FloatArray
    micro_batches: FloatArray
    pp: FloatArray
    vpp: FloatArray

    @property
    def routed(self) -> bool:
        """Whether there are routed experts at all."""
        return bool(np.any(self.held.expert > 0.0))


@dataclass(frozen=True)
class Replicas:
    """Ranks that hold the same parameters: the group that shards (or reduces), and the replicas of it under HSDP."""

    shard: GroupGeometry
    replica: GroupGeometry


@dataclass(frozen=True)
class DpGroups:
    """Data-parallel ranks of a stage: of everything but routed experts, and of those."""

    dense: Replicas
    experts: Replicas


def dp_groups(n: Numbers, choices: Choices, net: Network) -> DpGroups:
    """Lay the data-parallel ranks of every strategy on the domains; those of experts are every (ep*etp)-th rank."""
    ranks = n.tp * n.cp * n.dp
    return DpGroups(
        _replicas(n.dp * n.cp, n.tp, n.shard_domain, choices, net),
        _replicas(ranks / (n.ep * n.etp), n.ep * n.etp, n.shard_domain, choices, net),
    )


def _replicas(
    ranks: FloatArray, stride: FloatArray, shard_domain: FloatArray, choices: Choices, net: Network
) -> Replicas:
    inner = ranks
    if choices.sharding == "hsdp":
        inner = np.gcd(shard_domain.astype(np.int64), ranks.astype(np.int64)).astype(np.float64)
    return Replicas(
        group_geometry(inner, stride, net.domain_gpus),
        group_geometry(ranks / inner, stride * inner, net.domain_gpus),
    )


def shares(seconds: list[FloatArray]) -> list[FloatArray]:
    """Return what each is of their sum; equal parts where the sum is nothing."""
    total = np.asarray(sum(seconds[1:], seconds[0]))
    known = total > 0.0
    return [np.where(known, part / np.where(known, total, 1.0), 1.0 / len(seconds)) for part in seconds]


def slowdown(hidden_s: FloatArray, one: CollectiveTime, net: Network) -> FloatArray:
    """Seconds that compute loses while a collective runs beside it: the share of multiprocessors it holds."""
    return hidden_s * one.sms / net.sm_count
