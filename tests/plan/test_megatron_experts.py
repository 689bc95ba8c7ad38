"""Megatron-LM arguments of experts, latent attention and further-token prediction become the model they describe."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkscale.base.errors import InputError
from linkscale.plan.layer_pattern import layer_pattern, layout_stages
from linkscale.plan.megatron import plan_from_args, plan_from_megatron
from linkscale.plan.plan import Plan
from linkscale.readers.megatron import parse_megatron
from linkscale.workload import load_architecture
from linkscale.workload.architecture import Architecture
from linkscale.workload.counts import params, prediction_params

DATA = Path(__file__).parents[1] / "data" / "megatron"
LAUNCH = "TP=1\nPP=8\nEP=32\nCP=1\nMBS=1\nGBS=2048\nSEQ_LEN=4096\nLAYERS_PER_VP=4\nMOE_TOKEN_DISPATCHER=alltoall\n"
SMALL = (
    "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --position-embedding-type rope "
    "--swiglu --ffn-hidden-size 2048 --disable-bias-linear --normalization RMSNorm --bf16 --attention-dropout 0 "
    "--hidden-dropout 0 --vocab-size 32000 --untie-embeddings-and-output-weights"
)
MOE = f"{SMALL} --num-experts 16"
MLA = "--multi-latent-attention --kv-lora-rank 64 --qk-head-dim 32 --qk-pos-emb-head-dim 16 --v-head-dim 32"


def plan(text: str) -> Plan:
    return plan_from_args(parse_megatron(text))


def model(text: str) -> Architecture:
    found = plan(text).model
    assert isinstance(found, Architecture)
    return found


def published(name: str, more: str, launch: str = "") -> Plan:
    text = (DATA / f"megatron_moe_{name}.yaml").read_text()
    return plan_from_args(parse_megatron(f"{LAUNCH}{launch}{text}\n{more}"), gpus=256)


@pytest.mark.parametrize(
    ("name", "packaged", "more", "launch", "vpp"),
    [
        ("Mixtral-8x22B", "mixtral-8x22b", "--vocab-size 32000", "", 1),
        ("DeepSeek-V3", "deepseek-v3", "--vocab-size 129280 --mtp-num-layers 1", "", 1),
        ("DeepSeek-V2", "deepseek-v2", "--vocab-size 102400", "PP=4\nLAYERS_PER_VP=5\n", 3),
        # 94 layers and the two ends, in chunks of four on eight stages.
        ("Qwen3-235B-A22B", "qwen3-235b-a22b", "--vocab-size 151936", "", 3),
    ],
)
def test_the_published_arguments_give_the_packaged_model(name, packaged, more, launch, vpp):
    read = published(name, more, launch)
    found = read.model
    assert read.strategy.vpp == vpp
    expected = load_architecture(packaged)
    assert isinstance(found, Architecture)
    assert params(found) == params(expected)
    assert prediction_params(found) == prediction_params(expected)
    assert found.layer_kinds() == expected.layer_kinds()


def test_the_published_arguments_reach_the_strategy():
    s = published("DeepSeek-V3", "--vocab-size 129280 --moe-token-dispatcher-type flex --moe-enable-deepep").strategy
    assert (s.pp, s.dp, s.ep, s.etp, s.dispatcher, s.expert_gemm) == (8, 32, 32, 1, "deepep", "grouped")


def test_lines_cut_from_a_launch_say_what_is_missing():
    with pytest.raises(InputError, match="neither --bf16 nor --fp16"):
        plan_from_megatron(DATA / "megatron_deepseek_v3_h100_launch_args.txt")


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("", "dispatcher", "allgather"),
        ("--moe-token-dispatcher-type alltoall", "dispatcher", "alltoall"),
        ("--moe-token-dispatcher-type flex", "dispatcher", "deepep"),
        ("--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep", "dispatcher", "hybridep"),
        ("", "expert_gemm", "sequential"),
        ("--moe-grouped-gemm", "expert_gemm", "grouped"),
        ("--expert-model-parallel-size 4", "ep", 4),
        ("--tensor-model-parallel-size 2 --sequence-parallel", "etp", 2),
        ("--tensor-model-parallel-size 2 --sequence-parallel --expert-tensor-parallel-size 1", "etp", 1),
        ("--moe-shared-expert-overlap", "a2a_overlap", "shared-expert"),
        ("--overlap-moe-expert-parallel-comm", "a2a_overlap", "1f1b"),
        ("--fp8-format e4m3", "precision", "fp8"),
        ("--fp8-format e4m3 --fp8-recipe tensorwise", "precision", "fp8"),
        ("--fp8-format e4m3 --fp8-recipe blockwise", "precision", "fp8-block"),
        ("--fp8-format e4m3 --fp8-recipe mxfp8", "precision", "mxfp8"),
        ("--fp4-format e2m1", "precision", "nvfp4"),
        ("--optimizer muon", "optimizer", "muon"),
        ("--enable-cuda-graph", "cuda_graphs", "full"),
        ("--enable-cuda-graph --cuda-graph-scope attn moe_router", "cuda_graphs", "partial"),
        ("--cuda-graph-impl local --cuda-graph-scope full_iteration", "cuda_graphs", "full"),
        ("--cuda-graph-impl none --cuda-graph-scope attn", "cuda_graphs", "none"),
        ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et|(t|)*6tL'", "vpp", 4),
    ],
)
def test_flags_reach_the_strategy(text, field, value):
    assert getattr(plan(f"{MOE} {text}").strategy, field) == value


def test_a_mixture_as_flags_describe_it():
    moe = model(
        f"{MOE} --moe-router-topk 4 --moe-ffn-hidden-size 512 --moe-shared-expert-intermediate-size 1024 "
        "--moe-router-num-groups 4 --moe-router-group-topk 2 --moe-expert-capacity-factor 1.25"
    ).routed()[0]
    assert (moe.experts, moe.top_k, moe.hidden, moe.shared) == (16, 4, 512, 1024)
    assert (moe.groups, moe.top_groups, moe.capacity) == (4, 2, 1.25)
    assert model(f"{MOE} --moe-expert-capacity-factor -1").routed()[0].capacity is None


@pytest.mark.parametrize(
    ("freq", "order"),
    [
        ("2", (0, 1, 0, 1, 0, 1, 0, 1)),
        ("([0]*3+[1]*5)", (0, 0, 0, 1, 1, 1, 1, 1)),
        ("'([0]*3 + [1]*5)'", (0, 0, 0, 1, 1, 1, 1, 1)),
        ("[0,1]*4", (0, 1, 0, 1, 0, 1, 0, 1)),
    ],
)
def test_experts_lie_where_the_frequency_says(freq, order):
    found = model(f"{MOE} --moe-layer-freq {freq}")
    assert found.order == order
    # The value ends where the list ends.
    assert found.vocab == 32000


def test_latent_attention_and_prediction_need_no_experts():
    found = model(f"{SMALL} {MLA} --qk-layernorm --mtp-num-layers 2")
    assert (found.kv_heads, found.head_dim, found.rotary_dim, found.routed()) == (16, 48, 16, ())
    assert (found.prediction_modules, len(found.prediction_kinds)) == (2, 1)


def test_flags_that_tune_routing_are_known_to_change_nothing():
    found = plan(f"{MOE} --moe-aux-loss-coeff 1e-3 --moe-router-dtype fp32 --moe-permute-fusion --moe-warp 9")
    assert [text for text in found.assumptions if "moe" in text] == [
        "--moe-warp (line 1) is not understood and has no effect here"
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"{MOE} --moe-layer-freq __import__('os')", "is not understood; a number, or a list such as ([0]*3+[1]*58)"),
        (f"{MOE} --moe-layer-freq [0]*9**9", "is not understood"),
        (f"{MOE} --moe-layer-freq [1]*99999", "more than 10000 layers"),
        (f"{MOE} --moe-layer-freq [1]*7", "must list 0 or 1 for each of 8 layers; it lists 7"),
        (f"{MOE} --moe-layer-freq [2]*8", "must list 0 or 1"),
        (f"{MOE} --moe-layer-freq 0", "'0' is no positive whole number"),
        (f"{MOE} --num-layers 123456789", "layers of several kinds are listed, at most 10000"),
        (f"{MOE} --moe-router-topk 17", "--moe-router-topk is 17 of 16 experts"),
        (f"{MOE} --moe-router-num-groups 3", "16 experts do not divide by 3 groups"),
        (f"{MOE} --moe-expert-capacity-factor nan", "'nan' is no number"),
        (f"{MOE} --moe-token-dispatcher-type pigeon", "'pigeon' is not priced; allgather, alltoall or flex would be"),
        (f"{MOE} --fp8-format e4m3 --fp8-recipe odd", "'odd' is not priced"),
        (f"{MOE} --optimizer lion", "'lion' is not priced"),
        (f"{MOE} --moe-extended-tp", "--expert-tensor-parallel-size would be"),
        (f"{SMALL} --hybrid-override-pattern M*E", "a hybrid of Mamba and attention layers is not read from flags"),
        (f"{SMALL} --multi-latent-attention", "--kv-lora-rank is missing"),
        (f"{SMALL} --pipeline-model-parallel-size 3 --pipeline-model-parallel-layout 't|t'", "2 stages do not divide"),
    ],
)
def test_bad_values_are_told_in_one_line(text, says):
    with pytest.raises(InputError) as error:
        plan(text)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "text", ["", "(", "[", "[0", "[0)", "(" * 300 + "[0]" + ")" * 300, "[0]*", "[a]", "0", "[1]*9*9*9*9*9"]
)
def test_no_pattern_is_more_than_it_says(text):
    with pytest.raises(ValueError):  # noqa: PT011 - the message is a part of the text
        layer_pattern(text)


def test_brackets_without_end_are_read_in_time():
    found = parse_megatron("--moe-layer-freq " + "(" * 200_000 + " --num-layers 8")
    assert found.last()["num-layers"].values == ("8",)


@pytest.mark.parametrize(("text", "stages"), [("Et*4|(t*4|)*14tmL", 16), ("Et|(tt|)*30mL", 32), ("t", 1), ("((|", 2)])
def test_stages_of_a_layout(text, stages):
    assert layout_stages(text) == stages
