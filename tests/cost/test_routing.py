"""Routing against brute force: every choice counted, and a seeded draw."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkscale.cost.routing import expected_peak, expected_places, peak_quantile
from linkscale.workload.ops import Experts


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


def experts(**fields) -> Experts:
    return Experts(**{"experts": 256, "top_k": 8, "k": 64, "ffn": 64, "gated": True, **fields})


@pytest.mark.parametrize(("ranks", "spread"), [(64, 0.0), (8, 0.0), (64, 0.3), (16, 0.2)])
def test_the_fullest_rank_against_a_draw(ranks: int, spread: float) -> None:
    """Four thousand tokens drawn over experts of normal popularity: the mean of the fullest rank, and its tail."""
    op, tokens, draws = experts(spread=spread), 4096, 400
    rng = np.random.default_rng(0)
    peaks = []
    for _ in range(draws):
        weight = np.maximum(0.0, 1.0 + op.spread * rng.standard_normal(op.experts)).reshape(ranks, -1).sum(axis=1)
        load = rng.multinomial(tokens * op.top_k, weight / weight.sum())
        peaks.append(load.max() * ranks / (tokens * op.top_k))
    n = np.array([float(ranks)])
    mean, tail = float(np.mean(peaks)) - 1, float(np.quantile(peaks, 0.9)) - 1
    assert expected_peak(op, np.array([4096.0]), n)[0] - 1 == pytest.approx(mean, rel=0.08)
    assert peak_quantile(op, np.array([4096.0]), n, 0.9)[0] - 1 == pytest.approx(tail, rel=0.12)


@given(st.floats(0, 1), st.floats(0, 1), st.sampled_from([1, 2, 8, 64, 256]), st.floats(1e3, 1e6))
def test_more_spread_never_evens_out(few: float, more: float, ranks: int, tokens: float) -> None:
    n, t = np.array([float(ranks)]), np.array([tokens])
    low, high = sorted((few, more))
    peaks = [expected_peak(experts(spread=s), t, n)[0] for s in (low, high)]
    assert 1.0 <= peaks[0] <= peaks[1]
    assert peak_quantile(experts(spread=low), t, n, 0.9)[0] >= peaks[0]
    assert expected_peak(experts(spread=high, capacity=1.0), t, n)[0] == 1.0
    if ranks == 1:
        assert peaks[1] == 1.0
