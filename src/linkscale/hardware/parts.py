"""From a file's text to the values that the cost rooms compute with: SI floats, per GPU, per direction, dense."""

from __future__ import annotations

from linkscale.hardware.entries import GpuEntry, Peaks, SystemEntry, Text, positive
from linkscale.hardware.types import Gpu

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4")


def gpu_value(entry: GpuEntry) -> Gpu:
    """Return an entry as the value of a GPU; what the part lacks is 0."""
    nvlink, memory, clock = entry.nvlink_per_gpu, entry.memory_per_gpu, entry.boost_clock
    chip = entry.chip_to_chip_per_gpu
    return Gpu(
        name=entry.name,
        arch=entry.arch,
        peak_flops_per_s=peaks(entry.peak_dense_per_gpu),
        memory_bytes=positive(memory.usable, "bytes", "usable"),
        memory_bandwidth_bytes_per_s=_rate(memory.bandwidth),
        nvlink_generation=nvlink.generation if nvlink else 0,
        nvlink_links=nvlink.links if nvlink else 0,
        nvlink_bandwidth_bytes_per_s=_rate(nvlink.bandwidth_per_direction) if nvlink else 0.0,
        pcie_bandwidth_bytes_per_s=_rate(entry.pcie_per_gpu.bandwidth_x16_per_direction) if entry.pcie_per_gpu else 0.0,
        power_w=0.0 if entry.power_per_gpu.value is None else positive(entry.power_per_gpu.value, "W", "power_per_gpu"),
        sm_count=entry.sms_per_gpu.value,
        boost_clock_hz=positive(clock.value, "Hz", "boost_clock") if clock else 0.0,
        peer_to_peer=entry.peer_to_peer,
        chip_to_chip_bandwidth_bytes_per_s=_rate(chip.bandwidth_per_direction) if chip else 0.0,
    )


def peaks(block: Peaks) -> dict[str, float]:
    """Return the dense FLOP/s of every precision that the part supports."""
    found = {name: getattr(block, name) for name in PRECISIONS}
    return {name: positive(value, "flops/s", name) for name, value in found.items() if value is not None}


def domain_bandwidth_bytes_per_s(system: SystemEntry, gpu: GpuEntry) -> float:
    """Return the scale-up wire rate per GPU and direction: the system's own figure, else all links of the GPU."""
    stated = system.scaleup.bandwidth_per_gpu_per_direction
    if stated is not None:
        return _rate(stated)
    match system.scaleup.kind:
        case "nvswitch" | "nvlink-mesh" | "bridge":
            return _rate(gpu.nvlink_per_gpu.bandwidth_per_direction) if gpu.nvlink_per_gpu else 0.0
        case "xgmi":
            return _rate(gpu.peer_links_per_gpu.bandwidth_per_direction) if gpu.peer_links_per_gpu else 0.0
        case "pcie":
            return _rate(gpu.pcie_per_gpu.bandwidth_x16_per_direction) if gpu.pcie_per_gpu else 0.0
        case "none":
            return 0.0


def _rate(text: Text) -> float:
    return positive(text, "bytes/s", "bandwidth")
