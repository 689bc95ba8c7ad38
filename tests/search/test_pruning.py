"""Pruning against computing everything: what is kept is the same, field for field."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from linkscale.profile import shipped_profile
from linkscale.search.axes import default_axes, wide_axes
from linkscale.search.constraints import Constraints
from linkscale.search.job import Job
from linkscale.search.screen import Screened, find, screen
from linkscale.topology import parse_cluster
from linkscale.workload import load_architecture
from linkscale.workload.training import Training
from tests.search.small import MIXED, PROFILE, axes, cluster, job

DENSE = (
    ("gpt3-6.7b", "dgx-a100:16", 2048, 64),
    ("llama-3.1-8b", "dgx-h100:32", 32768, 16),
    ("gpt2", "dgx-1-v100:8", 1024, 24),
)
EXPERTS = (
    ("qwen3-30b-a3b", "dgx-h100:16", 4096, 32),
    ("mixtral-8x7b", "hgx-h800:32", 4096, 64),
    ("deepseek-v2-lite", "dgx-h100:16", 4096, 48),
)


def both(
    model: str, place: str, seq_len: int, global_batch: int, top: int = 10, limit: float | None = None, **fixed: Any
) -> tuple[Screened, Screened]:
    """Screen the space that ``plan`` searches with and without pruning; ``find`` has to agree, too."""
    question, here = Job(load_architecture(model), seq_len, global_batch), parse_cluster(place)
    space, profile = default_axes(question, here, Constraints(**fixed)), shipped_profile(here.gpu.arch)
    pruned, whole = (
        screen(question, here, space, profile, top=top, max_memory_bytes=limit, prune=prune) for prune in (True, False)
    )
    best = find(question, here, space, profile, max_memory_bytes=limit)
    assert (best.best, best.free) == (whole.best, whole.free)
    assert best.lean == (None if whole.best else whole.lean)
    return pruned, whole


def assert_same(pruned: Screened, whole: Screened) -> None:
    assert whole.evaluated == whole.legal > 0
    assert dataclasses.replace(pruned, evaluated=whole.evaluated) == whole


@pytest.mark.parametrize("question", [*DENSE, *EXPERTS], ids=lambda q: f"{q[0]}-{q[1]}")
def test_nothing_is_lost_and_most_is_left_out(question: tuple[str, str, int, int]) -> None:
    pruned, whole = both(*question)
    assert_same(pruned, whole)
    assert pruned.evaluated < 0.5 * whole.evaluated


@pytest.mark.parametrize("question", [DENSE[0], EXPERTS[0]], ids=lambda q: q[0])
@pytest.mark.parametrize("limit", [1e9, 40e9, 60e9])
def test_nothing_is_lost_under_a_limit_of_memory(question: tuple[str, str, int, int], limit: float) -> None:
    """At 1 GB nothing fits: the leanest and the fastest of all are what is left to say."""
    pruned, whole = both(*question, limit=limit)
    assert_same(pruned, whole)
    assert (whole.fit > 0) == (limit > 1e9)


@pytest.mark.parametrize("question", [DENSE[0], EXPERTS[2]], ids=lambda q: q[0])
def test_every_number_of_gpus_keeps_its_front(question: tuple[str, str, int, int]) -> None:
    pruned, whole = both(*question, gpus=(4, 8, 16))
    assert_same(pruned, whole)
    assert set(whole.fronts) == {4, 8, 16}
    assert all(len(front) > 1 for front in whole.fronts.values())


@pytest.mark.parametrize("top", [1, 100])
def test_as_many_plans_as_are_asked_for_are_the_fastest(top: int) -> None:
    pruned, whole = both(*DENSE[1], top=top)
    assert_same(pruned, whole)
    assert len(pruned.fast) == top


@pytest.mark.parametrize("schedule", ["gpipe", "zb-h1", "zb-v", "dualpipe"])
def test_nothing_is_lost_where_weight_gradients_fill_bubbles(schedule: str) -> None:
    pruned, whole = both("llama-3.1-8b", "dgx-h100:16", 4096, 64, schedule=schedule)
    assert_same(pruned, whole)


def test_nothing_is_lost_among_all_switches_and_stacks() -> None:
    for space in (axes(*MIXED), wide_axes(job(), cluster(), Constraints(tp=2))):
        pruned, whole = (screen(job(), cluster(), space, PROFILE, top=20, prune=prune) for prune in (True, False))
        assert_same(pruned, whole)


def test_of_equal_strategies_the_first_stays() -> None:
    """A switch that changes nothing doubles every row: all rows tie with one that comes before or after."""
    space = axes(MIXED[0], replace(MIXED[0], compression="fp8"))
    pruned, whole = (screen(job(), cluster(), space, PROFILE, top=20, prune=prune) for prune in (True, False))
    assert_same(pruned, whole)
    assert {c.strategy.compression for c in whole.fast} == {"none", "fp8"}
    assert {c.strategy.compression for c in whole.fronts[16]} == {"none"}


@pytest.mark.parametrize("fixed", [{"offload_optimizer": True}, {"offload_layers": 4}, {"vpp": 1}], ids=str)
def test_offloading_and_adapters_lose_nothing_either(fixed: dict[str, Any]) -> None:
    pruned, whole = both(*DENSE[0], stack="megatron", **fixed)
    assert_same(pruned, whole)
    tuned = replace(load_architecture(DENSE[0][0]), training=Training(lora_rank=16, packed_tokens=300))
    question, here = Job(tuned, 2048, 64), parse_cluster(DENSE[0][1])
    space = default_axes(question, here, Constraints(stack="megatron", **fixed))
    found = [screen(question, here, space, shipped_profile("ampere"), top=5, prune=prune) for prune in (True, False)]
    assert_same(*found)
