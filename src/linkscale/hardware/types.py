"""Types of the catalogue: one entry is facts with a source. Bandwidths are per direction, FLOP/s dense."""

from __future__ import annotations

from typing import Literal

from linkscale.base.model import Model

Arch = Literal["volta", "ampere", "ada", "hopper", "blackwell", "rubin", "cdna2", "cdna3", "cdna4", "gaudi", "tpu"]


class Gpu(Model, frozen=True):
    """One accelerator. ``peak_flops_per_s`` maps a precision (fp32, tf32, bf16, fp16, fp8, fp4) to dense FLOP/s.

    ``memory_bytes`` is what the driver reports as total where known, else the label read as the entry says.
    Links are per GPU and per direction; 0.0 where the part has none.
    """

    name: str
    arch: Arch
    peak_flops_per_s: dict[str, float]
    memory_bytes: float
    memory_bandwidth_bytes_per_s: float
    nvlink_generation: int
    nvlink_links: int
    nvlink_bandwidth_bytes_per_s: float
    pcie_bandwidth_bytes_per_s: float
    power_w: float
    sm_count: int
    boost_clock_hz: float
    peer_to_peer: bool = True
    chip_to_chip_bandwidth_bytes_per_s: float = 0.0
    """Of the link to its CPU, where that is not PCIe."""
