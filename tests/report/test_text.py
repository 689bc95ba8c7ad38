"""Numbers as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkscale.report.bars import FREE, Segment, cells, stacked
from linkscale.report.text import count, duration, gigabits, large, significant, size


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (5.43219, "5.432"), (9.9999, "10.00"), (99999.5, "100,000"), (0.00123456, "0.001235"), (-2.5, "-2.500"),
     (float("inf"), "inf")],
)  # fmt: skip
def test_significant_digits(value, text):
    assert significant(value) == text


@given(st.floats(1e-9, 1e15))
def test_significant_digits_keep_the_value(value):
    assert float(significant(value).replace(",", "")) == pytest.approx(value, rel=1e-3)


def test_units_follow_the_size():
    assert [duration(s) for s in (12.0, 0.5, 3e-6, 0.0)] == ["12.0 s", "500 ms", "3.00 us", "0"]
    assert [size(b) for b in (512, 2e3, 134_217_728, 80e9, 3e12)] == [
        "512 B",
        "2.00 kB",
        "134 MB",
        "80.0 GB",
        "3.00 TB",
    ]
    assert gigabits(900e9 / 2) == "3,600 Gb/s"
    assert gigabits(115_200e9 / 8) == "115,200 Gb/s"
    assert large(16_777_216) == "16.78 M"
    assert [count(n) for n in (25.0, 16128.0, 2.5)] == ["25", "16,128", "2.50"]


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=12), st.integers(1, 200))
def test_a_bar_is_exactly_as_wide_as_asked(values, width):
    shares = cells(values, width)
    assert sum(shares) == (width if sum(values) > 0 else 0)
    assert all(abs(n - v / sum(values) * width) < 1 for n, v in zip(shares, values, strict=True) if sum(values) > 0)
    assert stacked([Segment(FREE, v) for v in values], width).cell_len == sum(shares)
