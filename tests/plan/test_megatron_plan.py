"""Megatron-LM arguments become the plan that they describe; defaults are the program's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkscale.base.errors import InputError
from linkscale.plan.megatron import plan_from_args, plan_from_megatron
from linkscale.readers.megatron import parse_megatron
from linkscale.workload.architecture import Architecture
from linkscale.workload.counts import params

DATA = Path(__file__).parents[1] / "data" / "megatron"
SMALL = "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048"


def plan(text: str, gpus: int | None = None):
    return plan_from_args(parse_megatron(f"{SMALL} --bf16 {text}"), gpus)


def test_the_published_gpt3_175b_example():
    found = plan_from_megatron(DATA / "megatron_gpt3_175b_args.txt", gpus=1024)
    strategy = found.strategy
    assert (strategy.tp, strategy.pp, strategy.dp, strategy.micro_batch) == (8, 16, 8, 1)
    assert (found.global_batch, found.seq_len) == (1536, 2048)
    assert (strategy.precision, strategy.sharding, strategy.recompute) == ("fp16", "none", "none")
    assert not strategy.sequence_parallel
    # 174.6B in SC21's Table 2, with the vocabulary padded to 51,200 as there.
    assert isinstance(found.model, Architecture)
    assert params(found.model) / 1e9 == pytest.approx(174.6, abs=0.05)
    assert found.model.vocab == 51200


def test_what_is_not_understood_is_said():
    found = plan("--train-iters 500 --lr 1e-4 --tokenizer-model x --warp-drive 9")
    assert [text for text in found.assumptions if "warp-drive" in text] == [
        "--warp-drive (line 1) is not understood and has no effect here"
    ]
    assert not any("train-iters" in text or "tokenizer" in text for text in found.assumptions)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("--use-distributed-optimizer", "sharding", "zero1"),
        ("", "sharding", "none"),
        ("--tensor-model-parallel-size 2 --sequence-parallel", "sequence_parallel", True),
        ("--sequence-parallel", "sequence_parallel", False),
        ("--recompute-activations", "recompute", "selective"),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", "recompute_layers", 0),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 3", "recompute_layers", 3),
        ("--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2", "vpp", 3),
        ("--fp8-format hybrid", "precision", "fp8"),
        ("--overlap-grad-reduce", "overlap_grad_reduce", True),
        ("--overlap-grad-reduce: false", "overlap_grad_reduce", False),
        ("", "grad_dtype", "fp32"),
        ("--grad-reduce-in-bf16", "grad_dtype", "bf16"),
        ("--attention-backend unfused", "attention", "unfused"),
        ("--transformer-impl local", "attention", "unfused"),
        ("--nproc-per-node 8 --nnodes 4 --tensor-model-parallel-size 2", "dp", 16),
        ("--optimizer-cpu-offload", "offload_optimizer", True),
        ("--optimizer-cpu-offload --optimizer-offload-fraction 1.0", "offload_optimizer", True),
        ("--optimizer-offload-fraction 0.5", "offload_optimizer", False),
    ],
)
def test_flags_reach_the_strategy(text, field, value):
    assert getattr(plan(text).strategy, field) == value


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("", "ffn_hidden", 4096),
        ("--swiglu", "ffn_hidden", 2688),
        ("--swiglu --ffn-hidden-size 2816", "ffn_hidden", 2816),
        ("", "tied_embeddings", True),
        ("--untie-embeddings-and-output-weights", "tied_embeddings", False),
        ("--group-query-attention --num-query-groups 4", "kv_heads", 4),
        ("--num-query-groups 4", "kv_heads", 16),
        ("--normalization RMSNorm", "norm", "rmsnorm"),
        ("--position-embedding-type rope --rotary-percent 0.5", "rotary_dim", 32),
        ("--attention-dropout 0 --hidden-dropout 0.0", "dropout", False),
        ("", "dropout", True),
        ("--vocab-size 32000 --tensor-model-parallel-size 4", "vocab", 32256),
    ],
)
def test_flags_reach_the_architecture(text, field, value):
    assert getattr(plan(text).model, field) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("--num-layers x", ":1: --num-layers: 'x' is no positive whole number"),
        ("--num-layers -4", "'-4' is no positive whole number"),
        ("--num-layers", "--num-layers: its value is missing"),
        ("--micro-batch-size ${MBS}", "${MBS} is not set in the file; put a line MBS=<number> above it"),
        ("--tensor-model-parallel-size 3 --nproc-per-node 8", "8 GPUs do not divide by tp*pp = 3*1"),
        ("--pipeline-model-parallel-size 5 --num-layers-per-virtual-pipeline-stage 2", "24 layers do not divide"),
        ("--context-parallel-size 3 --nproc-per-node 8", "8 GPUs do not divide by tp*cp*pp = 1*3*1"),
        ("--cp-comm-type a2a+p2p", "'a2a+p2p' is not priced; p2p, all_gather, allgather or a2a would be"),
        ("--position-embedding-type relative", "'relative' is not priced"),
        ("--rotary-percent 2 --position-embedding-type rope", "'2' is no number from 0 to 1"),
        ("--optimizer-cpu-offload --optimizer-offload-fraction 0.5", "a part of the optimizer is not priced"),
    ],
)
def test_bad_values_are_told_with_their_line(text, says):
    with pytest.raises(InputError) as error:
        plan(text)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_training_in_32_bits_is_refused():
    with pytest.raises(InputError, match="neither --bf16 nor --fp16"):
        plan_from_args(parse_megatron(SMALL))


def test_context_parallelism_is_read_and_shares_the_gpus():
    found = plan("--context-parallel-size 2 --cp-comm-type a2a --nproc-per-node 8 --nnodes 2").strategy
    assert (found.cp, found.cp_comm, found.dp) == (2, "a2a", 8)
