"""Exchanges inside a layer: the calls of one layer and micro-batch, and what stays exposed of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce

import numpy as np

from linkscale.cost.collectives import CollectiveTime, Kind
from linkscale.cost.kernels import FloatArray
from linkscale.topology.groups import GroupGeometry


@dataclass(frozen=True)
class Call:
    """One kind of exchange of a layer and micro-batch, and how often it is made forward and backward."""

    what: str
    kind: Kind
    size_bytes: FloatArray
    one: CollectiveTime
    geometry: GroupGeometry
    forward: FloatArray
    backward: FloatArray

    @property
    def forward_s(self) -> FloatArray:
        """Seconds of all calls forward."""
        return self.forward * self.one.time_s

    @property
    def backward_s(self) -> FloatArray:
        """Seconds of all calls backward."""
        return self.backward * self.one.time_s

    @property
    def often(self) -> FloatArray:
        """Calls of both directions."""
        return self.forward + self.backward


@dataclass(frozen=True)
class Exchange:
    """Exchanges of one layer and micro-batch, and what stays exposed of them."""

    calls: list[Call]
    forward_s: FloatArray
    backward_s: FloatArray

    @property
    def calls_forward(self) -> FloatArray | float:
        """Calls that the host launches forward."""
        return sum((call.forward for call in self.calls), 0.0)

    @property
    def calls_backward(self) -> FloatArray | float:
        """Calls that the host launches backward."""
        return sum((call.backward for call in self.calls), 0.0)


def exposed(calls: list[Call], none: FloatArray) -> Exchange:
    """Nothing hides these calls; ``none``: zeros, for where there is no call."""
    forward = sum((call.forward_s for call in calls), none)
    backward = sum((call.backward_s for call in calls), none)
    return Exchange(calls, np.asarray(forward), np.asarray(backward))


def mean_exchange(weights: Sequence[float], exchanges: Sequence[Exchange]) -> Exchange:
    """Average the exchanges of layers of several kinds: how often, and of what size on average, each call is made."""
    found: dict[tuple[str, Kind], list[Call]] = {}
    for weight, exchange in zip(weights, exchanges, strict=True):
        for call in exchange.calls:
            shared = replace(call, forward=weight * call.forward, backward=weight * call.backward)
            found.setdefault((call.what, call.kind), []).append(shared)
    forward = sum(w * e.forward_s for w, e in zip(weights, exchanges, strict=True))
    backward = sum(w * e.backward_s for w, e in zip(weights, exchanges, strict=True))
    return Exchange([reduce(_joined, calls) for calls in found.values()], np.asarray(forward), np.asarray(backward))


def _joined(one: Call, other: Call) -> Call:
    """Return two calls of a kind as one that is made as often as both, and takes as long together."""
    total = one.often + other.often
    share = np.where(total > 0.0, one.often / np.where(total > 0.0, total, 1.0), 0.5)

    def mean(first: FloatArray, second: FloatArray) -> FloatArray:
        return np.asarray(share * first + (1.0 - share) * second)

    times = CollectiveTime(
        **{f.name: mean(getattr(one.one, f.name), getattr(other.one, f.name)) for f in fields(CollectiveTime)}
    )
    # What was chosen stands by name, not by average.
    times = replace(times, algorithm=one.one.algorithm, protocol=one.one.protocol)
    return replace(
        one, size_bytes=mean(one.size_bytes, other.size_bytes), one=times,
        forward=one.forward + other.forward, backward=one.backward + other.backward,
    )  # fmt: skip
