"""One test per sentence of the design's overlap point."""

from __future__ import annotations

import msgspec
import pytest

from linkscale.profile import shipped_profile
from tests.estimate.clusters import GPT, estimate, message

SLOW = {"nic_gbps": 5.0}
PLAIN = {"tp": 1, "dp": 64, "sequence_parallel": False}


@pytest.mark.parametrize("stack", ["megatron", "ddp"])
def test_gradient_reduction_hides_behind_the_last_micro_batch_only(stack: str) -> None:
    layout = {**PLAIN, "sharding": "none", "stack": stack}
    few = message(estimate(64, **layout, **SLOW), "dp", "gradients")
    many = message(estimate(64 * 16, **layout, **SLOW), "dp", "gradients")
    assert few[3] > 0.5 * few[1] * few[2], "the link must be slow enough to be exposed"
    assert many[3] == few[3], "fifteen more micro-batches gave no more cover"


def test_each_virtual_stage_reduces_while_the_others_still_run() -> None:
    layout = {"tp": 8, "pp": 4, "dp": 16, "sharding": "zero1"}
    exposed = [message(estimate(16 * 32, **layout, vpp=v, nic_gbps=50.0), "dp", "gradients")[3] for v in (1, 2, 6)]
    assert exposed[0] > exposed[1] > exposed[2]


def test_fsdp_gathers_forward_and_backward_and_reduces_for_every_micro_batch() -> None:
    layout = {**PLAIN, "stack": "fsdp2", "sharding": "zero3"}
    found = estimate(64 * 5, **layout)
    assert message(found, "dp", "parameters")[1] == 2 * GPT.layers * 5
    assert message(found, "dp", "gradients")[1] == GPT.layers * 5


def test_no_sync_reduces_once_and_holds_whole_gradients() -> None:
    layout = {**PLAIN, "stack": "fsdp2", "sharding": "zero3"}
    each, once = estimate(64 * 5, **layout), estimate(64 * 5, **layout, no_sync=True)
    assert message(once, "dp", "gradients")[1] == GPT.layers
    assert message(once, "dp", "parameters")[1] == message(each, "dp", "parameters")[1]
    assert once.memory.gradients[0] > 10 * each.memory.gradients[0]


@pytest.mark.parametrize("stack", ["deepspeed", "megatron"])
def test_gradients_kept_in_shards_are_reduced_for_every_micro_batch(stack: str) -> None:
    """What ZeRO-2 saves in memory it pays in messages; no_sync turns both back."""
    layout = {**PLAIN, "stack": stack, "sharding": "zero2"}
    each, once = estimate(64 * 5, **layout), estimate(64 * 5, **layout, no_sync=True)
    assert message(each, "dp", "gradients")[1] == 5 * message(once, "dp", "gradients")[1]
    assert message(each, "dp", "gradients")[3] == pytest.approx(5 * message(once, "dp", "gradients")[3])
    assert message(each, "dp", "parameters") == message(once, "dp", "parameters")
    assert once.memory.gradients[0] > 10 * each.memory.gradients[0]


def test_fsdp_that_keeps_parameters_for_backward_gathers_once_a_micro_batch() -> None:
    """As tests/oracles records of fully_shard: no_sync spares reductions, not gathers."""
    layout = {**PLAIN, "stack": "fsdp2", "sharding": "zero2"}
    each, kept = estimate(64 * 5, **layout), estimate(64 * 5, **layout, no_sync=True)
    for found in (each, kept):
        assert message(found, "dp", "parameters")[1] == 5 * GPT.layers
    assert message(each, "dp", "gradients")[1] == 5 * message(kept, "dp", "gradients")[1] == 5 * GPT.layers


@pytest.mark.parametrize(("stack", "count"), [("ddp", 402), ("deepspeed", 11), ("megatron", 83)])
def test_buckets_are_the_stacks_own(stack: str, count: int) -> None:
    """GPT of 5.26 G parameters on 64 ranks: 25 MiB of gradients, 500 M elements, 1 M parameters per rank."""
    found = estimate(64, **PLAIN, stack=stack, sharding="none", grad_dtype="bf16")
    assert message(found, "dp", "gradients")[1] == pytest.approx(count, rel=0.02)


def test_a_bucket_asked_for_is_that_of_both_exchanges() -> None:
    layout = {**PLAIN, "sharding": "zero1", "grad_dtype": "fp32", "param_dtype": "bf16"}
    found = estimate(64, **layout, bucket_bytes=400_000_000)
    gradients, parameters = (message(found, "dp", what) for what in ("gradients", "parameters"))
    assert gradients[1] == parameters[1]
    assert gradients[0] == 2 * parameters[0] <= 400_000_000


def test_what_a_layers_exchange_exceeds_its_compute_is_exposed_layer_by_layer() -> None:
    layout = {**PLAIN, "stack": "fsdp2", "sharding": "zero3"}
    found = estimate(64, **layout, **SLOW)
    _, count, one, exposed = message(found, "dp", "parameters")
    assert exposed == pytest.approx(count * one, rel=0.35), "almost nothing hides on a 5 Gb/s port"
    # With eight times the tokens to hide behind, a layer's exchange on a fast port is covered: what is left (first
    # gather, copies, slowed compute) does not grow with the tokens.
    fast = [message(estimate(64 * k, **layout, micro_batch=k, nic_gbps=3200.0), "dp", "parameters")[3] for k in (8, 16)]
    assert fast[0] == pytest.approx(fast[1])


@pytest.mark.parametrize("sharded", [{"sharding": "zero3"}, {"sharding": "hsdp", "shard_domain": 8}])
@pytest.mark.parametrize("port", [SLOW, {}])
@pytest.mark.parametrize("overlap", [True, False])
def test_every_exchange_is_exposed_for_what_it_takes_at_most(sharded, port, overlap) -> None:
    """Edge units and replicas carry their own exposed seconds; together they are the breakdown's dp."""
    layout = {**PLAIN, "stack": "fsdp2", "overlap_grad_reduce": overlap, "overlap_param_gather": overlap}
    found = estimate(64 * 4, **layout, **sharded, **port)
    for m in found.messages:
        assert m.exposed_s[0] <= m.time_s[0] * (1 + 1e-12), m.what
    exposed = sum(m.exposed_s[0] for m in found.messages if m.group_name in ("dp", "world", "model"))
    assert found.breakdown_s["dp"][0] + found.breakdown_s["optimizer"][0] >= exposed
    assert message(found, "dp", "edge gradients")[3] > 0


def test_the_parameter_gather_hides_behind_the_first_forward_only() -> None:
    layout = {**PLAIN, "sharding": "zero1"}
    few = message(estimate(64, **layout, **SLOW), "dp", "parameters")
    many = message(estimate(64 * 16, **layout, **SLOW), "dp", "parameters")
    assert few[3] > 0.5 * few[1] * few[2]
    assert many[3] == few[3]


@pytest.mark.parametrize("what", ["gradients", "parameters"])
def test_the_first_bucket_is_exposed_however_long_the_cover(what: str) -> None:
    found = estimate(64, **PLAIN, sharding="zero1", micro_batch=1, nic_gbps=3200.0)
    _, count, one, exposed = message(found, "dp", what)
    assert count > 1
    assert exposed >= one


def test_gradient_norm_clipping_and_optimizer_are_exposed() -> None:
    found = estimate(64, **PLAIN, sharding="zero1")
    size, count, one, exposed = message(found, "world", "gradient norm")
    assert (size, count, exposed) == (4.0, 1.0, one)
    assert found.breakdown_s["optimizer"][0] > 0
    assert found.breakdown_s["dp"][0] >= exposed


def test_stage_0_is_critical_for_the_gradient_exchange() -> None:
    layout = {"tp": 8, "pp": 4, "dp": 16, "sharding": "zero1", "nic_gbps": 20.0}
    wide_head = msgspec.structs.replace(GPT, vocab=4 * GPT.vocab, lm_head_bias=True)
    base, wide = estimate(16 * 32, **layout), estimate(16 * 32, arch=wide_head, **layout)
    embedding = 3 * GPT.vocab * GPT.hidden / 8 * 4
    before, after = message(base, "dp", "gradients"), message(wide, "dp", "gradients")
    assert after[0] * after[1] - before[0] * before[1] == pytest.approx(embedding), "the table of stage 0, not the head"


def test_communication_slows_the_compute_beside_it() -> None:
    hidden = estimate(64, **PLAIN, stack="fsdp2", sharding="zero3", nic_gbps=1600.0, micro_batch=1, seq_len=4096)
    _, count, one, exposed = message(hidden, "dp", "parameters")
    first_gathers = message(hidden, "dp", "edge parameters")[2] + one
    assert exposed > first_gathers, "hidden gathers still hold multiprocessors"
    assert exposed < count * one + first_gathers


def test_switching_overlap_off_exposes_everything() -> None:
    off = estimate(64, **PLAIN, sharding="zero1", overlap_grad_reduce=False, overlap_param_gather=False)
    for what in ("gradients", "parameters"):
        _, count, one, exposed = message(off, "dp", what)
        assert exposed == pytest.approx(count * one)


def test_a_slower_host_never_helps() -> None:
    profile = shipped_profile("ampere")
    slow = msgspec.structs.replace(profile, op_launch_s=10 * profile.op_launch_s)
    assert estimate(64, **PLAIN, profile=slow).step_s[0] > estimate(64, **PLAIN, profile=profile).step_s[0]
