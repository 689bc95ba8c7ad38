"""What-if clusters: one property of the hardware changed, all else equal."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from linkscale.topology.cluster import Cluster

replace = msgspec.structs.replace


def larger_domain(cluster: Cluster, factor: int = 2) -> Cluster:
    """Return the cluster with scale-up domains of ``factor`` times the GPUs, at the same bandwidth per GPU."""
    scaleup = replace(cluster.scaleup, domain_gpus=cluster.scaleup.domain_gpus * factor)
    return replace(cluster, scaleup=scaleup)


def faster_scaleup(cluster: Cluster, factor: float = 2.0) -> Cluster:
    """Return the cluster with ``factor`` times the scale-up bandwidth per GPU."""
    up = cluster.scaleup
    return replace(cluster, scaleup=replace(up, bandwidth_bytes_per_s=up.bandwidth_bytes_per_s * factor))


def faster_scaleout(cluster: Cluster, factor: float = 2.0) -> Cluster:
    """Return the cluster with ``factor`` times the bandwidth of every network port."""
    out = cluster.scaleout
    return replace(cluster, scaleout=replace(
        out,
        bandwidth_bytes_per_s=out.bandwidth_bytes_per_s * factor,
        port_bandwidth_bytes_per_s=out.port_bandwidth_bytes_per_s * factor,
    ))  # fmt: skip


def larger_memory(cluster: Cluster, factor: float = 2.0) -> Cluster:
    """Return the cluster with ``factor`` times the memory capacity per GPU."""
    return replace(cluster, gpu=replace(cluster.gpu, memory_bytes=cluster.gpu.memory_bytes * factor))


def faster_memory(cluster: Cluster, factor: float = 2.0) -> Cluster:
    """Return the cluster with ``factor`` times the memory bandwidth per GPU."""
    bandwidth = cluster.gpu.memory_bandwidth_bytes_per_s * factor
    return replace(cluster, gpu=replace(cluster.gpu, memory_bandwidth_bytes_per_s=bandwidth))


def faster_compute(cluster: Cluster, factor: float = 2.0) -> Cluster:
    """Return the cluster with ``factor`` times the peak FLOP/s in every precision, and the power that takes."""
    gpu = cluster.gpu
    peaks = {name: peak * factor for name, peak in gpu.peak_flops_per_s.items()}
    return replace(cluster, gpu=replace(gpu, peak_flops_per_s=peaks, power_w=gpu.power_w * factor))


def more_gpus(cluster: Cluster, factor: int = 2) -> Cluster:
    """Return the cluster with ``factor`` times the GPUs, linked the same way."""
    return replace(cluster, gpus=cluster.gpus * factor)


def upgrades(cluster: Cluster) -> dict[str, Callable[[Cluster], Cluster]]:
    """Return the single changes worth asking about on this cluster, by label."""
    label = "NVLink" if cluster.scaleup.kind in ("nvswitch", "nvlink-mesh", "bridge") else "scale-up"
    changes: dict[str, Callable[[Cluster], Cluster]] = {}
    if cluster.scaleup.kind != "none":
        if cluster.scaleup.domain_gpus < cluster.gpus:
            changes[f"{label} domain x2"] = larger_domain
        changes[f"{label} bandwidth x2"] = faster_scaleup
    if cluster.scaleout.kind != "none" and cluster.scaleup.domain_gpus < cluster.gpus:
        changes["NIC bandwidth x2"] = faster_scaleout
    return {**changes, "HBM capacity x2": larger_memory, "HBM bandwidth x2": faster_memory}
