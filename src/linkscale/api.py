"""``predict`` and ``plan``: what the command line and Python programs call alike.

Models and clusters are given as values or as text: the name of a packaged model or the path of a ``config.json``;
``SYSTEM:GPUS``, refined by ``scaleup`` and ``scaleout``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from linkscale.base.errors import InputError
from linkscale.estimate import Estimate, estimate_step
from linkscale.plan.defaults import FIELDS, check_count, check_field, complete
from linkscale.plan.legality import check
from linkscale.plan.precision import check_precision
from linkscale.plan.stated import check_varied, parse_stated, parse_varied
from linkscale.plan.strategy import ROUTING, Precision, Strategy
from linkscale.plan.training import FIELDS as TRAINING
from linkscale.plan.training import with_training
from linkscale.topology import parse_cluster
from linkscale.topology.cluster import Cluster
from linkscale.workload import Architecture, load_architecture

if TYPE_CHECKING:
    from linkscale.profile import Profile
    from linkscale.search.result import PlanResult

Model = Architecture | str | Path
Progress = Callable[[int, int], None]
Layout = Mapping[str, Any] | str
"""Fields of a strategy: a mapping, or text like ``tp=4,pp=8``."""
Varied = Mapping[str, Sequence[Any]] | str | Sequence[str]
"""Values of fields of a strategy: a mapping, or texts like ``schedule=1f1b,zb-v``."""


@dataclass(frozen=True)
class Job:
    """A model, a cluster and a batch: what a strategy is asked for."""

    model: Architecture
    cluster: Cluster
    seq_len: int
    global_batch: int


def job(
    model: Model, cluster: Cluster | str, *, global_batch: int, seq_len: int, scaleup: str | None = None,
    scaleout: str | None = None, catalog: str | Path | None = None, **training: Any,
) -> Job:  # fmt: skip
    """Return the job that names or values mean; ``training``: fields of :class:`linkscale.workload.training.Training`.

    ``lora_rank`` trains adapters on ``lora_targets`` (``qkv``, ``attention``, ``all-linear``) in place of all weights;
    ``packed_tokens`` is the mean length of the documents packed in a sequence, ``expert_spread`` how unevenly experts
    are liked, ``capacity_factor`` the multiple of a fair share beyond which their tokens are dropped.
    """
    for name, value in {"global_batch": global_batch, "seq_len": seq_len}.items():
        check_count(name, value)
    arch = model if isinstance(model, Architecture) else load_architecture(str(model))
    if isinstance(cluster, str):
        cluster = parse_cluster(cluster, scaleup=scaleup, scaleout=scaleout, catalog=catalog)
    elif scaleup or scaleout or catalog:
        raise InputError("scaleup, scaleout and catalog refine a cluster given as text, not a Cluster value")
    return Job(with_training(arch, seq_len, training), cluster, seq_len, global_batch)


def strategy_of(asked: Job, stated: Mapping[str, Any]) -> Strategy:
    """Return the strategy that the stated fields mean on a job; raise where it cannot run."""
    cluster = asked.cluster
    strategy = complete(stated, cluster.gpus, cluster.scaleup.domain_gpus, default_precision(cluster),
                        experts=bool(asked.model.routed()))  # fmt: skip
    check_precision(cluster.gpu.name, cluster.gpu.peak_flops_per_s, strategy.precision)
    check(asked.model, cluster.gpus, strategy, asked.seq_len, asked.global_batch)
    return strategy


def default_precision(cluster: Cluster) -> Precision:
    """Return bf16, or fp16 on GPUs that have no bf16."""
    return "bf16" if "bf16" in cluster.gpu.peak_flops_per_s else "fp16"


def estimate(asked: Job, strategy: Strategy, stated: Mapping[str, Any], profile: Profile | None = None) -> Estimate:
    """Return the estimate, and under its assumptions what the user left to the defaults of the stack."""
    found = estimate_step(asked.model, asked.cluster, strategy, asked.seq_len, asked.global_batch, profile)
    assumed = _assumed(strategy, stated)
    return msgspec.structs.replace(found, assumptions=(*assumed, *found.assumptions)) if assumed else found


def _assumed(strategy: Strategy, stated: Mapping[str, Any]) -> tuple[str, ...]:
    """Say which choices nobody stated, leaving out those that do nothing on this strategy."""
    idle = {"hierarchical", "compression", "schedule", "compile", "bucket_bytes", "recompute_layers", "shard_domain"}
    idle |= {"offload_optimizer", "offload_params"}
    idle |= {"fused_loss", "flat_gradients", "planned_memory"}
    idle |= {"no_sync"} if strategy.sharding not in ("zero3", "hsdp") else set()
    idle |= {"sequence_parallel", "tp_overlap"} if strategy.tp == 1 else set()
    idle |= {"overlap_p2p"} if strategy.vpp == 1 else set()
    idle |= set(ROUTING) if strategy.ep * strategy.etp == 1 else set()
    if strategy.dp * strategy.cp == 1:
        idle |= {"sharding", "overlap_grad_reduce", "overlap_param_gather", "grad_dtype", "param_dtype"}
    idle |= {"overlap_param_gather", "param_dtype"} if strategy.sharding == "none" else set()
    names = [name for name in FIELDS if name not in idle and name not in stated and _choice(strategy, name)]
    text = ", ".join(f"{name} {_said(getattr(strategy, name))}" for name in names)
    return (f"not stated, so as {strategy.stack} usually runs: {text}",) if text else ()


def _choice(strategy: Strategy, name: str) -> bool:
    """Whether a field is worth telling: degrees say themselves in the strategy."""
    return not isinstance(getattr(strategy, name), int) or isinstance(getattr(strategy, name), bool)


def _said(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _training(fields: dict[str, Any]) -> dict[str, Any]:
    """Take what says how the job trains out of the fields."""
    return {name: fields.pop(name) for name in TRAINING if name in fields}


def predict(
    model: Model, cluster: Cluster | str, strategy: Strategy | None = None, *, global_batch: int, seq_len: int,
    profile: Profile | None = None, scaleup: str | None = None, scaleout: str | None = None,
    catalog: str | Path | None = None, **fields: Any,
) -> Estimate:  # fmt: skip
    """Return what one strategy is expected to do: step time, its breakdown, communication, memory.

    Fields that say how the job trains (see ``job``) may stand among those of the strategy.
    The strategy is given as a value, or by its fields; fields left out are filled in as the stack usually runs, and
    dp is what the GPUs leave. Raises InputError for a strategy that cannot run.
    """
    asked = job(model, cluster, global_batch=global_batch, seq_len=seq_len, scaleup=scaleup, scaleout=scaleout,
                catalog=catalog, **_training(fields))  # fmt: skip
    if strategy is not None:
        fields = {**msgspec.structs.asdict(strategy), **fields}
    return estimate(asked, strategy_of(asked, fields), fields, profile)


def plan(
    model: Model, cluster: Cluster | str, *, global_batch: int, seq_len: int, top: int = 10,
    max_memory_bytes: float | None = None, gpus: tuple[int, ...] = (), profile: Profile | None = None,
    progress: Progress | None = None, scaleup: str | None = None, scaleout: str | None = None,
    catalog: str | Path | None = None, why: Layout | Sequence[Layout] = (), vary: Varied = (),
    **fields: Any,
) -> PlanResult:  # fmt: skip
    """Return the fastest strategies that fit, and the reasons; ``fields`` of a strategy given here are held fixed.

    A field in ``vary`` is searched over the values given there. Every layout in ``why`` is answered: why a strategy
    with those fields is not the best.

    Raises NothingFits when no strategy fits, InputError when none can run.
    """
    asked = job(model, cluster, global_batch=global_batch, seq_len=seq_len, scaleup=scaleup, scaleout=scaleout,
                catalog=catalog, **_training(fields))  # fmt: skip
    return search(asked, fields, top=top, max_memory_bytes=max_memory_bytes, gpus=gpus, profile=profile,
                  progress=progress, why=why, vary=vary)  # fmt: skip


def search(
    asked: Job, fields: Mapping[str, Any], *, top: int = 10, max_memory_bytes: float | None = None,
    gpus: tuple[int, ...] = (), profile: Profile | None = None, progress: Progress | None = None,
    why: Layout | Sequence[Layout] = (), vary: Varied = (),
) -> PlanResult:  # fmt: skip
    """Return the plans of a job with some fields of the strategy fixed, others searched over given values."""
    from linkscale.search import Constraints, search_plans

    for name, value in fields.items():
        check_field(name, value)
    for count in gpus:
        check_count("gpus", count)
    constraints = Constraints(**fields, max_memory_bytes=max_memory_bytes, gpus=tuple(gpus),
                              vary=_varied(vary, fields))  # fmt: skip
    return search_plans(asked.model, asked.cluster, asked.seq_len, asked.global_batch, constraints, top=top,
                        progress=progress, profile=profile, why=_layouts(why))  # fmt: skip


def _varied(given: Varied, fixed: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return the values of every field that is varied, checked."""
    texts = [given] if isinstance(given, str) else given
    found: dict[str, tuple[Any, ...]] = {}
    try:
        pairs = list(texts.items()) if isinstance(texts, Mapping) else [parse_varied(text) for text in texts]
        for name, values in pairs:
            if name in found or name in fixed:
                raise InputError(f"{name} is given twice; fix it, or list all its values once")
            found[name] = check_varied(name, values)
    except InputError as error:
        raise InputError(f"vary: {error}") from None
    return found


def _layouts(why: Layout | Sequence[Layout]) -> list[dict[str, Any]]:
    """Return the fields of every layout asked about, checked."""
    return [_layout(each) for each in ([why] if isinstance(why, str | Mapping) else why)]


def _layout(given: Layout) -> dict[str, Any]:
    try:
        if isinstance(given, str):
            return parse_stated(given)
        for name, value in given.items():
            check_field(name, value)
    except InputError as error:
        raise InputError(f"why: {error}") from None
    if not given:
        raise InputError("why: no field given; name one, as {'tp': 4}")
    return dict(given)
