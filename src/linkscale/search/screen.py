"""Screening: step time and memory of every strategy of a space, in batches, through ``estimate.evaluate``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from linkscale.estimate import evaluate
from linkscale.plan.strategy import NUMBERS, StrategyBatch
from linkscale.profile import Profile
from linkscale.search.axes import Axes
from linkscale.search.job import Job
from linkscale.search.keep import Candidate, Evaluated, Front, Leaders
from linkscale.search.space import groups, size
from linkscale.topology.cluster import Cluster
from linkscale.workload.counts import decoder

Progress = Callable[[int, int], None]
"""Called with (groups done, groups in all) after every group of strategies."""

CHUNK_ROWS = 16_384
"""Strategies per batch: temporaries of a batch stay near the caches, and memory stays bounded."""


@dataclass(frozen=True)
class Screened:
    """What a screening kept.

    ``fast``: fastest that fit; ``free``: fastest whatever they need; ``lean``: least memory, fitting or not;
    ``fronts``: by number of GPUs, those that no other one of that number beats in step time and memory.
    """

    legal: int
    evaluated: int
    fit: int
    fast: tuple[Candidate, ...]
    free: Candidate | None
    lean: Candidate | None
    fronts: dict[int, tuple[Candidate, ...]]

    @property
    def best(self) -> Candidate | None:
        """The fastest strategy that fits."""
        return self.fast[0] if self.fast else None


def screen(
    job: Job, cluster: Cluster, axes: Axes, profile: Profile, *,
    max_memory_bytes: float | None = None, top: int = 1, progress: Progress | None = None,
    chunk_rows: int = CHUNK_ROWS,
) -> Screened:  # fmt: skip
    """Evaluate every strategy of the space; keep the ``top`` fastest that fit and the Pareto front.

    A strategy fits when the estimate says so and it needs at most ``max_memory_bytes``.
    """
    layers = decoder(job.arch)
    limit = np.inf if max_memory_bytes is None else max_memory_bytes
    fast, free, lean, fronts = Leaders(top), Leaders(1), Leaders(1), {count: Front() for count in axes.gpus}
    legal = fit = 0
    for done, group in enumerate(groups(job, axes), 1):
        here = on_gpus(cluster, group.gpus)
        for batch in chunks(group.batch, chunk_rows):
            result = evaluate(layers, here, batch, job.seq_len, job.global_batch, profile)
            every = Evaluated(batch, result.step_s, result.memory_bytes)
            fitting = _take(every, result.fits & (result.memory_bytes <= limit))
            free.offer(every, every.step_s, every.memory_bytes)
            lean.offer(every, every.memory_bytes, every.step_s)
            fast.offer(fitting, fitting.step_s, fitting.memory_bytes)
            fronts[group.gpus].offer(fitting)
            legal += len(batch)
            fit += len(fitting)
        if progress is not None:
            progress(done, size(axes))
    return Screened(
        legal=legal, evaluated=legal, fit=fit, fast=tuple(fast.candidates), free=_first(free), lean=_first(lean),
        fronts={count: tuple(front.candidates) for count, front in fronts.items()},
    )  # fmt: skip


def on_gpus(cluster: Cluster, gpus: int) -> Cluster:
    """Return the part of a cluster that a number of GPUs makes up."""
    return cluster if gpus == cluster.gpus else msgspec.structs.replace(cluster, gpus=gpus)


def chunks(batch: StrategyBatch, rows: int) -> Iterator[StrategyBatch]:
    """Cut a batch into batches of at most ``rows`` strategies, without copying."""
    for start in range(0, len(batch), rows):
        cut = slice(start, start + rows)
        yield StrategyBatch(batch.choices, **{name: getattr(batch, name)[cut] for name in NUMBERS})


def _take(rows: Evaluated, keep: npt.NDArray[np.bool_]) -> Evaluated:
    return Evaluated(rows.batch.take(keep), rows.step_s[keep], rows.memory_bytes[keep])


def _first(leaders: Leaders) -> Candidate | None:
    return leaders.candidates[0] if leaders.candidates else None
