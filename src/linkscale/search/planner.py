"""search_plans: from a model and a cluster to the best strategies, and why they are the best."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from linkscale.base.errors import InputError, NothingFits
from linkscale.profile import Profile, shipped_profile
from linkscale.search.constraints import Constraints
from linkscale.search.explain import explain
from linkscale.search.fitting import enlarged, freed, shortage
from linkscale.search.job import Job
from linkscale.search.pareto import front
from linkscale.search.question import Question, describe
from linkscale.search.result import ParetoPoint, PlanEntry, PlanResult, Space
from linkscale.search.screen import Progress, Screened
from linkscale.search.why import Fields, check_asked, illegal_reason, whys
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
    why: Sequence[Fields] = (),
) -> PlanResult:
    """Return the ``top`` fastest strategies that fit, the Pareto front, the reasons, and answers to ``why``.

    Every legal strategy of the space is evaluated through the same code as one alone. Raises NothingFits when none
    fits, InputError when none is legal. Only ``space.seconds`` differs from run to run.
    """
    start = time.perf_counter()
    if top < 1:
        raise InputError(f"top = {top}; it must be at least 1")
    job = Job(arch=arch, seq_len=seq_len, global_batch=global_batch)
    question = Question(job, cluster, profile or shipped_profile(cluster.gpu.arch), constraints)
    check_asked(question, why)
    screened = question.screen(max(top, 2), progress)
    if not screened.fast:
        raise _nothing(question, screened)
    ranked = tuple(PlanEntry(strategy=c.strategy, estimate=question.estimate(c.strategy)) for c in screened.fast)
    explanation = explain(question, screened, ranked)
    answers = whys(question, why, ranked[0])
    space = Space(
        legal=screened.legal, evaluated=screened.evaluated, pruned=screened.legal - screened.evaluated,
        fit=screened.fit, seconds=time.perf_counter() - start, axes=question.axes().table(),
    )  # fmt: skip
    return PlanResult(plans=ranked[:top], space=space, pareto=_pareto(question, screened), explanation=explanation,
                      why=answers)  # fmt: skip


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
        return InputError(f"no legal strategy: {illegal_reason(question)}")
    short = lean.memory_bytes - question.limit_bytes
    way_out = freed(question, question.constraints.fixed()) or enlarged(question.fixing(dp=None), LARGER_CLUSTERS)
    return NothingFits(
        f"nothing fits in {question.limit_bytes / 1e9:.1f} GB per GPU: the leanest of {screened.legal:,} "
        f"strategies ({describe(lean.strategy)}) needs {lean.memory_bytes / 1e9:.1f} GB, {shortage(short)} "
        f"too much; {way_out}"
    )
