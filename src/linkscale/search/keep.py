"""Keepers: the few strategies that a screening remembers while it looks at many.

They hold a bounded number of rows, so memory does not grow with the space, and they break ties by the order in
which strategies are generated, so the answer does not depend on how the space is cut into batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from linkscale.plan.strategy import Strategy, StrategyBatch
from linkscale.search.pareto import FloatArray, front_of_two

BoolArray = npt.NDArray[np.bool_]


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

    def take(self, keep: BoolArray) -> Evaluated:
        """Return the rows where ``keep`` is True."""
        return Evaluated(self.batch.take(keep), self.step_s[keep], self.memory_bytes[keep])


@dataclass
class Leaders:
    """The ``keep`` strategies with the lowest (first, second) key; of equal ones the first offered."""

    keep: int
    candidates: list[Candidate] = field(default_factory=list)
    _keys: list[tuple[float, float]] = field(default_factory=list)

    @property
    def worst(self) -> float:
        """First key above which nothing is let in any more."""
        return self._keys[-1][0] if len(self._keys) == self.keep else np.inf

    def offer(self, rows: Evaluated, first: FloatArray, second: FloatArray) -> None:
        """Take in the rows that belong among the leaders."""
        within = np.flatnonzero(first <= self.worst)
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

    @property
    def first(self) -> Candidate | None:
        """The leader of all."""
        return self.candidates[0] if self.candidates else None


@dataclass
class Front:
    """The strategies that no other one beats in both step time and memory, fastest first."""

    candidates: list[Candidate] = field(default_factory=list)

    def ahead(self, step_s: FloatArray, memory_bytes: FloatArray) -> BoolArray:
        """Whether nothing on the front is as fast and as lean; where step times are too low, it only may be."""
        faster = np.searchsorted(np.array([c.step_s for c in self.candidates]), step_s, side="right")
        least = np.array([np.inf, *(c.memory_bytes for c in self.candidates)])[faster]
        return np.asarray(memory_bytes < least)

    def offer(self, rows: Evaluated) -> None:
        """Take in the rows that the front does not beat, and drop those that they beat."""
        alive = np.flatnonzero(self.ahead(rows.step_s, rows.memory_bytes))
        alive = alive[front_of_two(-rows.step_s[alive], -rows.memory_bytes[alive])]
        union = [*self.candidates, *(rows.candidate(int(row)) for row in alive)]
        stays = front_of_two(
            -np.array([c.step_s for c in union]), -np.array([c.memory_bytes for c in union])
        ) if union else ()  # fmt: skip
        self.candidates = [union[int(row)] for row in stays]


@dataclass
class Kept:
    """What a screening keeps, and which strategies may still change it.

    ``fronts``: by number of GPUs; empty where no front is asked for. ``always_lean``: whether the leanest is asked for
    where something fits, too.
    """

    limit_bytes: float
    fast: Leaders
    fronts: dict[int, Front]
    always_lean: bool
    free: Leaders = field(default_factory=lambda: Leaders(1))
    lean: Leaders = field(default_factory=lambda: Leaders(1))

    def fits(self, memory_bytes: FloatArray) -> BoolArray:
        """Whether memory is within the limit."""
        return np.asarray(memory_bytes <= self.limit_bytes)

    def in_time(self, least_s: FloatArray) -> BoolArray:
        """Whether steps of at least so many seconds may be among the fastest, fitting or not."""
        return np.asarray(least_s <= max(self.fast.worst, self.free.worst))

    def matters(self, gpus: int, least_s: FloatArray, memory_bytes: FloatArray) -> BoolArray:
        """Whether strategies may change anything, given what their steps take at least."""
        hopeful = least_s <= self.fast.worst
        if gpus in self.fronts:
            hopeful |= self.fronts[gpus].ahead(least_s, memory_bytes)
        matters = (hopeful & self.fits(memory_bytes)) | (least_s <= self.free.worst)
        if self.always_lean or not self.fast.candidates:
            matters |= memory_bytes <= self.lean.worst
        return np.asarray(matters)

    def offer(self, gpus: int, rows: Evaluated) -> None:
        """Take in what belongs to what is kept."""
        fitting = rows.take(self.fits(rows.memory_bytes))
        self.free.offer(rows, rows.step_s, rows.memory_bytes)
        self.lean.offer(rows, rows.memory_bytes, rows.step_s)
        self.fast.offer(fitting, fitting.step_s, fitting.memory_bytes)
        if gpus in self.fronts:
            self.fronts[gpus].offer(fitting)
