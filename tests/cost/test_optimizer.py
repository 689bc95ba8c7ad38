"""Optimizers: bytes of state as their papers count them, and what an update costs."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from linkscale.cost.device import device
from linkscale.cost.memory import HeldParams, state_bytes
from linkscale.cost.optimizer import optimizer_s
from linkscale.plan.strategy import Choices, Optimizer
from linkscale.profile import shipped_profile
from tests.estimate.clusters import A100

# Bytes per parameter with 16-bit weights and fp32 gradients, unsharded: weight 2, gradient 4, master 4, moments.
STATE: dict[Optimizer, float] = {"adamw": 18.0, "adamw-bf16": 14.0, "adamw-8bit": 12.0, "sgd": 14.0, "muon": 14.0}


def choices(optimizer: Optimizer, **changes: str) -> Choices:
    return msgspec.structs.replace(Choices(optimizer=optimizer, sharding="none"), **changes)


def seconds(optimizer: Optimizer, rows: float = 4096.0) -> float:
    kind = choices(optimizer)
    return float(optimizer_s(1e9, 1.0, rows, device(A100, kind, shipped_profile("ampere")), kind))


@pytest.mark.parametrize("optimizer", STATE)
def test_bytes_per_parameter(optimizer: Optimizer) -> None:
    one = np.ones(1)
    state = state_bytes(HeldParams(1e9 * one, 0.0 * one), one, choices(optimizer))
    total = np.asarray(state.weights + state.gradients + state.optimizer)[0]
    assert total / 1e9 == pytest.approx(STATE[optimizer], rel=0.001)


def test_sharding_divides_moments_too() -> None:
    one = np.ones(1)
    for sharding in ("zero1", "zero3"):
        kind = choices("adamw-8bit", sharding=sharding)
        eight = state_bytes(HeldParams(1e9 * one, 0.0 * one), 8.0 * one, kind)
        whole = state_bytes(HeldParams(1e9 * one, 0.0 * one), one, kind)
        assert np.asarray(eight.optimizer)[0] == np.asarray(whole.optimizer)[0] / 8


def test_adamw_streams_its_state_once() -> None:
    """Read gradient, master, moments; write master, moments, weight; norm; zero: 38 bytes per parameter."""
    assert seconds("adamw") == pytest.approx(38e9 / (2.039e12 * 0.775))


def test_shorter_moments_are_quicker_and_muon_multiplies_matrices() -> None:
    assert seconds("adamw-8bit") < seconds("adamw-bf16") < seconds("adamw")
    assert seconds("muon", 8192.0) > 1.5 * seconds("muon", 4096.0) > seconds("sgd")
