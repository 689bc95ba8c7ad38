"""One layer's operations: masks against brute force, passes over memory against their count, 8-bit casts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from linkscale.cost.clock import relative_clock
from linkscale.cost.device import Device
from linkscale.cost.kernels import unfused_attention_s
from linkscale.cost.layer import OpsCost, Slice, ops_cost
from linkscale.cost.optimizer import optimizer_s
from linkscale.plan.precision import FORMATS
from linkscale.plan.strategy import Choices
from linkscale.profile import AttentionCurve, shipped_profile
from linkscale.workload.ops import Attention, Gemm, Op
from tests.estimate.clusters import A100

# One score a second and FLOP, so that seconds count work; as many tiles as multiprocessors.
CURVE = AttentionCurve(
    seq=(1.0, 2.0), forward_causal_flops_per_s={"64": (1.0, 1.0)}, forward_full_flops_per_s={"64": (1.0, 1.0)},
    backward_ratio=1.0, source="test",
)  # fmt: skip
DEVICE = Device(
    gemm_flops_per_s=1e30, half_flops_per_s=1e30, memory_bytes_per_s=1.0, sm_count=1.0, k_half=0.0, kernel_fixed_s=0.0,
    attention=CURVE, op_launch_s=0.0, operand=FORMATS["bf16"], clock=1.0,
)  # fmt: skip
SEQ = 1024


def cost(op: Op, dev: Device = DEVICE, **choices: Any) -> OpsCost:
    one = np.ones(1)
    return ops_cost([op], Slice(one, one, one * SEQ, float(SEQ), Choices(**choices)), dev)


@pytest.mark.parametrize("window", [None, 1, 100, 512, 1024, 4096])
def test_fused_attention_computes_the_scores_that_the_mask_leaves(window: int | None) -> None:
    row, column = np.indices((SEQ, SEQ))
    seen = (column <= row) & (row - column < (window or SEQ))
    found = cost(Attention(heads=1, kv_heads=1, qk_dim=64, v_dim=64, window=window))
    flops = 2 * (64 + 64) * int(seen.sum())
    # The formula halves the diagonal's scores; brute force counts them whole.
    assert float(np.sum(found.attention_forward_s)) == pytest.approx(flops, abs=2 * 128 * SEQ)


def test_dropout_moves_its_mask_and_output_once_more_each_way() -> None:
    """2 bytes read and written and 1 of the mask, forward and backward."""
    args = (np.ones(1), np.full(1, 1024.0), 1024.0, 64, 64)
    with_mask, without = (unfused_attention_s(*args, dropout, DEVICE) for dropout in (True, False))
    for name in ("forward_s", "backward_s"):
        more = float(getattr(with_mask, name)[0] - getattr(without, name)[0])
        assert more == pytest.approx(5 * 1024**2)


def test_eight_bit_products_cast_their_operands() -> None:
    """3 bytes an element of the input forward, of the output's gradient backward; operands are read at half width."""
    op = Gemm(name="up", n=3000, k=1000, shard="none")
    half, eight = cost(op), cost(op, replace(DEVICE, operand=FORMATS["fp8"]))
    operands = SEQ * 1000 + 3000 * 1000
    assert float(np.sum(half.forward_s - eight.forward_s)) == pytest.approx(operands - 3 * SEQ * 1000)
    gradients = SEQ * 3000 + 3000 * 1000
    assert float(np.sum(half.dgrad_s - eight.dgrad_s)) == pytest.approx(gradients - 3 * SEQ * 3000)


def test_the_optimizer_passes_over_what_adam_touches() -> None:
    """Bytes a parameter: gradient twice, master and moments read and written, the weight, the gradients zeroed."""

    def passes(**choices: Any) -> float:
        return float(optimizer_s(8.0, 4.0, 1.0, DEVICE, Choices(**choices))) / 8

    assert passes(sharding="none", grad_dtype="fp32") == 4 + 4 + 24 + 2 + 4
    assert passes(sharding="zero1", grad_dtype="fp32") == (4 + 4 + 24 + 2) / 4 + 4
    assert passes(sharding="zero2", grad_dtype="fp32") == (4 + 4 + 24 + 2 + 4) / 4
    # fp16 also unscales: reads and writes the gradients.
    fp16 = passes(sharding="none", precision="fp16", grad_dtype="fp16")
    assert fp16 == passes(sharding="none", precision="bf16", grad_dtype="bf16") + 4


def test_the_clock_follows_the_cube_root_of_dynamic_power() -> None:
    profile = shipped_profile("ampere")
    assert relative_clock(A100, profile) == pytest.approx(1.0, rel=1e-3)
    idle = 0.15 * 400
    third = msgspec.structs.replace(A100, power_w=idle + (400 - idle) * 0.3)
    assert relative_clock(third, profile) == pytest.approx(0.3 ** (1 / 3), rel=1e-3)
