"""Published runs become cases by stated rules; what a row leaves out comes from one table with sources."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from linkscale.base.errors import InputError
from linkscale.base.yaml import load_packaged
from linkscale.plan.measured import measured_step_s
from linkscale.plan.product import Defaults, product_defaults, read_defaults
from linkscale.plan.resolve import REFUSALS, Case, Unresolved, resolve
from linkscale.plan.systems import stated_network
from linkscale.readers.runs import RunRecord, read_runs
from linkscale.workload.training import Training

RUNS = {record.id: record for record in read_runs(Path(__file__).parents[1] / "data" / "runs_sample.csv").records}
STATED = RUNS["korthikanti2022-0004"]


def changed(**fields: object) -> RunRecord:
    return msgspec.structs.replace(STATED, **fields)


def case(record: RunRecord) -> Case:
    found = resolve(record)
    assert isinstance(found, Case), found
    return found


def test_a_row_that_states_everything_is_taken_at_its_word():
    found = case(STATED)
    s = found.strategy
    assert (s.tp, s.pp, s.vpp, s.dp, s.micro_batch) == (8, 8, 3, 1, 1)
    assert (s.sequence_parallel, s.recompute, s.attention, s.sharding) == (True, "selective", "unfused", "none")
    assert (found.architecture.layers, found.architecture.hidden, found.architecture.vocab) == (96, 12288, 51200)
    assert (found.cluster.gpus, found.cluster.gpus_per_node) == (64, 8)
    # 200 Gb/s per GPU and direction, as the row states.
    assert found.cluster.scaleout.bandwidth_bytes_per_s == 25e9
    assert found.measured_step_s == 13.75


def test_every_default_that_was_needed_is_told_with_its_source():
    told = case(STATED).assumptions
    assert any(text.startswith("precision = fp16: ") for text in told)
    assert not any(text.startswith(("recompute = ", "attention = ", "sequence_parallel = ")) for text in told)
    assert all(": " in text for text in told)


def test_runs_that_train_adapters_take_them_from_the_products_recipe():
    nemo = {"framework": "NeMo (DGX Cloud recipe v25.02)", "notes": "Finetuning"}
    found = case(changed(model="Llama3-70B (LoRA)", **nemo)).architecture.training
    assert found == Training(lora_rank=16, lora_targets="qkv", packed_tokens=200)
    assert case(changed(model="Llama3-70B (SFT)", **nemo)).architecture.training == Training(packed_tokens=200)
    told = case(changed(model="Llama2-7B (LoRA)")).assumptions
    assert any(text.startswith("lora_rank = 32: convention") for text in told)


def test_runs_that_offload_say_what():
    offload = {"framework": "Megatron-LM + DeepSpeed ZeRO", "sharding": "zero3", "pp": 1, "dp": 8, "vpp": None}
    found = case(changed(notes="CPU offload experiment", global_batch_seqs=64, **offload)).strategy
    assert (found.offload_optimizer, found.offload_params, found.offload_layers) == (True, True, 96)
    assert not case(STATED).strategy.offload_optimizer


def test_what_a_convention_makes_of_frozen_weights_is_not_guessed():
    printed = {
        "step_time_s": None,
        "tokens_per_s_per_gpu": None,
        "tflops_per_gpu": 140.0,
        "flops_convention": "6N+full attention",
    }
    full, few = (changed(model=model, **printed) for model in ("GPT-3", "GPT-3 (LoRA)"))
    assert case(full).measured_step_s is not None
    assert case(few).measured_step_s is None


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"experts": 8}, "not understood"),
        ({"notes": "MoE: balanced"}, "not understood"),
        ({"precision": "nvfp4"}, "cannot run"),
        ({"precision": "mxfp8"}, "cannot run"),
        ({"gpu": "unknown (not in the log)"}, "unknown GPU"),
        ({"num_gpus": None}, "no GPU count"),
        ({"seq_len": None}, "no sequence length"),
        ({"global_batch_seqs": None}, "no global batch"),
        ({"tp": None}, "no layout"),
        ({"dp": 2}, "layout and GPUs differ"),
        ({"hidden": None}, "no shape"),
        ({"notes": "CHECK: columns look swapped"}, "contradictory"),
        ({"micro_batch_seqs": 5}, "cannot run"),
        ({"gpu": "Z9000"}, "not understood"),
        ({"recompute": "some"}, "not understood"),
        ({"precision": "fp8"}, "cannot run"),
        ({"heads": 7, "kv_heads": 7}, "cannot run"),
        ({"layers": 10**12}, "not understood"),
    ],
)
def test_what_cannot_be_predicted_says_why(fields, kind):
    found = resolve(changed(**fields))
    assert isinstance(found, Unresolved)
    assert found.kind == kind
    assert found.reason
    assert "\n" not in found.reason


def test_refusals_never_look_at_what_was_measured():
    hidden = {"step_time_s": None, "tokens_per_s_per_gpu": None, "tflops_per_gpu": None, "mfu_pct": None,
              "hfu_pct": None, "peak_mem_gib": None}  # fmt: skip
    for record in RUNS.values():
        blind = msgspec.structs.replace(record, **hidden)
        assert [r.kind for r in REFUSALS if r.applies(record)] == [r.kind for r in REFUSALS if r.applies(blind)]
        seen, unseen = resolve(record), resolve(blind)
        assert isinstance(seen, Case) == isinstance(unseen, Case)
        if isinstance(seen, Case) and isinstance(unseen, Case):
            assert (seen.strategy, seen.architecture) == (unseen.strategy, unseen.architecture)
            assert seen.cluster == unseen.cluster


def test_a_doubt_about_the_printed_utilisation_does_not_touch_the_step_time():
    assert case(changed(notes="CHECK: implied 2466 GFLOP/token from MFU/tokens")).measured_step_s == 13.75


def test_defaults_ask_for_no_result():
    results = {"step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu_pct", "hfu_pct", "peak_mem_gib", "id",
               "source_key", "line"}  # fmt: skip
    for field, rules in product_defaults().rules.items():
        for rule in rules:
            assert not results & set(rule.when), field
            assert len(rule.source) > 5, (field, rule.value)


def test_runs_of_one_system_share_their_defaults():
    # The same stated columns on another source and with another result resolve alike.
    other = changed(id="x-1", source_key="x", step_time_s=99.0, line=7)
    assert case(other).strategy == case(STATED).strategy


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"stack": [{"value": "megatron"}]}, "missing required field"),
        ({"stack": [{"value": "megatron", "source": ""}]}, "a default needs a source"),
        ({"stack": [{"value": "megatron", "source": "s", "when": {"colour": ["red"]}}]}, "'colour'"),
    ],
)
def test_a_broken_table_of_defaults_is_refused(data, says):
    with pytest.raises(InputError, match=says):
        read_defaults(data)


def test_another_table_of_defaults_can_be_given():
    data = load_packaged("linkscale.plan", "data/product_defaults.yaml")
    data["precision"] = [{"value": "bf16", "source": "another table"}]
    found = resolve(STATED, read_defaults(data))
    assert isinstance(found, Case)
    assert found.strategy.precision == "bf16"
    assert isinstance(product_defaults(), Defaults)


@pytest.mark.parametrize(
    ("kind", "gbps", "text"),
    [
        ("InfiniBand", 200.0, "ib-200"),
        ("RoCE", 200.0, "roce-200"),
        ("Omni-Path", 50.0, "opa-100x4/node"),
        ("InfiniBand", 12.5, "ib-100x1/node"),
        ("unknown", 400.0, "ib-400"),
        ("InfiniBand", None, None),
    ],
)
def test_a_stated_network_wins_over_the_product(kind, gbps, text):
    assert stated_network(changed(scaleout_type=kind, scaleout_gbps_per_gpu=gbps)) == text


class TestMeasured:
    """Step times that a source prints in another form."""

    def step(self, record: RunRecord) -> float | None:
        found = case(record)
        return measured_step_s(record, 174.6e9, found.cluster.gpu)

    def test_printed_seconds_win(self):
        assert self.step(changed(step_time_s=1.0, tokens_per_s_per_gpu=1.0)) == 1.0

    def test_tokens_per_second(self):
        record = changed(step_time_s=None, tokens_per_s_per_gpu=100.0)
        assert self.step(record) == pytest.approx(64 * 2048 / (100.0 * 64))

    def test_sc21_formula_against_the_paper_worked_example(self):
        # Section 5.1 of SC21: 175B on 1,024 A100s at 140 TFLOP/s takes 34 days for 300B tokens (batch 1,536).
        formula = "96*B*s*l*h^2*(1+s/6h+V/16lh)"
        record = changed(step_time_s=None, tokens_per_s_per_gpu=None, tflops_per_gpu=140.0, num_gpus=1024, dp=16,
                         global_batch_seqs=1536, vocab=51200, flops_convention=formula)  # fmt: skip
        seconds = self.step(record)
        assert seconds is not None
        days = seconds * 300e9 / (1536 * 2048) / 86400
        # The paper rounds and counts 8 FLOPs per parameter; its eq. 3 adds attention and logits, 2% more.
        assert days == pytest.approx(34 * 1.02, rel=0.01)

    def test_nothing_printed(self):
        assert self.step(changed(step_time_s=None, tokens_per_s_per_gpu=None, tflops_per_gpu=None)) is None


def test_seconds_at_an_unknown_power_limit_are_not_compared():
    found = case(RUNS["torchao_training-0001"])
    assert found.measured_step_s is None
    assert found.measured_memory_bytes is not None
    assert found.memory_kind == "reserved"
