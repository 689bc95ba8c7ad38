"""Bubble and micro-batches in flight in closed form against walks of the published orders of operations, exactly.

A seeded sample runs with the tests, the whole grid with `make evidence`.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from linkscale.estimate.pipeline import bubble_s, chunks_in_flight
from tests.oracles import orders
from tests.oracles.walk import walk

# Forward, input gradients, weight gradients: W <= F <= I, as in any decoder; attention has no weight gradients.
PARTS = [(2, 2, 2), (2, 3, 2), (2, 4, 2), (2, 3, 1), (3, 4, 2), (4, 5, 3), (4, 7, 3), (4, 4, 1), (9, 11, 8), (6, 9, 1)]
ONE_CHUNK = {"gpipe": orders.gpipe, "1f1b": orders.one_f_one_b, "zb-h1": orders.zb_h1, "dualpipe": orders.dualpipe}


def grid():
    for pp in range(2, 9):
        for micro_batches in range(1, 4 * pp + 1):
            yield from ((name, pp, 1, micro_batches) for name in ("gpipe", "1f1b", "zb-h1"))
            yield "zb-v", pp, 2, micro_batches
            if pp % 2 == 0 and micro_batches % 2 == 0 and micro_batches >= 2 * pp:
                yield "dualpipe", pp, 1, micro_batches
            if micro_batches % pp == 0:
                yield from (
                    (name, pp, vpp, micro_batches)
                    for vpp in (2, 3, 4)
                    for name in ("interleaved-torch", "interleaved-megatron")
                )


def sample(share):
    chosen = random.Random(0)
    for case in grid():
        name = "-".join(map(str, case))
        yield pytest.param(*case, id=name, marks=() if chosen.random() < share else pytest.mark.evidence)


def published(name, pp, vpp, micro_batches):
    if name == "interleaved-megatron":
        pytest.importorskip("megatron.core", reason="megatron-core is not installed: its table cannot be walked")
        return orders.interleaved_megatron(pp, vpp, micro_batches)
    if name == "interleaved-torch":
        return orders.interleaved_torch(pp, vpp, micro_batches)
    return orders.zb_v(pp, micro_batches) if name == "zb-v" else ONE_CHUNK[name](pp, micro_batches)


def array(value):
    return np.array([float(value)])


def bubble(name, pp, vpp, micro_batches, forward, dgrad, wgrad):
    """Of equal stages."""
    others = pp - 1
    found = bubble_s(
        array(others * (forward + dgrad + wgrad)), array(others * forward), array(others * wgrad), array(pp),
        array(vpp), array(micro_batches), "1f1b" if name.startswith("interleaved") else name,
    )  # fmt: skip
    return float(found[0])


@pytest.mark.filterwarnings("ignore")  # what megatron-core says of missing CUDA packages
@pytest.mark.parametrize(("name", "pp", "vpp", "micro_batches"), [*sample(0.12)])
def test_bubble_and_chunks_in_flight(name, pp, vpp, micro_batches):
    found = published(name, pp, vpp, micro_batches)
    chunks, held = pp * vpp, []
    for forward, dgrad, wgrad in PARTS:
        # A stage is cut into vpp chunks: these are seconds of a whole stage, counted in 1/vpp.
        seconds = {"F": forward, "I": dgrad, "W": wgrad, "B": dgrad + wgrad}
        walked = walk(found, chunks, [seconds] * chunks)
        ideal = micro_batches * (forward + dgrad + wgrad)
        held = walked.held
        assert walked.end / vpp - ideal == pytest.approx(bubble(name, pp, vpp, micro_batches, forward, dgrad, wgrad))
    schedule = "1f1b" if name.startswith("interleaved") else name
    closed = chunks_in_flight(array(pp), array(vpp), array(micro_batches), np.arange(float(pp)), schedule)
    assert list(closed * np.ones(pp)) == held


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("pp", "vpp", "micro_batches"), [(2, 2, 4), (4, 2, 4), (4, 3, 16), (8, 2, 8), (8, 4, 32)])
def test_two_micro_batches_side_by_side_hold_one_chunk_more(pp, vpp, micro_batches):
    pytest.importorskip("megatron.core", reason="megatron-core is not installed: its table cannot be walked")
    found = walk_held(orders.interleaved_megatron(pp, vpp, micro_batches, ahead=True), pp * vpp)
    held = chunks_in_flight(array(pp), array(vpp), array(micro_batches), np.arange(float(pp)), "1f1b", ahead=1.0)
    assert list(held) == found


def walk_held(found, chunks):
    return walk(found, chunks, [{"F": 1, "I": 1, "W": 1, "B": 2}] * chunks).held


@pytest.mark.parametrize("seed", range(40))
def test_1f1b_of_unequal_stages(seed):
    """m times the slowest stage, and the others once: exactly where the last stage is the slowest, an upper bound else.

    What a slow stage waits for behind it passes while it runs other micro-batches: it gains by what it is slower.
    """
    chosen = random.Random(seed)
    pp, micro_batches = chosen.randint(2, 8), chosen.randint(1, 24)
    times = [chosen.randint(1, 9) for _ in range(pp)]
    slowest = max(times)
    last = pp - 1 - times[::-1].index(slowest)
    found = walk(orders.one_f_one_b(pp, micro_batches), pp, [{"F": t, "B": 2 * t} for t in times]).end
    bound = 3 * (micro_batches * slowest + sum(times) - slowest)
    assert bound - 3 * sum(slowest - t for t in times[last:]) <= found <= bound
    times[-1] = slowest
    bound = 3 * (micro_batches * slowest + sum(times) - slowest)
    assert walk(orders.one_f_one_b(pp, micro_batches), pp, [{"F": t, "B": 2 * t} for t in times]).end == bound
