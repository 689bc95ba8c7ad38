"""Mixtures of experts in published runs: packaged models, their changes, and how their experts are laid and reached."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from linkscale.plan.resolve import Case, Unresolved, resolve
from linkscale.plan.run_models import mixture, run_model, run_models
from linkscale.readers.runs import RunRecord, read_runs
from linkscale.workload import load_architecture
from linkscale.workload.architecture import Architecture
from linkscale.workload.counts import flops_per_token, params, prediction_flops_per_token
from linkscale.workload.parts import Moe

RUNS = {record.id: record for record in read_runs(Path(__file__).parents[1] / "data" / "runs_sample.csv").records}
QWEN = RUNS["megatron_bridge_perf-0267"]
MIXTRAL = RUNS["gcp_gpu_recipes-0003"]
BALANCED = "MoE: token distribution force-balanced, dropless"

DEEPSEEK = msgspec.structs.replace(
    QWEN, model="DeepSeekV3", framework="Megatron-Bridge 26.08", gpu="GB300-NVL72", num_gpus=256, layers=61,
    hidden=7168, heads=128, kv_heads=128, ffn_hidden=18432, vocab=129280, experts=256, experts_topk=8,
    moe_ffn_hidden=2048, tp=1, pp=2, vpp=8, cp=1, ep=32, dp=128, global_batch_seqs=4096, micro_batch_seqs=1,
    precision="mxfp8", notes=BALANCED,
)  # fmt: skip
GROK = msgspec.structs.replace(
    QWEN, model="Grok1-314B-2L-proxy", framework="NeMo (DGX Cloud recipe v24.11.1)", gpu="H100-80GB-SXM", num_gpus=8,
    gpus_per_node=8, nvlink_domain_size=8, layers=2, hidden=6144, heads=48, kv_heads=8, ffn_hidden=32768, vocab=128256,
    experts=None, experts_topk=2, moe_ffn_hidden=32768, seq_len=4096, tp=4, pp=1, vpp=None, cp=1, ep=2, dp=2,
    global_batch_seqs=1024, micro_batch_seqs=1, precision="bf16", notes="",
)  # fmt: skip


def changed(record: RunRecord, **fields: object) -> RunRecord:
    return msgspec.structs.replace(record, **fields)


def case(record: RunRecord) -> Case:
    found = resolve(record)
    assert isinstance(found, Case), found
    return found


def refused(record: RunRecord) -> Unresolved:
    found = resolve(record)
    assert isinstance(found, Unresolved), found
    assert "\n" not in found.reason
    return found


def test_every_entry_names_a_packaged_mixture_and_fields_that_it_has():
    for known in run_models():
        assert load_architecture(known.model).routed(), known.model
        assert set(known.changes) <= set(Architecture.__struct_fields__)
        assert len(known.source) > 5


def test_a_packaged_model_is_used_whole():
    found = case(DEEPSEEK)
    packaged = load_architecture("deepseek-v3")
    assert params(found.architecture) == params(packaged)
    assert found.architecture.layer_kinds() == packaged.layer_kinds()
    assert any(text.startswith("shape of deepseek-v3: ") for text in found.assumptions)


def test_rows_without_a_shape_take_it_from_the_packaged_model():
    empty = {"layers": None, "hidden": None, "heads": None, "kv_heads": None, "vocab": None, "experts": None}
    found = case(changed(DEEPSEEK, model="Nemotron_3_Nano", pp=1, vpp=None, ep=8, dp=256, **empty, experts_topk=None,
                         moe_ffn_hidden=None))  # fmt: skip
    assert params(found.architecture) == params(load_architecture("nemotron-3-nano"))


def test_the_experts_of_a_row_reach_the_strategy():
    s = case(DEEPSEEK).strategy
    assert (s.ep, s.etp, s.edp) == (32, 1, 4)
    assert (s.dispatcher, s.a2a_overlap, s.cuda_graphs, s.expert_gemm) == ("hybridep", "1f1b", "full", "fused")
    assert (s.recompute, s.recompute_modules) == ("selective", "mla_up_proj")
    assert (s.precision, s.param_dtype) == ("mxfp8", "fp8")


@pytest.mark.parametrize(
    ("fields", "field", "value"),
    [
        ({"framework": "Megatron-Bridge 26.04"}, "a2a_overlap", "none"),
        ({"framework": "Megatron-Bridge 26.04"}, "cuda_graphs", "none"),
        ({"framework": "Megatron-Bridge 26.04", "gpu": "GB200-NVL72"}, "cuda_graphs", "partial"),
        ({"notes": f"{BALANCED}; Muon optimizer"}, "optimizer", "muon"),
        ({"notes": f"{BALANCED}; variant tokendrop"}, "dispatcher", "alltoall"),
        ({"precision": "nvfp4"}, "precision", "nvfp4"),
        ({"notes": f"{BALANCED}; ETP 4", "ep": 8}, "etp", 4),
        ({"tp": 2, "dp": 64}, "sequence_parallel", True),
    ],
)
def test_defaults_of_mixtures_look_at_system_and_software(fields, field, value):
    assert getattr(case(changed(DEEPSEEK, **fields)).strategy, field) == value


@pytest.mark.parametrize(("note", "modules"), [("", 1), ("; variant w/ MTP", 1), ("; variant w/o MTP", 0)])
def test_the_printed_flops_tell_whether_a_further_token_was_predicted(note, modules):
    found = case(changed(DEEPSEEK, notes=BALANCED + note)).architecture
    assert found.prediction_modules == modules == len(found.prediction_kinds)
    # GFLOP per token, the printed model TFLOP/s over the printed tokens/s (Megatron-Bridge performance page): 249.1 to
    # 249.7 where the page says "w/o MTP", 259.6 to 260.6 elsewhere. Attention counts where the mask lets it look.
    printed = 260.1e9 if modules else 249.4e9
    counted = flops_per_token(found, 4096, causal=True) + prediction_flops_per_token(found, 4096, causal=True)
    assert 3 * counted == pytest.approx(printed, rel=0.005)


def test_a_proxy_is_the_model_cut_to_its_layers_as_the_software_trains_it():
    found = case(GROK)
    arch, s = found.architecture, found.strategy
    assert (arch.layers, arch.vocab, arch.tied_embeddings, arch.norm_at) == (2, 128256, False, "input")
    moe = arch.routed()[0]
    assert (moe.experts, moe.top_k, moe.capacity) == (8, 2, 1.0)
    assert (s.ep, s.etp, s.expert_gemm, s.dispatcher, s.sequence_parallel) == (2, 4, "sequential", "alltoall", True)


def test_a_virtual_layout_of_one_stage_is_left_out_and_told():
    found = case(changed(QWEN, vpp=12))
    assert found.strategy.vpp == 1
    assert any(text.startswith("vpp = 12 left out") for text in found.assumptions)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"layers": 60}, "layers = 60, but deepseek-v3 has 61"),
        ({"experts": 128}, "experts = 128, but deepseek-v3 has 256"),
        ({"experts_topk": 6}, "experts_topk = 6, but deepseek-v3 has 8"),
        ({"hidden": 4096}, "hidden = 4096, but deepseek-v3 has 7168"),
    ],
)
def test_a_row_that_contradicts_its_model_is_refused(fields, says):
    found = refused(changed(DEEPSEEK, **fields))
    assert found.kind == "contradictory"
    assert says in found.reason


def test_models_that_nobody_packaged_stay_refused():
    found = refused(RUNS["megatron_bridge_perf-0030"])
    assert found.kind == "no shape"
    assert "no packaged model is known to have its shape" in found.reason


def test_a_layout_that_does_not_fit_its_gpus_cannot_run():
    assert "ep*etp = 64*1 = 64 does not divide" in refused(RUNS["megatron_bridge_perf-0263"]).reason


def test_a_mixture_of_equal_layers_comes_from_its_columns():
    found = case(changed(MIXTRAL, model="House mixture", vocab=32000)).architecture
    # Alike in all but its name, the capacity and what rotates.
    assert params(found) == params(load_architecture("mixtral-8x7b"))
    assert found.layer_kinds()[0][1].mlp == Moe(experts=8, top_k=2, hidden=14336)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"notes": "arch: x (first layer dense)"}, "('dense' in the notes): columns cannot say how"),
        ({"experts_topk": None}, "no number, choice and width of the experts"),
        ({"experts_topk": 9}, "experts_topk = 9, but there are 8 experts"),
        ({"experts": 10**12}, "experts = 1000000000000; it must be from 1 to"),
        ({"layers": 10**12}, "layers = 1000000000000; a mixture may have 10000"),
    ],
)
def test_what_columns_cannot_say_is_not_guessed(fields, says):
    found = refused(changed(MIXTRAL, model="House mixture", vocab=32000, **fields))
    assert found.kind in ("not understood", "cannot run")
    assert says in found.reason


@pytest.mark.parametrize("name", ["DeepSeekV31", "DeepSeekV", "deepseekv3", "", "Qwen3_30B_a3Bx"])
def test_names_that_only_begin_alike_are_other_models(name):
    assert mixture(DEEPSEEK)
    assert run_model(changed(DEEPSEEK, model=name)) is None
