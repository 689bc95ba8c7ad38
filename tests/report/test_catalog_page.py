"""The pages and the document of ``catalog``."""

from __future__ import annotations

import io
import json

import jsonschema
import pytest

from linkscale.cli.app import run
from linkscale.hardware.catalogue import load_catalogue
from linkscale.report import schema
from linkscale.report.catalog import KINDS, catalog_document, listing
from linkscale.report.catalog_page import entry_page, listing_page
from linkscale.report.console import show

CATALOGUE = load_catalogue()
NAMES = {
    "gpus": "h100", "systems": "gb200-nvl72", "nics": "connectx-8", "switches": "quantum-2-qm9700",
    "nvswitches": "nvswitch-3", "models": "llama-3.1-405b",
}  # fmt: skip


def drawn(page, width: int) -> list[str]:
    file = io.StringIO()
    show(page, file, width)
    return file.getvalue().split("\n")


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_cut_off(kind, width):
    found = listing(kind, None, CATALOGUE)
    lines = drawn(listing_page(found), width) + drawn(
        entry_page(listing(kind, NAMES[kind], CATALOGUE).entries[0]), width
    )
    assert max(map(len, lines)) <= width
    assert not any("…" in line.replace("1Ft3Rbe…", "") for line in lines)  # part of a source's name
    assert all(any(entry.name.lower() in line for line in lines) for entry in found.entries)


def test_a_page_says_who_says_so_and_who_says_otherwise():
    text = " ".join(" ".join(drawn(entry_page(listing("gpus", "b300", CATALOGUE).entries[0]), 160)).split())
    assert "bandwidth both directions 1800 GB/s" in text
    assert "usable 275040 MiB [nvidia-smi" in text
    assert "others print DGX B300 power-capping page" in text


@pytest.mark.parametrize("kind", KINDS)
def test_the_document_follows_its_schema(kind):
    found = json.loads(json.dumps(catalog_document(listing(kind, None, CATALOGUE))))
    jsonschema.validate(found, schema.shipped("catalog"), cls=jsonschema.Draft202012Validator)
    assert all(fact["source"] for entry in found["entries"] for fact in entry["facts"])


def test_figures_in_json_are_si():
    facts = {fact.name: fact for fact in listing("gpus", "h100", CATALOGUE).entries[0].facts}
    assert facts["memory_per_gpu.bandwidth"].value == 3.35e12
    assert (facts["power_per_gpu.value"].value, facts["power_per_gpu.value"].unit) == (700.0, "W")
    assert facts["arch"].value is None


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["gpu"], "did you mean 'gpus'"),
        (["gpus", "h10"], "did you mean 'h100'"),
        (["models", "lama-3.1-8b"], "llama-3.1-8b"),
        (["systems", "dgx-h10"], "did you mean 'dgx-h100'"),
        (["gpus", "--catalog", "/nowhere.yaml"], "no such file"),
    ],
)
def test_wrong_words_get_one_line_and_exit_code_2(args, said, capsys):
    assert run(["catalog", *args]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
