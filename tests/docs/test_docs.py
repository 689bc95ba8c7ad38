"""The documentation says what the commands print, its Python runs, and its links lead somewhere."""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
import re
from pathlib import Path

import pytest

import linkscale
from linkscale.plan.strategy import Strategy

import refresh

PAGES = [refresh.ROOT / "README.md", *sorted((refresh.ROOT / "docs").rglob("*.md"))]
SCHEMAS = refresh.ROOT / "src/linkscale/report/schemas"
PAGES = [page for page in PAGES if "_build" not in page.parts]
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
MODULES = [
    module.name for module in pkgutil.walk_packages(linkscale.__path__, "linkscale.") if "__main__" not in module.name
]


def name(page: Path) -> str:
    return page.relative_to(refresh.ROOT).as_posix()


@pytest.mark.parametrize("page", refresh.pages(), ids=name)
def test_console_blocks_show_what_the_commands_print(page):
    written, printed = page.read_text(), refresh.refreshed(page)
    if not refresh.same(written, printed):
        assert printed == written, f"{name(page)} is out of date; run `make docs-pages`"


@pytest.mark.parametrize("page", [p for p in PAGES if PYTHON.search(p.read_text())], ids=name)
def test_python_blocks_run(page):
    source = "\n".join(block[1] for block in PYTHON.finditer(page.read_text()))
    example = doctest.DocTestParser().get_doctest(source, {}, name(page), str(page), 0)
    assert example.examples, "a python block shows a session: lines that start with >>>"
    outcome = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example)
    assert outcome.failed == 0


@pytest.mark.parametrize("module", MODULES)
def test_docstring_examples_run(module):
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.testmod(importlib.import_module(module), optionflags=flags).failed == 0


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not missing


def test_a_block_that_drifted_is_noticed():
    assert refresh.same("12 plans in 0.42 s\n", "12 plans in 1.9 s\n")
    assert not refresh.same("step 4.21 s\n", "step 4.22 s\n")
    assert not refresh.same("12 plans in 1 s\n", "13 plans in 1 s\n")


def test_every_example_is_run_by_some_page():
    shown = "\n".join(page.read_text() for page in refresh.pages())
    examples = [path.name for path in (refresh.ROOT / "examples").iterdir() if path.name != "README.md"]
    assert [example for example in examples if f"examples/{example}" not in shown] == []


def test_the_reference_names_every_field_of_a_strategy():
    page = (refresh.ROOT / "docs/reference/strategy.md").read_text()
    assert [field for field in Strategy.__struct_fields__ if f"`{field}`" not in page] == []


def test_the_reference_names_every_key_of_every_document():
    page = (refresh.ROOT / "docs/reference/json.md").read_text()
    schemas = {path.stem: json.loads(path.read_text()) for path in SCHEMAS.glob("*.json")}
    assert {"predict", "plan", "model", "catalog", "validate"} <= set(schemas)
    sections = {verb: page.partition(f"## linkscale.{verb}/1")[2].partition("\n## ")[0] for verb in schemas}
    keys = [(verb, key) for verb, schema in schemas.items() for key in schema["properties"] if key != "schema"]
    assert [(verb, key) for verb, key in keys if not re.search(rf"`{key}\b", sections[verb])] == []
