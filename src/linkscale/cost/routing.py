"""Routing of tokens to experts: how many places a token is sent to, and how unevenly places fill.

Each token picks ``top_k`` distinct of ``experts``, laid evenly over places (ranks, nodes). Every choice is taken as
equally likely (what forced-balance benchmarks do, and what balancing losses aim at), unless experts are told to be
unequally popular (``Experts.spread``), which makes places uneven but leaves the mean traffic as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist

import numpy as np

from linkscale.cost.kernels import FloatArray
from linkscale.cost.waiting import expected_slowest
from linkscale.workload.ops import Experts


def expected_places(experts: int, top_k: int, places: FloatArray, most: int | None = None) -> FloatArray:
    """Expected number of distinct places that hold a token's experts.

    ``places * (1 - C(experts - experts/places, top_k) / C(experts, top_k))``: a place is spared when every pick falls
    on the others'. ``most``: node-limited routing never picks from more places than that (DeepSeek-V3, section 2.1.2).

    >>> round(float(expected_places(256, 8, np.array([8.0]))[0]), 3)
    5.295
    """
    others = experts - experts / places
    spared = np.ones_like(places)
    for pick in range(top_k):
        spared = spared * np.maximum(0.0, others - pick) / (experts - pick)
    found = places * (1.0 - spared)
    return found if most is None else np.minimum(found, float(most))


def load_spread(experts: Experts, tokens: FloatArray, ranks: FloatArray) -> FloatArray:
    """Standard deviation of the load of one of ``ranks`` over the mean load; ``tokens``: that are routed together.

    Choices fall on a rank as independent draws, a binomial, whose chance varies with the popularity of its experts
    (``experts.spread``): ``sqrt((1 - 1/n) (1/mean + spread**2 * n/E))``.
    """
    mean = tokens * experts.top_k / ranks
    popular = experts.spread**2 * ranks / experts.experts
    return np.sqrt(np.maximum(0.0, 1.0 - 1.0 / ranks) * (1.0 / np.maximum(mean, 1e-300) + popular))


def expected_peak(experts: Experts, tokens: FloatArray, ranks: FloatArray) -> FloatArray:
    """Expected load of the fullest of ``ranks`` over the mean load: all wait for it. A capacity cuts it off."""
    if experts.capacity:
        return np.ones_like(ranks)
    return 1.0 + load_spread(experts, tokens, ranks) * over_ranks(expected_slowest, ranks)


def peak_quantile(experts: Experts, tokens: FloatArray, ranks: FloatArray, share: float) -> FloatArray:
    """Load of the fullest rank over the mean load that is not exceeded in a ``share`` of all cases."""
    if experts.capacity:
        return np.ones_like(ranks)

    def highest(count: int) -> float:
        return NormalDist().inv_cdf(share ** (1.0 / count)) if count > 1 else 0.0

    return 1.0 + load_spread(experts, tokens, ranks) * over_ranks(highest, ranks)


def over_ranks(statistic: Callable[[int], float], ranks: FloatArray) -> FloatArray:
    """Apply a statistic of so many ranks to every row."""
    counts, rows = np.unique(ranks, return_inverse=True)
    return np.array([statistic(round(float(count))) for count in counts])[rows.reshape(ranks.shape)]
