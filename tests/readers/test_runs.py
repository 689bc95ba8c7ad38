"""Published runs: typed, nothing guessed, broken rows reported with their line."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkscale.base.errors import InputError
from linkscale.readers import runs as reader
from linkscale.readers.runs import RunRecord, read_runs

HEADER = "id,source_key,gpu,num_gpus,layers,gated_mlp,step_time_s,notes\n"


def written(tmp_path: Path, body: str | bytes) -> Path:
    path = tmp_path / "runs.csv"
    path.write_bytes(body if isinstance(body, bytes) else body.encode())
    return path


def test_empty_cells_are_not_stated(tmp_path):
    record = read_runs(written(tmp_path, HEADER + "a-1,a,A100,8,,,,\n")).records[0]
    assert record == RunRecord(id="a-1", source_key="a", line=2, gpu="A100", num_gpus=8)


def test_cells_have_the_types_of_their_columns(tmp_path):
    record = read_runs(written(tmp_path, HEADER + 'a-1,a,A100,8,24,1,0.5,"two, parts"\n')).records[0]
    assert (record.layers, record.gated_mlp, record.step_time_s, record.notes) == (24, True, 0.5, "two, parts")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("a-2,a,A100,8", "4 cells, the header has 8"),
        ("a-2,a,A100,eight,,,,", "num_gpus = 'eight'; a positive whole number"),
        ("a-2,a,A100,0,,,,", "num_gpus = '0'; a positive whole number"),
        ("a-2,a,A100,-8,,,,", "num_gpus = '-8'; a positive whole number"),
        ("a-2,a,A100,8,,2,,", "gated_mlp = '2'; 0, 1 or nothing"),
        ("a-2,a,A100,8,,,nan,", "step_time_s = 'nan'; a number that is not negative"),
        ("a-2,a,A100,8,,,1e999,", "step_time_s = '1e999'; a number that is not negative"),
        ("a-2,a,,8,,,,", "gpu is empty"),
        ("a-2,a,A100,99999999999999999999,,,,", "num_gpus = '99999999999999999999'"),
    ],
)
def test_a_broken_row_is_reported_with_its_line_and_the_rest_is_read(tmp_path, row, reason):
    found = read_runs(written(tmp_path, f"{HEADER}a-1,a,A100,8,,,,\n{row}\na-3,a,A100,8,,,,\n"))
    assert [record.id for record in found.records] == ["a-1", "a-3"]
    assert found.bad[0].line == 3
    assert reason in found.bad[0].reason


def test_lines_count_quoted_newlines(tmp_path):
    found = read_runs(written(tmp_path, HEADER + 'a-1,a,A100,8,,,,"one\ntwo"\na-2,a,A100,x,,,,\n'))
    assert found.records[0].notes == "one\ntwo"
    assert found.bad[0].line == 4


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "column 'id' is missing"),
        (b"id,source_key,gpu,num_gpus,colour\n", "unknown column 'colour'"),
        (b"id,id,source_key,gpu,num_gpus\n", "column 'id' stands twice"),
        (HEADER.encode(), "holds no rows"),
        (HEADER.encode() + b"a-1,a,A100,8,,,,\xff\n", ":2: not UTF-8 text (byte 0xff)"),
        (HEADER.encode() + b"a-1,a,A1\x0000,8,,,,\n", ":2: holds a zero byte"),
        (HEADER.encode() + b"a" * 70_000, "line longer than"),
        (b"\x89PNG\r\n\x1a\n", "not UTF-8 text"),
    ],
)
def test_a_file_that_is_no_table_of_runs_fails_in_one_line(tmp_path, body, says):
    with pytest.raises(InputError, match=r"runs\.csv") as error:
        read_runs(written(tmp_path, body))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_or_a_missing_file_fails_in_one_line(tmp_path):
    for path in (tmp_path, tmp_path / "no.csv"):
        with pytest.raises(InputError, match="cannot read the runs"):
            read_runs(path)


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path):
    assert read_runs(written(tmp_path, b"\xef\xbb\xbf" + HEADER.encode() + b"a-1,a,A100,8,,,,\n")).records


def test_memory_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "MAX_ROWS", 3)
    with pytest.raises(InputError, match="more than 3 rows"):
        read_runs(written(tmp_path, HEADER + "a-1,a,A100,8,,,,\n" * 5))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_rows_problems_or_an_input_error(tmp_path_factory, noise):
    path = written(tmp_path_factory.mktemp("noise"), HEADER.encode() + b"a-1,a,A100,8,,,,\n" + noise)
    with contextlib.suppress(InputError):
        assert read_runs(path).records[0].id == "a-1"
