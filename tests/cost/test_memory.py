"""Bytes of model state a parameter, against what the papers and the frameworks say."""

from __future__ import annotations

from typing import Any

import pytest

from linkscale.cost.memory import HeldParams, Moment, StateBytes, state_bytes
from linkscale.plan.strategy import Choices

FIRST_AND_UPDATE: tuple[Moment, ...] = ("first", "update")


def per_parameter(shards: float, **choices: Any) -> StateBytes:
    """Return bytes of 8 layers of one parameter each and nothing else, over 8."""
    found = state_bytes(HeldParams(8.0, 0.0), shards, Choices(**choices))
    return StateBytes(found.weights / 8, found.gradients / 8, found.optimizer / 8)


@pytest.mark.parametrize(
    ("sharding", "total"), [("none", 16.0), ("zero1", 4 + 12 / 64), ("zero2", 2 + 14 / 64), ("zero3", 16 / 64)]
)
def test_zero_holds_what_its_paper_says(sharding: str, total: float) -> None:
    """Rajbhandari et al. 2020, figure 1: 16, 4 + 12/N, 2 + 14/N and 16/N bytes a parameter, 16-bit gradients."""
    found = per_parameter(64.0, sharding=sharding, grad_dtype="bf16")
    whole = found.weights + found.gradients + found.optimizer
    # Fully sharded stacks keep gradients in the master's 4 bytes and no 16-bit copy.
    assert whole == pytest.approx(total)


def test_megatron_bf16_holds_6_and_12_over_dp() -> None:
    """Megatron-LM, docs of the distributed optimizer: bf16 parameters, fp32 gradients: 6 + 12/d; without it 18."""
    found = per_parameter(8.0, sharding="zero1", grad_dtype="fp32")
    assert (found.weights, found.gradients, found.optimizer) == (2.0, 4.0, 12 / 8)
    plain = per_parameter(8.0, sharding="none", grad_dtype="fp32")
    assert plain.weights + plain.gradients + plain.optimizer == 18.0


def test_no_sync_holds_gradients_whole() -> None:
    for sharding in ("zero2", "zero3"):
        assert per_parameter(64.0, sharding=sharding, no_sync=True).gradients >= 4.0


def test_eight_bit_layers_have_a_copy_and_its_transpose() -> None:
    """Beside 16-bit weights, or in their place where parameters are gathered in 8 bits; tables stay in 16."""
    for gathered, layer in (("bf16", 4.0), ("fp8", 2.0)):
        choices = Choices(sharding="zero1", precision="fp8", param_dtype=gathered)  # type: ignore[arg-type]
        assert state_bytes(HeldParams(10.0, 1.0, 3.0), 8.0, choices).weights == layer * 10 + 2.0 * 3


def test_units_in_flight_are_as_wide_as_they_were_gathered() -> None:
    wide, narrow = (
        state_bytes(
            HeldParams(10.0, 1.0, 3.0), 13.0, Choices(stack="fsdp2", sharding="zero3", param_dtype=dtype)
        ).weights  # type: ignore[arg-type]
        for dtype in ("bf16", "fp8")
    )
    assert (wide, narrow) == (4.0 + 2 * 2.0, 4.0 + 2 * 1.0)


def test_deepspeed_copies_fp16_gradients_twice_in_the_update() -> None:
    """ZeRO-1 of DeepSpeed: 4 bytes everywhere, 18 divided: Adam's 12, fp32 gradients and flat fp16 ones."""
    kind = Choices(sharding="zero1", precision="fp16", grad_dtype="fp16", flat_gradients=True)
    backward, update = (state_bytes(HeldParams(8.0, 0.0), 4.0, kind, moment) for moment in FIRST_AND_UPDATE)
    for state in (backward, update):
        assert state.weights + state.gradients + state.optimizer + state.idle == 8 * (4 + 18 / 4)
    assert (backward.idle, update.idle) == (8 * 6 / 4, 0.0)


def test_deepspeed_keeps_bf16_gradients_beside_fp32_ones() -> None:
    """``BF16_Optimizer``: weights 2, gradients 2 and 4, a 16-bit copy that is reduced 2; Adam's 12 divided."""
    kind = Choices(sharding="zero1", grad_dtype="fp32", flat_gradients=True)
    state = state_bytes(HeldParams(8.0, 0.0), 4.0, kind)
    assert (state.gradients, state.idle) == (8 * 6.0, 8 * 2.0)
    assert state.weights + state.optimizer == 8 * (2 + 12 / 4)


def test_megatron_copies_16_bit_gradients_when_activations_are_gone() -> None:
    kind = Choices(sharding="zero1", grad_dtype="bf16")
    first, update = (state_bytes(HeldParams(8.0, 0.0), 4.0, kind, moment) for moment in FIRST_AND_UPDATE)
    assert update.gradients - first.gradients == 8 * 4 / 4
    assert (first.idle, update.idle) == (0.0, 0.0)


def test_gradients_of_fully_sharded_layers_appear_one_by_one() -> None:
    """Of four layers of two parameters, an embedding of three and a head of five, on ten ranks, reduced in fp32."""
    params, kind = HeldParams(8.0, 2.0, 3.0, 5.0), Choices(stack="fsdp2", sharding="zero3")
    moments: tuple[Moment, ...] = ("loss", "first", "second", "last", "table")
    found = [state_bytes(params, 10.0, kind, moment).gradients for moment in moments]
    shards = [0.0, 5.0, 7.0, 11.0, 16.0]
    whole = [0.0, 4 * 5.0, 4 * 2.0, 4 * 2.0, (2 + 4) * 3.0]
    assert found == [4 * done / 10 + unit for done, unit in zip(shards, whole, strict=True)]
