"""``linkscale plan`` end to end."""

from __future__ import annotations

import json

import pytest

from linkscale.cli.app import run

JOB = ("llama-3.1-8b", "dgx-h100:16", "--global-batch", "32", "--seq", "8192")


def plan(*arguments: str) -> int:
    return run(["plan", *arguments])


def document(capsys, *arguments: str):
    assert plan(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_the_page_has_the_ranking_and_the_reasons(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert plan(*JOB, "--top", "3") == 0
    out, err = capsys.readouterr()
    for words in ("Best plan", "Top 3 of", "Why the best beats the next", "Why popular settings lose",
                  "What holds it back", "What one change of hardware would buy", "What was searched"):  # fmt: skip
        assert words in out
    assert max(map(len, out.splitlines())) <= 80
    assert err == ""


def test_plans_are_sorted_fit_and_keep_what_was_fixed(capsys):
    found = document(capsys, *JOB, "--tp", "2", "--stack", "megatron", "--top", "5")
    steps = [entry["step_s"] for entry in found["plans"]]
    assert steps == sorted(steps)
    assert len(steps) == 5
    assert {entry["strategy"]["tp"] for entry in found["plans"]} == {2}
    assert {entry["strategy"]["stack"] for entry in found["plans"]} == {"megatron"}
    assert all(entry["fits"] for entry in found["plans"])
    assert found["space"]["axes"]["tp"] == [2]


def test_only_the_seconds_differ_from_run_to_run(capsys):
    first, second = (document(capsys, *JOB, "--top", "2") for _ in range(2))
    first["space"]["seconds"] = second["space"]["seconds"] = 0.0
    assert first == second


def test_layouts_asked_about_are_answered_in_order(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    asked = ("--why", "pp=4", "--why", "tp=3", "--why", "stack=ddp")
    assert plan(*JOB, *asked) == 0
    out = capsys.readouterr().out
    places = [out.index(words) for words in ("Why not pp 4", "Why not tp 3", "Why not stack ddp", "Why popular")]
    assert places == sorted(places)
    for words in ("slower: +", "differs in", "certainty", "cannot run: 16 GPUs do not divide",
                  "does not fit: needs", "leanest such", "way out"):  # fmt: skip
        assert words in out
    assert max(map(len, out.splitlines())) <= 80
    found = document(capsys, *JOB, *asked)["why"]
    assert [(row["asked"], row["answer"]) for row in found] == [
        ({"pp": 4}, "slower"), ({"tp": 3}, "illegal"), ({"stack": "ddp"}, "short"),
    ]  # fmt: skip


def test_the_memory_limit_is_kept(capsys):
    found = document(capsys, *JOB, "--max-memory", "40 GB", "--top", "3")
    assert max(entry["memory_bytes"]["total"] for entry in found["plans"]) <= 40e9


@pytest.mark.parametrize("training", [(), ("--lora-rank", "8", "--lora-targets", "qkv", "--packed-tokens", "200")])
def test_the_best_plan_is_saved_and_predicted_alike(capsys, tmp_path, training):
    path = tmp_path / "plan.yaml"
    found = document(capsys, *JOB, *training, "-o", str(path))
    assert run(["predict", str(path), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    best = found["plans"][0]
    assert again["strategy"] == best["strategy"]
    assert again["step_s"] == best["step_s"]
    assert again["memory_bytes"] == best["memory_bytes"]


def test_nothing_fits_is_one_line_and_exit_1(capsys):
    assert plan("llama-3.1-405b", "dgx-h100:8", "--global-batch", "8", "--seq", "8192") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "nothing fits" in err
    assert "GB too much" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (JOB[:2], "--global-batch, --seq missing"),
        (("lama-3.1-8b", *JOB[1:]), "did you mean 'llama-3.1-8b'?"),
        ((*JOB, "--top", "0"), "top = 0; it must be at least 1"),
        ((*JOB, "--max-memory", "much"), "--max-memory"),
        ((*JOB, "--max-memory", "72"), "max_memory_bytes = 72: bytes, and no GPU has so few; write '72 GB'"),
        ((*JOB, "--max-memory", "0"), "max_memory_bytes = 0; it must be more than 0"),
        ((*JOB, "--gpus", "32"), "gpus = 32"),
        ((*JOB, "--tp", "7"), "no legal strategy"),
        ((*JOB, "--tp", "1" + "0" * 30), "tp"),
        ((*JOB, "--sharding", "zero9"), "unknown sharding 'zero9'"),
        ((*JOB[:3], "7" * 40, *JOB[4:]), "global_batch"),
        ((*JOB, "--why", ""), "why: '' is not FIELD=VALUE; write for example tp=4,pp=8"),
        ((*JOB, "--why", "tp=4,tp=8"), "states tp twice"),
        ((*JOB, "--why", "pp=2", "--why", "micro_bach=4"), "did you mean 'micro_batch'?"),
        ((*JOB, "--tp", "2", "--why", "tp=4"), "why tp = 4: the plan holds tp = 2 fixed; drop one of them"),
        ((*JOB, "-o", "/nonexistent/plan.yaml"), "/nonexistent/plan.yaml"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_2(capsys, arguments, words):
    assert plan(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert words in err


def test_a_box_without_a_network_is_not_told_to_grow(capsys, recwarn):
    assert plan("llama-3.1-70b", "v100:8", "--global-batch", "8", "--seq", "8192", "--scaleout", "none") == 1
    assert "no more GPUs can join without a network" in capsys.readouterr().err
    assert not recwarn.list
