"""The table of docs/reference/models.md says what the package counts."""

from __future__ import annotations

from pathlib import Path

from linkscale.estimate.model import summarize
from linkscale.workload import load_architecture, packaged_models
from linkscale.workload.registry import FAMILIES, TOWERS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "models.md"


def test_the_table_is_fresh():
    """``python benchmarks/models/table.py`` writes it anew."""
    from models.table import row

    text = PAGE.read_text()
    for name in packaged_models():
        start = row(summarize(load_architecture(name)), "").rsplit("|", 2)[0]
        assert f"\n{start}|" in text, name
    assert text.count("\n| ") == len(packaged_models()) + 1


def test_every_family_is_named():
    listed = PAGE.read_text().split("## What is read")[1].split("Nothing is guessed")[0]
    assert {word.strip("`") for word in listed.replace(".", "").replace(",", "").split() if "`" in word} == {
        "model_type", *FAMILIES, *TOWERS
    }  # fmt: skip
