"""One test per sentence on tensor-parallel overlap in docs/explanation/overlap.md."""

from __future__ import annotations

import pytest

from linkscale.estimate.tensor_parallel import BULK_SMS
from tests.estimate.clusters import estimate, message

LAYOUT = {"tp": 8, "dp": 2}


def exposed(**choices: object) -> float:
    return float(estimate(16, **LAYOUT, **choices).breakdown_s["tp"][0])


def test_with_sequence_parallelism_three_gathers_and_two_scatters_without_it_two_reductions() -> None:
    """Beside the layers: the lookup and the head, one exchange each way, and the head's input once more."""
    pairs, edges, micro_batches = 24 * 2, 2, 8
    rows = [m for m in estimate(16, **LAYOUT).messages if m.group_name == "tp" and m.what == "activations"]
    calls = {m.kind: float(m.count[0]) / micro_batches - edges for m in rows}
    assert calls == {"all_gather": 3 * pairs + 1, "reduce_scatter": 2 * pairs}
    plain = estimate(16, **LAYOUT, sequence_parallel=False)
    assert message(plain, "tp", "activations")[1] == (2 * pairs + edges) * micro_batches


def test_none_exposes_every_call() -> None:
    found = estimate(16, **LAYOUT, tp_overlap="none", recompute="none")
    calls = sum(float(m.time_s[0]) for m in found.messages if m.group_name == "tp")
    assert found.breakdown_s["tp"][0] == pytest.approx(calls)


@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_async_hides_some_of_backward_and_nothing_of_forward(sequence_parallel: bool) -> None:
    none = estimate(16, **LAYOUT, tp_overlap="none", sequence_parallel=sequence_parallel).units.layer
    some = estimate(16, **LAYOUT, tp_overlap="async", sequence_parallel=sequence_parallel).units.layer
    assert some.tp.forward_s == none.tp.forward_s
    assert some.tp.backward_s < none.tp.backward_s


def test_bulk_hides_what_async_does_on_fewer_multiprocessors() -> None:
    found = [estimate(16, **LAYOUT, tp_overlap=kind) for kind in ("bulk", "async")]
    bulk, async_ = (one.units for one in found)
    tensor = found[0].within.tensor
    assert bulk.tp_hidden_s[0] == async_.tp_hidden_s[0]
    assert bulk.layer.tp.forward_s[0] == async_.layer.tp.forward_s[0]
    assert float(max(tensor.gather.sms[0], tensor.reduce.sms[0])) > BULK_SMS
    assert bulk.layer.tp.backward_s[0] < async_.layer.tp.backward_s[0]


def test_ring_hides_more_and_never_its_first_piece() -> None:
    ring, blocking = exposed(tp_overlap="ring"), exposed(tp_overlap="none")
    assert ring < exposed(tp_overlap="async") < blocking
    forward = estimate(16, **LAYOUT, tp_overlap="ring").units.layer.tp.forward_s[0]
    whole = estimate(16, **LAYOUT, tp_overlap="none").units.layer.tp.forward_s[0]
    assert forward > whole / LAYOUT["tp"]


def test_deepspeed_pays_the_latency_of_every_parameter() -> None:
    plain = {"tp": 1, "dp": 64, "sequence_parallel": False, "sharding": "zero3"}
    by_parameter = message(estimate(64, **plain, stack="deepspeed"), "dp", "parameters")
    by_layer = message(estimate(64, **plain, stack="fsdp1"), "dp", "parameters")
    assert by_parameter[1] > by_layer[1]
    assert by_parameter[1] * by_parameter[2] > by_layer[1] * by_layer[2]


def test_hsdp_also_reduces_over_its_replicas() -> None:
    plain = {"tp": 1, "dp": 64, "sequence_parallel": False, "stack": "fsdp2"}
    shards = message(estimate(64, **plain, sharding="hsdp", shard_domain=8), "dp", "gradient shards")
    none = message(estimate(64, **plain, sharding="zero3"), "dp", "gradient shards")
    assert shards[1] * shards[2] > 0
    assert none[1] * none[2] == 0
