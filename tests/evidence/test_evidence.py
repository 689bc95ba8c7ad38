"""Evidence files: fresh, deterministic, and found out when their code changes."""

from __future__ import annotations

import json

import pytest

import evidence

FILES = sorted(evidence.FOLDER.glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_evidence_is_of_this_tree(path):
    changed = evidence.stale(path)
    command = json.loads(path.read_text())["command"]
    assert not changed, (
        f"{path.name} rests on files that changed since: {', '.join(changed[:5])}"
        f"{' and others' if len(changed) > 5 else ''}; measure again with `{command}` (or all: `make evidence`)"
    )


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
