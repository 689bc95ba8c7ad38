"""The verb ``validate`` on the runs that come with the tests."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from linkscale.cli.app import run
from linkscale.readers.runs import read_runs
from linkscale.report.schema import shipped

SAMPLE = Path(__file__).parents[1] / "data" / "runs_sample.csv"


def test_the_page(capsys):
    assert run(["validate", str(SAMPLE)]) == 0
    page = capsys.readouterr().out
    assert "Error by source_key" in page
    assert "korthikanti2022" in page
    assert "Not predicted" in page


def test_the_document_on_standard_output_and_in_a_file_are_the_same(capsys, tmp_path):
    output = tmp_path / "validation.json"
    assert run(["validate", str(SAMPLE), "--json", "--output", str(output)]) == 0
    printed = capsys.readouterr().out
    assert printed == output.read_text()
    document = json.loads(printed)
    jsonschema.validate(document, shipped("validate"))
    assert len(document["rows"]) == document["summary"]["rows"] == len(read_runs(SAMPLE).records) > 100


def test_groups_by_a_column_and_one_run_alone(capsys):
    assert run(["validate", str(SAMPLE), "--by", "gpu"]) == 0
    assert "Error by gpu" in capsys.readouterr().out
    assert run(["validate", str(SAMPLE), "--row", "korthikanti2022-0004"]) == 0
    assert "measured 13.8 s" in capsys.readouterr().out
    assert run(["validate", str(SAMPLE), "--row", "korthikanti2022-0004", "--explain"]) == 0
    page = capsys.readouterr().out
    assert "Defaults for what the source leaves out" in page
    assert "Time of a step" in page


def test_a_run_that_cannot_be_predicted_is_a_no(capsys):
    assert run(["validate", str(SAMPLE), "--row", "opt175b-0001"]) == 1
    assert "does not state" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["no.csv"], "no.csv"),
        ([str(SAMPLE.parent)], "data"),
        ([str(SAMPLE), "--by", "sourcekey"], "did you mean 'source_key'?"),
        ([str(SAMPLE), "--row", "korthikanti2022-004"], "did you mean 'korthikanti2022-0004'?"),
        ([str(SAMPLE), "--explain"], "--explain needs --row"),
        ([str(SAMPLE), "--output", "no/such/folder.json"], "cannot write"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(args, says, capsys):
    assert run(["validate", *args]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_broken_rows_are_warned_of(capsys, tmp_path):
    broken = tmp_path / "runs.csv"
    lines = SAMPLE.read_text().splitlines()
    broken.write_text("\n".join([*lines[:40], "too,few,cells"]) + "\n")
    assert run(["validate", str(broken)]) == 0
    assert "runs.csv:41: 3 cells" in capsys.readouterr().err
