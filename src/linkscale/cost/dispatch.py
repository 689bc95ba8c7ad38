"""Kernels that send each token once to every node that holds experts of its, and fan it out there (DeepEP, HybridEP).

What crosses the network is a token per distinct other node, what crosses NVLink a token per distinct rank; both move at
once, and each GPU sends to the one of its own index in other nodes, which forwards (deepseek-ai/DeepEP, README).
"""

from __future__ import annotations

import numpy as np

from linkscale.cost.collectives import CollectiveTime
from linkscale.cost.kernels import FloatArray
from linkscale.cost.network import Network
from linkscale.cost.routing import expected_places
from linkscale.plan.strategy import Dispatcher
from linkscale.topology.groups import GroupGeometry
from linkscale.workload.ops import Experts, Router

# Multiprocessors that the kernels hold: Megatron-LM's --moe-deepep-num-sms and --moe-hybridep-num-sms by default.
KERNEL_SMS: dict[Dispatcher, float] = {"deepep": 20.0, "hybridep": 16.0}


def sent_bytes(
    token_bytes: FloatArray, experts: Experts, router: Router, group: GroupGeometry
) -> tuple[FloatArray, FloatArray]:
    """Bytes that one rank sends over the network and over NVLink; ``token_bytes``: of all tokens that it routes.

    A token's own node is among its nodes as often as any other; ranks of a node that a token comes to are reached over
    NVLink but for the one it lands on (itself at home, that of its sender's index elsewhere).
    """
    most = router.top_groups if router.groups > 1 else None
    nodes = expected_places(experts.experts, experts.top_k, group.domains, most)
    ranks = expected_places(experts.experts, experts.top_k, group.size)
    network = token_bytes * nodes * (1.0 - 1.0 / group.domains)
    nvlink = token_bytes * ranks * (1.0 - 1.0 / group.per_domain)
    return network, nvlink


def dispatch_s(
    network: FloatArray, nvlink: FloatArray, group: GroupGeometry, net: Network, sms: float
) -> CollectiveTime:
    """Price one dispatch or combine: the slower of the two paths, after a latency of each."""
    crosses, alone = group.domains > 1.0, group.size <= 1.0
    outside = np.where(crosses, network / max(net.inter_bytes_per_s, 1e-300), 0.0)
    inside = nvlink / max(net.intra_bytes_per_s, 1e-300)
    latency = net.base_ring_s[2] + net.ring_intra_s[2] + np.where(crosses, net.ring_inter_s[2], 0.0)
    return CollectiveTime(
        time_s=np.where(alone, 0.0, latency + np.maximum(outside, inside)),
        algorithm=np.where(alone, 0.0, 5.0),
        protocol=np.full(group.size.shape, 2.0),
        # What arrives over the network is written, read to be forwarded, and what is sent read.
        hbm_bytes=np.where(alone, 0.0, 3.0 * network + 2.0 * nvlink),
        sms=np.where(alone, 0.0, sms),
    )
