"""Popular recipes, each beside the best strategy: what it would cost here, and why."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from linkscale.plan.strategy import Strategy
from linkscale.search.question import Question
from linkscale.search.result import Loser, PlanEntry
from linkscale.search.why import Fields, answer, conflict
from linkscale.topology.cluster import Cluster

Recipe = Callable[[Strategy, Cluster], Fields]
"""Fixes fields of a strategy, given the best one and the cluster; what it leaves open is searched."""


def _but(**changed: object) -> Recipe:
    """Keep everything of the best strategy but the changed fields and the micro-batch."""

    def fields(best: Strategy, cluster: Cluster) -> Fields:
        kept = {name: value for name, value in msgspec.structs.asdict(best).items() if name != "micro_batch"}
        return {**kept, **changed}

    return fields


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


def losers(question: Question, best: PlanEntry) -> tuple[Loser, ...]:
    """Try every recipe that the constraints allow and that differs from the best strategy."""
    within = question.fixing(gpus=(best.strategy.gpus,))
    tried = (_try(within, label, recipe(best.strategy, question.cluster), best) for label, recipe in RECIPES.items())
    return tuple(loser for loser in tried if loser is not None)


def _try(question: Question, label: str, fields: Fields, best: PlanEntry) -> Loser | None:
    if conflict(question, fields):
        return None
    found = answer(question, fields, best)
    if found.answer in ("chosen", "equal"):
        return None  # it is the best, or what it changes touches nothing here: sequence parallelism at tp 1
    fits = found.answer in ("slower", "faster")
    return Loser(label=label, strategy=found.strategy, step_s=found.step_s, fits=fits, reason=found.reason)
