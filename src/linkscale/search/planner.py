"""search_plans: from a model and a cluster to the best strategies, and why they are the best."""

from __future__ import annotations

import time

import numpy as np

from linkscale.base.errors import InputError, NothingFits
from linkscale.profile import Profile, shipped_profile
from linkscale.search.constraints import Constraints
from linkscale.search.explain import explain
from linkscale.search.job import Job
from linkscale.search.keep import Candidate
from linkscale.search.pareto import front
from linkscale.search.question import Question, describe
from linkscale.search.recipes import illegal_reason, shortage
from linkscale.search.result import ParetoPoint, PlanEntry, PlanResult, Space
from linkscale.search.screen import Progress, Screened
from linkscale.search.whatif import more_gpus
from linkscale.topology.cluster import Cluster
from linkscale.workload.architecture import Architecture

FREE = Constraints()
LARGER_CLUSTERS = (2, 4, 8, 16, 32, 64)
"""Multiples of the cluster that are tried when nothing fits."""


def search_plans(
    arch: Architecture,
    cluster: Cluster,
    seq_len: int,
    global_batch: int,
    constraints: Constraints = FREE,
    top: int = 10,
    progress: Progress | None = None,
    profile: Profile | None = None,
) -> PlanResult:
    """Return the ``top`` fastest strategies that fit, the Pareto front, and the reasons.

    Every legal strategy of the space is evaluated through the same code as one alone. Raises NothingFits when none
    fits, InputError when none is legal. Only ``space.seconds`` differs from run to run.
    """
    start = time.perf_counter()
    if top < 1:
        raise InputError(f"top = {top}; it must be at least 1")
    job = Job(arch=arch, seq_len=seq_len, global_batch=global_batch)
    question = Question(job, cluster, profile or shipped_profile(cluster.gpu.arch), constraints)
    screened = question.screen(max(top, 2), progress)
    if not screened.fast:
        raise _nothing(question, screened)
    ranked = tuple(PlanEntry(strategy=c.strategy, estimate=question.estimate(c.strategy)) for c in screened.fast)
    explanation = explain(question, screened, ranked)
    space = Space(
        legal=screened.legal, evaluated=screened.evaluated, pruned=screened.legal - screened.evaluated,
        fit=screened.fit, seconds=time.perf_counter() - start, axes=question.axes().table(),
    )  # fmt: skip
    return PlanResult(plans=ranked[:top], space=space, pareto=_pareto(question, screened), explanation=explanation)


def _pareto(question: Question, screened: Screened) -> tuple[ParetoPoint, ...]:
    """Merge the fronts of the GPU counts: more tokens/s and headroom, fewer GPUs; fastest first."""
    tokens = float(question.job.global_batch * question.job.seq_len)
    points = [
        ParetoPoint(strategy=c.strategy, tokens_per_s=tokens / c.step_s, gpus=gpus,
                    memory_headroom_bytes=question.limit_bytes - c.memory_bytes)
        for gpus, candidates in screened.fronts.items() for c in candidates
    ]  # fmt: skip
    table = np.array([(p.tokens_per_s, p.memory_headroom_bytes, -float(p.gpus)) for p in points])
    kept = [points[int(row)] for row in front(table)]
    return tuple(sorted(kept, key=lambda p: (-p.tokens_per_s, p.gpus)))


def _nothing(question: Question, screened: Screened) -> InputError | NothingFits:
    """Say what is short: the way out of a space without legal strategies, or memory and by how much."""
    lean = screened.lean
    if lean is None:
        return InputError(f"no legal strategy: {illegal_reason(question, question.constraints.fixed())}")
    short = lean.memory_bytes - question.limit_bytes
    return NothingFits(
        f"nothing fits in {question.limit_bytes / 1e9:.1f} GB per GPU: the leanest of {screened.evaluated:,} "
        f"strategies ({describe(lean.strategy)}) needs {lean.memory_bytes / 1e9:.1f} GB, {shortage(short)} "
        f"too much; {_nearest_that_fits(question)}"
    )


def _nearest_that_fits(question: Question) -> str:
    """Free one fixed field, else double the cluster, until something fits."""
    for name, value in question.constraints.fixed().items():
        free = question.fixing(**{name: None}).screen().best
        if free is not None:
            return f"without {name} = {value} it fits ({describe(free.strategy)})"
    for factor in LARGER_CLUSTERS:
        cluster = more_gpus(question.cluster, factor)
        if cluster.scaleout.kind == "none" and cluster.gpus > cluster.scaleup.domain_gpus:
            return "no more GPUs can join without a network; use GPUs with more memory, or give --scaleout"
        found = _largest(question.on(cluster), cluster)
        if found is not None:
            return f"{cluster.gpus} such GPUs fit it ({describe(found.strategy)})"
    most = question.cluster.gpus * LARGER_CLUSTERS[-1]
    return f"not even {most} such GPUs fit it at this global batch; use GPUs with more memory"


def _largest(question: Question, cluster: Cluster) -> Candidate | None:
    """Return the best on all GPUs of the cluster, whatever GPU counts or replicas were asked for."""
    return question.fixing(gpus=(cluster.gpus,), dp=None).screen().best
