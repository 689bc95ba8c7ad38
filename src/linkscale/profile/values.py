"""Profile: what measurements taught about one GPU generation and stack, as values.

A profile holds few physical parameters. Each comes from a cited table of measurements; none belongs to a
single run, model or source. The file that ships them is ``data/shipped.yaml``.
"""

from __future__ import annotations

from linkscale.base.errors import InputError
from linkscale.base.model import Model


class AttentionCurve(Model, frozen=True):
    """Achieved FLOP/s of fused attention by sequence length, forward and backward.

    Rates count ``4 * b * s^2 * h * d`` forward, halved when causal, and 2.5 times that backward. Keys of the
    maps are the head dimension; values align with ``seq``.
    """

    seq: tuple[float, ...]
    forward_causal_flops_per_s: dict[str, tuple[float, ...]]
    forward_full_flops_per_s: dict[str, tuple[float, ...]]
    backward_ratio: float
    """Backward rate over forward rate."""
    source: str


class Profile(Model, frozen=True):
    """Calibrated parameters of one GPU generation under one stack."""

    name: str
    gemm_fraction: dict[str, float]
    """Best achieved share of the dense peak, by precision, where tiles and depth fill the machine."""
    gemm_sustained: dict[str, float]
    """Sustained over best rate, by precision: typical instead of best shapes, clocks under hours of load."""
    reference_power_w: float
    """Power limit of the part the tables were measured on."""
    reference_flops_per_s: float
    """Its dense 16-bit peak."""
    gemm_k_half: float
    """Depth K at which a tile's pipeline fill costs as much as its work: eff = K / (K + k_half)."""
    kernel_fixed_s: float
    """Seconds of a product's kernel that no work explains: start, prologue, drain."""
    hbm_fraction: float
    """Achieved share of the memory's label bandwidth in streaming kernels."""
    attention: dict[str, AttentionCurve]
    attention_by_stack: dict[str, str]
    op_launch_s: float
    """Host time to launch one eager operation."""
    launch_by_cpu: dict[str, float]
    """Host time to launch by the kind of host CPU, relative to Intel's."""
    ops_per_kernel: dict[str, float]
    """Framework operations (views, copies, bookkeeping) per kernel that the model names: ``eager``, ``compiled``."""
    nic_fraction: float
    """Achieved share of a NIC's wire rate."""
    ring_overlap: float
    """Share of a tensor-parallel exchange that pipelining with its own product hides, where that is long enough."""
    expert_passes: float
    """Reads and writes of a routed copy of a token, in 16 bits and each direction, beyond those that are named here:
    padding to a format's blocks, buffers of the exchange, splits and joins by expert."""
    nvls_fraction: float
    """All-reduce algorithm bandwidth of in-switch reduction over NCCL's NVLink bandwidth, times (n + 1) / n."""
    jitter: float
    """Relative standard deviation of compute speed between GPUs."""
    interval_sigma: float
    """Standard deviation of log(measured / predicted) that the p10-p90 interval is built from."""
    sources: dict[str, str]

    def __post_init__(self) -> None:
        for name in ("hbm_fraction", "nic_fraction", "nvls_fraction"):
            if not 0 < getattr(self, name) <= 1:
                raise InputError(f"profile {self.name!r}: {name} = {getattr(self, name)}; it must lie in (0, 1]")
