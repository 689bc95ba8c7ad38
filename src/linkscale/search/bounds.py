"""Bounds: what a step takes at least, before the strategy is priced in full.

What goes on inside a replica is a part of the step, and what replicas exchange and update only adds to it. Strategies
that differ in sharding, buckets or the number of layers recomputed complete one stem, whose lightest completion bounds
them all; stems are timed once for all choices that look alike from inside.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from linkscale.estimate.pipeline import FILLING_SCHEDULES
from linkscale.estimate.prices import Prices, inside_choices
from linkscale.estimate.step import inside_of
from linkscale.plan.strategy import Choices, StrategyBatch
from linkscale.search.pareto import FloatArray
from linkscale.search.space import Region

ROUNDING = 1e-9
"""Share by which a bound is lowered: sums in another order differ by less."""


@dataclass
class Bounds:
    """Lower bounds on the step time of one region's strategies."""

    prices: Prices
    region: Region
    _known: dict[Choices, FloatArray] = field(default_factory=dict)

    def of_stems(self, choices: Choices) -> FloatArray:
        """Return seconds that no completion of each stem by the choices undercuts, of shape (stems,)."""
        inside = inside_choices(choices)
        if choices.schedule in FILLING_SCHEDULES:  # bubbles count for nothing, and nothing else tells them apart
            inside = replace(inside, schedule=FILLING_SCHEDULES[0])
        if inside not in self._known:
            lightest = self.region.lightest(inside)
            self._known[inside] = inside_of(self.prices, lightest).least_s * (1.0 - ROUNDING)
        return self._known[inside]

    def of(self, batch: StrategyBatch) -> FloatArray:
        """Return the same for strategies as they are, of shape (strategies,)."""
        return np.asarray(inside_of(self.prices, batch).total_s * (1.0 - ROUNDING))
