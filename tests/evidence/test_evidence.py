"""Evidence files: fresh, deterministic, and found out when their code changes."""

from __future__ import annotations

import json

import pytest

import evidence
import tables

FILES = sorted(evidence.FOLDER.glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_evidence_is_of_this_tree(path):
    changed = evidence.stale(path)
    command = json.loads(path.read_text())["command"]
    assert not changed, (
        f"{path.name} rests on files that changed since: {', '.join(changed[:5])}"
        f"{' and others' if len(changed) > 5 else ''}; measure again with `{command}` (or all: `make evidence`)"
    )


@pytest.mark.parametrize("page", tables.pages(), ids=lambda path: path.stem)
def test_pages_show_the_figures_of_the_evidence(page):
    written = page.read_text()
    assert tables.rendered(written) == written, f"{page.name} is out of date; run `python benchmarks/tables.py`"


def test_every_figure_of_the_tables_is_shown_somewhere():
    shown = {found[2] for page in tables.pages() for found in tables.BLOCK.finditer(page.read_text())}
    assert shown == tables.BLOCKS


def result(name):
    return json.loads((evidence.FOLDER / f"{name}.json").read_text())["result"]


def test_the_promised_accuracy_is_kept():
    promised = [figure for figure in result("accuracy")["figures"] if figure["at_most"]]
    assert [figure["name"] for figure in promised if figure["value"] > figure["at_most"]] == []
    assert len(promised) == 4


def test_the_promised_memory_is_kept():
    """By all sources but one of two runs, whose printed figures no layout explains (docs/explanation/accuracy.md)."""
    above = [row["source"] for row in result("accuracy")["memory"] if row["median"] > row["at_most"]]
    assert above == ["aws_torchtitan"]


def test_what_ships_is_what_the_fit_gives():
    parameters = result("families")["parameters"]
    assert len(parameters) == 8
    for value in parameters.values():
        assert value["shipped"] == pytest.approx(value["fitted"], rel=0.02)


def test_the_promised_speed_is_kept():
    found = result("search_speed")
    assert found["strategies_per_s"] >= 200_000
    assert found["strategies"] >= 500_000
    limits = {"gpt3-175b": 4, "llama-3.1-405b": 5, "deepseek-v3": 10}
    assert all(took["seconds"] <= limits[command.split()[1]] for command, took in found["commands"].items())
    assert next(iter(found["commands"].values()))["peak_rss_bytes"] <= 400e6
    assert all(row["seconds"] <= row["at_most"] for row in result("startup")["rows"] if row["at_most"])


def test_paths_of_this_machine_are_left_out_of_commands(tree, monkeypatch):
    monkeypatch.setattr("sys.argv", ["bench.py", "/data/runs.csv", "--evidence"])
    document = json.loads(evidence.record("claim", {}, [], root=tree).read_text())
    assert document["command"].endswith("runs.csv --evidence")
    assert "/data" not in document["command"]


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "cost.py").write_text("PRICE = 1\n")
    (tmp_path / "data.csv").write_text("a,b\n")
    return tmp_path


def test_the_same_result_gives_the_same_bytes(tree):
    path = evidence.record("claim", {"b": 2, "a": 1.5}, ["src", "data.csv"], root=tree)
    first = path.read_bytes()
    evidence.record("claim", {"a": 1.5, "b": 2}, ["data.csv", "src"], root=tree)
    assert path.read_bytes() == first
    assert evidence.stale(path, root=tree) == []


@pytest.mark.parametrize(("name", "text"), [("src/cost.py", "PRICE = 2\n"), ("src/new.py", "\n"), ("data.csv", None)])
def test_a_changed_added_or_removed_file_is_found(tree, name, text):
    path = evidence.record("claim", {}, ["src", "data.csv"], root=tree)
    if text is None:
        (tree / name).unlink()
    else:
        (tree / name).write_text(text)
    assert evidence.stale(path, root=tree) == [name]


def test_the_machine_is_named_by_what_a_speed_depends_on():
    assert set(evidence.machine()) == {"cpu", "cores", "python"}
