"""Waiting for the slowest of many: order statistics of normal jitter."""

from __future__ import annotations

from statistics import NormalDist


def expected_slowest(ranks: int) -> float:
    """Expected maximum of ``ranks`` standard normal draws (Blom 1958: the quantile at (n - 3/8) / (n + 1/4))."""
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25)) if ranks > 1 else 0.0
