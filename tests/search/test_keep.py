"""Keepers against sorting everything: the answer is that of the whole, however it is cut into batches."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from linkscale.plan.strategy import NUMBERS, Choices, StrategyBatch
from linkscale.search.keep import Evaluated, Front, Leaders

few = st.integers(1, 5).map(float)
rows = st.lists(st.tuples(few, few), min_size=1, max_size=40)
cuts = st.integers(1, 12)


def evaluated(pairs: list[tuple[float, float]], start: int) -> Evaluated:
    """Strategies numbered by their place (in dp), with the given step times and memory."""
    numbers = {name: np.ones(len(pairs), dtype=np.int64) for name in NUMBERS}
    numbers["dp"] = np.arange(start, start + len(pairs)) + 1
    table = np.array(pairs).reshape(-1, 2)
    return Evaluated(StrategyBatch(Choices(), **numbers), table[:, 0], table[:, 1])


@given(rows, cuts, st.integers(1, 6))
def test_leaders_are_the_head_of_a_stable_sort(pairs: list[tuple[float, float]], cut: int, keep: int) -> None:
    leaders = Leaders(keep)
    for start in range(0, len(pairs), cut):
        part = evaluated(pairs[start : start + cut], start)
        leaders.offer(part, part.step_s, part.memory_bytes)
    expected = sorted(range(len(pairs)), key=lambda row: (*pairs[row], row))[:keep]
    assert [c.strategy.dp - 1 for c in leaders.candidates] == expected


@given(rows, cuts)
def test_front_is_the_brute_force_front(pairs: list[tuple[float, float]], cut: int) -> None:
    front = Front()
    for start in range(0, len(pairs), cut):
        front.offer(evaluated(pairs[start : start + cut], start))
    found = [(c.step_s, c.memory_bytes) for c in front.candidates]
    beaten = {p for p in pairs for q in pairs if q != p and q[0] <= p[0] and q[1] <= p[1]}
    assert found == sorted(set(pairs) - beaten)
    assert [c.strategy.dp - 1 for c in front.candidates] == [pairs.index(p) for p in found]
