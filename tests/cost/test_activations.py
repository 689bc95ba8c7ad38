"""What a layer keeps for backward against Korthikanti et al. 2022 (arXiv:2205.05198), equations 1, 2 and 4, table 2."""

from __future__ import annotations

import numpy as np
import pytest

from linkscale.cost.activations import kept_bytes_per_token
from linkscale.cost.device import Device
from linkscale.cost.layer import OpsCost, Slice, ops_cost
from linkscale.cost.memory import checkpoint_bytes, layer_activation_bytes
from linkscale.plan.precision import FORMATS
from linkscale.plan.strategy import Choices, Recompute
from linkscale.workload import Architecture, decoder, load_architecture

GPTS = ["megatron-22b", "megatron-175b", "megatron-530b", "megatron-1008b"]
CUTS = np.array([1.0, 2.0, 4.0, 8.0])
MICRO_BATCH = 3
SEQ = 2048

# Unfused attention, as the paper ran it; bytes do not depend on rates.
UNIT = Device(
    gemm_flops_per_s=1.0, half_flops_per_s=1.0, memory_bytes_per_s=1.0, sm_count=1.0, k_half=1.0, kernel_fixed_s=0.0,
    attention=None, op_launch_s=0.0, operand=FORMATS["bf16"], clock=1.0,
)  # fmt: skip


def kept(arch: Architecture, recompute: Recompute, *, sequence_parallel: bool) -> np.ndarray:
    """Return bytes of one layer and micro-batch at every cut of CUTS, in units of s*b*h."""
    choices = Choices(
        stack="megatron", precision="bf16", recompute=recompute, attention="unfused",
        sequence_parallel=sequence_parallel,
    )  # fmt: skip
    full = np.full_like(CUTS, 1.0)
    part = Slice(tp=CUTS, micro_batch=MICRO_BATCH * full, queries=SEQ * full, seq=float(SEQ), choices=choices)
    if recompute == "full":
        found = checkpoint_bytes(part, arch.hidden)
    else:
        found = layer_activation_bytes(cost_of(arch, part), part, arch.hidden)
    return found / (SEQ * MICRO_BATCH * arch.hidden)


def cost_of(arch: Architecture, part: Slice) -> OpsCost:
    (group,) = decoder(arch).groups
    return ops_cost(group.ops, part, UNIT)


@pytest.fixture(params=GPTS)
def gpt(request: pytest.FixtureRequest) -> Architecture:
    return load_architecture(request.param)


def scores(gpt: Architecture) -> float:
    """5as/h: the scores' softmax, its dropout's mask and output."""
    return 5 * gpt.heads * SEQ / gpt.hidden


def test_one_gpu_keeps_34_and_the_scores(gpt):
    assert kept(gpt, "none", sequence_parallel=False)[0] == pytest.approx(34 + scores(gpt), rel=1e-12)


def test_tensor_parallelism_leaves_10_uncut(gpt):
    expected = 10 + 24 / CUTS + scores(gpt) / CUTS
    np.testing.assert_allclose(kept(gpt, "none", sequence_parallel=False), expected, rtol=1e-12)


def test_sequence_parallelism_cuts_everything(gpt):
    np.testing.assert_allclose(kept(gpt, "none", sequence_parallel=True), (34 + scores(gpt)) / CUTS, rtol=1e-12)


def test_selective_recomputation_drops_the_scores(gpt):
    np.testing.assert_allclose(kept(gpt, "selective", sequence_parallel=True), 34 / CUTS, rtol=1e-12)
    np.testing.assert_allclose(kept(gpt, "selective", sequence_parallel=False), 10 + 24 / CUTS, rtol=1e-12)


def test_full_recomputation_keeps_the_layers_input(gpt):
    np.testing.assert_allclose(kept(gpt, "full", sequence_parallel=True), 2 / CUTS, rtol=1e-12)
    np.testing.assert_allclose(kept(gpt, "full", sequence_parallel=False), np.full_like(CUTS, 2.0), rtol=1e-12)


@pytest.mark.parametrize("name", ["llama-3.1-405b", "falcon-40b", "gpt2", "mistral-7b"])
def test_one_layer_alone_is_the_estimators_layer(name):
    arch = load_architecture(name)
    for recompute in ("none", "selective", "full"):
        alone = kept_bytes_per_token(decoder(arch).groups[0], arch.hidden, SEQ, recompute, "unfused")
        batch = kept(arch, recompute, sequence_parallel=False)[0] * arch.hidden
        assert alone == pytest.approx(batch, rel=1e-12)


@pytest.mark.parametrize("name", ["llama-3.1-405b", "falcon-40b", "gpt2", "gpt-neox-20b"])
@pytest.mark.parametrize("attention", ["flash", "unfused"])
def test_more_recomputation_never_keeps_more(name, attention):
    arch = load_architecture(name)
    (group,) = decoder(arch).groups
    none, selective, full = (
        kept_bytes_per_token(group, arch.hidden, SEQ, way, attention) for way in ("none", "selective", "full")
    )
    assert full < selective <= none
