"""Pareto fronts: points that no other point beats in every objective."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]


def front_of_two(first: FloatArray, second: FloatArray) -> IndexArray:
    """Return the indices of the non-dominated points when more of both is better, best ``first`` first.

    A sort by the first objective and a running maximum of the second: a point stays when it raises the maximum.
    Of equal points the one with the lowest index stays.

    >>> front_of_two(np.array([3.0, 2.0, 1.0]), np.array([0.0, 2.0, 1.0])).tolist()
    [0, 1]
    """
    order = np.lexsort((np.arange(len(first)), -second, -first))
    ranked = second[order]
    before = np.concatenate(([-np.inf], np.maximum.accumulate(ranked)[:-1])) if len(ranked) else ranked
    return order[ranked > before]


def front(points: FloatArray) -> IndexArray:
    """Return the indices of the non-dominated rows of ``points`` (rows, objectives); more is better in each.

    Compares all pairs: meant for the few points that survive ``front_of_two``. Of equal rows the first stays.
    """
    at_least = (points[:, None, :] >= points[None, :, :]).all(axis=2)
    equal = at_least & at_least.T
    earlier = np.tri(len(points), k=-1, dtype=bool).T
    beats = (at_least & ~equal) | (equal & earlier)
    return np.flatnonzero(~beats.any(axis=0))
