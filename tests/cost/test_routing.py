"""Routing against brute force: every choice counted, and a seeded draw."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkscale.cost.routing import expected_peak, expected_places


@pytest.mark.parametrize(("experts", "top_k", "places"), [(8, 2, 4), (8, 3, 2), (12, 4, 3), (6, 6, 3), (9, 1, 3)])
def test_places_against_every_choice(experts: int, top_k: int, places: int) -> None:
    each = experts // places
    counts = [len({e // each for e in picks}) for picks in combinations(range(experts), top_k)]
    assert expected_places(experts, top_k, np.array([float(places)]))[0] == pytest.approx(np.mean(counts))


@given(st.sampled_from([8, 64, 128, 256]), st.integers(1, 8), st.sampled_from([1, 2, 4, 8]))
def test_places_are_bounded(experts: int, top_k: int, places: int) -> None:
    found = expected_places(experts, top_k, np.array([float(places)]))[0]
    assert 1.0 - 1e-12 <= found <= min(top_k, places) + 1e-12
    assert expected_places(experts, top_k, np.array([float(places)]), most=1)[0] <= 1.0


def test_the_fullest_rank_against_a_draw() -> None:
    tokens, top_k, ranks = 4096, 8, 64
    rng = np.random.default_rng(0)
    peaks = [np.bincount(rng.integers(0, ranks, tokens * top_k), minlength=ranks).max() for _ in range(200)]
    measured = float(np.mean(peaks)) / (tokens * top_k / ranks)
    assert expected_peak(np.array([4096.0]), top_k, np.array([64.0]))[0] == pytest.approx(measured, rel=0.03)
