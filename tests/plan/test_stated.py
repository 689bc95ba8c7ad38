"""Fields of a strategy as text."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkscale.base.errors import InputError
from linkscale.plan.stated import parse_stated, parse_varied
from linkscale.plan.strategy import Strategy

PLAIN = Strategy()


def test_names_are_those_of_fields_and_flags():
    text = " tp=4, micro_batch=2,micro-batch = 3 "
    with pytest.raises(InputError, match="states micro_batch twice"):
        parse_stated(text)
    assert parse_stated("micro-batch=2,sp=on,hsdp-domain=8") == {
        "micro_batch": 2, "sequence_parallel": True, "shard_domain": 8,
    }  # fmt: skip


@pytest.mark.parametrize("name", Strategy.__struct_fields__)
def test_every_field_is_read_back_as_it_is_printed(name):
    value = getattr(PLAIN, name)
    assert parse_stated(f"{name}={value}") == {name: value}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'' is not FIELD=VALUE; write for example tp=4,pp=8"),
        ("tp", "'tp' is not FIELD=VALUE"),
        ("tp=", "'tp=' is not FIELD=VALUE"),
        ("=4", "'=4' is not FIELD=VALUE"),
        ("tp=4,", "'' is not FIELD=VALUE"),
        ("tp=x", "tp = 'x'; it must be a whole number"),
        ("tp=4.0", "tp = '4.0'; it must be a whole number"),
        ("tp=0", "tp = 0; it must be from 1"),
        ("tp=" + "9" * 30, "tp = about 1e29; it must be from 1"),
        ("tp=" + "9" * 150, "it must be a whole number"),
        ("tp=4,tp=8", "'tp=4,tp=8' states tp twice; state it once"),
        ("micro_bach=4", "did you mean 'micro_batch'?"),
        ("sharding=zero9", "unknown sharding 'zero9'"),
        ("compile=maybe", "compile = 'maybe'; it must be one of True, False"),
        ("bucket_bytes=much", "'much' is no quantity in bytes"),
        ("a" * 10_000, "has 10000 characters"),
    ],
)
def test_bad_text_is_one_line_that_says_what_is_right(text, words):
    with pytest.raises(InputError) as caught:
        parse_stated(text)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 300


@given(st.text(max_size=40))
def test_no_text_raises_anything_else(text):
    with contextlib.suppress(InputError):
        assert parse_stated(text)


def test_values_to_vary_are_named_as_fields_and_flags_are():
    assert parse_varied("micro-batch=2, 4,2") == ("micro_batch", (2, 4))
    assert parse_varied("sp=on,off") == ("sequence_parallel", (True, False))
    assert parse_varied("bucket-bytes=0,25 MB") == ("bucket_bytes", (0, 25_000_000))
    assert parse_varied("schedule=zb-v") == ("schedule", ("zb-v",))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'' is not FIELD=VALUE,VALUE; write for example schedule=1f1b,zb-v"),
        ("schedule", "'schedule' is not FIELD=VALUE,VALUE"),
        ("tp=1,,2", "'tp=1,,2' is not FIELD=VALUE,VALUE"),
        ("tp=1,x", "tp = 'x'; it must be a whole number"),
        ("schedule=1f1b,zb9", "unknown schedule 'zb9'"),
        ("tq=1", "unknown field of a strategy 'tq'"),
        ("a" * 10_000, "has 10000 characters"),
    ],
)
def test_bad_values_to_vary_are_one_line(text, words):
    with pytest.raises(InputError) as caught:
        parse_varied(text)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 300


@given(st.text(max_size=40))
def test_no_text_to_vary_raises_anything_else(text):
    with contextlib.suppress(InputError):
        assert parse_varied(text)[1]
