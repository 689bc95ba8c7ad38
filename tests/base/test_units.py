"""Quantities: what text is worth, and what is no quantity."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkscale.base.errors import InputError
from linkscale.base.units import EXAMPLES, SYMBOLS, Unit, parse_bytes, parse_quantity


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("450 GB/s", "bytes/s", 450e9),
        ("400 Gb/s", "bytes/s", 50e9),
        ("400Gbit/s", "bytes/s", 50e9),
        ("400 Gbps", "bytes/s", 50e9),
        ("3.35 TB/s", "bytes/s", 3.35e12),
        ("80 GB", "bytes", 80e9),
        ("80 GiB", "bytes", 80 * 2**30),
        ("81559 MiB", "bytes", 81559 * 2**20),
        ("989 TFLOP/s", "flops/s", 989e12),
        ("4.5 PFLOP/s", "flops/s", 4.5e15),
        ("5 us", "s", 5e-6),
        ("5 µs", "s", 5e-6),
        ("2 h", "s", 7200.0),
        ("700 W", "W", 700.0),
        ("6.667 kW", "W", 6667.0),
        ("1.41 GHz", "Hz", 1.41e9),
        ("131072", "count", 131072.0),
        ("131,072", "count", 131072.0),
        ("128k", "count", 128e3),
        ("15T", "count", 15e12),
        ("405B", "count", 405e9),
        ("1e9", "count", 1e9),
        (".5 GB", "bytes", 0.5e9),
        (25, "bytes", 25.0),
    ],
)
def test_a_quantity_is_worth_what_its_unit_says(text, unit, value):
    assert parse_quantity(text, unit) == pytest.approx(value, rel=1e-15)


def test_bits_are_an_eighth_of_bytes_and_binary_is_not_decimal():
    assert parse_quantity("8 Gb/s", "bytes/s") == parse_quantity("1 GB/s", "bytes/s")
    assert parse_bytes("1 GiB") / parse_bytes("1 GB") == 1.073741824


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("450 GB", "bytes/s"),
        ("450 GB/s", "bytes"),
        ("400 Gb", "bytes"),
        ("80 gigabytes", "bytes"),
        ("fast", "bytes/s"),
        ("", "bytes"),
        ("1.2.3 GB", "bytes"),
        ("--3 GB", "bytes"),
        ("nan", "s"),
        ("inf GB", "bytes"),
        ("1e400 GB", "bytes"),
        ("9" * 400, "count"),
        (float("nan"), "s"),
        (float("inf"), "s"),
        (True, "count"),
        ("5 Ms", "s"),
        ("700 w", "W"),
        ("80 GB\n80 GB", "bytes"),
    ],
)
def test_what_is_no_quantity_is_refused_in_one_line_with_an_example(text, unit):
    with pytest.raises(InputError) as raised:
        parse_quantity(text, unit, "box.yaml:3")
    message = str(raised.value)
    assert message.startswith("box.yaml:3: ")
    assert "\n" not in message
    assert EXAMPLES[unit] in message


@pytest.mark.parametrize("unit", sorted(SYMBOLS))
@given(number=st.floats(0.001, 999.0).map(lambda x: round(x, 3)))
def test_every_symbol_scales_the_bare_number(unit, number):
    for symbol, factor in SYMBOLS[unit].items():
        assert parse_quantity(f"{number} {symbol}", unit) == number * factor
        assert parse_quantity(f"{number}{symbol}", unit) == number * factor


@given(st.text(max_size=30))
def test_any_text_is_a_number_or_one_line(text):
    for unit in get_args(Unit):
        told = ""
        try:
            assert abs(parse_quantity(text, unit)) < 1e30
        except InputError as error:
            told = str(error)
        assert "\n" not in told
