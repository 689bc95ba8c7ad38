"""Keepers: the few strategies that a screening remembers while it looks at many.

They hold a bounded number of rows, so memory does not grow with the space, and they break ties by the order in
which strategies are generated, so the answer does not depend on how the space is cut into batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from linkscale.plan.strategy import Strategy, StrategyBatch
from linkscale.search.pareto import FloatArray, front_of_two


@dataclass(frozen=True)
class Candidate:
    """A strategy and the two numbers that a screening computes for it."""

    strategy: Strategy
    step_s: float
    memory_bytes: float


@dataclass(frozen=True)
class Evaluated:
    """Strategies and what was computed for them; arrays of shape (strategies,)."""

    batch: StrategyBatch
    step_s: FloatArray
    memory_bytes: FloatArray

    def __len__(self) -> int:
        return len(self.step_s)

    def candidate(self, row: int) -> Candidate:
        """Return one strategy with its numbers."""
        return Candidate(self.batch.row(row), float(self.step_s[row]), float(self.memory_bytes[row]))


@dataclass
class Leaders:
    """The ``keep`` strategies with the lowest (first, second) key; of equal ones the first offered."""

    keep: int
    candidates: list[Candidate] = field(default_factory=list)
    _keys: list[tuple[float, float]] = field(default_factory=list)

    def offer(self, rows: Evaluated, first: FloatArray, second: FloatArray) -> None:
        """Take in the rows that belong among the leaders."""
        worst = self._keys[-1][0] if len(self._keys) == self.keep else np.inf
        within = np.flatnonzero(first <= worst)
        if len(within) > self.keep:
            bound = np.partition(first[within], self.keep - 1)[self.keep - 1]
            within = within[first[within] <= bound]
        order = np.lexsort((within, second[within], first[within]))[: self.keep]
        for row in within[order]:
            self._insert((float(first[row]), float(second[row])), rows, int(row))

    def _insert(self, key: tuple[float, float], rows: Evaluated, row: int) -> None:
        place = sum(other <= key for other in self._keys)
        if place < self.keep:
            self._keys.insert(place, key)
            self.candidates.insert(place, rows.candidate(row))
            del self._keys[self.keep :], self.candidates[self.keep :]


@dataclass
class Front:
    """The strategies that no other one beats in both step time and memory, fastest first."""

    candidates: list[Candidate] = field(default_factory=list)

    def offer(self, rows: Evaluated) -> None:
        """Take in the rows that the front does not beat, and drop those that they beat."""
        step_s = np.array([c.step_s for c in self.candidates])
        memory_bytes = np.array([c.memory_bytes for c in self.candidates])
        faster = np.searchsorted(step_s, rows.step_s, side="right")
        least = np.concatenate(([np.inf], memory_bytes))[faster]
        alive = np.flatnonzero(rows.memory_bytes < least)
        alive = alive[front_of_two(-rows.step_s[alive], -rows.memory_bytes[alive])]
        union = [*self.candidates, *(rows.candidate(int(row)) for row in alive)]
        stays = front_of_two(
            -np.array([c.step_s for c in union]), -np.array([c.memory_bytes for c in union])
        ) if union else ()  # fmt: skip
        self.candidates = [union[int(row)] for row in stays]
