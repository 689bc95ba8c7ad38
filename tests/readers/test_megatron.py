"""Launch arguments in the shapes in which people write them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkscale.base.errors import InputError
from linkscale.readers.megatron import parse_megatron, read_megatron

DATA = Path(__file__).parents[1] / "data" / "megatron"


def values(text: str) -> dict[str, tuple[str, ...]]:
    return {name: flag.values for name, flag in parse_megatron(text).last().items()}


def test_the_published_gpt3_175b_arguments():
    flags = read_megatron(DATA / "megatron_gpt3_175b_args.txt").last()
    expected = {
        "num-layers": ("96",), "hidden-size": ("12288",), "num-attention-heads": ("96",), "seq-length": ("2048",),
        "micro-batch-size": ("1",), "global-batch-size": ("1536",), "tensor-model-parallel-size": ("8",),
        "pipeline-model-parallel-size": ("16",), "fp16": (), "attention-backend": ("auto",),
    }  # fmt: skip
    assert {name: flags[name].values for name in expected} == expected
    assert flags["pipeline-model-parallel-size"].line == 30
    assert len(flags["step-batch-size-schedule"].values) == 1


def test_yaml_arguments_keep_unset_variables_as_written():
    flags = read_megatron(DATA / "megatron_moe_Mixtral-8x22B.yaml").last()
    assert flags["num-experts"].values == ("8",)
    assert flags["tensor-model-parallel-size"].values == ("${TP}",)
    assert flags["sequence-parallel"].values == ("true",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--a 1 \\\n  --b=2\t--c", {"a": ("1",), "b": ("2",), "c": ()}),
        ("A=( \n--a 1 # one\n\t--b 2   \n)", {"a": ("1",), "b": ("2",)}),
        ("N=3\n--a $N --b ${N} --c ${M:-7} --d $M", {"a": ("3",), "b": ("3",), "c": ("7",), "d": ("$M",)}),
        ("X=\"--a 1\n --b 'c d'\"\nrun $X --e 5", {"a": ("1",), "b": ("c d",), "e": ("5",)}),
        ("--data 0.5 one 0.5 two --a 1", {"data": ("0.5", "one", "0.5", "two"), "a": ("1",)}),
        ('--lr -1e-4 --name "a # b"', {"lr": ("-1e-4",), "name": ("a # b",)}),
        ("--under_score 1", {"under-score": ("1",)}),
        ("--a 1 && other --b 2 | tee x", {"a": ("1",), "b": ("2",)}),
        ("--a 1\n--a 2", {"a": ("2",)}),
        ("--a: 1\n--b: [x]", {"a": ("1",), "b": ("[x]",)}),
        ("run ${ARGS[@]} --a 1 ${MORE[@]}", {"a": ("1",)}),
        ("N=2\r\n--a $N \\\r\n --b", {"a": ("2",), "b": ()}),
    ],
)
def test_shapes(text, expected):
    assert values(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no --flags"),
        ("just words", "holds no --flags"),
        ('--a "open', "<text>:1: an open quote"),
        ("--a 1\n--b 'open", "<text>:2: an open quote"),
    ],
)
def test_what_cannot_be_read_fails_in_one_line(text, says):
    with pytest.raises(InputError, match=says):
        parse_megatron(text)


def test_variables_that_grow_without_end_are_stopped():
    text = "A=xxxxxxxxxxxxxxxx\n" + "A=$A$A$A$A$A$A$A$A\n" * 20 + "--a $A"
    with pytest.raises(InputError, match="grows beyond"):
        parse_megatron(text)


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "args.sh"
    path.write_bytes(b"--a \xff")
    with pytest.raises(InputError, match="not UTF-8"):
        read_megatron(path)
    path.write_bytes(b"--a 1\n" * 400_000)
    with pytest.raises(InputError, match="is larger than 1 MiB"):
        read_megatron(path)
    with pytest.raises(InputError, match="is a directory"):
        read_megatron(tmp_path)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="-a=${}\"'\\ \n#()[]@:1;&", max_size=60))
def test_any_text_is_flags_or_one_line(text):
    with contextlib.suppress(InputError):
        assert all(flag.name for flag in parse_megatron(text).flags)
