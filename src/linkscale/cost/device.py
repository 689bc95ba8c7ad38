"""Device: the rates at which one GPU computes and moves bytes under given choices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linkscale.base.errors import InputError
from linkscale.cost.clock import relative_clock
from linkscale.hardware.types import Gpu
from linkscale.plan.precision import FORMATS, Format
from linkscale.plan.strategy import Choices
from linkscale.profile.values import AttentionCurve, Profile
from linkscale.topology.cluster import HostCpu

# Share of kernels that the host still launches one by one. Partial graphs leave out attention with its norm and
# projections: about a third of a layer's kernels.
LAUNCHED = {"none": 1.0, "partial": 1.0 / 3.0, "full": 0.0}
# Experts, whose shapes change with the routing, are what partial graphs leave out.
EXPERTS_LAUNCHED = {"none": 1.0, "partial": 1.0, "full": 0.0}


@dataclass(frozen=True)
class Device:
    """Rates of one GPU. ``gemm`` runs in the precision of the linear layers, ``half`` in 16 bits."""

    gemm_flops_per_s: float
    half_flops_per_s: float
    memory_bytes_per_s: float
    sm_count: float
    k_half: float
    kernel_fixed_s: float
    attention: AttentionCurve | None
    op_launch_s: float
    """Host seconds per kernel of the model, the framework's own operations around it included."""
    operand: Format
    """How the operands of products are stored."""
    clock: float
    """Clock over that of the part that attention was measured on."""
    ring_overlap: float = 1.0
    expert_passes: float = 0.0
    expert_launch_s: float = 0.0
    """Host seconds of one kernel of one expert, launched from a library's loop: no framework operation around it."""


def device(gpu: Gpu, choices: Choices, profile: Profile, host_cpu: HostCpu = "unknown") -> Device:
    """Combine a GPU's label rates with the achieved shares of a profile; kernels are launched by a host's CPU."""
    host = profile.launch_by_cpu[host_cpu]
    half = "fp16" if choices.precision == "fp16" or not gpu.peak_flops_per_s.get("bf16") else "bf16"
    return Device(
        gemm_flops_per_s=_achieved(gpu, profile, FORMATS[choices.precision].peak),
        half_flops_per_s=_achieved(gpu, profile, half),
        memory_bytes_per_s=gpu.memory_bandwidth_bytes_per_s * profile.hbm_fraction,
        sm_count=float(gpu.sm_count),
        k_half=profile.gemm_k_half,
        kernel_fixed_s=profile.kernel_fixed_s,
        attention=_attention(choices, profile),
        op_launch_s=host
        * profile.op_launch_s
        * profile.ops_per_kernel["compiled" if choices.compile else "eager"]
        * LAUNCHED[choices.cuda_graphs],
        operand=FORMATS[choices.precision],
        clock=relative_clock(gpu, profile),
        ring_overlap=profile.ring_overlap,
        expert_passes=profile.expert_passes,
        expert_launch_s=host * profile.op_launch_s * EXPERTS_LAUNCHED[choices.cuda_graphs],
    )


def _achieved(gpu: Gpu, profile: Profile, precision: str) -> float:
    peak = gpu.peak_flops_per_s.get(precision, 0.0)
    if not peak:
        known = ", ".join(p for p, rate in sorted(gpu.peak_flops_per_s.items()) if rate)
        raise InputError(f"{gpu.name} has no {precision} matrix unit; it has {known}: pass --precision")
    best = profile.gemm_fraction.get(precision, min(profile.gemm_fraction.values()))
    # No table and no fit gives fp4: what fp8 sustains.
    sustained = profile.gemm_sustained.get("fp8" if precision == "fp4" else precision, 1.0)
    return peak * best * sustained * relative_clock(gpu, profile)


def _attention(choices: Choices, profile: Profile) -> AttentionCurve | None:
    if choices.attention == "unfused" or not profile.attention:
        return None
    return profile.attention[profile.attention_by_stack[choices.stack]]


def attention_rate(curve: AttentionCurve, seq: float, head_dim: int, causal: bool) -> float:
    """Interpolate a curve's forward FLOP/s at a sequence length, for the nearest measured head dimension."""
    rates = curve.forward_causal_flops_per_s if causal else curve.forward_full_flops_per_s
    key = min(rates, key=lambda dim: (abs(int(dim) - head_dim), int(dim)))
    rate = float(np.interp(np.log2(seq), np.log2(curve.seq), rates[key]))
    # Below the measured sizes a kernel's fill costs what it costs at the smallest one: rate falls with length.
    return rate * min(1.0, seq / curve.seq[0])
