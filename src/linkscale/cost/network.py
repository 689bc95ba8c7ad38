"""Network: the achieved rates and latencies of a cluster's links, as NCCL sees them."""

from __future__ import annotations

from dataclasses import dataclass

from linkscale.hardware.nccl import nccl_constants
from linkscale.profile.values import Profile
from linkscale.topology.cluster import Cluster

PROTOCOLS = ("LL", "LL128", "Simple")


@dataclass(frozen=True)
class Network:
    """Rates in bytes/s per GPU and direction; latencies in seconds. Tuples run over LL, LL128, Simple.

    ``intra``: inside the scale-up domain, what NCCL's topology assumes reachable. ``inter``: over the NICs.
    """

    domain_gpus: int
    intra_bytes_per_s: float
    inter_bytes_per_s: float
    nvls_bytes_per_s: float
    ll128: bool
    ll_cap_intra_bytes_per_s: float
    ll_cap_inter_bytes_per_s: float
    base_ring_s: tuple[float, float, float]
    base_tree_s: tuple[float, float, float]
    ring_intra_s: tuple[float, float, float]
    ring_inter_s: tuple[float, float, float]
    tree_intra_s: tuple[float, float, float]
    tree_inter_s: tuple[float, float, float]
    nvls_s: float
    nvls_tree_inter_s: float
    post_overhead_s: tuple[float, float, float]
    channels: float
    sm_count: float


def network(cluster: Cluster, profile: Profile) -> Network:
    """Derive the achieved rates of a cluster from its wire rates, NCCL's constants and a profile."""
    nccl = nccl_constants()
    gpu, up, out = cluster.gpu, cluster.scaleup, cluster.scaleout
    nvlink = up.kind in ("nvswitch", "nvlink-mesh", "bridge", "xgmi")
    latency = nccl.hw_latency_s["NVLINK" if nvlink else "PCI"]
    net = nccl.hw_latency_s["NET"]
    post = nccl.post_overhead_s(cluster.host_cpu)
    return Network(
        domain_gpus=max(1, up.domain_gpus),
        intra_bytes_per_s=up.bandwidth_bytes_per_s * nccl.link_fraction(gpu.arch, up.kind, up.peer_to_peer),
        inter_bytes_per_s=out.bandwidth_bytes_per_s * profile.nic_fraction,
        nvls_bytes_per_s=up.bandwidth_bytes_per_s * nccl.link_fraction(gpu.arch, up.kind, True) * profile.nvls_fraction
        if up.nvls
        else 0.0,
        ll128=nvlink,
        ll_cap_intra_bytes_per_s=nccl.ll_cap_intra_bytes_per_s(gpu.arch),
        ll_cap_inter_bytes_per_s=nccl.ll_cap_inter_bytes_per_s(cluster.host_cpu),
        base_ring_s=nccl.base_latency_s["RING"],
        base_tree_s=nccl.base_latency_s["TREE"],
        ring_intra_s=latency["RING"],
        ring_inter_s=net["RING"],
        tree_intra_s=latency["TREE"],
        tree_inter_s=net["TREE"],
        nvls_s=nccl.hw_latency_s["NVLINK"]["NVLS"][2],
        nvls_tree_inter_s=net["NVLS_TREE"][2],
        post_overhead_s=(post, post, 3.0 * post),
        channels=nccl.channels(gpu.arch),
        sm_count=float(gpu.sm_count),
    )
