"""Collectives against published measurements, and laws that every price keeps."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkscale.cost.collectives import ALGORITHMS, Kind, collective_s
from linkscale.cost.network import Network, network
from linkscale.profile import shipped_profile
from linkscale.topology.cluster import Cluster, ScaleUp
from linkscale.topology.groups import group_geometry
from tests.estimate.clusters import A100, cluster

MIB = 2.0**20
H100 = msgspec.structs.replace(A100, name="h100", arch="hopper", nvlink_bandwidth_bytes_per_s=450e9, sm_count=132)
B200 = msgspec.structs.replace(A100, name="b200", arch="blackwell", nvlink_bandwidth_bytes_per_s=900e9, sm_count=148)


def switched(gpus: int, gpu=H100, nic_gbps: float = 400.0) -> Cluster:  # type: ignore[no-untyped-def]
    """Return nodes whose NVSwitch reduces in the network."""
    base = cluster(gpus, gpu=gpu, nic_gbps=nic_gbps)
    up = ScaleUp(kind="nvswitch", domain_gpus=8, bandwidth_bytes_per_s=gpu.nvlink_bandwidth_bytes_per_s, nvls=True)
    return msgspec.structs.replace(base, scaleup=up)


def net_of(place: Cluster) -> Network:
    return network(place, shipped_profile(place.gpu.arch))


def one(kind: Kind, size: float, ranks: int, net: Network, stride: int = 1) -> tuple[float, str]:
    group = group_geometry(np.array([float(ranks)]), np.array([float(stride)]), net.domain_gpus)
    found = collective_s(kind, np.array([size]), group, net)
    return float(found.time_s[0]), ALGORITHMS[int(found.algorithm[0])]


# MiB, microseconds: NVIDIA/dgxc-benchmarking nccl (2026-07-30), 8 x H100; stas00/ml-engineering benchmarks
# (2026-08-22), 8 x A100 and 8 x H200.
MEASURED = {
    "8 x H100": (switched(8), {16: 123.0, 64: 324.7, 256: 1112.5, 1024: 4016.4, 16384: 62636.0}),
    "8 x A100": (cluster(8), {16: 276.5, 64: 684.8, 256: 2420.2, 1024: 8205.4, 16384: 127990.0}),
    "8 x H200": (switched(8), {16: 133.5, 64: 338.9, 256: 1077.1, 1024: 4053.4, 16384: 62341.0}),
}


@pytest.mark.parametrize("name", MEASURED)
def test_all_reduce_of_one_node_against_published_times(name: str) -> None:
    place, rows = MEASURED[name]
    net = net_of(place)
    errors = [abs(one("all_reduce", size * MIB, 8, net)[0] / (us / 1e6) - 1) for size, us in rows.items()]
    assert np.median(errors) < 0.06
    assert max(errors) < 0.15


def test_nccl_picks_what_it_was_seen_to_pick() -> None:
    """stas00/ml-engineering, 8 x H200 with NCCL 2.27: ring at 4 GPUs, NVLS all-reduce at 8, ring for all-gather."""
    net = net_of(switched(8))
    assert [one("all_reduce", 256 * MIB, n, net)[1] for n in (4, 5, 6, 8)] == ["ring", "nvls", "nvls", "nvls"]
    blackwell = net_of(switched(8, B200))
    assert [one("all_reduce", 4096 * MIB, n, blackwell)[1] for n in (4, 5, 6, 8)] == ["ring", "ring", "nvls", "nvls"]
    assert one("all_reduce", 256 * MIB, 8, net)[1] == "nvls"
    assert one("all_gather", 256 * MIB, 8, net)[1] == "ring"
    assert one("reduce_scatter", 256 * MIB, 8, net)[1] == "ring"


def test_ring_over_nodes_runs_at_the_nics() -> None:
    """Between two published rings at 400 Gb/s per GPU.

    4 x 8 H200 over EFA: 364.65 GB/s (stas00/ml-engineering, forced Ring, 4 GiB). 10 x 8 H100 over InfiniBand: 314
    (xxrjun/nccl-tests-cluster, all_gather, 4 GiB).
    """
    net = net_of(switched(32))
    group = group_geometry(np.array([32.0]), np.array([1.0]), 8)
    from linkscale.cost.collectives import _ring

    time = float(_ring("all_reduce", np.array([4096 * MIB]), group, net, 2)[0])
    assert 314e9 < 4096 * MIB / time * 2 * 31 / 32 < 364.65e9


def test_a_group_of_one_is_free() -> None:
    for kind in ("all_reduce", "all_gather", "reduce_scatter"):
        assert one(kind, 1e9, 1, net_of(cluster(8)))[0] == 0.0  # type: ignore[arg-type]


KINDS = st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "send_recv"])


SIZES = st.floats(1.0, 1e11)


@given(kind=KINDS, size=SIZES, ranks=st.sampled_from([2, 4, 8, 16, 64, 512]), factor=st.floats(1.0, 50.0))
def test_more_bytes_or_a_slower_port_never_cost_less(kind: Kind, size: float, ranks: int, factor: float) -> None:
    slow, fast = net_of(switched(512, nic_gbps=100.0)), net_of(switched(512, nic_gbps=100.0 * factor))
    base = one(kind, size, ranks, slow)[0]
    assert one(kind, size, ranks, fast)[0] <= base * (1 + 1e-12)
    assert one(kind, size * factor, ranks, slow)[0] >= base * (1 - 1e-12)


@given(kind=KINDS, size=SIZES, ranks=st.sampled_from([2, 4, 8, 32, 64]), stride=st.sampled_from([1, 2, 8]))
def test_never_faster_than_the_wire(kind: Kind, size: float, ranks: int, stride: int) -> None:
    """Each member must at least send, and receive, its share once; across domains it goes through the NICs."""
    net = net_of(switched(512))
    time = one(kind, size, ranks, net, stride)[0]
    group = group_geometry(np.array([float(ranks)]), np.array([float(stride)]), 8)
    per_domain, domains = float(group.per_domain[0]), float(group.domains[0])
    if domains > 1 and kind != "send_recv":
        leaves = size * (domains - 1) / domains * (2 if kind == "all_reduce" else 1)
        assert time >= leaves / (per_domain * 50e9) * (0.5 if kind == "all_reduce" else 1.0)
    else:
        assert time >= size / 450e9 * (1 - 1 / ranks)


def test_batch_equals_one_by_one_bit_for_bit() -> None:
    rng = np.random.default_rng(0)
    net = net_of(switched(512))
    sizes, ranks = rng.uniform(1, 1e10, 999), 2.0 ** rng.integers(1, 9, 999)
    whole = collective_s("all_reduce", sizes, group_geometry(ranks, np.ones(999), 8), net).time_s
    singles = [one("all_reduce", float(s), int(r), net)[0] for s, r in zip(sizes, ranks, strict=True)]
    assert whole.tolist() == singles
