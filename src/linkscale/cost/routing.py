"""Routing of tokens to experts: how many places a token is sent to, and how unevenly places fill.

Routing is taken as uniform: each token picks ``top_k`` distinct of ``experts``, every choice equally likely (what
forced-balance benchmarks do, and what balancing losses aim at), experts laid evenly over places (ranks, nodes).
"""

from __future__ import annotations

import numpy as np

from linkscale.cost.kernels import FloatArray


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


def expected_peak(tokens: FloatArray, top_k: int, ranks: FloatArray) -> FloatArray:
    """Expected load of the fullest of ``ranks`` over the mean load, for independent uniform choices.

    A rank's load is binomial with mean ``tokens * top_k / ranks``; the largest of n such lies about
    ``sqrt(2 ln n)`` standard deviations above it (Raab & Steger 1998 for heavily loaded bins).
    """
    mean = tokens * top_k / ranks
    spread = np.sqrt(np.maximum(0.0, 1.0 - 1.0 / ranks) / np.maximum(mean, 1e-300))
    return np.where(ranks > 1.0, 1.0 + spread * np.sqrt(2.0 * np.log(np.maximum(ranks, 1.0))), 1.0)
