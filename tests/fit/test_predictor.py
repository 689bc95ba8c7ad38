"""The estimator as a predictor: batches give what single estimates give, and the papers' tables are met."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkscale.estimate import estimate_step
from linkscale.fit.predictor import Estimator
from linkscale.fit.score import Prediction, validate_runs
from linkscale.plan.resolve import Case, resolve
from linkscale.readers.runs import read_runs

from accuracy import first

RUNS = read_runs(Path(__file__).parents[1] / "data" / "runs_sample.csv")
CASES = [found for record in RUNS.records if isinstance(found := resolve(record), Case)]


def test_a_batch_of_runs_gives_what_each_gives_alone():
    together = Estimator()(CASES)
    assert len(CASES) > 60
    for case, found in list(zip(CASES, together, strict=True))[::5]:
        alone = estimate_step(case.architecture, case.cluster, case.strategy, case.seq_len, case.global_batch)
        assert isinstance(found, Prediction)
        assert (found.step_s, found.p10_s, found.p90_s) == (alone.step_s, alone.p10_s, alone.p90_s)


def test_memory_is_compared_with_what_the_source_measured():
    stated = [case for case in CASES if case.measured_memory_bytes]
    assert {case.memory_kind for case in stated} == {"device", "reserved"}
    for case, found in zip(stated, Estimator()(stated), strict=True):
        alone = estimate_step(case.architecture, case.cluster, case.strategy, case.seq_len, case.global_batch)
        expected = alone.device_bytes if case.memory_kind == "device" else alone.reserved_bytes
        assert isinstance(found, Prediction)
        assert found.memory_bytes == expected


FIGURES = {figure["name"]: figure for figure in first.figures(first.scored(RUNS, validate_runs(RUNS, Estimator())))}


@pytest.mark.parametrize(
    ("figure", "runs", "limit"),
    [
        ("Korthikanti et al. 2022, mean", 9, 0.06),
        ("Megatron tables on A100, mean", 41, 0.10),
        ("dense runs, median, every source weighing the same", 130, 0.15),
    ],
)
def test_the_promised_accuracy_is_kept_on_the_sample(figure, runs, limit):
    found = FIGURES[figure]
    assert found["at_most"] == limit
    assert found["runs"] >= runs
    assert found["value"] <= limit
