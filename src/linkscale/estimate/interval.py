"""How far a step time may lie from its prediction."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from linkscale.cost.offload import offloads
from linkscale.plan.precision import FORMATS
from linkscale.plan.strategy import Choices, Strategy
from linkscale.profile import OUTSIDE_SIGMA, Extent, Profile, outside
from linkscale.topology.cluster import Cluster

Z90 = NormalDist().inv_cdf(0.9)


def unchecked(cluster: Cluster, strategy: Choices | Strategy, seq_len: int) -> tuple[str, ...]:
    """Say what of a question lies outside the runs that the profile was checked on."""
    up = cluster.scaleup
    # A domain larger than the cluster is as good as one of the cluster's size.
    domain = min(up.domain_gpus, cluster.gpus)
    return outside(Extent(cluster.gpu.name, cluster.gpu.arch, strategy.stack, FORMATS[strategy.precision].peak,
                          up.kind, domain, cluster.gpus, seq_len, offloads(strategy)))  # fmt: skip


def interval_width(cluster: Cluster, strategy: Choices | Strategy, seq_len: int, profile: Profile) -> float:
    """Return p90 over p50, which is p50 over p10: log-normal, wider outside what the profile was checked on."""
    wider = OUTSIDE_SIGMA if unchecked(cluster, strategy, seq_len) else 1.0
    return float(np.exp(Z90 * profile.interval_sigma * wider))
