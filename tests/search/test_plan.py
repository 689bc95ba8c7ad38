"""search_plans: the ranking, the reasons, and what is said when there is no answer."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from linkscale.base.errors import InputError, NothingFits
from linkscale.estimate import estimate_step
from linkscale.search import Constraints, PlanResult, search_plans
from linkscale.topology import Cluster, parse_cluster
from linkscale.workload import load_architecture

ARCH = load_architecture("gpt3-6.7b")


def plans(cluster: Cluster | None = None, constraints: Constraints | None = None, top: int = 5) -> PlanResult:
    return search_plans(ARCH, cluster or parse_cluster("dgx-a100:16"), 2048, 64, constraints or Constraints(), top)


@pytest.fixture(scope="module")
def result() -> PlanResult:
    return plans()


def test_plans_are_ranked_fit_and_equal_to_their_own_estimate(result: PlanResult) -> None:
    steps = [entry.estimate.step_s for entry in result.plans]
    assert steps == sorted(steps)
    assert len(steps) == 5
    for entry in result.plans:
        assert entry.estimate.fits
        assert entry.estimate == estimate_step(ARCH, parse_cluster("dgx-a100:16"), entry.strategy, 2048, 64)


def test_the_space_adds_up(result: PlanResult) -> None:
    space = result.space
    assert space.legal == space.evaluated + space.pruned
    assert 0 < space.fit <= space.legal
    assert 0 < space.evaluated < space.legal
    assert space.axes["tp"] == [1, 2, 4, 8]


def test_the_lead_over_the_next_is_told_in_seconds(result: PlanResult) -> None:
    best, following = (entry.estimate.step_s for entry in result.plans[:2])
    told = sum(row.seconds for row in result.explanation.best_vs_next)
    assert told == pytest.approx(following - best, rel=1e-9, abs=1e-12)


def test_popular_settings_lose_for_a_reason(result: PlanResult) -> None:
    best = result.plans[0].estimate.step_s
    assert len(result.explanation.losers) > 4
    for loser in result.explanation.losers:
        assert loser.reason
        if loser.fits:
            assert loser.step_s is not None
            assert loser.step_s > best or "leaves the domain" in loser.reason
        elif loser.strategy is not None:
            assert "GB too much" in loser.reason


def test_a_setting_that_changes_nothing_does_not_lose() -> None:
    """Sequence parallelism at tp 1 has nothing to split."""
    flat = search_plans(load_architecture("gpt2"), parse_cluster("dgx-a100:8"), 1024, 64, Constraints(), 3)
    assert flat.plans[0].strategy.tp == 1
    assert "no sequence parallelism" not in {loser.label for loser in flat.explanation.losers}


def test_twice_the_sequences_save_what_they_save_for_the_batch_asked_for(result: PlanResult) -> None:
    """Half of the larger batch's step: bubbles and exchanges weigh less, computation as much."""
    (larger,) = (row for row in result.explanation.relaxations if row.limit.startswith("global batch"))
    best = result.plans[0].estimate.step_s
    doubled = search_plans(ARCH, parse_cluster("dgx-a100:16"), 2048, 128, Constraints(), 1).plans[0].estimate.step_s
    assert 0 < larger.gain < 0.5
    assert larger.step_s == pytest.approx(min(best, doubled / 2))


def test_lifting_a_limit_or_better_hardware_is_never_slower(result: PlanResult) -> None:
    explanation = result.explanation
    assert all(row.gain >= -1e-12 for row in explanation.upgrades if row.change != "NVLink domain x2")
    assert [row.gain for row in explanation.upgrades] == sorted(
        (row.gain for row in explanation.upgrades), reverse=True
    )
    memory = next(row for row in explanation.relaxations if row.limit.startswith("memory"))
    assert memory.gain >= 0
    assert {"NVLink domain x2", "NIC bandwidth x2", "HBM capacity x2"} <= {row.change for row in explanation.upgrades}


def test_the_front_holds_the_best_and_trades_time_for_memory(result: PlanResult) -> None:
    front = result.pareto
    assert front[0].strategy == result.plans[0].strategy
    rates, room = [p.tokens_per_s for p in front], [p.memory_headroom_bytes for p in front]
    assert rates == sorted(rates, reverse=True)
    assert room == sorted(room)
    assert all(headroom >= 0 for headroom in room)


def test_fewer_gpus_are_a_third_objective() -> None:
    front = plans(constraints=Constraints(gpus=(4, 8, 16))).pareto
    assert {point.gpus for point in front} == {4, 8, 16}
    for point in front:
        assert not any(
            other.tokens_per_s >= point.tokens_per_s
            and other.memory_headroom_bytes >= point.memory_headroom_bytes
            and other.gpus <= point.gpus
            for other in front if other is not point
        )  # fmt: skip


def test_only_the_clock_differs_from_run_to_run(result: PlanResult) -> None:
    def timeless(found: PlanResult) -> bytes:
        return msgspec.json.encode(replace(found, space=replace(found.space, seconds=0.0)))

    assert timeless(plans()) == timeless(result)


def test_a_result_survives_json(result: PlanResult) -> None:
    assert msgspec.json.decode(msgspec.json.encode(result), type=PlanResult) == result


def test_a_fixed_field_is_named_where_it_binds(result: PlanResult) -> None:
    found = plans(constraints=Constraints(tp=1, pp=16))
    assert {(entry.strategy.tp, entry.strategy.pp) for entry in found.plans} == {(1, 16)}
    assert "as asked" in found.explanation.binding
    lifted = {row.limit for row in found.explanation.relaxations}
    assert {"tp = 1 as asked", "pp = 16 as asked"} <= lifted


@pytest.mark.parametrize("fixed", [{"recompute_layers": 4}, {"shard_domain": 8}])
def test_a_fixed_number_is_held_though_only_some_choices_use_it(fixed: dict[str, int]) -> None:
    (entry,) = plans(constraints=Constraints(**fixed), top=1).plans
    assert {name: getattr(entry.strategy, name) for name in fixed} == fixed


def test_a_fixed_number_that_the_fixed_choice_does_not_use_is_refused() -> None:
    with pytest.raises(InputError, match="recompute_layers = 4 belongs to recompute full, but recompute is none"):
        plans(constraints=Constraints(recompute="none", recompute_layers=4))


def test_nothing_fits_says_what_is_short_and_what_would_fit() -> None:
    with pytest.raises(NothingFits) as error:
        search_plans(load_architecture("gpt3-175b"), parse_cluster("dgx-a100:8"), 2048, 512)
    text = str(error.value)
    assert error.value.exit_code == 1
    assert "\n" not in text
    assert "GB too much" in text
    assert "such GPUs fit it (" in text


def test_nothing_fits_under_a_fixed_field_says_what_fits_without_it() -> None:
    with pytest.raises(NothingFits, match=r"without stack = ddp it fits \(\w+ "):
        plans(constraints=Constraints(stack="ddp"))


def test_no_legal_strategy_is_bad_input_with_the_rule_that_forbids_it() -> None:
    with pytest.raises(InputError, match="attention heads do not divide by tp = 7"):
        search_plans(ARCH, parse_cluster("dgx-a100:7"), 2048, 64, Constraints(tp=7))


def test_a_memory_limit_below_everything_is_what_is_short() -> None:
    with pytest.raises(NothingFits, match=r"nothing fits in 2\.0 GB per GPU"):
        plans(constraints=Constraints(max_memory_bytes=2e9))


@pytest.mark.parametrize(
    "bad", [{"tp": 0}, {"micro_batch": -1}, {"bucket_bytes": -5}, {"max_memory_bytes": 0.0}, {"gpus": (0,)}]
)
def test_nonsense_is_refused(bad: dict[str, int]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        Constraints(**bad)  # type: ignore[arg-type]


def test_more_gpus_than_there_are_is_refused() -> None:
    with pytest.raises(InputError, match="has 16"):
        plans(constraints=Constraints(gpus=(32,)))
