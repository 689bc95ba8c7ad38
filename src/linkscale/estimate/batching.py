"""Evaluate a function once per distinct row of its inputs and spread the answer over the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


@dataclass(frozen=True)
class Distinct:
    """Distinct rows of some integer columns: ``rows`` picks one member of each, ``inverse`` spreads back."""

    rows: np.ndarray[Any, np.dtype[np.intp]]
    inverse: np.ndarray[Any, np.dtype[np.intp]]


def distinct(*columns: np.ndarray[Any, np.dtype[np.int64]]) -> Distinct:
    """Find the distinct rows of columns of small non-negative integers."""
    key = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        _, codes = np.unique(column, return_inverse=True)
        key = key * (int(codes.max(initial=0)) + 1) + codes
    _, rows, inverse = np.unique(key, return_index=True, return_inverse=True)
    return Distinct(rows, inverse)


def spread(value: Any, inverse: np.ndarray[Any, np.dtype[np.intp]]) -> Any:
    """Index every array inside a (nested) dataclass or sequence by ``inverse``; scalars stay."""
    if isinstance(value, np.ndarray):
        return value[inverse] if value.ndim else value
    if isinstance(value, list | tuple):
        return type(value)(spread(v, inverse) for v in value)
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{f.name: spread(getattr(value, f.name), inverse) for f in fields(value)})
    return value


def over_distinct(function: Callable[[np.ndarray[Any, np.dtype[np.intp]]], T], found: Distinct) -> T:
    """Call ``function`` with the index of the distinct rows and spread what it returns."""
    result: T = spread(function(found.rows), found.inverse)
    return result
