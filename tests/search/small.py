"""Small questions whose whole space can be looked at one by one."""

from __future__ import annotations

from functools import cache
from itertools import product

from linkscale.base.errors import InputError
from linkscale.plan.legality import check
from linkscale.plan.strategy import Choices, Strategy
from linkscale.profile import Profile, shipped_profile
from linkscale.search.axes import Axes
from linkscale.search.job import Job
from linkscale.topology import Cluster, parse_cluster
from linkscale.workload import load_architecture

PROFILE: Profile = shipped_profile("ampere")


@cache
def job(global_batch: int = 16) -> Job:
    """GPT-2 on sequences of 1,024 tokens."""
    return Job(arch=load_architecture("gpt2"), seq_len=1024, global_batch=global_batch)


@cache
def cluster(gpus: int = 16) -> Cluster:
    return parse_cluster(f"dgx-a100:{gpus}")


def axes(*choices: Choices, gpus: tuple[int, ...] = (16,)) -> Axes:
    """A few values of every number under the given combinations of choices."""
    return Axes(
        choices=choices, gpus=gpus, tp=(1, 2, 4, 16), pp=(1, 2, 8), vpp=(1, 2, 3), cp=(1,), micro_batch=(1, 2, 3),
        recompute_layers=(0, 1, 6), shard_domain=(1, 2, 8), bucket_bytes=(0, 10_000_000),
    )  # fmt: skip


MIXED = (
    Choices(recompute="none"),
    Choices(sharding="none", recompute="none"),
    Choices(sequence_parallel=False, recompute="full"),
    Choices(overlap_grad_reduce=False, overlap_param_gather=False, grad_dtype="bf16"),
    Choices(stack="fsdp2", sharding="zero3", tp_overlap="none", compile=True),
    Choices(stack="fsdp2", sharding="hsdp", tp_overlap="none", compile=True),
    Choices(stack="ddp", sharding="none", sequence_parallel=False, tp_overlap="none"),
)


def every_legal(job: Job, axes: Axes) -> list[Strategy]:
    """Try every value of every axis with every other, and ask the rules one by one."""
    numbers = ("tp", "pp", "vpp", "cp", "micro_batch", "recompute_layers", "shard_domain", "bucket_bytes")
    found = []
    for gpus, choices, row in product(axes.gpus, axes.choices, product(*(getattr(axes, n) for n in numbers))):
        values = dict(zip(numbers, row, strict=True))
        dp = gpus // (values["tp"] * values["pp"] * values["cp"])
        if dp < 1 or (axes.dp and dp not in axes.dp):
            continue
        strategy = Strategy(**{f: getattr(choices, f) for f in Choices.__struct_fields__}, **values, dp=dp)
        try:
            check(job.arch, gpus, strategy, job.seq_len, job.global_batch)
        except InputError:
            continue
        found.append(strategy)
    return found
