"""Context parallelism: what it moves, what it hides, and that the work stays the same."""

from __future__ import annotations

import msgspec
import pytest

from linkscale.plan.strategy import CpComm
from linkscale.profile import shipped_profile
from tests.estimate.clusters import GPT, estimate, message

QUIET = msgspec.structs.replace(shipped_profile("ampere"), jitter=0.0)
LONG = {"seq_len": 65536, "profile": QUIET, "sharding": "zero1"}
GROUPED = msgspec.structs.replace(GPT, kv_heads=8)


def test_a_ring_passes_keys_and_values_of_one_peer_at_a_time() -> None:
    found = estimate(8, arch=GROUPED, tp=1, cp=4, dp=8, **LONG)
    size, count, _, _ = message(found, "cp", "keys and values")
    assert size == 2 * 2 * 8 * 128 * 65536 / 4  # keys and values, 16 bits, 8 heads of 128, a quarter of the tokens
    assert count == 24 * (3 + 3)  # forward and backward
    assert message(found, "cp", "gradients of keys and values")[:2] == (size, 24 * 3)


def test_long_sequences_hide_the_ring_and_short_ones_do_not() -> None:
    hidden = estimate(8, tp=1, cp=4, dp=8, nic_gbps=200.0, **LONG)
    exposed = estimate(8, tp=1, cp=16, dp=8, nic_gbps=5.0, **{**LONG, "seq_len": 4096})
    assert hidden.breakdown_s["cp"][0] == 0.0
    assert exposed.breakdown_s["cp"][0] > 0.5 * exposed.breakdown_s["compute"][0]


@pytest.mark.parametrize("how", ["all_gather", "a2a"])
def test_gathered_and_traded_keys_are_exposed(how: CpComm) -> None:
    found = estimate(8, tp=1, cp=4, dp=8, cp_comm=how, **LONG)
    rows = [m for m in found.messages if m.group_name == "cp"]
    assert found.breakdown_s["cp"][0] == pytest.approx(sum(m.exposed_s[0] for m in rows))
    for row in rows:
        assert row.exposed_s[0] == pytest.approx(row.time_s[0])
    assert [int(m.count[0]) for m in rows] == [2 * 24, (2 if how == "a2a" else 1) * 24]


def test_ulysses_moves_less_than_gathering_where_heads_are_not_grouped() -> None:
    traded = estimate(8, tp=1, cp=8, dp=8, cp_comm="a2a", **LONG)
    gathered = estimate(8, tp=1, cp=8, dp=8, cp_comm="all_gather", **LONG)
    assert traded.breakdown_s["cp"][0] < gathered.breakdown_s["cp"][0]


def test_work_is_shared_evenly() -> None:
    """Twice the ranks, half the products of each; attention's kernels lose a little on shorter pieces."""
    two, four = (estimate(8, tp=1, cp=c, dp=8, cp_comm="all_gather", **LONG).breakdown_s["compute"][0] for c in (2, 4))
    assert two / four == pytest.approx(2.0, rel=0.05)


def test_activations_are_shared_and_weights_are_not() -> None:
    one, four = (estimate(8, tp=1, cp=c, dp=8, **{**LONG, "sharding": "none"}) for c in (1, 4))
    assert one.memory.activations[0] == pytest.approx(4 * four.memory.activations[0])
    assert one.memory.weights[0] == four.memory.weights[0]


def test_gradients_are_reduced_over_context_ranks_too() -> None:
    found = estimate(8, tp=2, cp=4, dp=8, **LONG)
    group = next(m.geometry for m in found.messages if m.what == "gradients")
    assert group.size[0] == 32


def test_ranks_inside_the_domain_exchange_faster() -> None:
    layout = {"cp": 2, "dp": 8, "cp_comm": "all_gather", **LONG}
    inside, across = estimate(8, tp=4, **layout), estimate(8, tp=8, **layout)
    # Per byte: tp 8 leaves each rank half the keys of tp 4, but its cp neighbour is in another node.
    seconds = [f.breakdown_s["cp"][0] / message(f, "cp", "keys and values")[0] for f in (inside, across)]
    assert seconds[0] < seconds[1] / 2
