"""Pareto fronts against brute force."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from linkscale.search.pareto import front, front_of_two

small = st.integers(0, 6).map(float)


def dominated(points: np.ndarray, row: int) -> bool:
    """Whether another row is at least as good in all and better in one, or an equal row comes first."""
    me = points[row]
    return any((point >= me).all() and ((point > me).any() or other < row) for other, point in enumerate(points))


@given(arrays(float, st.tuples(st.integers(0, 25), st.just(2)), elements=small))
def test_front_of_two_is_the_brute_force_front(points: np.ndarray) -> None:
    expected = [row for row in range(len(points)) if not dominated(points, row)]
    assert sorted(front_of_two(points[:, 0], points[:, 1]).tolist()) == expected


@given(arrays(float, st.tuples(st.integers(0, 25), st.just(3)), elements=small))
def test_front_of_three_is_the_brute_force_front(points: np.ndarray) -> None:
    expected = [row for row in range(len(points)) if not dominated(points, row)]
    assert front(points).tolist() == expected
