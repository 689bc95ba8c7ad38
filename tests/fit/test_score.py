"""Scoring is arithmetic on runs: known answers, and laws of the summaries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkscale.base.errors import InputError, LinkscaleError
from linkscale.fit.score import Prediction, Row, errors, source_weighted, validate_runs, weighted_median
from linkscale.plan.resolve import Case
from linkscale.readers.runs import Runs, read_runs

RUNS = read_runs(Path(__file__).parents[1] / "data" / "runs_sample.csv")


def twice_as_slow(cases: Sequence[Case]) -> list[Prediction | LinkscaleError]:
    return [Prediction(step_s=2 * (c.measured_step_s or 1.0), p10_s=0.1, p90_s=1.0, memory_bytes=None) for c in cases]


def row(source: str, predicted: float, measured: float = 1.0) -> Row:
    return Row(
        id=f"{source}-{predicted}", source_key=source, status="predicted", reason=None, measured_step_s=measured,
        predicted_step_s=predicted, p10_s=predicted, p90_s=predicted, measured_memory_bytes=None,
        predicted_memory_bytes=None,
    )  # fmt: skip


def test_a_predictor_that_is_twice_as_slow_errs_by_one():
    validation = validate_runs(RUNS, twice_as_slow)
    step = validation.summary.step
    assert step is not None
    assert (step.median, step.mean, step.p90, step.bias) == pytest.approx((1.0, 1.0, 1.0, 1.0))
    assert validation.summary.source_weighted_median == pytest.approx(1.0)


def test_every_row_of_the_file_is_accounted_for_in_its_order():
    validation = validate_runs(RUNS, twice_as_slow)
    summary = validation.summary
    assert [r.id for r in validation.rows] == [record.id for record in RUNS.records]
    assert summary.predicted + summary.unresolved == summary.rows == len(RUNS.records)
    assert sum(group.rows for group in summary.groups) == summary.rows
    assert sum(reason.rows for reason in summary.reasons) == summary.unresolved
    assert all((r.reason is None) == (r.status == "predicted") for r in validation.rows)


def test_runs_are_grouped_by_any_column():
    groups = validate_runs(RUNS, twice_as_slow, by="pp").summary.groups
    assert {"1", "8", "not stated"} <= {group.name for group in groups}


def test_a_predictor_that_fails_on_a_run_gives_its_reason():
    def fails(cases: Sequence[Case]) -> list[Prediction | LinkscaleError]:
        return [InputError("no such thing") for _ in cases]

    validation = validate_runs(RUNS, fails)
    assert validation.summary.predicted == 0
    assert validation.summary.step is None
    assert "no such thing" in {r.reason for r in validation.rows}


def test_no_rows_no_figures():
    summary = validate_runs(Runs(records=(), bad=()), twice_as_slow).summary
    assert (summary.rows, summary.step, summary.source_weighted_median, summary.groups) == (0, None, None, ())


@given(st.lists(st.floats(-0.9, 10.0), min_size=1, max_size=40))
def test_errors_agree_with_numpy(signed):
    found = errors(signed)
    assert found is not None
    sizes = np.abs(signed)
    expected = (np.median(sizes), np.mean(sizes), np.quantile(sizes, 0.9), np.mean(signed))
    assert (found.median, found.mean, found.p90, found.bias) == pytest.approx(expected)


@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=9), st.integers(2, 50))
def test_repeating_a_source_does_not_change_what_all_sources_say(predicted, times):
    others = [row("b", 1.3), row("c", 0.8), row("d", 1.1)]
    once = [row("a", value) for value in predicted]
    assert source_weighted(once * times + others) == pytest.approx(source_weighted(once + others))


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0.1, 5)), min_size=1, max_size=30))
def test_a_weighted_median_has_half_of_the_weight_on_either_side(pairs):
    median = weighted_median(pairs)
    total = sum(weight for _, weight in pairs)
    assert sum(weight for value, weight in pairs if value <= median) >= total / 2 * (1 - 1e-9)
    assert sum(weight for value, weight in pairs if value >= median) >= total / 2 * (1 - 1e-9)
