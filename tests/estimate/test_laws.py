"""Laws of the estimate: at fixed choices better hardware is never slower, and sharding never holds more."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkscale.cost.memory import from_torch
from linkscale.estimate import BatchEstimate, evaluate
from linkscale.plan.strategy import NUMBERS, Sharding, Stack, StrategyBatch
from linkscale.profile import shipped_profile
from linkscale.search.axes import default_axes, wide_axes
from linkscale.search.constraints import Constraints
from linkscale.search.job import Job
from linkscale.search.space import Group, groups
from linkscale.search.whatif import faster_compute, faster_memory, faster_scaleout, faster_scaleup
from linkscale.topology import Cluster, parse_cluster
from linkscale.workload import decoder, load_architecture

# Each part of an estimate is a few dozen roundings; a real violation is far larger.
ROUNDING = 1e-12

JOBS = {
    "dgx-a100:16": ("gpt2", 1024, 32),
    "dgx-h100:64": ("llama-3.1-8b", 8192, 64),
    "dgx-a100:512": ("gpt3-175b", 2048, 256),
    "dgx-h100:32": ("mixtral-8x7b", 4096, 64),
    "gb200-nvl72:72": ("deepseek-v2-lite", 4096, 144),
}
STACKS: tuple[Stack, ...] = ("megatron", "fsdp2", "fsdp1", "deepspeed", "ddp")


@cache
def pool() -> list[tuple[Job, Cluster, Group]]:
    """Legal strategies of every stack, and every switch of Megatron, on a few clusters."""
    found = []
    for place, (model, seq_len, batch) in JOBS.items():
        job, cluster = Job(load_architecture(model), seq_len, batch), parse_cluster(place)
        spaces = [default_axes(job, cluster, Constraints(stack=stack)) for stack in STACKS]
        if not job.arch.routed():
            spaces.append(wide_axes(job, cluster, Constraints(bucket_bytes=0)))
        found += [(job, cluster, group) for axes in spaces for group in groups(job, axes)]
    return found


@st.composite
def cases(draw: st.DrawFn) -> tuple[Job, Cluster, StrategyBatch]:
    """Some strategies that share their choices."""
    job, cluster, group = draw(st.sampled_from(pool()))
    start = draw(st.integers(0, len(group.batch) - 1))
    return job, cluster, group.batch.take(np.arange(start, min(start + 64, len(group.batch))))


def estimate(job: Job, cluster: Cluster, batch: StrategyBatch) -> BatchEstimate:
    profile = shipped_profile(cluster.gpu.arch)
    return evaluate(decoder(job.arch), cluster, batch, job.seq_len, job.global_batch, profile)


def never_above(after: npt.NDArray[np.float64], before: npt.NDArray[np.float64]) -> bool:
    return bool((after <= before * (1.0 + ROUNDING)).all())


@pytest.mark.parametrize("change", [faster_scaleup, faster_scaleout, faster_memory, faster_compute])
@given(case=cases(), factor=st.floats(1.0, 16.0))
@settings(max_examples=60, deadline=None)
def test_faster_hardware_is_never_slower(change, case, factor) -> None:
    job, cluster, batch = case
    before, after = estimate(job, cluster, batch), estimate(job, change(cluster, factor), batch)
    assert never_above(after.step_s, before.step_s)
    assert (after.memory_bytes == before.memory_bytes).all()


@given(case=cases())
@settings(max_examples=60, deadline=None)
def test_parts_sum_to_the_whole(case) -> None:
    found = estimate(*case)
    np.testing.assert_allclose(sum(found.breakdown_s.values()), found.step_s, rtol=ROUNDING)
    for seconds in found.breakdown_s.values():
        assert (seconds >= 0).all()
    for message in found.messages:
        assert (message.exposed_s >= 0).all()
        assert never_above(message.exposed_s, message.time_s), f"{message.group_name} {message.what}"


@given(case=cases())
@settings(max_examples=60, deadline=None)
def test_exposed_messages_are_the_breakdowns_communication(case) -> None:
    found = estimate(*case)
    for key, named in {"tp": ("tp",), "ep": ("ep",), "pp": ("pp",), "dp": ("dp", "world", "model")}.items():
        exposed = sum((m.exposed_s for m in found.messages if m.group_name in named), np.zeros_like(found.step_s))
        np.testing.assert_allclose(exposed, found.breakdown_s[key], rtol=ROUNDING)


STATE = ("weights", "gradients", "optimizer")


@given(case=cases(), factor=st.sampled_from([2, 3, 8]))
@settings(max_examples=60, deadline=None)
def test_more_replicas_never_hold_more_each(case, factor) -> None:
    """At the same micro-batches per replica: live tensors at the peak, and where it is the same state at every moment,
    weights, gradients and optimizer state apart."""
    job, cluster, batch = case
    more = replace(batch, dp=batch.dp * factor)
    before = estimate(job, cluster, batch).memory
    larger = msgspec.structs.replace(cluster, gpus=cluster.gpus * factor)
    after = estimate(replace(job, global_batch=job.global_batch * factor), larger, more).memory
    assert never_above(after.allocated, before.allocated)
    for name in STATE if not from_torch(batch.choices) else ():
        assert never_above(getattr(after, name), getattr(before, name)), name


@given(case=cases(), stages=st.sampled_from([("none", "zero1"), ("zero1", "zero2"), ("zero2", "zero3")]))
@settings(max_examples=60, deadline=None)
def test_a_higher_stage_never_holds_more_state(case, stages: tuple[Sharding, Sharding]) -> None:
    """Gradients in fp32 and reduced at once, so that what each stage shards is the same state."""
    job, cluster, batch = case
    assert never_above(*reversed([held_bytes(job, cluster, with_sharding(batch, sharding)) for sharding in stages]))


@given(case=cases(), domain=st.sampled_from([2, 4, 8]))
@settings(max_examples=60, deadline=None)
def test_a_larger_shard_domain_never_holds_more(case, domain: int) -> None:
    job, cluster, batch = case
    batch = batch.take(batch.dp % (2 * domain) == 0)
    small, large = (with_sharding(batch, "hsdp", d) for d in (domain, 2 * domain))
    assert never_above(held_bytes(job, cluster, large), held_bytes(job, cluster, small))


def with_sharding(batch: StrategyBatch, sharding: Sharding, domain: int = 1) -> StrategyBatch:
    """The same strategies, among more than one replica, sharded another way."""
    batch = batch.take(batch.dp > 1)
    choices = msgspec.structs.replace(batch.choices, sharding=sharding, grad_dtype="fp32", no_sync=False)
    numbers = {name: getattr(batch, name) for name in NUMBERS}
    return StrategyBatch(choices, **{**numbers, "shard_domain": np.full(len(batch), domain)})


def held_bytes(job: Job, cluster: Cluster, batch: StrategyBatch) -> npt.NDArray[np.float64]:
    """Model state; of PyTorch's own stacks, whose gradients come and go, everything live at the peak."""
    memory = estimate(job, cluster, batch).memory
    return memory.allocated if from_torch(batch.choices) else memory.weights + memory.gradients + memory.optimizer
