"""Popular recipes, each beside the best strategy: what it would cost here, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from linkscale.base.errors import InputError
from linkscale.estimate.result import BREAKDOWN_KEYS, Estimate
from linkscale.plan.defaults import complete
from linkscale.plan.legality import check
from linkscale.plan.strategy import Strategy
from linkscale.search.constraints import Constraints
from linkscale.search.question import Question
from linkscale.search.result import Difference, Loser
from linkscale.topology.cluster import Cluster

Fields = Mapping[str, object]
Recipe = Callable[[Strategy, Cluster], Fields]
"""Fixes fields of a strategy, given the best one and the cluster; what it leaves open is searched."""


def _but(**changed: object) -> Recipe:
    """Keep everything of the best strategy but the changed fields and the micro-batch."""
    return lambda best, cluster: {**msgspec.structs.asdict(best), "micro_batch": None, **changed}


def _tensor_only(best: Strategy, cluster: Cluster) -> Fields:
    degree = min(cluster.scaleup.domain_gpus, cluster.gpus)
    return {"stack": best.stack, "precision": best.precision, "tp": degree, "pp": 1}


def _tensor_across_domains(best: Strategy, cluster: Cluster) -> Fields:
    degree = 2 * cluster.scaleup.domain_gpus
    return {"stack": best.stack, "precision": best.precision, "tp": degree}


RECIPES: dict[str, Recipe] = {
    "fully sharded data parallelism alone": lambda best, _: {
        "stack": "fsdp2", "precision": best.precision, "sharding": "zero3", "tp": 1, "pp": 1,
    },
    "plain data parallelism": lambda best, _: {"stack": "ddp", "precision": best.precision, "tp": 1, "pp": 1},
    "tensor parallelism over the whole scale-up domain, no pipeline": _tensor_only,
    "tensor parallelism across scale-up domains": _tensor_across_domains,
    "no sequence parallelism": _but(sequence_parallel=False),
    "no interleaving": _but(vpp=1),
    "no recomputation": _but(recompute="none", recompute_layers=0),
    "full recomputation": _but(recompute="full", recompute_layers=0),
    "optimizer states not sharded": _but(sharding="none", shard_domain=1),
}  # fmt: skip


def losers(question: Question, best: Strategy, estimate: Estimate) -> tuple[Loser, ...]:
    """Try every recipe that the constraints allow and that differs from the best strategy."""
    tried = (_try(question, label, recipe(best, question.cluster), best, estimate) for label, recipe in RECIPES.items())
    return tuple(loser for loser in tried if loser is not None)


def differences(best: Estimate, other: Estimate) -> tuple[Difference, ...]:
    """Return the seconds that the other estimate adds under each key of the breakdown, largest first."""
    rows = (
        Difference(key=key, seconds=getattr(other.breakdown_s, key) - getattr(best.breakdown_s, key))
        for key in BREAKDOWN_KEYS
    )
    return tuple(sorted((row for row in rows if row.seconds != 0.0), key=lambda row: (-abs(row.seconds), row.key)))


def _try(question: Question, label: str, fields: Fields, best: Strategy, estimate: Estimate) -> Loser | None:
    fixed = question.constraints.fixed()
    if any(value is not None and fixed.get(name, value) != value for name, value in fields.items()):
        return None
    narrowed = {**fixed, **{name: value for name, value in fields.items() if value is not None}}
    limit = question.constraints.max_memory_bytes
    constraints = msgspec.convert({**narrowed, "max_memory_bytes": limit, "gpus": (best.gpus,)}, Constraints)
    screened = question.under(constraints).screen()
    candidate = screened.best or screened.lean
    if candidate is None:
        return Loser(label=label, strategy=None, step_s=None, fits=False, reason=illegal_reason(question, narrowed))
    fits = screened.best is not None
    if candidate.strategy == best or (fits and candidate.step_s == estimate.step_s):
        return None  # it is the best, or what it changes touches nothing here: sequence parallelism at tp 1
    short = candidate.memory_bytes - question.limit_bytes
    reason = (
        _slower(estimate, question.estimate(candidate.strategy))
        if fits
        else f"needs {candidate.memory_bytes / 1e9:.1f} GB per GPU, {shortage(short)} too much"
    )
    return Loser(label=label, strategy=candidate.strategy, step_s=candidate.step_s, fits=fits, reason=reason)


def shortage(short_bytes: float) -> str:
    """Return how much memory is short, never as nothing.

    >>> shortage(15.84e9), shortage(31e6)
    ('15.8 GB', '0.031 GB')
    """
    gigabytes = short_bytes / 1e9
    return f"{gigabytes:.1f} GB" if gigabytes >= 0.1 else f"{gigabytes:.2g} GB"


def _slower(best: Estimate, other: Estimate) -> str:
    """Say how much slower, and where most of it goes."""
    extra = other.step_s - best.step_s
    if extra < 0.0:
        gain = f"{-extra / best.step_s:.1%} faster if its estimate holds"
        return f"{gain}; left out unless asked for, as it leaves the domain"
    rows = [row for row in differences(best, other) if row.seconds > 0]
    where = f", most of it {rows[0].key} (+{rows[0].seconds:.3g} s)" if rows else ""
    return f"+{extra:.3g} s a step (+{extra / best.step_s:.1%}){where}"


def illegal_reason(question: Question, fields: Fields) -> str:
    """Return the first rule that the fields break once the rest takes its defaults."""
    job, cluster = question.job, question.cluster
    gpus = question.constraints.gpus[0] if question.constraints.gpus else cluster.gpus
    try:
        strategy = complete(fields, gpus, cluster.scaleup.domain_gpus)
        check(job.arch, gpus, strategy, job.seq_len, job.global_batch)
    except InputError as error:
        return str(error)
    return "no value of the free fields goes with those that are fixed"
