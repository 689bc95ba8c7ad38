"""Parts of a step that a total hides: repeated exchanges, the loss, waiting, and what a stage holds at its fullest."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from linkscale.cost.waiting import expected_slowest
from tests.estimate.clusters import GPT, estimate, message

TENSOR = {"tp": 8, "dp": 2, "tp_overlap": "none"}
PLAIN = {"tp": 1, "dp": 64, "sequence_parallel": False}


@pytest.mark.parametrize(("sequence_parallel", "calls"), [(True, 5 + 2), (False, 2 + 1)])
def test_full_recomputation_repeats_the_exchanges_of_forward(sequence_parallel: bool, calls: int) -> None:
    """Half of the layers: gather and scatter, or one reduction, again for each of their two pairs of products."""
    layout = {**TENSOR, "sequence_parallel": sequence_parallel}
    plain, half, whole = (
        estimate(16, **layout, recompute=kind, recompute_layers=layers)
        for kind, layers in (("none", 0), ("full", 12), ("full", 0))
    )
    seconds = [float(found.breakdown_s["tp"][0]) for found in (plain, half, whole)]
    assert seconds[1] == pytest.approx((seconds[0] + seconds[2]) / 2)
    layers = [m for m in whole.messages if m.group_name == "tp" and m.what == "activations"]
    counts = sum(m.count[0] for m in layers)
    # The lookup and the head, each way; Megatron gathers the head's input again for its weight gradient.
    edges = (5 if sequence_parallel else 2) * 8
    assert counts - edges == calls * 24 * 2 * 8
    assert seconds[2] == pytest.approx(sum(m.time_s[0] for m in whole.messages if m.group_name == "tp"))


def test_a_hidden_exchange_takes_multiprocessors_from_what_hides_it() -> None:
    """Of a long product's cover the share of the multiprocessors that NCCL holds is lost."""
    layout = {"tp": 8, "dp": 2, "sequence_parallel": False, "micro_batch": 4}
    none, some = (estimate(64, **layout, tp_overlap=kind) for kind in ("none", "async"))
    hidden = none.units.layer.tp.backward_s[0] - some.units.layer.tp.backward_s[0]
    held = some.within.tensor.reduce.sms[0] / 108
    assert hidden == pytest.approx((1 - held) * some.units.tp_hidden_s[0])
    assert 0 < held < 1


def test_a_compiled_loss_makes_fewer_passes_over_the_logits() -> None:
    layout = {**PLAIN, "stack": "ddp", "sharding": "none"}
    wide = msgspec.structs.replace(GPT, vocab=1_000_000, layers=1)
    written, compiled = (estimate(64, arch=wide, **layout, compile=kind) for kind in (False, True))
    saved = written.units.head.forward_s[0] - compiled.units.head.forward_s[0]
    logits = 2048 * 1_000_000
    assert saved == pytest.approx((26 - 8) * logits / (2.039e12 * 0.775), rel=0.01)


@pytest.mark.parametrize("ranks", [2, 8, 64, 1024])
def test_the_slowest_of_many_against_draws(ranks: int) -> None:
    draws = np.random.default_rng(0).standard_normal((4000, ranks)).max(axis=1)
    assert expected_slowest(ranks) == pytest.approx(float(draws.mean()), abs=4 * float(draws.std()) / 4000**0.5 + 0.03)


def test_waiting_grows_with_the_gpus_at_equal_work() -> None:
    few, many = (estimate(dp, tp=1, dp=dp, sequence_parallel=False) for dp in (8, 512))
    ratio = expected_slowest(512) / expected_slowest(8)
    assert many.breakdown_s["wait"][0] / few.breakdown_s["wait"][0] == pytest.approx(ratio)


def test_tensor_parallelism_over_nodes_holds_the_nics_that_gradients_need() -> None:
    """The time of exchanges inside a node is cover for gradients; over nodes it is not."""
    layout = {"dp": 8, "sharding": "none", "nic_gbps": 20.0}
    inside, across = (estimate(8, tp=tp, **layout) for tp in (8, 16))
    for found, covers in ((inside, True), (across, False)):
        _, buckets, one, exposed = message(found, "dp", "gradients")
        layer = found.units.layer
        beyond_compute = buckets * one - 24 * (layer.backward_s[0] + layer.late_backward()[0])
        assert beyond_compute > one, "the network must be slow enough"
        assert bool(exposed < beyond_compute) is covers


def test_one_layer_is_whole_while_its_backward_runs() -> None:
    """Selective recomputation drops the scores of every layer but the one at work."""
    layout = {**PLAIN, "attention": "unfused"}
    one, many = (
        estimate(64, arch=msgspec.structs.replace(GPT, layers=layers, vocab=8), **layout, recompute="selective")
        for layers in (1, 24)
    )
    whole = estimate(64, arch=msgspec.structs.replace(GPT, layers=1, vocab=8), **layout, recompute="none")
    assert one.memory.activations[0] == whole.memory.activations[0]
    kept = one.units.activation_bytes[0]
    assert many.memory.activations[0] - one.memory.activations[0] == pytest.approx(23 * kept)


def test_planned_memory_has_nothing_between_tensors() -> None:
    planned, caching = (estimate(64, **PLAIN, planned_memory=p).memory for p in (True, False))
    assert planned.allocated[0] == caching.allocated[0]
    assert planned.reserved[0] == planned.allocated[0] + planned.idle[0]
    assert caching.reserved[0] == pytest.approx(1.05 * planned.reserved[0])


def test_a_loss_in_one_kernel_holds_a_third() -> None:
    """4 bytes a logit instead of 12; written out, the dead 16-bit logits leave a block besides."""
    wide = msgspec.structs.replace(GPT, layers=1, vocab=1_024_000)
    written, fused = (estimate(8, arch=wide, **PLAIN, fused_loss=f).memory for f in (False, True))
    assert written.logits[0] == 3 * fused.logits[0] > 0
    assert written.idle[0] - fused.idle[0] == pytest.approx(written.logits[0] / 6)


def test_the_last_stage_of_a_wide_vocabulary_is_the_fullest_and_holds_no_table() -> None:
    wide = msgspec.structs.replace(GPT, vocab=1_024_000, lm_head_bias=True)
    found = estimate(8, arch=wide, tp=8, pp=4, dp=1, sharding="none")
    layer = 12 * GPT.hidden**2 / 8 + (4 * GPT.hidden + 3 * GPT.hidden) / 8 + 6 * GPT.hidden
    head = 1_024_000 / 8 * (GPT.hidden + 1) + 2 * GPT.hidden
    assert found.memory.logits[0] > 0
    assert found.memory.weights[0] == pytest.approx(2 * (6 * layer + head))


def test_the_second_stage_is_the_fullest_where_the_first_is_short() -> None:
    """14 layers on 8 stages: 1 at both ends, 2 between; the second holds 7 micro-batches, the first 8."""
    found = estimate(64, arch=msgspec.structs.replace(GPT, layers=14, vocab=8), tp=1, pp=8, dp=1, sharding="none")
    assert found.memory.activations[0] == pytest.approx(7 * 2 * found.units.activation_bytes[0])


def test_replicas_of_shards_expose_what_backward_cannot_hide() -> None:
    layout = {**PLAIN, "stack": "fsdp2", "sharding": "hsdp", "shard_domain": 8}
    slow = estimate(64, **layout, nic_gbps=1.0)
    _, count, one, exposed = message(slow, "dp", "gradient shards")
    assert exposed == pytest.approx(count * one, rel=0.1), "almost nothing hides on a 1 Gb/s port"
