"""The YAML loader: YAML 1.2 scalars, line numbers, and files that mean harm."""

from __future__ import annotations

import contextlib
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkscale.base.errors import InputError
from linkscale.base.yaml import DEEPEST, MOST_BYTES, load_yaml, parse_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e9", 1e9),
        ("1.5", 1.5),
        ("-.5", -0.5),
        ("12", 12),
        ("+3", 3),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("no", "no"),
        ("y", "y"),
        ("12:30", "12:30"),
        ("1:20:30", "1:20:30"),
        ("1_000", "1_000"),
        ("2026-12-01", "2026-12-01"),
        ("true", True),
        ("False", False),
        ("tRUE", "tRUE"),
        ("null", None),
        ("~", None),
        ("", None),
        (".inf", math.inf),
        ("'12'", "12"),
        ('"true"', "true"),
        ("400 Gb/s", "400 Gb/s"),
    ],
)
def test_scalars_follow_the_core_schema_of_yaml_1_2(text, value):
    read = parse_yaml(f"key: {text}\n").data["key"]
    assert read == value
    assert type(read) is type(value)


def test_merge_keys_of_yaml_1_1_are_plain_text():
    assert parse_yaml("<<: {a: 1}\nb: 2\n").data == {"<<": {"a": 1}, "b": 2}


def test_lines_are_kept_for_errors():
    document = parse_yaml("a: 1\nb:\n  - x\n  - y: 2\n", "box.yaml")
    assert document.where("b", 1, "y") == "box.yaml:4"
    assert document.where("b", 7) == "box.yaml:2"
    assert document.where() == "box.yaml:1"


LAUGHS = "a0: &a0 [ha, ha]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (LAUGHS, "aliases"),
        ("&a [*a]", "aliases"),
        ("a: &x {b: 1}\nc: *x\n", "aliases"),
        ("a: 1\nb: 2\na: 3\n", "'a' stands twice"),
        ("a: 1\n'a': 3\n", "'a' stands twice"),
        ("[" * 100_000, "nest"),
        ("{a: " * 3_000 + "1" + "}" * 3_000, "nest"),
        ("- " * 3_000 + "1", "nest"),
        ("[" * (DEEPEST + 2) + "]" * (DEEPEST + 2), "nest"),
        ("a: 1\n---\nb: 2\n", "another document"),
        ("? [a, b]\n: 1\n", "plain text"),
        ("a: [1, 2\n", "not valid YAML"),
        ("a:\n\t- b\n", "not valid YAML"),
        ("a: \x00", "not valid YAML"),
        ("a: *nowhere", "not valid YAML"),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else None,
)
def test_hostile_text_is_refused_at_once_in_one_line(text, told):
    began = time.perf_counter()
    with pytest.raises(InputError) as raised:
        parse_yaml(text, "box.yaml")
    assert time.perf_counter() - began < 1.0
    message = str(raised.value)
    assert message.startswith("box.yaml:")
    assert told in message
    assert "\n" not in message


def test_tags_run_no_code(tmp_path):
    mark = tmp_path / "mark"
    text = f'a: !!python/object/apply:pathlib.Path.touch ["{mark}"]\n'
    with contextlib.suppress(InputError):
        parse_yaml(text)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\x80\x04\x95\x10\x00\xff\xfe", ":1: not UTF-8"),
        (b"a: 1\nb: \xff\n", ":2: not UTF-8"),
        (b"\x7fELF\x02\x01\x01\x00", "not valid YAML"),
    ],
)
def test_binary_files_are_refused_with_their_place(tmp_path, content, told):
    path = tmp_path / "box.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError) as raised:
        load_yaml(path)
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_of_50_mb_is_refused_unread(tmp_path):
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(50_000_000)
    with pytest.raises(InputError, match=f"larger than {MOST_BYTES // 2**20} MiB"):
        load_yaml(path)


def test_directories_and_missing_files_are_said_to_be_that(tmp_path):
    with pytest.raises(InputError, match="is a directory; name a file"):
        load_yaml(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        load_yaml(tmp_path / "missing.yaml")
    with pytest.raises(InputError, match="cannot read"):
        load_yaml("box\0.yaml")


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path):
    path = tmp_path / "box.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert load_yaml(path).data == {"a": 1}


@given(st.text(max_size=200))
def test_any_text_is_data_or_one_line(text):
    told = ""
    try:
        parse_yaml(text)
    except InputError as error:
        told = str(error)
    assert "\n" not in told
