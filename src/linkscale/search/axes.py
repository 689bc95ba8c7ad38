"""Axes: which values of each field of a strategy a search looks at.

Choices (categories) come as combinations that make sense together, numbers as plain lists; ``space.py`` multiplies
them and keeps what is legal. ``default_axes`` is for ``plan``; ``wide_axes`` adds every switch that a default fixes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product

import numpy as np
from msgspec.structs import replace

from linkscale.base.errors import InputError
from linkscale.base.model import Model
from linkscale.plan.defaults import default_choices
from linkscale.plan.legality import OUTER_LAYERS
from linkscale.plan.strategy import DEFAULT_MODULES, ROUTING, Choices, Precision, Stack, repeated_modules
from linkscale.search.constraints import CHOICES, Constraints
from linkscale.search.job import Job
from linkscale.topology.cluster import Cluster

Values = Mapping[str, Sequence[object]]

RECOMPUTE = ("none", "selective", "full")

DEFAULT_CHOICES: dict[Stack, Values] = {
    "megatron": {"sharding": ("zero1", "none"), "sequence_parallel": (True, False), "recompute": RECOMPUTE},
    "fsdp2": {
        "sharding": ("zero3", "hsdp", "zero2"),
        "recompute": RECOMPUTE,
        "compile": (True,),
        "fused_loss": (True,),
        "no_sync": (False, True),
    },
    "fsdp1": {"sharding": ("zero3", "hsdp", "zero2", "none"), "recompute": RECOMPUTE},
    "deepspeed": {"sharding": ("zero1", "zero2", "zero3"), "recompute": RECOMPUTE},
    "ddp": {"sharding": ("none",), "recompute": RECOMPUTE, "compile": (True,), "fused_loss": (True,)},
}
"""What is varied for each stack; a field not named here keeps the stack's default."""

PLANNED_STACKS: tuple[Stack, ...] = ("megatron", "fsdp2")
"""Stacks that ``plan`` compares unless one is asked for."""

SWITCHES: Values = {
    "overlap_grad_reduce": (True, False),
    "overlap_param_gather": (True, False),
    "overlap_p2p": (True, False),
    "tp_overlap": ("async", "none", "ring"),
    "grad_dtype": ("fp32", "bf16"),
    "attention": ("flash", "unfused"),
}
"""Switches of Megatron that ``wide_axes`` varies; a default leaves them at their better value."""

CONTEXT_TOKENS = 4096
"""Fewest tokens of a sequence that a context-parallel rank is left with: shorter pieces starve its kernels."""

EXPERT_CHOICES: dict[Stack, Values] = {
    # Routing beside tensor parallelism needs sequence parallelism.
    "megatron": {
        "sequence_parallel": (True,),
        "dispatcher": ("alltoall", "deepep"),
        "a2a_overlap": ("none", "1f1b"),
    },
}
"""What is varied, or left alone, besides for models with routed experts."""

WIDE_BUCKETS = (0, 10_000_000, 25_000_000, 40_000_000, 100_000_000, 200_000_000, 400_000_000, 800_000_000)


class Axes(Model, frozen=True):
    """Combinations of choices, and the values of every number that they are multiplied with."""

    choices: tuple[Choices, ...]
    gpus: tuple[int, ...]
    tp: tuple[int, ...]
    pp: tuple[int, ...]
    vpp: tuple[int, ...]
    cp: tuple[int, ...]
    micro_batch: tuple[int, ...]
    recompute_layers: tuple[int, ...]
    shard_domain: tuple[int, ...]
    bucket_bytes: tuple[int, ...]
    ep: tuple[int, ...] = (1,)
    etp: tuple[int, ...] = (1,)
    offload_layers: tuple[int, ...] = (0,)
    dp: tuple[int, ...] = ()
    """Data-parallel degrees to keep; empty: whatever the GPUs leave."""

    def table(self) -> dict[str, list[int | str | bool]]:
        """Return the values of every axis by name, as printed beside a result."""
        rows: dict[str, list[int | str | bool]] = {"gpus": list(self.gpus)}
        routed = self.ep != (1,) or self.etp != (1,)
        for name in CHOICES if routed else (name for name in CHOICES if name not in ROUTING):
            rows[name] = list(dict.fromkeys(getattr(choices, name) for choices in self.choices))
        numbers = ("tp", "pp", "vpp", "cp", "micro_batch", "recompute_layers", "shard_domain", "bucket_bytes")
        for name in (*numbers, "ep", "etp") if routed else numbers:
            rows[name] = list(getattr(self, name))
        for name in ("offload_layers", "dp"):
            if getattr(self, name) not in ((), (0,)):
                rows[name] = list(getattr(self, name))
        return rows


def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of a positive number, ascending.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    small = [d for d in range(1, int(np.sqrt(float(number))) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def default_axes(job: Job, cluster: Cluster, constraints: Constraints) -> Axes:
    """Return the axes that ``plan`` searches: small, and holding every setting that is ever the best known."""
    stacks = (constraints.stack,) if constraints.stack else constraints.vary.get("stack", PLANNED_STACKS)
    routed = bool(job.arch.routed())
    values = {
        stack: {**DEFAULT_CHOICES[stack], **(EXPERT_CHOICES.get(stack, {}) if routed else {})} for stack in stacks
    }
    combinations = [c for stack in stacks for c in _combine(stack, values[stack], cluster, constraints)]
    return _axes(tuple(combinations), job, cluster, constraints)


def wide_axes(job: Job, cluster: Cluster, constraints: Constraints) -> Axes:
    """Return the default axes of Megatron with every switch varied and bucket sizes: what the benchmark screens."""
    values = {**DEFAULT_CHOICES["megatron"], **SWITCHES}
    axes = _axes(tuple(_combine("megatron", values, cluster, constraints)), job, cluster, constraints)
    return axes if constraints.bucket_bytes is not None else replace(axes, bucket_bytes=WIDE_BUCKETS)


def _combine(stack: Stack, values: Values, cluster: Cluster, constraints: Constraints) -> list[Choices]:
    """Multiply the values of one stack's choices; a field that is fixed has that one value."""
    precision: Precision = constraints.precision or ("bf16" if cluster.gpu.peak_flops_per_s.get("bf16") else "fp16")
    fixed = {name: (value,) for name, value in constraints.fixed().items() if name in CHOICES}
    varied = {name: found for name, found in constraints.vary.items() if name in CHOICES}
    axes = {**values, "precision": (precision,), **varied, **fixed, "stack": (stack,)}
    rows = (dict(zip(axes, row, strict=True)) for row in product(*axes.values()))
    combinations = (replace(default_choices(stack, row["precision"]), **row) for row in rows)
    agreeing = (c for c in map(_agreeing(fixed), combinations) if c is not None and _holds(c, constraints))
    return list(dict.fromkeys(agreeing))


def _holds(choices: Choices, constraints: Constraints) -> bool:
    """Whether the choices use the numbers that are fixed: others would drop them without a word."""
    layers, domain = constraints.recompute_layers or 0, constraints.shard_domain or 1
    if choices.recompute_modules != DEFAULT_MODULES and not repeated_modules(choices):
        return False
    return (layers == 0 or choices.recompute == "full") and (domain == 1 or choices.sharding == "hsdp")


def _agreeing(fixed: Values) -> Callable[[Choices], Choices | None]:
    """Return what turns a switch off that needs another one which is off; None where it was asked for."""

    def agree(choices: Choices) -> Choices | None:
        changes: dict[str, object] = {}
        if not choices.overlap_grad_reduce and choices.stack == "megatron":
            changes["overlap_param_gather"] = False
        if not choices.sequence_parallel and choices.tp_overlap in ("bulk", "ring"):
            changes["tp_overlap"] = "async"
        asked = any(name in fixed and getattr(choices, name) != value for name, value in changes.items())
        return None if asked else replace(choices, **changes)

    return agree


def _axes(combinations: tuple[Choices, ...], job: Job, cluster: Cluster, constraints: Constraints) -> Axes:
    """Put the numbers beside the choices."""
    counts = tuple(dict.fromkeys(constraints.gpus)) or (cluster.gpus,)
    most = max(counts)
    if most > cluster.gpus:
        raise InputError(f"gpus = {most}, but cluster {cluster.name!r} has {cluster.gpus}; ask for at most that")
    ways = sorted({d for count in counts for d in divisors(count)})
    layers, domain = job.arch.layers, cluster.scaleup.domain_gpus

    def numbers(name: str, free: Iterable[int]) -> tuple[int, ...]:
        value = getattr(constraints, name)
        return tuple(sorted(constraints.vary.get(name, free))) if value is None else (value,)

    # Tensor parallelism stays inside the fast domain unless it is asked for: the time of its many exchanges over a
    # network is what an estimate knows least. Small domains may leave it up to 8, or large models fit nowhere.
    tensor_limit = max(8, domain)
    domains = [d for d in ways if min(8, domain) <= d < most]
    pipelines = numbers("pp", (d for d in ways if d <= layers))
    tensor = numbers("tp", (d for d in ways if d <= tensor_limit))
    return Axes(
        choices=combinations,
        gpus=counts,
        tp=tensor,
        pp=pipelines,
        vpp=numbers("vpp", _interleavings(layers, pipelines)),
        cp=numbers("cp", (d for d in ways if d == 1 or d <= job.seq_len // CONTEXT_TOKENS)),
        micro_batch=numbers("micro_batch", (d for d in divisors(job.global_batch) if d <= 16)),
        recompute_layers=numbers("recompute_layers", (0, 1, 2, 3, 4, 6, 8, 12, 16, 24)),
        shard_domain=numbers("shard_domain", domains),
        bucket_bytes=numbers("bucket_bytes", (0,)),
        ep=numbers("ep", _expert_ranks(job, ways)),
        # Experts are left whole, or cut as the rest is.
        etp=numbers("etp", sorted({1, *tensor}) if job.arch.routed() else (1,)),
        offload_layers=numbers("offload_layers", (0,)),
        dp=numbers("dp", ()),
    )


def _expert_ranks(job: Job, ways: list[int]) -> list[int]:
    """Return the numbers of ranks that divide every kind of routed experts (1 where there are none)."""
    counts = [moe.experts for moe in job.arch.routed()]
    return [d for d in ways if all(count % d == 0 for count in counts)] if counts else [1]


def _interleavings(layers: int, pipelines: tuple[int, ...]) -> list[int]:
    """Return the virtual stages that share out the layers, embedding, loss and a prediction module counting as some."""
    chunks = {chunk for spare in range(OUTER_LAYERS + 1) for chunk in divisors(layers + spare)}
    return sorted({1, *(c // pp for pp in pipelines for c in chunks if pp > 1 and c % pp == 0)})
