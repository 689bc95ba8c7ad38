"""What a rule of legality is: a condition on a job and a batch of strategies, and the words for who breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from linkscale.plan.strategy import Strategy, StrategyBatch

if TYPE_CHECKING:
    from linkscale.workload.architecture import Architecture

BoolArray = npt.NDArray[np.bool_]


class Job(NamedTuple):
    """What a strategy is laid on."""

    arch: Architecture
    gpus: int
    seq_len: int
    global_batch: int


class Rule(NamedTuple):
    """One condition: ``mask`` is True where it holds (one bool where it depends on no number)."""

    name: str
    mask: Callable[[Job, StrategyBatch], BoolArray | bool]
    message: Callable[[Job, Strategy], str]


def every(batch: StrategyBatch, conditions: Iterable[BoolArray]) -> BoolArray:
    """Return which strategies keep all of some conditions."""
    keep = np.ones(len(batch), dtype=bool)
    for condition in conditions:
        keep &= condition
    return keep
