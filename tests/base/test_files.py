"""Files of a person: JSON and values read from them, text written whole or not at all."""

from __future__ import annotations

import os

import pytest

from linkscale.base.decode import decode
from linkscale.base.errors import InputError, nearest, unknown_name
from linkscale.base.files import write_text
from linkscale.base.json import load_json
from linkscale.base.model import Model


class Nic(Model, frozen=True):
    rate: str


class Box(Model, frozen=True):
    name: str
    gpus: int = 8
    nics: tuple[Nic, ...] = ()
    spare: Nic | None = None

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise InputError(f"gpus is {self.gpus}; a box has at least 1")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{\n  'a': 1}", ":2:3: not valid JSON"),
        ('{"a": 1,}', ":1:9: not valid JSON"),
        ("", ":1:1: not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": ' + "9" * 5_000 + "}", "not valid JSON"),
    ],
    ids=["quotes", "comma", "empty", "deep", "long number"],
)
def test_broken_json_is_one_line_with_its_place(tmp_path, content, told):
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(InputError) as raised:
        load_json(path)
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"name": "a", "gpu": 4}, "unknown field 'gpu'; did you mean 'gpus'?"),
        ({"name": "a", "spare": {"rat": "1"}}, "spare: unknown field 'rat'; did you mean 'rate'?"),
        ({"name": "a", "nics": [{"rate": "1"}, {"rat": "1"}]}, "unknown field 'rat'; did you mean 'rate'?"),
        ({"name": "a", "zzz": 4}, "unknown field 'zzz'; known: name, gpus, nics, spare"),
        ({"gpus": 4}, "missing required field name"),
        ({"name": "a", "gpus": "four"}, "gpus: expected int, got str"),
        ({"name": "a", "gpus": 4.5}, "gpus: expected int, got float"),
        ({"name": "a", "gpus": 0}, "gpus is 0; a box has at least 1"),
        (["a"], "expected keys and values, found list"),
        (None, "expected keys and values, found nothing"),
    ],
)
def test_what_does_not_fit_a_value_is_one_line_with_the_nearest_field(data, told):
    with pytest.raises(InputError) as raised:
        decode(data, Box, "box.yaml")
    assert told in str(raised.value)
    assert str(raised.value).startswith("box.yaml: ") or "at least 1" in told
    assert "\n" not in str(raised.value)


def test_a_name_that_no_table_holds_brings_the_nearest_one():
    assert nearest("DGX-H10", ["dgx-h100", "dgx-a100"]) == "dgx-h100"
    assert "did you mean 'dgx-h100'?" in str(unknown_name("system", "dgx-h10", ["dgx-h100", "rtx"]))
    assert "known: a, b" in str(unknown_name("system", "zzzzzz", ["b", "a"]))


def test_writing_leaves_the_old_file_whole_when_it_fails(tmp_path):
    path = tmp_path / "plan.yaml"
    write_text(path, "old\n")
    with pytest.raises(InputError, match="cannot write"):
        write_text(tmp_path / "missing" / "plan.yaml", "new\n")
    with pytest.raises(InputError, match="cannot write"):
        write_text(tmp_path, "new\n")
    assert path.read_text() == "old\n"
    assert [p.name for p in tmp_path.iterdir()] == ["plan.yaml"]


def test_writing_goes_through_a_link_to_its_file(tmp_path):
    (tmp_path / "plan.yaml").write_text("old\n")
    (tmp_path / "best.yaml").symlink_to("plan.yaml")
    write_text(tmp_path / "best.yaml", "new\n")
    assert (tmp_path / "best.yaml").is_symlink()
    assert (tmp_path / "plan.yaml").read_text() == "new\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_written_to_not_replaced(tmp_path):
    """Renaming over a device file, as /dev/null, would take it from the whole machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text(pipe, "text\n")
        assert os.read(end, 100) == b"text\n"
        assert pipe.is_fifo()
    finally:
        os.close(end)


def test_writing_replaces_a_file_at_once(tmp_path):
    path = tmp_path / "plan.yaml"
    write_text(path, "old\n")
    write_text(path, "new µ\n")
    assert path.read_bytes() == "new µ\n".encode()
