"""``linkscale model``: its page at two widths, its document, and every kind of bad input in one line."""

from __future__ import annotations

import json

import jsonschema
import pytest

from linkscale.cli.app import run
from linkscale.estimate.model import summarize
from linkscale.report import schema
from linkscale.report.console import show
from linkscale.report.model_page import model_page
from linkscale.workload import load_architecture, packaged_models, params


def said(capsys, *args: str) -> tuple[int, str, str]:
    code = run(["model", *args])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_page_names_the_counts(capsys):
    code, out, _ = said(capsys, "llama-3.1-405b", "--seq", "8192")
    assert code == 0
    assert "405,853,388,800" in out
    assert "in sequences of 8,192 tokens" in out


@pytest.mark.parametrize(("name", "words"), [
    ("deepseek-v3", ["37.55 B of them active", "8 of 256 experts of 2,048 from 4 of 8 groups and 2,048 shared",
                     "latent attention, 128 heads of 128+64", "3 × MLP of 18,432", "one further token predicted"]),
    ("gpt-oss-20b", ["12 × 64 heads of 64, 8 for keys and values · window of 128 · sinks"]),
    ("kimi-k2.5", ["vision tower", "471,143,920", "taken as frozen"]),
    ("nemotron-3-ultra", ["48 × Mamba-2, 256 heads of 64", "inside 2,048 features", "scans too"]),
    ("glm-5.2", ["57 ×", "2,048 keys chosen by an earlier layer"]),
    ("deepseek-v4-flash", ["4 residual streams", "one key for every 128 tokens"]),
])  # fmt: skip
def test_the_page_tells_kinds_of_layers(capsys, name, words):
    code, out, _ = said(capsys, name)
    assert code == 0
    flat = " ".join(out.split())
    assert [word for word in words if word not in flat] == []


@pytest.mark.parametrize("width", [80, 160])
def test_every_page_fits_its_columns(width, tmp_path):
    for name in packaged_models()[::3]:
        path = tmp_path / name
        with path.open("w", encoding="utf-8") as file:
            show(model_page(summarize(load_architecture(name))), file, width)
        text = path.read_text(encoding="utf-8")
        assert max(len(line) for line in text.splitlines()) <= width
        assert "…" not in text


@pytest.mark.parametrize("name", [
    "gpt2", "llama-3.1-405b", "mistral-7b", "falcon-40b", "deepseek-v3", "nemotron-3-ultra", "kimi-k2.5", "gpt-oss-20b",
    "deepseek-v4-flash", "minimax-m2.5",
])  # fmt: skip
def test_the_document_keeps_its_schema_and_adds_up(capsys, name):
    code, out, err = said(capsys, name, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    jsonschema.validate(found, schema.shipped("model"), cls=jsonschema.Draft202012Validator)
    assert found["schema"] == "linkscale.model/1"
    assert found["params"] == params(load_architecture(name)) == sum(found["params_by_part"].values())
    assert found["layers"] == sum(group["count"] for group in found["layer_groups"])
    flops = found["flops_per_token"]
    assert flops["forward"] == flops["matmul"] + flops["attention"]
    assert flops["training_causal"] == 3 * (flops["matmul"] + flops["attention_causal"])


def test_activations_of_a_gpt_are_korthikantis():
    """Eq. 1 and 3 and table 2 of Korthikanti et al. 2022: 34 + 5as/h, 34, and 2, times h bytes a token."""
    summary = summarize(load_architecture("megatron-175b"), 2048)
    a, h = summary.architecture.heads, summary.architecture.hidden
    kept = {(way.recompute, way.attention): way.bytes_per_token for way in summary.activations_per_layer}
    assert kept["none", "unfused"] == 34 * h + 5 * a * 2048
    assert kept["selective", "unfused"] == 34 * h
    assert kept["full", "flash"] == 2 * h
    assert kept["none", "flash"] == 34 * h + 4 * a  # one log-sum-exp a row


@pytest.mark.parametrize(("args", "message"), [
    (["lama-3.1-405b"], "unknown model 'lama-3.1-405b'; did you mean 'llama-3.1-405b'?"),
    (["gpt2", "--seq", "0"], "seq = 0; it must be a whole number from 1 to 2147483647"),
    (["gpt2", "--seq", "-5"], "seq = -5; it must be"),
    (["gpt2", "--seq", "9" * 30], "it must be"),
    (["gpt2", "--seq", "many"], "Invalid value for '--seq'"),
    ([], "Missing argument 'MODEL'"),
    (["none.json"], "none.json: no such file"),
    (["."], "config.json: no such file"),
])  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(capsys, tmp_path, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = said(capsys, *args)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message.lower() in err.lower()
