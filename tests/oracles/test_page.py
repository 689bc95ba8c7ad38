"""The page of oracles names tests that exist and lines of megatron-core that say what it says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests.oracles.test_schedules import grid

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/oracles.md").read_text(encoding="utf-8")
TESTS = sorted(set(re.findall(r"`([\w/.]+\.py)::(\w+)`", PAGE)))
# `path.py:LINE` `what stands there`
PINS = re.findall(r"`([\w/]+\.py):(\d+)` `([^`]+)`", PAGE)


@pytest.mark.parametrize(("path", "name"), TESTS)
def test_named_tests_exist(path, name):
    file = ROOT / path if "/" in path else ROOT / "tests/oracles" / path
    assert f"\ndef {name}(" in file.read_text(encoding="utf-8")


def test_every_oracle_is_on_the_page():
    files = {path.name for path in (ROOT / "tests/oracles").glob("test_*.py")} - {Path(__file__).name}
    assert files <= {path for path, _ in TESTS}


def test_the_grid_of_walks_is_as_large_as_the_page_says():
    assert f"whole grid of {len(list(grid()))} with" in PAGE


def test_pinned_lines_of_megatron_core():
    # Importing it takes seconds; finding it does not.
    found = importlib.util.find_spec("megatron")
    if found is None or not (places := list(found.submodule_search_locations or ())):
        pytest.skip("megatron-core is not installed: its lines cannot be read")
    assert len(PINS) > 25
    for path, line, words in PINS:
        text = (Path(places[0]) / "core" / path).read_text(encoding="utf-8").splitlines()
        assert words in text[int(line) - 1], f"{path}:{line} reads {text[int(line) - 1].strip()!r}"
