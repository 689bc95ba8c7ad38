"""``linkscale predict`` end to end: the page, the document, plans from files, and every kind of bad input."""

from __future__ import annotations

import json

import pytest

from linkscale.cli.app import run

JOB_70B = ("llama-3.1-70b", "dgx-h100:64", "--global-batch", "128", "--seq", "8192")


def predict(*arguments: str) -> int:
    return run(["predict", *arguments])


def document(capsys, *arguments: str):
    assert predict(*arguments, "--json") == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def error(capsys, *arguments: str) -> str:
    """Return the one line on standard error of a call that is bad input."""
    assert predict(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    return err


def test_the_page_names_job_cluster_and_strategy(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    assert predict(*JOB_70B, "--tp", "8", "--pp", "2", "--vpp", "5") == 0
    out = capsys.readouterr().out
    for words in ("llama-3.1-70b · 70.55 B parameters", "400 Gb/s per GPU, 3,200 Gb/s per node", "tp 8 · pp 2 · vpp 5",
                  "p10-p90", "MFU causal", "not stated, so as megatron usually runs"):  # fmt: skip
        assert words in out
    assert "\x1b" not in out


def test_dp_is_filled_in_and_the_parts_sum_to_the_step(capsys):
    found = document(capsys, *JOB_70B, "--tp", "8", "--pp", "2")
    assert found["strategy"]["dp"] == 4
    assert sum(found["breakdown_s"].values()) == pytest.approx(found["step_s"], rel=1e-9)
    memory = found["memory_bytes"]
    assert sum(v for k, v in memory.items() if k != "total") == pytest.approx(memory["total"], rel=1e-9)
    assert found["p10_s"] < found["step_s"] < found["p90_s"]


def test_the_same_question_gives_the_same_bytes(capsys):
    predict(*JOB_70B, "--tp", "8", "--json")
    first = capsys.readouterr().out
    predict(*JOB_70B, "--tp", "8", "--json")
    assert capsys.readouterr().out == first


@pytest.mark.parametrize(
    "flags",
    [
        ("--stack", "fsdp2", "--compile", "--recompute", "none"),
        ("--stack", "fsdp2", "--sharding", "hsdp", "--hsdp-domain", "8"),
        ("--stack", "fsdp1",),
        ("--stack", "deepspeed", "--sharding", "zero1", "--pp", "4"),
        ("--tp", "8", "--no-sp", "--attention", "unfused", "--precision", "fp16"),
        ("--tp", "8", "--recompute", "full", "--recompute-layers", "4", "--precision", "fp8"),
        ("--tp", "8", "--bucket-bytes", "25 MB", "--no-overlap-grad-reduce", "--grad-dtype", "bf16"),
        ("--tp", "8", "--scaleout", "ib-400x1/node"),
        ("--tp", "8", "--compression", "int8", "--hierarchical"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_every_kind_of_strategy_is_predicted(capsys, flags):
    assert document(capsys, *JOB_70B, *flags)["step_s"] > 0


def test_a_saved_plan_is_predicted_and_options_replace_its_fields(capsys, tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(
        "model: llama-3.1-70b\ncluster: dgx-h100:64\nglobal_batch: 128\nseq_len: 8192\n"
        "strategy:\n  stack: fsdp2\n  tp: 8\n"
    )
    found = document(capsys, str(path))
    assert (found["strategy"]["sharding"], found["strategy"]["dp"]) == ("zero3", 8)
    other = document(capsys, str(path), "--tp", "4", "--seq", "4096")
    assert (other["strategy"]["dp"], other["seq_len"]) == (16, 4096)
    assert document(capsys, str(path), "dgx-a100:16")["strategy"]["dp"] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "MODEL, CLUSTER, --global-batch, --seq missing"),
        (JOB_70B[:2], "--global-batch, --seq missing"),
        (("lama-3.1-70b", *JOB_70B[1:]), "did you mean 'llama-3.1-70b'?"),
        ((JOB_70B[0], "dgx-h10:64", *JOB_70B[2:]), "did you mean 'dgx-h100'?"),
        ((JOB_70B[0], "dgx-h100", *JOB_70B[2:]), "dgx-h100"),
        ((JOB_70B[0], "dgx-h100:0", *JOB_70B[2:]), "0"),
        ((JOB_70B[0], "dgx-h100:-8", *JOB_70B[2:]), "-8"),
        ((JOB_70B[0], "dgx-h100:1e30", *JOB_70B[2:]), "1e30"),
        ((JOB_70B[0], "", *JOB_70B[2:]), ""),
        ((*JOB_70B, "--scaleout", "ib-fast"), "ib-fast"),
        ((*JOB_70B, "--scaleup", "nvl0"), "nvl0"),
        ((*JOB_70B, "--tp", "6"), "64 GPUs do not divide by tp = 6; use 60 or 66 GPUs"),
        ((*JOB_70B, "--tp", "8", "--dp", "16"), "tp*pp*dp = 8*1*16 = 128, but the cluster has 64 GPUs; use dp = 8"),
        ((*JOB_70B, "--tp", "8", "--pp", "2", "--micro-batch", "5"), "dp*micro_batch = 4*5 = 20"),
        ((*JOB_70B, "--tp", "8", "--pp", "2", "--vpp", "3"), "80 layers do not divide by pp*vpp"),
        ((*JOB_70B, "--cp", "16", "--cp-comm", "a2a"), "key-value heads do not divide by cp*tp"),
        ((*JOB_70B, "--tp", "-8"), "tp = -8; it must be from 1"),
        ((*JOB_70B, "--micro-batch", "0"), "micro_batch = 0; it must be from 1"),
        ((*JOB_70B, "--tp", "1e30"), "--tp"),
        ((*JOB_70B, "--tp", "1" + "0" * 30), "tp = about 1e30; it must be from 1 to"),
        ((*JOB_70B[:3], "-1", *JOB_70B[4:]), "global_batch = -1; it must be from 1"),
        ((*JOB_70B[:3], "1" + "0" * 30, *JOB_70B[4:]), "global_batch = about 1e30"),
        ((*JOB_70B[:5], "1" + "0" * 400), "seq_len"),
        ((*JOB_70B, "--stack", "megatrom"), "did you mean 'megatron'?"),
        ((*JOB_70B, "--precision", "fp4"), "unknown precision 'fp4'"),
        ((*JOB_70B, "--bucket-bytes", "many"), "--bucket-bytes"),
        ((*JOB_70B, "--bucket-bytes", "-1 MB"), "--bucket-bytes"),
        ((*JOB_70B, "--bucket-bytes", "1e300 TB"), "--bucket-bytes"),
        ((*JOB_70B, "--bucket-bytes", "nan"), "--bucket-bytes"),
        ((JOB_70B[0], "dgx-a100:64", *JOB_70B[2:], "--precision", "fp8"), "has no fp8 arithmetic; use fp16, bf16"),
        ((*JOB_70B, "--catalog", "/nonexistent/mine.yaml"), "/nonexistent/mine.yaml"),
        ((*JOB_70B, "--tq", "8"), "--tp"),
        (("--from-megatron", "/nonexistent/args.sh", "dgx-h100:8"), "/nonexistent/args.sh"),
        (("/nonexistent/plan.yaml",), "/nonexistent/plan.yaml"),
        (("/nonexistent/config.json", *JOB_70B[1:]), "/nonexistent/config.json"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_2(capsys, arguments, words):
    assert words in error(capsys, *arguments)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"null", b"\xff\xfe\x00", b'{"model_type": "llama"}', b'{"model_type": "resnet"}',
     b'{"model_type": "llama", "hidden_size": "wide"}', b'{"a":' * 100_000,
     b'{"model_type": "llama", "hidden_size": 1e400}'],
)  # fmt: skip
def test_broken_configurations_are_one_line_and_exit_2(capsys, tmp_path, text):
    path = tmp_path / "config.json"
    path.write_bytes(text)
    assert "config.json" in error(capsys, str(path), *JOB_70B[1:])


@pytest.mark.parametrize(
    "text",
    ["", "model: [", "- a", "just words", "model: llama-3.1-70b\nmodel: gpt2\n", "a: &x 1\nb: *x\n", "\0", "model: 7\n",
     "model: llama-3.1-70b\nglobal_batch: -1\nseq_len: 8192\nstrategy: {}\n",
     "model: llama-3.1-70b\nglobal_batch: 1e30\nseq_len: 8192\ncluster: dgx-h100:8\nstrategy: {}\n",
     "model: llama-3.1-70b\nglobal_batch: 8\nseq_len: 8192\ncluster: dgx-h100:8\nstrategy: {tp: 0}\n",
     "model: llama-3.1-70b\nglobal_batch: 8\nseq_len: 8192\ncluster: dgx-h100:8\nstrategy: {tpp: 2}\n",
     "model: llama-3.1-70b\nglobal_batch: 8\nseq_len: 8192\ncluster: dgx-h100:8\nstrategy: [1]\n",
     "model: llama-3.1-70b\nglobal_batch: 8\nseq_len: 8192\ncluster: dgx-h100:8\n"],
)  # fmt: skip
def test_broken_plans_are_one_line_and_exit_2(capsys, tmp_path, text):
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    assert "plan.yaml" in error(capsys, str(path))


def test_a_folder_in_place_of_a_file(capsys, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    assert str(folder) in error(capsys, str(folder), *JOB_70B[1:])
    plan = tmp_path / "plan.yaml"
    plan.mkdir()
    assert "plan.yaml" in error(capsys, str(plan))
    assert "model" in error(capsys, "--from-megatron", str(folder), "dgx-h100:8")
    assert "model" in error(capsys, *JOB_70B, "--catalog", str(folder))


def test_one_gpu_without_any_link_is_predicted_without_a_warning(capsys, recwarn):
    found = document(capsys, "gpt2", "dgx-h100:1", "--global-batch", "8", "--seq", "1024", "--scaleup", "none")
    assert found["communication"] == []
    assert not recwarn.list


LORA = ("--lora-rank", "16", "--lora-targets", "qkv", "--packed-tokens", "300")


def test_adapters_and_packed_documents_are_told(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert predict(*JOB_70B, "--tp", "8", *LORA) == 0
    out = capsys.readouterr().out
    assert "LoRA of rank 16 on qkv · documents of 300 tokens packed" in out
    # Every layer: A of 8,192 columns, B of as many rows as there are queries, keys and values.
    assert f"{80 * 16 * (8192 + 8192 + 2 * 1024):,} parameters in 16 bits" in out
    found = document(capsys, *JOB_70B, "--tp", "8", *LORA)
    assert found["training"] == {
        "lora_rank": 16, "lora_targets": "qkv", "packed_tokens": 300, "expert_spread": 0.0, "capacity_factor": 0.0,
    }  # fmt: skip


MIXTURE = ("qwen3-30b-a3b", "dgx-h100:64", "--global-batch", "64", "--seq", "4096", "--ep", "32")


def test_uneven_experts_are_told_and_take_longer(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert predict(*MIXTURE, "--expert-spread", "0.3") == 0
    out = capsys.readouterr().out
    assert "experts' shares spread by 30%" in out
    assert "popularity spread by 30%: the fullest of 32 ranks, which all wait for, has 1.3" in out
    uneven, even, cut = (
        document(capsys, *MIXTURE, *options) for options in (("--expert-spread", "0.3"), (), ("--capacity-factor", "1"))
    )
    assert uneven["step_s"] > even["step_s"] > cut["step_s"]
    assert uneven["training"]["expert_spread"] == 0.3


def test_adapters_take_less_time_and_memory(capsys):
    full, few = (document(capsys, *JOB_70B, "--tp", "8", *options) for options in ((), LORA))
    assert few["step_s"] < full["step_s"]
    assert few["memory_bytes"]["optimizer"] < 0.01 * full["memory_bytes"]["optimizer"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--lora-rank", "0"), "lora_rank = 0; it must be from 1"),
        (("--lora-rank", "10000"), "llama-3.1-70b is 8192 wide"),
        (("--lora-rank", "8", "--lora-targets", "qk"), "did you mean 'qkv'?"),
        (("--lora-targets", "qkv"), "without a rank; give lora_rank too"),
        (("--packed-tokens", "0"), "packed_tokens = 0; it must be from 1"),
        (("--packed-tokens", "9000"), "sequences have 8192 tokens"),
        (("--expert-spread", "0.3"), "expert_spread is about routed experts, and llama-3.1-70b has none"),
        (("--capacity-factor", "-1"), "capacity_factor = -1.0; it must be a number above 0"),
    ],
)
def test_training_that_makes_no_sense_is_one_line_and_exit_2(capsys, options, words):
    assert words in error(capsys, *JOB_70B, *options)


FSDP = ("--stack", "fsdp2", "--recompute", "none")


def test_offloading_is_told_and_frees_memory(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    options = ("--offload-optimizer", "--offload-params", "--offload-layers", "40")
    assert predict(*JOB_70B, *FSDP, *options) == 0
    out = capsys.readouterr().out
    assert "optimizer and weights and activations of 40 layers on the host" in out
    assert "exposed copies to and from host memory" in out
    plain, found = (document(capsys, *JOB_70B, *FSDP, *more) for more in ((), options))
    assert found["memory_bytes"]["optimizer"] == 0.0
    assert found["memory_bytes"]["total"] < plain["memory_bytes"]["total"]
    assert found["breakdown_s"]["offload"] > plain["breakdown_s"]["offload"] == 0.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*JOB_70B, "--offload-params"), "use stack fsdp2 or deepspeed with zero3"),
        ((*JOB_70B, *FSDP, "--offload-params"), "offload_params needs offload_optimizer"),
        ((*JOB_70B, *FSDP, "--offload-optimizer"), "takes weights and optimizer together"),
        ((*JOB_70B, "--offload-optimizer", "--optimizer", "muon"), "muon does not update on the host"),
        ((*JOB_70B, "--stack", "ddp", "--offload-optimizer"), "stack ddp has no offload_optimizer"),
        ((*JOB_70B, "--pp", "2", "--offload-layers", "41"), "a stage has 40 layers; use 40 or fewer"),
        ((*JOB_70B, "--offload-layers", "-1"), "offload_layers = -1; it must be from 0"),
        (
            (JOB_70B[0], "mi300x:64", *JOB_70B[2:], "--offload-optimizer"),
            "does not know the host memory of MI300X-OAM-8",
        ),
        ((JOB_70B[0], "tpu-v4-pod:64", *JOB_70B[2:], "--offload-layers", "2"), "no link to its host"),
    ],
)
def test_offloading_that_cannot_be_is_one_line_and_exit_2(capsys, arguments, words):
    assert words in error(capsys, *arguments)
