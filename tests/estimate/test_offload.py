"""Offloading in an estimate: copies hide behind compute, laws over strategies of every stack."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from linkscale.estimate import BatchEstimate, estimate_step, evaluate
from linkscale.plan.legality import legal_mask
from linkscale.plan.strategy import Strategy, StrategyBatch
from linkscale.profile import shipped_profile
from linkscale.search.job import Job
from linkscale.topology import Cluster, parse_cluster
from linkscale.workload import decoder, load_architecture
from tests.estimate.test_laws import ROUNDING, cases, estimate, never_above

LLAMA = load_architecture("llama-3.1-8b")


def offloading(case: tuple[Job, Cluster, StrategyBatch], layers: int, **switches: bool) -> StrategyBatch:
    """The legal ones among the strategies when they offload."""
    job, cluster, batch = case
    choices = msgspec.structs.replace(batch.choices, **switches)
    changed = replace(batch, choices=choices, offload_layers=np.full_like(batch.tp, layers))
    return changed.take(legal_mask(job.arch, cluster.gpus, changed, job.seq_len, job.global_batch))


WAYS = [{}, {"offload_optimizer": True}, {"offload_optimizer": True, "offload_params": True}]


@st.composite
def offloads(draw: st.DrawFn) -> tuple[Job, Cluster, StrategyBatch]:
    case = draw(cases())
    batch = offloading(case, draw(st.integers(0, 3)), **draw(st.sampled_from(WAYS)))
    assume(len(batch))
    return case[0], case[1], batch


@given(case=offloads(), factor=st.floats(1.0, 16.0))
@settings(max_examples=60, deadline=None)
def test_a_faster_host_is_never_slower(case, factor: float) -> None:
    job, cluster, batch = case
    gpu = cluster.gpu
    link = {
        name: getattr(gpu, name) * factor
        for name in ("pcie_bandwidth_bytes_per_s", "chip_to_chip_bandwidth_bytes_per_s")
    }
    faster = (
        msgspec.structs.replace(cluster, gpu=msgspec.structs.replace(gpu, **link)),
        msgspec.structs.replace(cluster, host_memory_bytes_per_s=cluster.host_memory_bytes_per_s * factor),
    )
    before = estimate(job, cluster, batch)
    for other in faster:
        after = estimate(job, other, batch)
        assert never_above(after.step_s, before.step_s)
        assert (after.memory_bytes == before.memory_bytes).all()


@given(case=offloads())
@settings(max_examples=60, deadline=None)
def test_offloading_frees_memory_and_never_gains_time(case) -> None:
    job, cluster, batch = case
    choices = msgspec.structs.replace(batch.choices, offload_optimizer=False, offload_params=False)
    plain = estimate(job, cluster, replace(batch, choices=choices, offload_layers=np.zeros_like(batch.tp)))
    found = estimate(job, cluster, batch)
    assert never_above(found.memory_bytes, plain.memory_bytes)
    assert never_above(plain.step_s, found.step_s)
    for cause in ("weights", "gradients", "optimizer", "activations"):
        assert (getattr(found.memory, cause) >= -ROUNDING).all()


@given(case=offloads())
@settings(max_examples=60, deadline=None)
def test_parts_of_an_offloading_step_sum_to_it(case) -> None:
    found = estimate(*case)
    np.testing.assert_allclose(sum(found.breakdown_s.values()), found.step_s, rtol=ROUNDING)
    assert all((seconds >= 0).all() for seconds in found.breakdown_s.values())


def on(cluster: Cluster, **fields: Any) -> BatchEstimate:
    defaults = {
        "stack": "fsdp2",
        "sharding": "zero3",
        "sequence_parallel": False,
        "dp": cluster.gpus,
        "recompute": "none",
        "compile": True,
    }
    strategy = Strategy(**{**defaults, **fields})
    return evaluate(decoder(LLAMA), cluster, strategy.batch(), 8192, 8, shipped_profile(cluster.gpu.arch))


def test_activations_wait_on_the_host_but_for_two_layers() -> None:
    cluster = parse_cluster("dgx-h100:8")
    found = [on(cluster, offload_layers=layers) for layers in (0, 16, 32)]
    one = found[0].units.activation_bytes[0]
    beside = found[0].memory.activations[0] - 32 * one
    assert found[1].memory.activations[0] == pytest.approx(18 * one + beside)
    assert found[2].memory.activations[0] == pytest.approx(2 * one + beside)
    assert 0.0 < beside < 0.3 * one


def test_a_link_hides_what_its_layers_compute_covers() -> None:
    """PCIe 5 is slower than a layer's forward keeps; the link of a Grace, alone with its GPU, is quicker."""
    slow, quick = parse_cluster("dgx-h100:8"), parse_cluster("gb300-nvl72:1")
    assert on(slow, offload_layers=32).breakdown_s["offload"][0] > 0.0
    assert on(quick, offload_layers=32).breakdown_s["offload"][0] == 0.0


def test_exposed_copies_of_activations_by_hand() -> None:
    """What a layer keeps, over the link, less its forward and its backward; of 32 layers, the last two stay."""
    cluster = parse_cluster("dgx-h100:8")
    found = on(cluster, offload_layers=32)
    layer = found.units.layer
    link = 55.43 / 63.0 * cluster.gpu.pcie_bandwidth_bytes_per_s
    copied = float(found.units.activation_bytes[0]) / link
    late = max(0.0, copied - float(layer.forward_s[0])) + max(0.0, copied - float(layer.backward_s[0]))
    assert found.breakdown_s["offload"][0] == pytest.approx(30 * late)


def test_the_page_says_what_a_host_gives() -> None:
    strategy = Strategy(stack="fsdp2", sharding="zero3", sequence_parallel=False, dp=8, offload_layers=4)
    found = estimate_step(LLAMA, parse_cluster("dgx-h100:8"), strategy, 8192, 8)
    assert any("copies 55.4 GB/s each way to its host (PCIe), 61.4 GB/s of host memory" in s for s in found.assumptions)
    assert any("offload to host memory" in text for text in found.warnings)
