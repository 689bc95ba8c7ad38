"""Why a layout is not chosen: the six answers on real models, and laws that hold between them and the plans."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import pytest

from linkscale.base.errors import InputError
from linkscale.search import Constraints, PlanResult, search_plans
from linkscale.search.result import Why
from linkscale.topology import parse_cluster
from linkscale.workload import load_architecture

Fields = dict[str, Any]
NOBODY = Constraints()


def plans(*why: Fields, constraints: Constraints = NOBODY, global_batch: int = 64) -> PlanResult:
    arch, cluster = load_architecture("gpt3-6.7b"), parse_cluster("dgx-a100:16")
    return search_plans(arch, cluster, 2048, global_batch, constraints, 3, why=why)


@cache
def free() -> PlanResult:
    return plans()


def why(fields: Fields, constraints: Constraints = NOBODY, global_batch: int = 64) -> Why:
    (found,) = plans(fields, constraints=constraints, global_batch=global_batch).why
    assert found.asked == fields
    return found


def test_no_strategy_has_the_fields() -> None:
    found = why({"tp": 7})
    assert found.answer == "illegal"
    assert found.strategy is None
    assert found.reason == "16 GPUs do not divide by tp = 7; use 14 or 21 GPUs, or other degrees"


def test_the_broken_rule_is_that_of_the_fields_and_not_of_a_default_for_the_free_ones() -> None:
    """With the default pp = 1 any interleaving is refused for want of a pipeline; pp is free, so that is no reason."""
    found = why({"vpp": 5}, Constraints(pp=2))
    assert "32 layers do not divide by pp*vpp = 2*5" in found.reason
    assert found.reason == why({"vpp": 5, "pp": 2}).reason


def test_a_field_that_only_some_choices_use_is_refused_beside_the_others() -> None:
    assert "belongs to recompute full" in why({"recompute": "none", "recompute_layers": 4}).reason


def test_arithmetic_that_the_gpu_has_not_is_no_error() -> None:
    found = why({"precision": "fp8"})
    assert found.answer == "illegal"
    assert "has no fp8 matrix unit" in found.reason


def test_nothing_with_the_fields_fits() -> None:
    found = why({"stack": "ddp", "tp": 1})
    assert found.answer == "short"
    assert found.strategy is not None
    assert found.strategy.stack == "ddp"
    assert "GB per GPU" in found.reason
    assert "too much" in found.reason
    assert found.memory[0].key == "optimizer"
    growth = [part.size_bytes - part.best_bytes for part in found.memory]
    assert growth == sorted(growth, reverse=True)
    assert sum(part.best_bytes for part in found.memory) == free().plans[0].estimate.memory_bytes.total
    assert found.way_out.startswith("without stack = ddp it fits (")


def test_what_more_gpus_would_do_is_looked_at_where_one_field_is_asked_about() -> None:
    assert why({"stack": "ddp"}).way_out.startswith("not even 64 such GPUs fit it")


def test_the_best_plan_has_the_fields() -> None:
    best = free().plans[0]
    found = why({"tp": best.strategy.tp})
    assert (found.answer, found.strategy, found.ratio) == ("chosen", best.strategy, 1.0)


def test_the_fields_change_nothing() -> None:
    """Sequence parallelism at tp 1 has nothing to split."""
    arch, cluster = load_architecture("gpt2"), parse_cluster("dgx-a100:8")
    (found,) = search_plans(arch, cluster, 1024, 64, top=1, why=[{"sequence_parallel": False}]).why
    assert (found.answer, found.ratio) == ("equal", 1.0)
    assert [departure.field for departure in found.departures] == ["sequence_parallel"]


def test_the_best_with_the_fields_is_slower() -> None:
    best, found = free().plans[0], why({"pp": 16})
    assert found.answer == "slower"
    assert found.strategy is not None
    assert found.step_s is not None
    assert found.strategy.pp == 16
    assert found.ratio == found.step_s / best.estimate.step_s
    assert sum(row.seconds for row in found.differences) == pytest.approx(found.step_s - best.estimate.step_s)
    assert [abs(row.seconds) for row in found.differences] == sorted(
        (abs(row.seconds) for row in found.differences), reverse=True
    )
    assert {departure.field: departure.value for departure in found.departures}["pp"] == 16
    assert all(getattr(best.strategy, d.field) == d.best != d.value for d in found.departures)


def test_memory_is_named_where_it_is_what_holds_the_fields_back() -> None:
    found = why({"pp": 1}, Constraints(stack="megatron", max_memory_bytes=30e9))
    assert found.answer == "slower"
    assert found.unlimited.endswith("GB too much")
    assert why({"pp": 2}).unlimited == ""


@pytest.mark.parametrize(("fields", "inside"), [({"pp": 2}, True), ({"recompute": "full", "pp": 16}, False)])
def test_whether_the_estimate_can_tell_is_told(fields: Fields, inside: bool) -> None:
    present, found = free().plans[0].estimate, why(fields)
    assert found.step_s is not None
    assert found.inside_interval is inside
    assert (found.step_s <= present.p90_s) is inside


@pytest.mark.parametrize(
    ("fields", "global_batch", "cause"),
    [
        ({"tp": 16}, 1, "it leaves the domain"),
        ({"grad_dtype": "bf16"}, 64, "plan searches only grad_dtype fp32"),
        ({"stack": "megatron", "compile": True}, 64, "plan does not combine these"),
    ],
)
def test_what_is_faster_was_left_out_of_the_space(fields: Fields, global_batch: int, cause: str) -> None:
    found = why(fields, global_batch=global_batch)
    assert found.answer == "faster"
    assert found.ratio is not None
    assert found.ratio < 1
    assert found.reason.endswith(f"if its estimate holds; left out unless asked for, as {cause}")


def test_the_plans_own_constraints_hold() -> None:
    found = why({"pp": 4}, Constraints(tp=2, gpus=(8,)))
    assert found.strategy is not None
    assert (found.strategy.tp, found.strategy.gpus) == (2, 8)


def test_what_contradicts_a_constraint_is_refused() -> None:
    with pytest.raises(InputError, match="why tp = 4: the plan holds tp = 8 fixed"):
        plans({"pp": 1}, {"pp": 2, "tp": 4}, constraints=Constraints(tp=8))


@pytest.mark.parametrize("place", range(3))
def test_a_ranked_plan_asked_about_whole_is_found_again(place: int) -> None:
    """Law: the best plan's own fields are the chosen ones; another's give that plan and its own step time."""
    entry = free().plans[place]
    found = why(msgspec.structs.asdict(entry.strategy))
    assert found.answer == ("slower" if place else "chosen")
    assert (found.strategy, found.step_s) == (entry.strategy, entry.estimate.step_s)


def test_each_field_of_the_best_plan_is_the_chosen_one() -> None:
    fields = msgspec.structs.asdict(free().plans[0].strategy)
    answers = plans(*({name: value} for name, value in fields.items())).why
    assert [found.asked for found in answers] == [{name: value} for name, value in fields.items()]
    assert {found.answer for found in answers} == {"chosen"}


def test_a_result_with_answers_survives_json() -> None:
    result = plans({"tp": 7}, {"stack": "ddp"}, {"pp": 16}, {"pp": 16})
    assert result.why[2] == result.why[3]
    assert msgspec.json.decode(msgspec.json.encode(result), type=PlanResult) == result
