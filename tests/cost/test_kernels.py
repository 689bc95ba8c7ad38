"""Kernel times against published rates, and their laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkscale.cost.device import Device, attention_rate
from linkscale.cost.kernels import fused_attention_s, gemm_s, tile_efficiency
from linkscale.plan.precision import FORMATS
from linkscale.profile import shipped_profile


def device(peak: float, share: float, memory: float, sms: int) -> Device:
    return Device(peak * share, peak * share, memory, float(sms), 128.0, 4e-6, None, 0.0, FORMATS["bf16"], 1.0)


B200 = device(2250e12, 0.776, 8e12 * 0.727, 148)

# https://pyptx.dev/performance: B200 bf16 cuBLAS, TFLOP/s.
CUBLAS = [
    ((2048, 2048, 2048), 1006), ((4096, 4096, 4096), 1532), ((4096, 8192, 8192), 1652), ((8192, 4096, 8192), 1648),
    ((8192, 8192, 8192), 1610),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "tflops"), CUBLAS)
def test_products_on_b200_against_published_rates(shape: tuple[int, int, int], tflops: float) -> None:
    m, n, k = (float(x) for x in shape)
    rate = 2 * m * n * k / float(gemm_s(m, n, k, B200, B200.gemm_flops_per_s)) / 1e12
    assert rate == pytest.approx(tflops, rel=0.07)


@pytest.mark.parametrize(
    ("dev", "shape", "tflops"),
    [
        (device(312e12, 0.911, 1.58e12, 108), (1024, 10240, 5120), 271.2),
        (device(989e12, 0.86, 2.53e12, 132), (2048, 2048, 13312), 794.5),
    ],
)
def test_best_shapes_reach_the_best_rate(dev: Device, shape: tuple[int, int, int], tflops: float) -> None:
    """stas00/ml-engineering: the shapes at which A100 and H100 reached their maximum."""
    m, n, k = (float(x) for x in shape)
    assert 2 * m * n * k / float(gemm_s(m, n, k, dev, dev.gemm_flops_per_s)) / 1e12 == pytest.approx(tflops, rel=0.01)


def test_one_tile_more_than_a_wave_costs_a_wave() -> None:
    full, over = (float(tile_efficiency(256.0 * tiles, 128.0, 108.0)) for tiles in (108, 109))
    assert full == 1.0
    assert over < 0.75


sizes = st.integers(1, 60_000).map(float)


@given(m=sizes, n=sizes, k=sizes, factor=st.floats(1.0, 8.0))
def test_a_product_is_never_faster_than_its_bounds_and_faster_hardware_helps(
    m: float, n: float, k: float, factor: float
) -> None:
    base = float(gemm_s(m, n, k, B200, B200.gemm_flops_per_s))
    assert base >= 2 * m * n * k / B200.gemm_flops_per_s
    assert base >= 2 * (m * k + k * n + m * n) / B200.memory_bytes_per_s
    assert float(gemm_s(m, n, k, B200, B200.gemm_flops_per_s * factor)) <= base * (1 + 1e-12)


def test_attention_meets_the_published_curve_where_it_was_measured() -> None:
    """FlashAttention-2 on A100, head dimension 128, causal, 8192 tokens: 182 TFLOP/s forward and backward."""
    curve = shipped_profile("ampere").attention["fa2"]
    rate = attention_rate(curve, 8192.0, 128, causal=True)
    dev = device(312e12, 0.869, 1.58e12, 108)
    heads = np.array([2.0 * 16.0])  # batch x heads as measured: 16k tokens, hidden 2048
    time = fused_attention_s(heads, np.array([8192.0]), 8192.0, 128, 128, 0.5, rate, curve.backward_ratio, dev)
    flops = 3.5 * 4 * 32 * 8192.0**2 * 128 * 0.5
    assert flops / float(time.forward_s[0] + time.backward_s[0]) == pytest.approx(182e12, rel=0.06)
