"""Host memory: rates against what was measured, what leaves the device, what an update there takes."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from linkscale.base.errors import InputError
from linkscale.cost.memory import HeldParams, state_bytes
from linkscale.cost.offload import Host, host, host_update_s, needed_host, offloaded_state, on_device
from linkscale.plan.strategy import Choices, Sharding
from linkscale.topology import parse_cluster

ONE = np.ones(1)


@pytest.mark.parametrize(
    ("place", "measured"),
    [("hgx-h200:8", 55.43e9), ("gb300-nvl72:1", 359e9)],  # one GPU has a Grace's memory to itself
)
def test_links_reach_what_was_measured(place: str, measured: float) -> None:
    """Pinned copies: stas00/ml-engineering, network/README.md."""
    assert host(parse_cluster(place)).link_bytes_per_s == pytest.approx(measured, rel=0.02)


def test_gpus_of_a_node_share_its_memory() -> None:
    """Two Grace of 512 GB/s for four GPUs: less than the link of each."""
    found = host(parse_cluster("gb200-nvl72:72"))
    assert found.memory_bytes_per_s == pytest.approx(0.8 * 2 * 512e9 / 4)
    assert found.link_bytes_per_s == found.memory_bytes_per_s
    assert (
        host(parse_cluster("dgx-h100:1")).memory_bytes_per_s == 8 * host(parse_cluster("dgx-h100:8")).memory_bytes_per_s
    )


def test_what_the_catalogue_does_not_know_is_told() -> None:
    with pytest.raises(InputError, match="does not know the host memory"):
        needed_host(parse_cluster("mi300x:8"), Choices(offload_optimizer=True))
    with pytest.raises(InputError, match="no link to its host"):
        needed_host(parse_cluster("tpu-v4-pod:8"), Choices())
    assert needed_host(parse_cluster("mi300x:8"), Choices()).memory_bytes_per_s == 0.0


def test_an_update_streams_host_memory() -> None:
    """fp32 gradient, master and two moments read, master, moments and a 16-bit weight written, a norm: 34 bytes."""
    choices = Choices(sharding="zero1", offload_optimizer=True)
    assert float(host_update_s(8e9, 8.0, choices, Host(1e15, 34e9))) == pytest.approx(1.0)
    # A slow link bounds it: two bytes of weight come back.
    assert float(host_update_s(8e9, 8.0, choices, Host(1e9, 34e9))) == pytest.approx(2.0)
    stays = msgspec.structs.replace(choices, sharding="zero3", offload_params=True)
    assert float(host_update_s(8e9, 8.0, stays, Host(1e9, 34e9))) == pytest.approx(1.0)


# Bytes per parameter left on one of one ranks: weights, gradients, optimizer. ZeRO-Offload leaves 16-bit weights alone.
LEFT: list[tuple[Sharding, bool, tuple[float, float, float]]] = [
    ("none", False, (2.0, 4.0, 0.0)),
    ("zero1", False, (2.0, 4.0, 0.0)),
    ("zero2", False, (2.0, 0.0, 0.0)),
    ("zero3", False, (2.0, 0.0, 0.0)),
    ("zero3", True, (0.0, 0.0, 0.0)),
    ("hsdp", True, (0.0, 0.0, 0.0)),
]


@pytest.mark.parametrize(("sharding", "params", "left"), LEFT)
def test_what_is_left_on_the_device(sharding: Sharding, params: bool, left: tuple[float, float, float]) -> None:
    choices = Choices(sharding=sharding, offload_optimizer=True, offload_params=params)
    held = state_bytes(HeldParams(10.0 * ONE, 0.0 * ONE), ONE, choices)
    gone = offloaded_state(10.0 * ONE, 10.0 * ONE, ONE, choices)
    found = [
        float(np.asarray(getattr(held, n) - getattr(gone, n))[0]) / 10 for n in ("weights", "gradients", "optimizer")
    ]
    assert tuple(found) == left


def test_nothing_leaves_unasked() -> None:
    gone = offloaded_state(10.0, 10.0, 2.0, Choices())
    assert (gone.weights, gone.gradients, gone.optimizer) == (0.0, 0.0, 0.0)


def test_two_layers_of_those_that_wait_are_in_flight() -> None:
    layers, share = np.array([40.0, 40.0, 40.0, 3.0]), np.array([0.0, 0.5, 1.0, 1.0])
    assert list(on_device(layers, share)) == [40.0, 22.0, 2.0, 2.0]
