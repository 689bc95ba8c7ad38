"""Clusters: what GPUs there are, how they are linked, and how communication groups lie on them."""

from linkscale.topology.cluster import Cluster, ScaleOut, ScaleUp
from linkscale.topology.clusters import parse_cluster, scaleout_text

__all__ = ["Cluster", "ScaleOut", "ScaleUp", "parse_cluster", "scaleout_text"]
