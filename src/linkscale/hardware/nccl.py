"""NCCL's cost constants as values, read from the packaged file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from linkscale.base.yaml import load_packaged

Latencies = dict[str, tuple[float, float, float]]


@dataclass(frozen=True)
class NcclConstants:
    """Constants of one NCCL release; seconds and bytes/s. Tuples run over LL, LL128, Simple."""

    version: str
    base_latency_s: Latencies
    hw_latency_s: dict[str, Latencies]
    _data: dict[str, Any]

    def post_overhead_s(self, host_cpu: str) -> float:
        """Seconds a host needs to post a network request, by CPU vendor."""
        return float(self._data["post_overhead_us"][host_cpu]) / 1e6

    def ll_cap_intra_bytes_per_s(self, arch: str) -> float:
        """Cap of the LL protocol's bus bandwidth on one node."""
        return _of(self._data["ll_cap_intra_GBps"], arch) * 1e9

    def ll_cap_inter_bytes_per_s(self, host_cpu: str) -> float:
        """Cap of the LL protocol's bus bandwidth across nodes, by CPU vendor."""
        return _of(self._data["ll_cap_inter_GBps"], host_cpu) * 1e9

    def link_fraction(self, arch: str, kind: str, peer_to_peer: bool) -> float:
        """Share of a scale-up link's wire rate that NCCL assumes reachable."""
        if kind != "pcie":
            return _of(self._data["nvlink_fraction"], arch)
        return float(self._data["pcie_fraction"]) * (1.0 if peer_to_peer else float(self._data["host_bounce_fraction"]))

    def channels(self, arch: str) -> float:
        """Thread blocks (about one SM each) that a large collective holds."""
        return _of(self._data["channels"], arch)


def _of(table: dict[str, float], key: str) -> float:
    return float(table.get(key, table.get("other", 0.0)))


def _seconds(rows: dict[str, list[float]]) -> Latencies:
    return {name: (us[0] / 1e6, us[1] / 1e6, us[2] / 1e6) for name, us in rows.items()}


@cache
def nccl_constants() -> NcclConstants:
    """Return the packaged constants."""
    data = load_packaged("linkscale.hardware", "data/nccl.yaml")
    return NcclConstants(
        version=data["version"],
        base_latency_s=_seconds(data["base_latency_us"]),
        hw_latency_s={place: _seconds(rows) for place, rows in data["hw_latency_us"].items()},
        _data=data,
    )
