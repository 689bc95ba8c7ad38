"""Adapters in an estimate: what frozen weights save, and laws over strategies of every stack."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from linkscale.cost.layer import Slice, ops_cost
from linkscale.plan.strategy import Choices, Stack
from linkscale.search.job import Job
from linkscale.workload import Architecture, decoder, load_architecture
from linkscale.workload.counts import params, trained_params
from linkscale.workload.training import LoraTargets, Training
from tests.cost.test_activations import UNIT
from tests.estimate.clusters import GPT, message
from tests.estimate.clusters import estimate as one_estimate
from tests.estimate.test_laws import ROUNDING, cases, estimate, never_above

ONE = np.ones(1)
PART = Slice(ONE, ONE, 1024.0 * ONE, 1024.0, Choices())
"""A sequence of 1,024 tokens on one GPU."""


def tuned(arch: Architecture, rank: int = 16, targets: LoraTargets = "all-linear", packed: int = 0) -> Architecture:
    training = Training(lora_rank=rank, lora_targets=targets, packed_tokens=packed)
    return msgspec.structs.replace(arch, training=training)


def retrained(job: Job, **training: int | str) -> Job:
    arch = msgspec.structs.replace(job.arch, training=Training(**training))  # type: ignore[arg-type]
    return Job(arch, job.seq_len, job.global_batch)


@given(case=cases(), targets=st.sampled_from(["qkv", "attention"]))
@settings(max_examples=60, deadline=None)
def test_adapters_never_need_more_memory_than_all_weights(case, targets: str) -> None:
    job, cluster, batch = case
    full, few = (
        estimate(j, cluster, batch).memory_bytes for j in (job, retrained(job, lora_rank=8, lora_targets=targets))
    )
    assert never_above(few, full)


@given(case=cases(), rank=st.integers(1, 200), more=st.integers(1, 200))
@settings(max_examples=60, deadline=None)
def test_a_higher_rank_never_costs_less(case, rank: int, more: int) -> None:
    """In as many buckets: gradients that grow into a further one hide all but the last behind backward."""
    job, cluster, batch = case
    low, high = (estimate(retrained(job, lora_rank=r), cluster, batch) for r in (rank, rank + more))
    assert never_above(low.memory_bytes, high.memory_bytes)
    alike = np.all([before.count == after.count for before, after in zip(low.messages, high.messages, strict=True)], 0)
    assert never_above(low.step_s[alike], high.step_s[alike])


@given(case=cases(), tokens=st.integers(16, 4000), more=st.integers(1, 4000))
@settings(max_examples=60, deadline=None)
def test_longer_documents_never_take_less_time(case, tokens: int, more: int) -> None:
    """On one context-parallel rank: a ring and the exchange of replicas each hide behind the same attention."""
    job, cluster, batch = case
    batch = batch.take(batch.cp == 1)
    assume(len(batch))
    short, long = (estimate(retrained(job, packed_tokens=n), cluster, batch) for n in (tokens, tokens + more))
    assert never_above(short.step_s, long.step_s)
    assert (short.memory_bytes == long.memory_bytes).all()


@given(case=cases())
@settings(max_examples=60, deadline=None)
def test_parts_of_a_tuning_step_sum_to_it(case) -> None:
    job, cluster, batch = case
    found = estimate(retrained(job, lora_rank=16), cluster, batch)
    np.testing.assert_allclose(sum(found.breakdown_s.values()), found.step_s, rtol=ROUNDING)
    for sent in found.messages:
        assert never_above(sent.exposed_s, sent.time_s), f"{sent.group_name} {sent.what}"


def test_only_adapters_have_gradients_to_exchange() -> None:
    size, count, *_ = message(one_estimate(64, arch=tuned(GPT, 8), dp=8, sharding="none"), "dp", "gradients")
    assert size * count == 4.0 * trained_params(tuned(GPT, 8))


def test_layers_are_gathered_whole_and_reduced_by_their_adapters() -> None:
    arch = tuned(GPT, 8)
    found = one_estimate(64, arch=arch, dp=8, stack="fsdp2", sharding="zero3")
    gathered, reduced = (message(found, "dp", what)[0] for what in ("parameters", "gradients"))
    adapters = trained_params(arch, apart=True)
    edges = (51200 * 2 + 2048 + 2) * 4096  # tables, output projection, final norm
    assert gathered == pytest.approx(2.0 * (params(GPT) - edges + adapters) / 24, rel=1e-6)
    assert reduced == 4.0 * adapters / 24


def test_frozen_weights_take_two_bytes_and_nothing_else() -> None:
    found = one_estimate(64, arch=tuned(GPT, 8), dp=8, sharding="none").memory
    adapters = trained_params(tuned(GPT, 8))
    assert found.gradients[0] == 4.0 * adapters
    assert found.optimizer[0] == 12.0 * adapters
    assert found.weights[0] == pytest.approx(2.0 * params(tuned(GPT, 8)), rel=1e-3)  # the vocabulary is padded


@pytest.mark.parametrize(("targets", "dropped"), [("qkv", 4096 + 4096 + 14336), ("attention", 4096 + 14336)])
def test_inputs_that_no_adapter_reads_are_not_kept(targets: LoraTargets, dropped: int) -> None:
    """Llama 3.1 8B: inputs of the output projection, of gate and up, and of the down projection, in 16 bits."""
    arch = load_architecture("llama-3.1-8b")
    part, rank = PART, 16
    full, few = (ops_cost(decoder(a).groups[0].ops, part, UNIT).saved_bytes for a in (arch, tuned(arch, rank, targets)))
    between = 2 * 1024 * rank * (1 if targets == "qkv" else 2)  # what A hands to B
    assert float(np.sum(full - few)) == 2 * 1024 * dropped - between


def test_frozen_products_have_no_weight_gradient() -> None:
    arch = load_architecture("llama-3.1-8b")
    full, few = (ops_cost(decoder(a).groups[0].ops, PART, UNIT) for a in (arch, tuned(arch, 1, "qkv")))
    assert float(np.sum(few.wgrad_s)) < 0.01 * float(np.sum(full.wgrad_s))
    assert float(np.sum(few.dgrad_s)) > float(np.sum(full.dgrad_s))


def test_a_frozen_table_has_no_backward() -> None:
    model = decoder(tuned(GPT))
    cost = ops_cost(model.embeddings, PART, UNIT)
    assert (cost.dgrad_s, cost.wgrad_s, cost.backward_ops, cost.saved_bytes) == (0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("stack", ["megatron", "fsdp2"])
def test_frozen_column_products_gather_their_input_once(stack: Stack) -> None:
    """Sequence parallelism: Megatron gathers inputs again for weight gradients, of which qkv alone has one here."""
    arch = tuned(GPT, 8, "qkv")
    sharding = "zero1" if stack == "megatron" else "zero3"
    size, count, *_ = message(
        one_estimate(8, arch=arch, tp=4, dp=2, stack=stack, sharding=sharding), "tp", "activations"
    )
    again = 1 if stack == "megatron" else 0
    # Two sites a layer, forward and backward; embedding and head are one pair.
    assert count == 4 * (24 * (2 + 2 + again) + 2)
    assert size == 2 * 4096 * 2048


def test_a_mixture_keeps_its_experts_frozen() -> None:
    arch = load_architecture("mixtral-8x7b")
    full, few = (ops_cost(decoder(a).groups[0].ops, PART, UNIT) for a in (arch, tuned(arch)))
    assert float(np.sum(few.wgrad_s)) < 0.05 * float(np.sum(full.wgrad_s))
    assert float(np.sum(few.saved_bytes)) < float(np.sum(full.saved_bytes))
