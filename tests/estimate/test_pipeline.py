"""One test per sentence of the design's pipeline point, and a brute-force walk of the schedules."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from linkscale.estimate.pipeline import bubble_s, chunks_in_flight, stage_layers
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
    assert gpipe.memory.activations[0] == pytest.approx(4 * one.memory.activations[0])


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


def test_stages_wait_for_the_slowest_link_between_two() -> None:
    """Two stages of 4 GPUs share a node; four lie on two, and every second message goes over the network."""
    inside, across = (message(estimate(16, tp=4, pp=pp, dp=1), "pp", "activations and gradients") for pp in (2, 4))
    apart = message(estimate(16, tp=4, pp=2, dp=2), "pp", "activations and gradients")
    assert across[2] == apart[2] > inside[2]


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
    assert split.between[0] == (between if pp > 2 else 0)
    assert between <= max(0, pp - 2) * split.middle[0]
    assert between > max(0, pp - 2) * (split.middle[0] - 1) or pp <= 2
    assert 0 < split.first[0] <= split.middle[0] + (pp <= 2)


def test_short_stages_leave_bubbles_for_the_layers_they_hold() -> None:
    """80 layers on 12 stages of 7 or fewer: the other stages hold 73 together, not 11 times 7."""
    arch = msgspec.structs.replace(EVEN, layers=80)
    found = estimate(arch=arch, profile=QUIET, tp=1, pp=12, dp=1, global_batch=24)
    compute, host = (float(found.breakdown_s[key][0]) / 24 for key in ("compute", "input_host"))
    hops = 2 * 11 * message(found, "pp", "activations and gradients")[2]
    assert found.breakdown_s["bubble"][0] - hops == pytest.approx((compute + host) * 73 / 7, rel=0.01)


def test_a_stage_recomputes_the_layers_it_is_asked_to_where_it_has_them() -> None:
    """26 layers on 4 stages: 6, 7, 7 and 6. The stages between recompute 6 of their 7, the outer ones all of theirs."""
    layout = {"tp": 1, "pp": 4, "dp": 1, "global_batch": 8, "recompute": "full", "profile": QUIET}
    arch = msgspec.structs.replace(EVEN, layers=26)
    part, whole = (estimate(arch=arch, **layout, recompute_layers=layers) for layers in (6, 0))
    assert part.breakdown_s["recompute"][0] == pytest.approx(whole.breakdown_s["recompute"][0] * 6 / 7)


def test_llama_405b_over_16_stages_is_one_layer_short_at_both_ends() -> None:
    split = stage_layers(126, np.array([16.0, 16.0]), np.array([1.0, 8.0]))
    assert list(split.first) == list(split.last) == [7.0, 7.0]
    assert list(split.middle) == [8.0, 8.0]


@pytest.mark.parametrize(
    ("layers", "pp", "vpp", "modules", "first", "last"),
    [
        (61, 1, 1, 2, 63, 63),
        (60, 4, 1, 2, 15, 17),  # what divides stays even
        # DeepSeek-V3's layouts: chunks of four layers, the rest with the module and the loss.
        (61, 16, 1, 1, 4, 1 + 1),
        (61, 8, 1, 1, 8, 5 + 1),
        (61, 4, 4, 1, 16, 13 + 1),
        (61, 2, 8, 1, 32, 29 + 1),
        # Eight stages of two would leave nothing to the last one.
        (9, 8, 1, 1, 1, 1 + 1),
    ],
)
def test_prediction_layers_come_on_top_of_the_last_stage(
    layers: int, pp: int, vpp: int, modules: int, first: int, last: int
) -> None:
    split = stage_layers(layers, np.array([float(pp)]), np.array([float(vpp)]), modules)
    assert (split.first[0], split.last[0]) == (first, last)
    assert pp == 1 or split.first[0] + split.last[0] + split.between[0] == layers + modules


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
    warm = min(total, (pp - stage - 1) * 2 + (vpp - 1) * pp)
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


def walk_zero_bubble(pp: int, m: int) -> int:
    """Makespan of a greedy schedule with F = B = W = 1: backward first, then forward within 1F1B's memory.

    Weight gradients run where nothing else can. B here is the input gradient alone.
    """
    forward = [[-1] * m for _ in range(pp)]
    backward = [[-1] * m for _ in range(pp)]
    done_f, done_b, done_w = [0] * pp, [0] * pp, [0] * pp
    clock = 0
    while min(done_w) < m:
        moves = []
        for stage in range(pp):
            f, b = done_f[stage], done_b[stage]
            up = stage == pp - 1 or (b < m and 0 <= backward[stage + 1][b] <= clock)
            down = stage == 0 or (f < m and 0 <= forward[stage - 1][f] <= clock)
            if b < f and up and 0 <= forward[stage][b] <= clock:
                moves.append((stage, "b"))
            elif f < m and down and f - done_w[stage] < pp:
                moves.append((stage, "f"))
            elif done_w[stage] < b:
                moves.append((stage, "w"))
        clock += 1
        for stage, phase in moves:
            if phase == "f":
                forward[stage][done_f[stage]] = clock
                done_f[stage] += 1
            elif phase == "b":
                backward[stage][done_b[stage]] = clock
                done_b[stage] += 1
            else:
                done_w[stage] += 1
    return clock


@pytest.mark.parametrize("pp", [2, 4, 6])
@pytest.mark.parametrize("m", [8, 16])
def test_zero_bubble_against_a_walk(pp: int, m: int) -> None:
    one = np.ones(1)
    others = 3.0 * (pp - 1) * one  # F + B + W of the other stages
    closed = bubble_s(others, (pp - 1.0) * one, (pp - 1.0) * one, pp * one, one, m * one, "zb-h1")[0]
    assert closed == pp - 1
    # Greedy loses at most two units to the published, hand-placed order; 1F1B would idle 3 (pp - 1).
    assert closed <= walk_zero_bubble(pp, m) - 3 * m <= closed + 2


@pytest.mark.parametrize(("schedule", "bubble"), [("1f1b", 21.0), ("zb-h1", 7.0), ("zb-v", 3.5), ("dualpipe", 6.0)])
def test_bubbles_of_equal_parts(schedule: str, bubble: float) -> None:
    """Eight stages, forward 1, backward 2 of which weight gradients 1 (DeepSeek-V3 report, table 2; F&B = 3).

    A stage of ZB-V is never idle between its first operation and its last, but the first stage is through seven half
    stages before the last one, and the gradient norm waits for it.
    """
    one, vpp = np.ones(1), 2.0 if schedule == "zb-v" else 1.0
    found = bubble_s(21.0 * one, 7.0 * one, 7.0 * one, 8.0 * one, vpp * one, 16.0 * one, schedule)[0]
    assert found == pytest.approx(bubble)


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-v", "dualpipe"])
def test_filling_bubbles_with_weight_gradients_helps(schedule: str) -> None:
    layout = {"tp": 1, "pp": 4, "dp": 1, "global_batch": 16, "arch": EVEN}
    plain = estimate(**layout)
    filled = estimate(**layout, schedule=schedule, vpp=2 if schedule == "zb-v" else 1)
    assert filled.breakdown_s["bubble"][0] < 0.6 * plain.breakdown_s["bubble"][0]
    assert filled.breakdown_s["compute"][0] == plain.breakdown_s["compute"][0]


def test_dualpipe_holds_two_stages_of_weights() -> None:
    layout = {"tp": 1, "pp": 4, "dp": 1, "global_batch": 16, "arch": EVEN}
    plain, dual = estimate(**layout), estimate(**layout, schedule="dualpipe")
    assert dual.memory.weights[0] == 2 * plain.memory.weights[0]
    assert dual.memory.activations[0] == pytest.approx(5 / 4 * plain.memory.activations[0])


def test_recorded_graphs_take_the_host_out_of_the_way() -> None:
    small = msgspec.structs.replace(GPT, hidden=1024, heads=8, kv_heads=8, ffn_hidden=4096)
    late = [
        float(estimate(8, arch=small, tp=1, pp=1, dp=1, cuda_graphs=g).breakdown_s["input_host"][0])
        for g in ("none", "partial", "full")
    ]
    assert late[0] > late[1] > late[2] == 0.0
