"""Screening: step time and memory of the strategies of a space, in batches, through ``estimate_batch``.

Memory is computed first, since it is cheap; the step of those only that may change what is kept (``bounds.py``). What
is kept is the same as if every step were computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from linkscale.estimate.prices import Prices, Setting
from linkscale.estimate.step import estimate_batch, memory_batch
from linkscale.plan.strategy import StrategyBatch
from linkscale.profile import Profile
from linkscale.search.axes import Axes
from linkscale.search.bounds import Bounds
from linkscale.search.job import Job
from linkscale.search.keep import Candidate, Evaluated, Front, Kept, Leaders
from linkscale.search.pareto import FloatArray
from linkscale.search.space import Group, Region, regions, size
from linkscale.topology.cluster import Cluster
from linkscale.workload.counts import decoder

Progress = Callable[[int, int], None]
"""Called with (groups done, groups in all) after every group of strategies."""

CHUNK_ROWS = 16_384
"""Strategies per batch: temporaries of a batch stay near the caches, and memory stays bounded."""


@dataclass(frozen=True)
class Screened:
    """What a screening kept.

    ``legal``: strategies whose memory was computed, all there are; ``fit``: those of them within the limit;
    ``evaluated``: those whose step time was computed as well. ``fast``: fastest that fit; ``free``: fastest whatever
    they need; ``lean``: least memory, fitting or not; ``fronts``: by number of GPUs, those that no other one of that
    number beats in step time and memory.
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


@dataclass(frozen=True)
class Found:
    """The fastest strategy that fits, and the fastest whatever it needs; ``lean``: the leanest where none fits."""

    best: Candidate | None
    free: Candidate | None
    lean: Candidate | None


def screen(
    job: Job, cluster: Cluster, axes: Axes, profile: Profile, *,
    max_memory_bytes: float | None = None, top: int = 1, progress: Progress | None = None,
    chunk_rows: int = CHUNK_ROWS, prune: bool = True,
) -> Screened:  # fmt: skip
    """Look at every strategy of the space; keep the ``top`` fastest that fit and the Pareto front.

    A strategy fits when the estimate says so and it needs at most ``max_memory_bytes``. Without ``prune`` the step of
    every strategy is computed, to the same answer.
    """
    kept = Kept(_limit(cluster, max_memory_bytes), Leaders(top), {count: Front() for count in axes.gpus}, True)
    legal = evaluated = fit = done = 0
    for region in regions(job, axes):
        bounds = _bounds(region, cluster, profile)
        for place, choices in enumerate(axes.choices):
            group = region.group(place)
            for part in chunks(group, chunk_rows) if group else ():
                least_s = bounds.of_stems(choices)[part.stem] if prune else None
                looked = _look(part, bounds, least_s, kept)
                legal, evaluated, fit = legal + len(part), evaluated + looked[0], fit + looked[1]
            done += 1
            if progress is not None:
                progress(done, size(axes))
    return Screened(
        legal=legal, evaluated=evaluated, fit=fit, fast=tuple(kept.fast.candidates), free=kept.free.first,
        lean=kept.lean.first, fronts={count: tuple(front.candidates) for count, front in kept.fronts.items()},
    )  # fmt: skip


def find(job: Job, cluster: Cluster, axes: Axes, profile: Profile, *, max_memory_bytes: float | None = None) -> Found:
    """Return the best strategy of the space as ``screen`` does, and build no strategy whose stem cannot be as fast."""
    kept = Kept(_limit(cluster, max_memory_bytes), Leaders(1), {}, False)
    for region in (region for region in regions(job, axes) if len(region)):
        bounds = _bounds(region, cluster, profile)
        for place, choices in enumerate(axes.choices):
            least_s = bounds.of_stems(choices)
            group = region.group(place, kept.in_time(least_s))
            for part in chunks(group, CHUNK_ROWS) if group else ():
                _look(part, bounds, least_s[part.stem], kept)
    best = kept.fast.first
    return Found(best, kept.free.first, None if best else kept.lean.first)


def on_gpus(cluster: Cluster, gpus: int) -> Cluster:
    """Return the part of a cluster that a number of GPUs makes up."""
    return cluster if gpus == cluster.gpus else msgspec.structs.replace(cluster, gpus=gpus)


def chunks(group: Group, rows: int) -> Iterator[Group]:
    """Cut a group into groups of at most ``rows`` strategies, without copying."""
    return (group.take(slice(start, start + rows)) for start in range(0, len(group), rows))


def _limit(cluster: Cluster, max_memory_bytes: float | None) -> float:
    capacity = cluster.gpu.memory_bytes
    return capacity if max_memory_bytes is None else min(capacity, max_memory_bytes)


def _bounds(region: Region, cluster: Cluster, profile: Profile) -> Bounds:
    job = region.job
    here = on_gpus(cluster, region.gpus)
    setting = Setting(decoder(job.arch), here, job.seq_len, job.global_batch, profile)
    return Bounds(Prices(setting, region.stems), region)


def _look(group: Group, bounds: Bounds, least_s: FloatArray | None, kept: Kept) -> tuple[int, int]:
    """Compute what may change what is kept; return of how many strategies the step was computed, and how many fit.

    ``least_s``: what the steps take at least; None: compute them all.
    """
    prices, batch, gpus = bounds.prices, group.batch, group.gpus
    if least_s is None:
        return len(batch), _offer(prices, batch, gpus, kept)
    memory = memory_batch(prices, batch).device
    rows = np.flatnonzero(kept.matters(gpus, least_s, memory))
    if len(rows):
        near_s = bounds.of(batch.take(rows))
        rows = rows[kept.matters(gpus, near_s, memory[rows])]
        _offer(prices, batch.take(rows), gpus, kept)
    return len(rows), int(kept.fits(memory).sum())


def _offer(prices: Prices, batch: StrategyBatch, gpus: int, kept: Kept) -> int:
    """Compute a batch in full and offer it; return how many fit."""
    result = estimate_batch(prices, batch)
    kept.offer(gpus, Evaluated(batch, result.step_s, result.memory_bytes))
    return int(kept.fits(result.memory_bytes).sum())
