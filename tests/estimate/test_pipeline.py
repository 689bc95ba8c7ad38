"""One test per sentence of the design's pipeline point, and a brute-force walk of the schedules."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from linkscale.estimate.pipeline import chunks_in_flight, stage_layers
from linkscale.profile import shipped_profile
from tests.estimate.clusters import GPT, estimate, message

# A model whose embedding and head cost nothing beside its layers, so that stages are equal.
EVEN = msgspec.structs.replace(GPT, vocab=8, layers=96)
QUIET = msgspec.structs.replace(shipped_profile("ampere"), jitter=0.0)


def bubble_share(**layout: int) -> float:
    found = estimate(arch=EVEN, profile=QUIET, **layout)
    busy = sum(float(found.breakdown_s[k][0]) for k in ("compute", "recompute", "tp", "input_host"))
    return float(found.breakdown_s["bubble"][0]) / busy


@pytest.mark.parametrize(("pp", "vpp", "m"), [(4, 1, 8), (8, 1, 8), (4, 2, 16), (4, 3, 8), (8, 3, 32)])
def test_bubble_of_equal_stages(pp: int, vpp: int, m: int) -> None:
    """(pp - 1) / (vpp * m) of the ideal time (Narayanan et al. 2021, section 2.2)."""
    assert bubble_share(tp=1, pp=pp, vpp=vpp, dp=1, global_batch=m) == pytest.approx((pp - 1) / (vpp * m), rel=0.01)


def test_gpipe_has_the_bubble_of_1f1b_and_holds_all_micro_batches() -> None:
    layout = {"tp": 1, "pp": 4, "dp": 1, "global_batch": 16, "arch": EVEN}
    one, gpipe = estimate(**layout), estimate(**layout, schedule="gpipe")
    assert gpipe.breakdown_s["bubble"][0] == one.breakdown_s["bubble"][0]
    micro_batch = (gpipe.memory.activations[0] - one.memory.activations[0]) / (16 - 4)
    working = one.memory.activations[0] - 4 * micro_batch
    assert 0 < working < micro_batch


def test_messages_are_sent_vpp_times_as_often() -> None:
    layout = {"tp": 8, "pp": 4, "dp": 1, "global_batch": 16}
    once = message(estimate(**layout), "pp", "activations and gradients")
    thrice = message(estimate(**layout, vpp=3), "pp", "activations and gradients")
    assert thrice[0] == once[0]
    assert thrice[1] == 3 * once[1]


def test_messages_are_divided_by_tp_under_sequence_parallelism() -> None:
    whole = message(estimate(16, tp=1, pp=4, dp=1, sequence_parallel=False), "pp", "activations and gradients")
    part = message(estimate(16, tp=8, pp=4, dp=1), "pp", "activations and gradients")
    assert part[0] == whole[0] / 8


def test_without_sequence_parallelism_the_boundary_is_gathered_again() -> None:
    layout = {"tp": 8, "pp": 4, "dp": 1, "global_batch": 16}
    plain, split = estimate(**layout, sequence_parallel=False), estimate(**layout)
    assert message(plain, "pp", "scattered boundary")[3] > 0
    assert plain.breakdown_s["pp"][0] > split.breakdown_s["pp"][0]


def test_overlapped_messages_stay_exposed_in_warm_up_and_cool_down() -> None:
    layout = {"tp": 8, "pp": 4, "vpp": 3, "dp": 1}
    few = message(estimate(16, **layout), "pp", "activations and gradients")
    many = message(estimate(160, **layout), "pp", "activations and gradients")
    assert few[3] == many[3] == pytest.approx(2 * (4 - 1) * few[2])


def test_plain_1f1b_waits_for_its_messages() -> None:
    layout = {"tp": 8, "pp": 4, "vpp": 1, "dp": 1}
    few = message(estimate(16, **layout), "pp", "activations and gradients")
    assert few[3] == pytest.approx(2 * 16 * few[2]) == pytest.approx(few[1] * few[2])


def test_the_head_makes_the_last_stage_the_slowest() -> None:
    wide = msgspec.structs.replace(GPT, vocab=256_000)
    found = estimate(64, arch=wide, tp=8, pp=8, dp=1, profile=QUIET)
    narrow = estimate(64, arch=msgspec.structs.replace(GPT, vocab=8), tp=8, pp=8, dp=1, profile=QUIET)
    assert found.breakdown_s["compute"][0] > 1.2 * narrow.breakdown_s["compute"][0]


@pytest.mark.parametrize("layers", [24, 32, 61, 80, 96, 126])
@pytest.mark.parametrize("pp", [1, 2, 3, 4, 8, 12, 16])
def test_stages_hold_every_layer(layers: int, pp: int) -> None:
    split = stage_layers(layers, np.array([float(pp)]), np.array([1.0]))
    total = split.first[0] if pp == 1 else split.first[0] + split.last[0]
    between = layers - total
    assert between <= max(0, pp - 2) * split.middle[0]
    assert between > max(0, pp - 2) * (split.middle[0] - 1) or pp <= 2
    assert 0 < split.first[0] <= split.middle[0] + (pp <= 2)


def test_llama_405b_over_16_stages_is_one_layer_short_at_both_ends() -> None:
    split = stage_layers(126, np.array([16.0, 16.0]), np.array([1.0, 8.0]))
    assert list(split.first) == list(split.last) == [7.0, 7.0]
    assert list(split.middle) == [8.0, 8.0]


def in_flight(pp: int, vpp: int, m: int, stage: int) -> float:
    one = np.ones(1)
    return float(chunks_in_flight(pp * one, vpp * one, m * one, stage * one, "1f1b")[0])


def walk_1f1b(pp: int, m: int, stage: int) -> int:
    """Most micro-batches held: warm up pp - stage - 1, then one forward and one backward in turn."""
    held = most = 0
    warm = min(m, pp - stage - 1)
    order = ["f"] * warm + ["f", "b"] * (m - warm) + ["b"] * warm
    for phase in order:
        held += 1 if phase == "f" else -1
        most = max(most, held)
    assert held == 0
    return most


def walk_interleaved(pp: int, vpp: int, m: int, stage: int) -> int:
    """Most chunks held under Megatron's interleaved schedule: its warm-up count, then alternating."""
    total = m * vpp
    warm = total if m == pp else min(total, (pp - stage - 1) * 2 + (vpp - 1) * pp)
    held = most = 0
    for phase in ["f"] * warm + ["f", "b"] * (total - warm) + ["b"] * warm:
        held += 1 if phase == "f" else -1
        most = max(most, held)
    assert held == 0
    return most


@pytest.mark.parametrize("pp", [2, 3, 4, 8])
@pytest.mark.parametrize("m", [1, 2, 4, 8, 24])
def test_in_flight_against_a_walk_of_1f1b(pp: int, m: int) -> None:
    for stage in range(pp):
        found = in_flight(pp, 1, m, stage)
        assert found == walk_1f1b(pp, m, stage)


@pytest.mark.parametrize("pp", [2, 4, 8])
@pytest.mark.parametrize("vpp", [2, 3])
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_in_flight_against_a_walk_of_the_interleaved_schedule(pp: int, vpp: int, rounds: int) -> None:
    m = pp * rounds
    for stage in range(pp):
        found = in_flight(pp, vpp, m, stage)
        assert found == walk_interleaved(pp, vpp, m, stage)
