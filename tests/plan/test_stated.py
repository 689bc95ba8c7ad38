"""Fields of a strategy as text."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkscale.base.errors import InputError
from linkscale.plan.stated import parse_stated
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
