"""Prices: what strategies of one job on one cluster have in common, priced once for all that share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from linkscale.cost.device import Device, device
from linkscale.cost.layer import Slice
from linkscale.cost.network import Network, network
from linkscale.estimate.batching import spread
from linkscale.estimate.units import Exchanges, Units, units
from linkscale.plan.precision import FORMATS
from linkscale.plan.strategy import Choices, IntArray, StrategyBatch
from linkscale.profile.values import Profile
from linkscale.topology.cluster import Cluster
from linkscale.topology.groups import group_geometry
from linkscale.workload.counts import Decoder

UNIT_NUMBERS = ("tp", "cp", "micro_batch", "ep", "etp")
"""Numbers of a strategy that touch its units: one layer, the embedding, the head."""

BETWEEN_REPLICAS = (
    "sharding", "no_sync", "overlap_grad_reduce", "overlap_param_gather", "param_dtype", "optimizer", "compression",
    "hierarchical", "offload_optimizer", "offload_params",
)  # fmt: skip
"""Choices about what replicas exchange, keep and update: nothing inside a replica takes longer or shorter by them."""

BETWEEN_STAGES = ("schedule", "overlap_p2p")
"""Choices about how stages work together: nothing inside a stage takes longer or shorter by them."""

_DEFAULTS = Choices()


def inside_choices(choices: Choices) -> Choices:
    """Return the choices that the inside of a replica turns on, all others at their defaults."""
    return msgspec.structs.replace(choices, **{name: getattr(_DEFAULTS, name) for name in BETWEEN_REPLICAS})


def unit_choices(choices: Choices) -> Choices:
    """Return the choices that units turn on, all others at their defaults."""
    return msgspec.structs.replace(
        inside_choices(choices), **{name: getattr(_DEFAULTS, name) for name in BETWEEN_STAGES}
    )


@dataclass(frozen=True)
class Setting:
    """What strategies are priced for: one job on one cluster, under one profile."""

    decoder: Decoder
    cluster: Cluster
    seq_len: int
    global_batch: int
    profile: Profile

    @cached_property
    def net(self) -> Network:
        """The achieved rates of the cluster's links."""
        return network(self.cluster, self.profile)

    def device(self, choices: Choices) -> Device:
        """Return the achieved rates of a GPU."""
        return device(self.cluster.gpu, choices, self.profile, self.cluster.host_cpu)


def _unit_numbers(batch: StrategyBatch) -> dict[str, IntArray]:
    return {name: getattr(batch, name) for name in UNIT_NUMBERS}


@dataclass
class Prices:
    """Units of all strategies whose numbers occur in ``numbers``, one price for each distinct combination.

    Nothing else of a strategy touches a unit, so that the price of a row is the same whatever else is in a batch.
    """

    setting: Setting
    numbers: Mapping[str, IntArray]
    """Columns of ``UNIT_NUMBERS``, others beside them or not."""
    _priced: dict[Choices, tuple[Units, Exchanges]] = field(default_factory=dict)

    @classmethod
    def of_batch(cls, setting: Setting, batch: StrategyBatch) -> Prices:
        """Return the prices that the strategies of a batch need."""
        return cls(setting, _unit_numbers(batch))

    def units(self, batch: StrategyBatch) -> Units:
        """Return the units of every strategy of a batch, whose ``UNIT_NUMBERS`` must occur in ``numbers``."""
        found: Units = spread(self._table(batch.choices)[0], self._rows(batch))
        return found

    def exchanges(self, batch: StrategyBatch) -> Exchanges:
        """Return the exchanges inside a layer of every strategy of a batch, likewise."""
        found: Exchanges = spread(self._table(batch.choices)[1], self._rows(batch))
        return found

    def _table(self, choices: Choices) -> tuple[Units, Exchanges]:
        """Return what is priced under some choices, one row for each combination of numbers."""
        seen = unit_choices(choices)
        if seen not in self._priced:
            self._priced[seen] = self._price(seen)
        return self._priced[seen]

    def _rows(self, batch: StrategyBatch) -> npt.NDArray[np.intp]:
        return np.searchsorted(self._known, self._keys(_unit_numbers(batch)))

    @cached_property
    def _values(self) -> list[IntArray]:
        return [np.unique(self.numbers[name]) for name in UNIT_NUMBERS]

    @cached_property
    def _known(self) -> IntArray:
        return np.unique(self._keys(self.numbers))

    def _keys(self, numbers: Mapping[str, IntArray]) -> IntArray:
        """Return one number for each combination: the places of its numbers among the known values."""
        key = np.zeros(len(numbers["tp"]), dtype=np.int64)
        for name, values in zip(UNIT_NUMBERS, self._values, strict=True):
            key = key * len(values) + np.searchsorted(values, numbers[name])
        return key

    def _price(self, choices: Choices) -> tuple[Units, Exchanges]:
        setting, rest = self.setting, self._known
        columns: dict[str, npt.NDArray[np.float64]] = {}
        for name, values in reversed(list(zip(UNIT_NUMBERS, self._values, strict=True))):
            rest, place = np.divmod(rest, len(values))
            columns[name] = values[place].astype(np.float64)
        tp, cp, domain = columns["tp"], columns["cp"], setting.net.domain_gpus
        seq = float(setting.seq_len)
        part = Slice(tp, columns["micro_batch"], seq / cp, seq, choices, columns["ep"], columns["etp"])
        tensor, context = group_geometry(tp, np.ones_like(tp), domain), group_geometry(cp, tp, domain)
        # The head runs in 16 bits whatever the layers run in.
        narrow = FORMATS[choices.precision].narrow
        half = msgspec.structs.replace(choices, precision="bf16") if narrow else choices
        return units(setting.decoder, part, tensor, context, setting.device(choices), setting.device(half), setting.net)
