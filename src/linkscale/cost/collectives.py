"""Time of NCCL collectives on groups of any shape, for arrays of groups.

``time = latency + bytes / algorithm bandwidth``, the least over algorithms and protocols, as NCCL's tuner takes
it. The constants are NCCL's own (hardware/data/nccl.yaml); bandwidths are physical limits: the NVLink or PCIe
rate inside a domain, the NICs of the group's members between domains. Sizes are what a user passes to NCCL:
the vector of one rank for all-reduce, the whole (ranks * shard) for all-gather and reduce-scatter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from linkscale.cost.kernels import FloatArray, Number
from linkscale.cost.network import Network
from linkscale.topology.groups import GroupGeometry

Kind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]
ALGORITHMS = ("none", "ring", "tree", "nvls", "nvls_tree", "p2p")

# A ring or switch reduction needs its chunks in flight before it runs at rate: measured on 8 x A100 (ring) and
# 8 x H100 (NVLS), the time above latency + bytes / asymptote grows with size and levels off at about 22 MB worth.
FILL_SHARE = 0.65
FILL_BYTES = 22e6


@dataclass(frozen=True)
class CollectiveTime:
    """Seconds of one call, and what was chosen: indices into ALGORITHMS and PROTOCOLS."""

    time_s: FloatArray
    algorithm: FloatArray
    protocol: FloatArray
    hbm_bytes: FloatArray
    sms: FloatArray


def collective_s(kind: Kind, size_bytes: Number, group: GroupGeometry, net: Network) -> CollectiveTime:
    """Price one call on every group. Groups of one rank cost nothing."""
    size = np.broadcast_to(np.asarray(size_bytes, dtype=np.float64), group.size.shape)
    alone = group.size <= 1.0
    best = np.full(group.size.shape, np.inf)
    algorithm = np.zeros(group.size.shape)
    protocol = np.full(group.size.shape, 2.0)
    for name, proto, time in _candidates(kind, size, group, net):
        better = time < best
        best = np.where(better, time, best)
        algorithm = np.where(better, float(ALGORITHMS.index(name)), algorithm)
        protocol = np.where(better, float(proto), protocol)
    moved = size * (2.0 if kind == "all_reduce" else 1.0) * (group.size - 1.0) / group.size
    return CollectiveTime(
        time_s=np.where(alone, 0.0, best),
        algorithm=np.where(alone, 0.0, algorithm),
        protocol=protocol,
        # Every byte sent is read and every byte received written once; a reduction also reads its own operand.
        hbm_bytes=moved * (2.0 if kind in ("all_gather", "all_to_all", "send_recv") else 3.0),
        sms=np.where(alone, 0.0, net.channels),
    )


def _candidates(kind: Kind, size: FloatArray, group: GroupGeometry, net: Network) -> list[tuple[str, int, FloatArray]]:
    if kind == "send_recv":
        return [("p2p", 2, _send_recv(size, group, net))]
    if kind == "all_to_all":
        return [("p2p", 2, _all_to_all(size, group, net))]
    found = [("ring", p, _ring(kind, size, group, net, p)) for p in _protocols(net)]
    if kind == "all_reduce":
        found += [("tree", p, _tree(size, group, net, p)) for p in _protocols(net)]
        if net.nvls_bytes_per_s:
            found += [("nvls", 2, _nvls(size, group, net)), ("nvls_tree", 2, _nvls_tree(size, group, net))]
    return found


def _protocols(net: Network) -> tuple[int, ...]:
    return (0, 1, 2) if net.ll128 else (0, 2)


def _bus(group: GroupGeometry, net: Network) -> tuple[FloatArray, FloatArray]:
    """Return the bus bandwidth inside a domain and over the NICs of the members in one."""
    inter = group.per_domain * net.inter_bytes_per_s
    return np.full(group.size.shape, net.intra_bytes_per_s), np.where(group.domains > 1.0, inter, np.inf)


def _start(group: GroupGeometry, net: Network) -> FloatArray:
    intra, inter = _bus(group, net)
    return np.where(group.per_domain > 1.0, np.minimum(intra, inter), inter)


def _filled(size: FloatArray, rate: FloatArray) -> FloatArray:
    return (size + np.minimum(FILL_SHARE * size, FILL_BYTES)) / rate


def _ring(kind: Kind, size: FloatArray, group: GroupGeometry, net: Network, proto: int) -> FloatArray:
    """Ring: 2(n-1) steps for all-reduce, n-1 for the halves; bus bandwidth of the slowest link."""
    rounds = 2.0 if kind == "all_reduce" else 1.0
    steps = rounds * (group.size - 1.0)
    inter_steps = np.where(group.domains > 1.0, rounds * (group.domains - 1.0), 0.0)
    intra_step = np.where(
        group.domains > 1.0, max(net.ring_intra_s[proto], net.post_overhead_s[proto]), net.ring_intra_s[proto]
    )
    latency = net.base_ring_s[proto] + (steps - inter_steps) * intra_step + inter_steps * net.ring_inter_s[proto]
    start = _start(group, net)
    match proto:
        case 0:
            cap = np.where(group.domains > 1.0, net.ll_cap_inter_bytes_per_s, net.ll_cap_intra_bytes_per_s)
            bus = np.minimum(0.5 * start, cap)
        case 1:
            bus = 0.92 * start
        case _:
            bus = start
    rate = bus * group.size / np.maximum(steps, 1.0)
    return latency + _filled(size, rate)


def _tree(size: FloatArray, group: GroupGeometry, net: Network, proto: int) -> FloatArray:
    """Double binary tree over domains, chains inside: half the bus bandwidth, log2 depth."""
    depth = _depth(group)
    latency = net.base_tree_s[proto] + 2.0 * (
        (group.per_domain - 1.0) * net.tree_intra_s[proto] + depth * net.tree_inter_s[proto]
    )
    intra, inter = _bus(group, net)
    # On two domains each byte crosses once each way; on more, an inner node hears two children.
    crossing = np.where(group.domains > 2.0, 0.46 * inter, 0.92 * inter)
    rate = np.where(group.per_domain > 1.0, np.minimum(0.46 * intra, crossing), crossing)
    match proto:
        case 0:
            cap = np.where(group.domains > 1.0, net.ll_cap_inter_bytes_per_s, net.ll_cap_intra_bytes_per_s)
            rate = np.minimum(rate / 3.8, 0.5 * cap)
        case 1:
            rate = rate * np.where(group.domains > 1.0, 120.0 / 128.0, 7.0 / 9.0)
        case _:
            pass
    return latency + _filled(size, rate)


def _depth(group: GroupGeometry) -> FloatArray:
    """floor(log2(domains)), exact: the exponent, not a logarithm."""
    return np.asarray(np.frexp(group.domains)[1] - 1, dtype=np.float64)


def _nvls_rate(group: GroupGeometry, net: Network) -> FloatArray:
    """A GPU moves (n + 1) / n of the vector each way: all of it read by the switch, 1/n multicast."""
    return net.nvls_bytes_per_s * group.per_domain / (group.per_domain + 1.0)


def _nvls(size: FloatArray, group: GroupGeometry, net: Network) -> FloatArray:
    """In-switch reduction inside one domain: one latency whatever the ranks."""
    time = net.nvls_s + _filled(size, _nvls_rate(group, net))
    return np.where(group.domains > 1.0, np.inf, time)


def _nvls_tree(size: FloatArray, group: GroupGeometry, net: Network) -> FloatArray:
    """In-switch reduction inside each domain, a tree between them."""
    _, inter = _bus(group, net)
    crossing = np.where(group.domains > 2.0, 0.5 * inter, inter)
    depth = _depth(group)
    rate = np.minimum(_nvls_rate(group, net), crossing)
    time = net.nvls_s + 2.0 * depth * net.nvls_tree_inter_s + _filled(size, rate)
    return np.where((group.domains > 1.0) & (group.per_domain > 1.0), time, np.inf)


def _all_to_all(size: FloatArray, group: GroupGeometry, net: Network) -> FloatArray:
    """Grouped sends and receives of a rank's buffer: what stays in the domain and what leaves it move side by side.

    ``max(size * (g - 1) / n / NVLink, size * (n - g) / n / NIC)`` for g members in a domain, and a message's latency
    per peer group.
    """
    inside = size * (group.per_domain - 1.0) / group.size / max(net.intra_bytes_per_s, 1e-300)
    outside = size * (group.size - group.per_domain) / group.size
    crossing = np.where(group.domains > 1.0, outside / max(net.inter_bytes_per_s, 1e-300), 0.0)
    latency = net.base_ring_s[2] + np.where(
        group.domains > 1.0, net.ring_inter_s[2] + (group.domains - 1.0) * net.post_overhead_s[2], net.ring_intra_s[2]
    )
    return latency + np.maximum(inside, crossing)


def _send_recv(size: FloatArray, group: GroupGeometry, net: Network) -> FloatArray:
    """One message from a GPU to its neighbour in the group, over NICs when they lie in different domains."""
    crosses = group.domains > 1.0
    # A GPU without links has no neighbour to send to; the quotient still has to be a number.
    rate = np.maximum(1.0, np.where(crosses, net.inter_bytes_per_s, net.intra_bytes_per_s))
    latency = np.where(crosses, net.ring_inter_s[2] + net.base_ring_s[2], net.ring_intra_s[2] + net.base_ring_s[2])
    return latency + size / rate
