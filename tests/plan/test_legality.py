"""Which strategies can run: every rule by example, and one answer for one strategy and for a batch."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkscale.base.errors import InputError
from linkscale.plan.expert_legality import EXPERT_RULES
from linkscale.plan.legality import RULES, SHARDINGS, check, legal_mask
from linkscale.plan.rules import Job
from linkscale.plan.strategy import Choices, Sharding, Stack, Strategy, stack_strategies
from linkscale.workload import load_architecture
from linkscale.workload.architecture import Architecture


def plain(layers: int, heads: int, kv_heads: int, ffn_hidden: int) -> Architecture:
    return Architecture(
        name="plain", model_type="plain", vocab=1024, hidden=64 * heads, layers=layers, heads=heads, kv_heads=kv_heads,
        head_dim=64, ffn_hidden=ffn_hidden, gated_mlp=True,
    )  # fmt: skip


LLAMA_405B = plain(layers=126, heads=128, kv_heads=8, ffn_hidden=53248)
LLAMA_70B = plain(layers=80, heads=64, kv_heads=8, ffn_hidden=28672)
FALCON_7B = plain(layers=32, heads=71, kv_heads=1, ffn_hidden=18176)
MIXTRAL = load_architecture("mixtral-8x7b")
DEEPSEEK = load_architecture("deepseek-v3")


def cut(**fields: Any) -> Strategy:
    return Strategy(**fields)


def broken(arch: Any, gpus: int, strategy: Strategy, seq_len: int = 8192, global_batch: int = 2048) -> str:
    with pytest.raises(InputError) as caught:
        check(arch, gpus, strategy, seq_len, global_batch)
    return str(caught.value)


def test_the_published_layouts_of_llama_3_are_legal():
    check(LLAMA_405B, 16384, Strategy(tp=8, pp=16, dp=128), 8192, 2048)
    # Interleaved: 126 layers and the two ends make 128 chunks of one.
    check(LLAMA_405B, 16384, Strategy(tp=8, pp=16, vpp=8, dp=128), 8192, 2048)
    check(LLAMA_70B, 64, Strategy(tp=4, pp=4, vpp=5, dp=4), 8192, 128)


def test_the_published_layouts_of_deepseek_v3_are_legal():
    # 61 layers on 64 places of 2*8, 4*4 and 8*4 chunks: NVIDIA's recipes for GB300, GB200 and H100.
    for pp, vpp, ep in ((2, 8, 32), (4, 4, 64), (8, 4, 32)):
        check(DEEPSEEK, 256, Strategy(pp=pp, vpp=vpp, dp=256 // pp, ep=ep), 4096, 4096)
    assert "nor do 62 to 64" in broken(DEEPSEEK, 256, Strategy(pp=4, vpp=5, dp=64))


@pytest.mark.parametrize(
    ("arch", "gpus", "strategy", "words"),
    [
        (LLAMA_70B, 64, Strategy(tp=8, pp=2, dp=8), "tp*pp*dp = 8*2*8 = 128, but the cluster has 64 GPUs; use dp = 4"),
        (LLAMA_70B, 64, Strategy(tp=8, pp=3, dp=2), "= 48, but the cluster has 64 GPUs; use a cluster of 48"),
        (LLAMA_70B, 64, Strategy(tp=8, cp=2, dp=4, cp_comm="a2a"), "8 key-value heads do not divide by cp*tp = 2*8"),
        (LLAMA_70B, 96, Strategy(tp=3, dp=32), "64 attention heads do not divide by tp = 3"),
        (plain(layers=8, heads=12, kv_heads=4, ffn_hidden=48), 6, Strategy(tp=6), "kv_heads = 4 and tp = 6"),
        (plain(layers=8, heads=12, kv_heads=12, ffn_hidden=50), 4, Strategy(tp=4), "ffn_hidden = 50 does"),
        (FALCON_7B, 4, Strategy(tp=2, dp=2), "71 attention heads do not divide by tp = 2"),
        (LLAMA_70B, 64, Strategy(tp=8, pp=2, dp=4, micro_batch=3), "dp*micro_batch = 4*3 = 12; use a global batch of"),
        (LLAMA_70B, 4096, Strategy(dp=4096), "use a global batch of 4096"),
        (LLAMA_70B, 128, Strategy(pp=128), "pp*vpp = 128*1 = 128 stages, but the model has 80 layers"),
        (LLAMA_70B, 64, Strategy(vpp=2, dp=64), "interleaving needs a pipeline"),
        (LLAMA_70B, 64, Strategy(pp=8, vpp=3, dp=8), "80 layers do not divide by pp*vpp = 8*3 = 24, nor do 81 to 83"),
        (LLAMA_70B, 64, Strategy(pp=2, vpp=2, dp=32, schedule="gpipe"), "gpipe is not interleaved"),
        (LLAMA_70B, 64, Strategy(stack="deepspeed", pp=4, vpp=5, dp=16), "stack deepspeed does not interleave"),
        (LLAMA_70B, 64, Strategy(dp=64, shard_domain=8), "belongs to sharding hsdp, but sharding is zero1"),
        (LLAMA_70B, 64, Strategy(dp=64, sharding="hsdp"), "needs a shard_domain above 1"),
        (LLAMA_70B, 64, Strategy(dp=64, sharding="hsdp", shard_domain=24), "divides dp*cp = 64; it is 24"),
        (LLAMA_70B, 64, Strategy(dp=64, recompute_layers=2), "belongs to recompute full, but recompute is selective"),
        (LLAMA_70B, 64, Strategy(pp=8, dp=8, recompute="full", recompute_layers=11), "a stage has 10 layers"),
        (LLAMA_70B, 64, Strategy(stack="fsdp2", dp=64), "fsdp2 has no sharding 'zero1'; it has zero2, zero3, hsdp"),
        (LLAMA_70B, 64, Strategy(stack="ddp", sharding="none", pp=2, dp=32), "stack ddp has no pipeline"),
        (LLAMA_70B, 64, Strategy(stack="ddp", sharding="none", tp=2, dp=32), "stack ddp has no tensor parallelism"),
        (LLAMA_70B, 64, Strategy(stack="deepspeed", sharding="zero3", pp=2, dp=32), "use pp = 1 or sharding zero1"),
        (LLAMA_70B, 64, Strategy(tp=8, dp=8, sequence_parallel=False, tp_overlap="ring"), "needs sequence_parallel"),
        (LLAMA_70B, 64, Strategy(dp=64, overlap_grad_reduce=False), "turn both on or both off"),
        (LLAMA_70B, 64, Strategy(dp=64, offload_params=True), "stack megatron has sharding zero1 here"),
        (LLAMA_70B, 64, Strategy(stack="fsdp2", sharding="zero3", dp=64, offload_params=True), "turn on both"),
        (LLAMA_70B, 64, Strategy(stack="fsdp2", sharding="zero3", dp=64, offload_optimizer=True), "or neither"),
        (LLAMA_70B, 64, Strategy(dp=64, optimizer="muon", offload_optimizer=True), "use adamw, adamw-bf16, sgd"),
        (LLAMA_70B, 64, Strategy(stack="ddp", sharding="none", dp=64, offload_optimizer=True), "use stack deepspeed"),
        (LLAMA_70B, 64, Strategy(pp=8, dp=8, offload_layers=11), "a stage has 10 layers; use 10 or fewer"),
        (LLAMA_70B, 64, Strategy(dp=64, ep=8), "plain has no routed experts, but ep = 8 and etp = 1"),
        (MIXTRAL, 64, Strategy(dp=64, ep=16), "8 experts do not divide by ep = 16; use an ep that divides 8"),
        (MIXTRAL, 24, Strategy(dp=24, etp=3), "experts of width 14336 do not divide by etp = 3"),
        (MIXTRAL, 64, Strategy(stack="ddp", sharding="none", dp=64, ep=8), "stack ddp has no expert parallelism"),
        (MIXTRAL, 32, Strategy(pp=8, dp=4, ep=8), "ep*etp = 8*1 = 8 does not divide the tp*cp*dp = 1*1*4 = 4 ranks"),
        (MIXTRAL, 64, Strategy(tp=2, dp=32, ep=8, sequence_parallel=False), "need sequence_parallel"),
        (MIXTRAL, 64, Strategy(dp=64, ep=8, a2a_overlap="shared-expert"), "needs shared experts"),
        (DEEPSEEK, 64, Strategy(dp=64, ep=8, a2a_overlap="1f1b", recompute="full"), "use another recompute"),
        (DEEPSEEK, 64, Strategy(dp=64, ep=8, a2a_overlap="1f1b", dispatcher="allgather"), "but it is allgather"),
        (DEEPSEEK, 64, Strategy(pp=2, dp=32, ep=8, a2a_overlap="1f1b"), "needs vpp > 1 or schedule dualpipe"),
    ],
)  # fmt: skip
def test_a_broken_rule_gives_the_values_and_the_way_out(arch, gpus, strategy, words):
    message = broken(arch, gpus, strategy)
    assert words in message
    assert "\n" not in message


def test_interleaving_needs_whole_rounds_of_micro_batches():
    strategy = Strategy(tp=8, pp=4, vpp=5, dp=2)
    check(LLAMA_70B, 64, strategy, 8192, 8)
    assert "a multiple of pp = 4" in broken(LLAMA_70B, 64, strategy, 8192, 12)
    check(LLAMA_70B, 64, Strategy(tp=8, pp=4, dp=2), 8192, 12)


def test_dualpipe_feeds_both_ends_of_the_pipeline_alike():
    strategy = Strategy(tp=8, pp=4, dp=2, schedule="dualpipe")
    check(LLAMA_70B, 64, strategy, 8192, 2 * 10)
    assert "an even number of micro-batches, 2*pp = 8 at least; here pp = 4" in broken(
        LLAMA_70B, 64, strategy, 8192, 2 * 9
    )
    assert "vpp = 1 and 6 micro-batches" in broken(LLAMA_70B, 64, strategy, 8192, 2 * 6)


def test_sequence_parallelism_cuts_the_sequence():
    assert "seq_len = 1001 does not divide by cp*tp = 8" in broken(LLAMA_70B, 64, Strategy(tp=8, dp=8), 1001)
    check(LLAMA_70B, 64, Strategy(tp=8, dp=8, sequence_parallel=False), 1001, 2048)


@pytest.mark.parametrize("name", ["tp", "pp", "vpp", "dp", "micro_batch", "recompute_layers", "shard_domain"])
def test_numbers_beyond_any_run_are_refused_in_words(name):
    assert f"{name} = about 1e30; it must be" in broken(LLAMA_70B, 64, cut(**{name: 10**30}))


def test_batches_and_clusters_beyond_any_run_are_refused_too():
    assert "global_batch = about 1e30" in broken(LLAMA_70B, 64, Strategy(dp=64), 8192, 10**30)
    assert "seq_len = 0" in broken(LLAMA_70B, 64, Strategy(dp=64), 0)
    # A product of four degrees that 64 bits would wrap round to the number of GPUs.
    assert "but the cluster has 64 GPUs" in broken(LLAMA_70B, 64, Strategy(tp=2**30, pp=2**30, dp=2**10, cp=1))


def test_every_stack_says_what_it_shards():
    assert set(SHARDINGS) == set(get_args(Stack))
    assert {sharding for row in SHARDINGS.values() for sharding in row} == set(get_args(Sharding))


@st.composite
def strategies_of_one_kind(draw: st.DrawFn) -> list[Strategy]:
    """Draw strategies that share their choices, legal or not."""
    stack = draw(st.sampled_from(get_args(Stack)))
    sharding = draw(st.sampled_from(get_args(Sharding)))
    choices = Choices(
        stack=stack, sharding=sharding, sequence_parallel=draw(st.booleans()),
        recompute=draw(st.sampled_from(("none", "selective", "full"))),
        schedule=draw(st.sampled_from(("1f1b", "gpipe"))), overlap_grad_reduce=draw(st.booleans()),
        tp_overlap=draw(st.sampled_from(("none", "async", "ring"))), offload_optimizer=draw(st.booleans()),
        offload_params=draw(st.booleans()),
    )  # fmt: skip
    degree = st.sampled_from((1, 1, 2, 3, 4, 8))
    numbers = st.fixed_dictionaries(
        dict.fromkeys(("tp", "pp", "vpp", "dp", "micro_batch"), degree)
        | {
            "shard_domain": st.sampled_from((1, 2, 4)),
            "recompute_layers": st.sampled_from((0, 0, 1, 40)),
            "offload_layers": st.sampled_from((0, 1, 40)),
        }
    )
    fields = {name: getattr(choices, name) for name in Choices.__struct_fields__}
    return [cut(**fields, **row) for row in draw(st.lists(numbers, min_size=1, max_size=6))]


@settings(max_examples=200, deadline=None)
@given(strategies_of_one_kind(), st.sampled_from((1, 4, 8, 16, 64)), st.sampled_from((24, 64)))
def test_a_batch_is_judged_as_its_strategies_one_by_one(rows, gpus, global_batch):
    mask = legal_mask(LLAMA_70B, gpus, stack_strategies(rows), 8192, global_batch)
    for strategy, legal in zip(rows, mask, strict=True):
        try:
            check(LLAMA_70B, gpus, strategy, 8192, global_batch)
        except InputError:
            assert not legal
        else:
            assert legal


def test_every_rule_is_broken_by_something():
    """No rule is dead: each one alone rejects a strategy of a small grid."""
    job_batches = [(64, 24), (64, 64)]
    seen: set[str] = set()
    kinds = [
        {"stack": stack, "sharding": sharding, "recompute": recompute, "schedule": schedule,
         "overlap_grad_reduce": reduce, "sequence_parallel": False, "tp_overlap": "ring"}
        for stack, sharding, recompute, schedule, reduce in product(
            get_args(Stack), ("none", "zero3", "hsdp"), ("none", "full"), ("1f1b", "gpipe"), (True, False))
    ]  # fmt: skip
    offloads = [{"offload_optimizer": o, "offload_params": p} for o, p in ((True, False), (False, True))]
    kinds += [{"stack": stack, "sharding": "zero3", **how} for stack, how in product(get_args(Stack), offloads)]
    rows = [
        {
            "tp": t,
            "pp": p,
            "vpp": v,
            "dp": d,
            "cp": c,
            "micro_batch": 1,
            "shard_domain": s,
            "recompute_layers": r,
            "offload_layers": r,
        }
        for t, p, v, d, c, s, r in product((1, 3, 6), (1, 3, 128), (1, 3), (1, 64), (1, 2), (1, 3), (0, 90))
    ]
    small = plain(layers=80, heads=64, kv_heads=4, ffn_hidden=256)
    for kind in kinds:
        batch = stack_strategies([cut(**kind, **row) for row in rows])
        for gpus, global_batch in job_batches:
            job = Job(small, gpus, 8190, global_batch)
            seen |= {rule.name for rule in RULES if not np.all(rule.mask(job, batch))}
    by_example = {"sequence"} | {rule.name for rule in EXPERT_RULES}
    assert seen >= {rule.name for rule in RULES} - by_example
