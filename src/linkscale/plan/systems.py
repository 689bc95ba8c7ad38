"""The cluster of a published run: the system of its GPU, its size, and the network that it or its product has."""

from __future__ import annotations

from functools import lru_cache

from linkscale.plan.asked import Asked
from linkscale.readers.runs import RunRecord
from linkscale.topology import parse_cluster
from linkscale.topology.cluster import Cluster

_KINDS = {"InfiniBand": "ib", "RoCE": "roce", "EFA": "efa", "Omni-Path": "opa"}


def run_cluster(asked: Asked) -> Cluster:
    """Return the cluster of a run; a stated network wins over the product's."""
    record = asked.record
    one_node = (record.num_gpus or 1) <= (record.nvlink_domain_size or record.gpus_per_node or 1)
    scaleout = None if one_node else stated_network(record) or asked.may("scaleout")
    return _cluster(f"{asked.default('system')}:{record.num_gpus}", scaleout)


def stated_network(record: RunRecord) -> str | None:
    """Return the network as the command line spells it; a rate without a kind is taken as RDMA over InfiniBand."""
    gbps = record.scaleout_gbps_per_gpu
    if not gbps:
        return None
    kind = _KINDS.get(record.scaleout_type, "ib")
    per_node = gbps * (record.gpus_per_node or 8)
    ports = _ports(gbps)
    return f"{kind}-{gbps:g}" if ports is None else f"{kind}-{ports:g}x{per_node / ports:g}/node"


def _ports(gbps: float) -> float | None:
    """Return the rate of one port where GPUs share them: rates below 100 Gb/s per GPU come from 100 Gb/s ports."""
    return 100.0 if gbps < 100.0 else None


@lru_cache(maxsize=1024)
def _cluster(text: str, scaleout: str | None) -> Cluster:
    return parse_cluster(text, scaleout=scaleout)
