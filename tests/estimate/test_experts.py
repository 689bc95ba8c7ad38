"""Exchanges of tokens with experts: against tokens routed one by one, and laws of what hides them."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkscale.cost.dispatch import sent_bytes
from linkscale.estimate import Estimate, estimate_step
from linkscale.plan.strategy import Strategy
from linkscale.topology import parse_cluster
from linkscale.topology.groups import group_geometry
from linkscale.workload import load_architecture
from linkscale.workload.ops import Experts, Router

QWEN = load_architecture("qwen3-30b-a3b")
DEEPSEEK = load_architecture("deepseek-v3")
CLUSTER = parse_cluster("dgx-h100:64")
EP32 = Strategy(pp=2, dp=32, ep=32)


def predicted(strategy: Strategy, arch=QWEN, cluster=CLUSTER) -> Estimate:
    return estimate_step(arch, cluster, strategy, 4096, 256)


def rows(found: Estimate, group: str = "ep"):
    return {row.what: row for row in found.communication if row.group == group}


@pytest.mark.parametrize(("ranks", "domain", "top_k"), [(64, 8, 8), (16, 8, 4), (32, 72, 8), (8, 4, 2)])
def test_distinct_nodes_and_ranks_against_tokens_routed_one_by_one(ranks, domain, top_k):
    """Tokens pick experts at random; what each sends is counted: one per other node, one per rank not landed on."""
    experts, tokens, rng = 256, 20_000, np.random.default_rng(ranks)
    group = group_geometry(np.array([float(ranks)]), np.ones(1), domain)
    inside = int(group.per_domain[0])
    chosen = np.argsort(rng.random((tokens, experts)), axis=1)[:, :top_k] // (experts // ranks)
    sender = rng.integers(0, ranks, tokens)
    network = nvlink = 0
    for own, places in zip(sender, chosen, strict=True):
        distinct = set(places.tolist())
        network += len({place // inside for place in distinct} - {own // inside})
        nvlink += sum(place % inside != own % inside for place in distinct)
    op = Experts(experts=experts, top_k=top_k, k=1, ffn=1, gated=True)
    router = Router(experts=experts, k=1, top_k=top_k)
    sent = sent_bytes(np.array([float(tokens)]), op, router, group)
    assert float(sent[0][0]) == pytest.approx(network, rel=0.02, abs=1e-9)
    assert float(sent[1][0]) == pytest.approx(nvlink, rel=0.02, abs=1e-9)


def test_every_copy_is_sent_with_its_probability():
    """128 experts, 8 a token, 32 ranks: sizes by hand; the fullest rank hears 1.5% more than the mean."""
    found, layers, micro_batches = rows(predicted(EP32)), 24, 8
    copies = 4096 * 8
    assert found["tokens to experts"].size_bytes == pytest.approx(copies * 2048 * 2, rel=0.02)
    assert found["tokens to experts"].size_bytes > copies * 2048 * 2
    assert found["probabilities"].size_bytes == pytest.approx(copies * 4, rel=0.02)
    assert found["tokens to experts"].count == layers * micro_batches
    assert found["gradients to and from experts"].count == 2 * layers * micro_batches


def test_gathered_tokens_are_those_of_all_ranks():
    found = rows(predicted(msgspec.structs.replace(EP32, dispatcher="allgather")))
    assert found["tokens to experts"].size_bytes == 32 * 4096 * 2048 * 2
    assert found["tokens to experts"].collective == "all_gather"
    assert found["results of experts"].collective == "reduce_scatter"


def test_experts_have_data_parallel_groups_of_their_own():
    """All 32 ranks of a stage hold different experts: nothing to reduce. Of 8, four replicas."""
    assert "expert gradients" not in rows(predicted(EP32), "dp")
    eight = rows(predicted(msgspec.structs.replace(EP32, ep=8)), "dp")
    assert (eight["expert gradients"].ranks, eight["gradients"].ranks) == (4, 32)
    # 24 layers of 16 experts of 3 * 2048 * 768, reduced in fp32.
    exchanged = eight["expert gradients"].size_bytes * eight["expert gradients"].count
    assert exchanged == pytest.approx(24 * 16 * 3 * 2048 * 768 * 4)


def test_parts_of_an_expert_share_its_copies():
    cut = Strategy(tp=4, dp=16, ep=8, etp=4)
    found = rows(predicted(cut))
    assert found["copies for parts of experts"].ranks == 4
    whole = found["tokens to experts"].size_bytes * 4
    assert found["copies for parts of experts"].size_bytes == pytest.approx(whole)


@given(ep=st.sampled_from((1, 2, 8, 32)), tp=st.sampled_from((1, 2, 4)), whole=st.booleans())
@settings(max_examples=20, deadline=None)
def test_what_hides_is_never_slower(ep, tp, whole):
    fields = {"tp": tp, "dp": 64 // tp, "ep": ep, "etp": 1 if whole or ep * tp > 64 else tp, "dispatcher": "deepep"}
    bare, hidden = (predicted(Strategy(**fields, a2a_overlap=kind)) for kind in ("none", "1f1b"))
    assert hidden.step_s <= bare.step_s * (1 + 1e-12)  # sums in another order, where the host is the slower
    assert hidden.breakdown_s.ep <= bare.breakdown_s.ep


def test_shared_experts_hide_as_much_as_they_take():
    fields = {"pp": 4, "dp": 16, "ep": 16}
    bare, hidden = (predicted(Strategy(**fields, a2a_overlap=kind), DEEPSEEK) for kind in ("none", "shared-expert"))
    assert 0.0 < bare.breakdown_s.ep - hidden.breakdown_s.ep < bare.breakdown_s.compute / 8


def test_sending_once_per_node_never_takes_longer_than_sending_copies():
    for strategy in (EP32, Strategy(pp=2, dp=32, ep=8)):
        once = rows(predicted(msgspec.structs.replace(strategy, dispatcher="deepep")))["tokens to experts"]
        assert once.time_s < rows(predicted(strategy))["tokens to experts"].time_s


def test_eight_bits_halve_what_is_sent_but_for_scales():
    fields = msgspec.structs.replace(EP32, dispatcher="deepep")
    wide, narrow = (rows(predicted(msgspec.structs.replace(fields, dispatch_dtype=d))) for d in ("bf16", "fp8"))
    ratio = narrow["tokens to experts"].size_bytes / wide["tokens to experts"].size_bytes
    assert ratio == pytest.approx((1 + 4 / 128) / 2)
    returned = [
        (found["results of experts"].size_bytes, found["results of experts"].time_s) for found in (wide, narrow)
    ]
    assert returned[0] == returned[1]


def test_a_module_that_predicts_further_tokens_is_a_layer_and_a_head_more_on_the_last_stage():
    """DeepSeek-V3 states one; its stage of 16 layers (of 15 and 15 at the ends) is then no longer the fullest."""
    without = msgspec.structs.replace(DEEPSEEK, prediction_modules=0, prediction_kinds=())
    cluster, layout = parse_cluster("dgx-h100:256"), Strategy(pp=4, dp=64, ep=64)
    one, none = (predicted(layout, arch, cluster) for arch in (DEEPSEEK, without))
    assert 1.01 < one.step_s / none.step_s < 1.2
    assert one.memory_bytes.total >= none.memory_bytes.total
    assert any("further tokens" in note for note in one.assumptions)
    assert not any("further tokens" in note for note in none.assumptions)
