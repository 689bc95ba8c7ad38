"""Model and hardware FLOPs utilisation, against the formulas of the papers."""

from __future__ import annotations

import pytest

from linkscale.estimate import estimate_step
from linkscale.plan.strategy import Strategy
from linkscale.topology import parse_cluster
from linkscale.workload import load_architecture

ARCH = load_architecture("megatron-175b")
LAYERS, HIDDEN, SEQ, VOCAB = 96, 12288, 2048, 51200
CLUSTER = parse_cluster("dgx-a100:64")


def utilisation(**choices: object) -> tuple[float, float, float]:
    """Return MFU, HFU and FLOPs per token that would be all of the machine's."""
    strategy = Strategy(tp=8, pp=8, dp=1, sharding="none", **choices)  # type: ignore[arg-type]
    found = estimate_step(ARCH, CLUSTER, strategy, SEQ, 64)
    return found.mfu, found.hfu, 312e12 / found.tokens_per_s_per_gpu


def test_mfu_counts_what_narayanan_counts() -> None:
    """72 l h^2 (1 + s/6h + V/12lh) per token without recomputation (Korthikanti et al. 2022, appendix A)."""
    mfu, hfu, machine = utilisation(recompute="none")
    flops = 72 * LAYERS * HIDDEN**2 * (1 + SEQ / (6 * HIDDEN) + VOCAB / (12 * LAYERS * HIDDEN))
    assert mfu == hfu == pytest.approx(flops / machine, rel=1e-9)


def test_hfu_of_full_recomputation_counts_the_forward_of_layers_twice() -> None:
    """96 l h^2 (1 + s/6h + V/16lh) per token (Narayanan et al. 2021, equation 3)."""
    _, hfu, machine = utilisation(recompute="full")
    flops = 96 * LAYERS * HIDDEN**2 * (1 + SEQ / (6 * HIDDEN) + VOCAB / (16 * LAYERS * HIDDEN))
    assert hfu == pytest.approx(flops / machine, rel=1e-9)


def test_hfu_counts_the_layers_that_are_recomputed() -> None:
    mfu, hfu, _ = utilisation(recompute="full", recompute_layers=6)
    whole_mfu, whole_hfu, _ = utilisation(recompute="full")
    assert hfu / mfu - 1 == pytest.approx((whole_hfu / whole_mfu - 1) / 2)


def test_hfu_of_selective_recomputation_counts_attention_again_or_every_second_product() -> None:
    mfu, hfu, machine = utilisation(recompute="selective")
    assert (hfu - mfu) * machine == pytest.approx(4 * LAYERS * HIDDEN * SEQ)
    mfu, hfu, machine = utilisation(recompute="selective", stack="fsdp2")
    assert (hfu - mfu) * machine == pytest.approx(12 * LAYERS * HIDDEN**2)
