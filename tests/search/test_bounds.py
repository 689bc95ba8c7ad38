"""Bounds under any strategy: nothing that completes a stem is faster than the stem says."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from linkscale.estimate import prices as prices_module
from linkscale.estimate import step as step_module
from linkscale.estimate.prices import BETWEEN_REPLICAS, BETWEEN_STAGES, Prices, Setting
from linkscale.estimate.step import estimate_batch, memory_batch
from linkscale.plan.strategy import (
    A2aOverlap,
    Choices,
    CpComm,
    Dispatcher,
    Optimizer,
    Recompute,
    Schedule,
    Sharding,
    Stack,
    TpOverlap,
)
from linkscale.profile import shipped_profile
from linkscale.search.axes import Axes, default_axes
from linkscale.search.bounds import Bounds
from linkscale.search.constraints import Constraints
from linkscale.search.job import Job
from linkscale.search.space import regions
from linkscale.topology import parse_cluster
from linkscale.workload import decoder, load_architecture

flag = st.booleans()
CHOICES = st.builds(
    Choices,
    stack=st.sampled_from(get_args(Stack)), sequence_parallel=flag, sharding=st.sampled_from(get_args(Sharding)),
    recompute=st.sampled_from(get_args(Recompute)), schedule=st.sampled_from(get_args(Schedule)), compile=flag,
    optimizer=st.sampled_from(get_args(Optimizer)), overlap_grad_reduce=flag, overlap_param_gather=flag,
    overlap_p2p=flag, cp_comm=st.sampled_from(get_args(CpComm)), no_sync=flag,
    tp_overlap=st.sampled_from(get_args(TpOverlap)), dispatcher=st.sampled_from(get_args(Dispatcher)),
    a2a_overlap=st.sampled_from(get_args(A2aOverlap)),
)  # fmt: skip
MODELS = ("gpt2", "llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3", "mimo-7b")
PLACES = ("dgx-h100:64", "dgx-a100:32", "gb200-nvl72:72", "dgx-h100:24")


@cache
def setting(model: str, place: str, seq_len: int, global_batch: int) -> Setting:
    cluster = parse_cluster(place)
    return Setting(decoder(load_architecture(model)), cluster, seq_len, global_batch, shipped_profile(cluster.gpu.arch))


@cache
def axes(model: str, place: str, seq_len: int, global_batch: int) -> tuple[Job, Axes]:
    job = Job(load_architecture(model), seq_len, global_batch)
    return job, default_axes(job, parse_cluster(place), Constraints())


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(MODELS), st.sampled_from(PLACES), CHOICES, st.sampled_from((1024, 8192, 65536)),
    st.sampled_from((8, 48, 256)),
)  # fmt: skip
def test_no_step_is_faster_than_its_bounds(
    model: str, place: str, choices: Choices, seq_len: int, global_batch: int
) -> None:
    job, space = axes(model, place, seq_len, global_batch)
    (region,) = regions(job, replace(space, choices=(choices,), bucket_bytes=(0, 25_000_000), shard_domain=(2, 8)))
    group = region.group(0) if len(region) else None
    assume(group is not None)
    assert group is not None
    draw = np.random.default_rng(len(group))
    group = group.take(np.sort(draw.choice(len(group), min(400, len(group)), replace=False)))
    prices = Prices(setting(model, place, seq_len, global_batch), region.stems)
    bounds = Bounds(prices, region)
    near, far = bounds.of(group.batch), bounds.of_stems(choices)[group.stem]
    result = estimate_batch(prices, group.batch)
    assert (near <= result.step_s).all()
    assert (far <= near * (1 + 1e-12)).all()
    assert (far > 0).all()
    assert (memory_batch(prices, group.batch).device == result.memory_bytes).all()


OTHER_VALUES: dict[str, Any] = {
    "sharding": "zero3", "no_sync": True, "overlap_grad_reduce": False, "overlap_param_gather": False,
    "param_dtype": "fp8", "optimizer": "muon", "compression": "fp8", "hierarchical": True, "schedule": "zb-h1",
    "overlap_p2p": False, "offload_optimizer": True, "offload_params": True,
}  # fmt: skip


@pytest.mark.parametrize("name", [*BETWEEN_REPLICAS, *BETWEEN_STAGES])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b"])
def test_what_is_shared_turns_on_no_choice_that_it_ignores(
    model: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Priced under its own choices a strategy takes what it takes under those that its like share."""
    place = setting(model, "dgx-h100:64", 8192, 48)
    job, space = axes(model, "dgx-h100:64", 8192, 48)
    sharding = {"sharding": "zero3"} if name == "offload_params" else {}  # only sharded weights leave the device
    choices = Choices(**{"precision": "bf16", **sharding, name: OTHER_VALUES[name]})
    (region,) = regions(job, replace(space, choices=(choices,)))
    batch = region.lightest(choices)
    assert getattr(choices, name) != getattr(Choices(), name)
    shared = estimate_batch(Prices(place, region.stems), batch)
    monkeypatch.setattr(prices_module, "unit_choices", lambda choices: choices)
    monkeypatch.setattr(step_module, "inside_choices", lambda choices: choices)
    own = estimate_batch(Prices(place, region.stems), batch)
    assert (own.step_s == shared.step_s).all()
    assert (own.memory_bytes == shared.memory_bytes).all()
