"""The grammar of clusters, what it gives, and what is refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkscale.base.errors import InputError
from linkscale.topology import parse_cluster, scaleout_text


@pytest.mark.parametrize(
    ("text", "domain", "link_gbytes", "text_out", "host"),
    [
        ("dgx-h100:16384", 8, 450, "400 Gb/s per GPU, 3,200 Gb/s per node", "intel"),
        ("DGX-H100:8", 8, 450, "400 Gb/s per GPU, 3,200 Gb/s per node", "intel"),
        ("dgx-a100:64", 8, 300, "200 Gb/s per GPU, 1,600 Gb/s per node", "amd"),
        ("gb200-nvl72:576", 72, 900, "400 Gb/s per GPU, 1,600 Gb/s per node", "grace"),
        ("gb300-nvl72:72", 72, 900, "800 Gb/s per GPU, 3,200 Gb/s per node", "grace"),
        ("p5.48xlarge:256", 8, 450, "400 Gb/s per GPU, 3,200 Gb/s per node", "amd"),
        ("a3-megagpu-8g:64", 8, 450, "200 Gb/s per GPU, 1,600 Gb/s per node", "intel"),
        ("rtx-4090:16", 8, 31, "12.5 Gb/s per GPU, 100 Gb/s per node", "unknown"),
        ("dgx-2:32", 16, 150, "50 Gb/s per GPU, 800 Gb/s per node", "intel"),
        ("mi300x:16", 8, 448, "400 Gb/s per GPU, 3,200 Gb/s per node", "unknown"),
    ],
)
def test_systems_by_name(text, domain, link_gbytes, text_out, host):
    cluster = parse_cluster(text)
    assert cluster.scaleup.domain_gpus == domain
    assert cluster.scaleup.bandwidth_bytes_per_s == link_gbytes * 1e9
    assert scaleout_text(cluster) == text_out
    assert cluster.host_cpu == host


@pytest.mark.parametrize(
    ("scaleout", "kind", "per_gpu", "ports"),
    [
        ("ib-400", "infiniband", 400, 8),
        ("ib-400x1/node", "infiniband", 50, 1),
        ("ib-400x8/node", "infiniband", 400, 8),
        ("roce-200", "roce", 200, 8),
        ("eth-100x2/node", "ethernet", 25, 2),
        ("efa-400", "efa", 400, 8),
        ("opa-100x4/node", "omni-path", 50, 4),
        ("IB-12.5", "infiniband", 12.5, 8),
    ],
)
def test_a_port_per_gpu_unless_said_per_node(scaleout, kind, per_gpu, ports):
    out = parse_cluster("dgx-h100:64", scaleout=scaleout).scaleout
    assert (out.kind, out.bandwidth_bytes_per_s * 8 / 1e9, out.ports_per_node) == (kind, per_gpu, ports)


@given(ports=st.integers(1, 64), gbps=st.integers(1, 1600))
def test_ports_of_a_node_share_out_to_its_gpus(ports, gbps):
    out = parse_cluster("dgx-a100:64", scaleout=f"ib-{gbps}x{ports}/node").scaleout
    assert out.bandwidth_bytes_per_s * 8 * 8 == pytest.approx(ports * gbps * 1e9)


@pytest.mark.parametrize(
    ("text", "scaleup", "kind", "domain", "nvls", "link_gbytes"),
    [
        ("dgx-h100:64", "nvl72", "nvswitch", 72, True, 450),
        ("dgx-h100:64", "nvl4", "nvswitch", 4, True, 450),
        ("dgx-a100:64", "nvl8", "nvswitch", 8, False, 300),
        ("dgx-h100:64", "pcie", "pcie", 8, False, 63),
        ("dgx-h100:64", "none", "none", 1, False, 0),
        ("a100-pcie:8", None, "pcie", 8, False, 31),
        ("a100-pcie:8", "nvl2", "bridge", 2, False, 300),
        ("v100-16gb-8:8", None, "nvlink-mesh", 8, False, 150),
        ("jean-zay-v100-32gb:8", None, "nvlink-mesh", 4, False, 150),
        ("gb200-nvl72:72", None, "nvswitch", 72, True, 900),
        ("dgx-b200:8", None, "nvswitch", 8, True, 900),
    ],
)
def test_scale_up_domains(text, scaleup, kind, domain, nvls, link_gbytes):
    up = parse_cluster(text, scaleup=scaleup).scaleup
    assert (up.kind, up.domain_gpus, up.nvls) == (kind, domain, nvls)
    assert up.bandwidth_bytes_per_s == link_gbytes * 1e9


def test_geforce_cards_reach_each_other_through_host_memory():
    assert not parse_cluster("rtx-4090:8").scaleup.peer_to_peer
    assert parse_cluster("rtx-3090:8").scaleup.peer_to_peer
    assert parse_cluster("dgx-h100:8", scaleup="pcie").scaleup.peer_to_peer


def test_one_gpu_needs_no_network():
    cluster = parse_cluster("h100-sxm5:1", scaleup="none", scaleout="none")
    assert (cluster.gpus, cluster.nodes, scaleout_text(cluster)) == (1, 1, "none")


def test_the_part_that_torchtitan_measured_on():
    gpu = parse_cluster("grand-teton-h100-96gb:64").gpu
    assert (gpu.memory_bandwidth_bytes_per_s, gpu.power_w, gpu.memory_bytes) == (2.4e12, 500.0, 96 * 2**30)


@pytest.mark.parametrize("name", [
    "dgx-a100", "dgx-a100-40gb", "dgx-h100", "hgx-h200", "grand-teton-h100-96gb", "gb200-nvl72", "gb300-nvl72",
    "dgx-b200", "dgx-b300", "dgx-2", "v100-16gb-8", "jean-zay-v100-16gb", "jean-zay-v100-32gb",
])  # fmt: skip
def test_systems_of_the_product_defaults_are_known(name):
    assert parse_cluster(f"{name}:64").name.lower() == name


def test_conventions_are_said():
    assert any("scale-out" in said for said in parse_cluster("rtx-4090:16").assumptions)
    assert not parse_cluster("rtx-4090:16", scaleout="eth-25x1/node", scaleup="pcie").assumptions
    assert not parse_cluster("dgx-h100:64").assumptions
    assert any("priced over the NICs" in said for said in parse_cluster("a100-pcie:8", scaleup="nvl2").assumptions)


@pytest.mark.parametrize(
    ("text", "links", "said"),
    [
        ("dgx-h100:0", {}, "from 1 to 10,000,000"),
        ("dgx-h100:-4", {}, "'-4' is no number of GPUs"),
        ("dgx-h100:1e30", {}, "'1e30' is no number of GPUs"),
        ("dgx-h100:" + "9" * 5000, {}, "is no number of GPUs"),
        ("dgx-h100:٣", {}, "is no number of GPUs"),
        ("dgx-h100:8.5", {}, "is no number of GPUs"),
        ("dgx-h100:", {}, "is no number of GPUs"),
        ("dgx-h100", {}, "write, for example, dgx-h100:64"),
        ("", {}, "is not SYSTEM:GPUS"),
        (":8", {}, "is not SYSTEM:GPUS"),
        ("dgx-h10:8", {}, "did you mean 'dgx-h100'"),
        ("gb200-nvl27:8", {}, "did you mean 'gb200-nvl72'"),
        ("zzzz:8", {}, "linkscale catalog systems"),
        ("../../etc:8", {}, "unknown system"),
        ("dgx-h100:64", {"scaleout": "ip-400"}, "did you mean 'ib'"),
        ("dgx-h100:64", {"scaleout": "400"}, "write ib-400"),
        ("dgx-h100:64", {"scaleout": "ib"}, "write ib-400"),
        ("dgx-h100:64", {"scaleout": "ib-0"}, "out of range"),
        ("dgx-h100:64", {"scaleout": "ib--400"}, "write ib-400"),
        ("dgx-h100:64", {"scaleout": "ib-400x0/node"}, "out of range"),
        ("dgx-h100:64", {"scaleout": "ib-1e9"}, "write ib-400"),
        ("dgx-h100:64", {"scaleout": "ib-" + "9" * 400}, "out of range"),
        ("dgx-h100:64", {"scaleout": "none"}, "give --scaleout"),
        ("dgx-h100:2", {"scaleout": "none", "scaleup": "none"}, "give --scaleout"),
        ("dgx-h100:64", {"scaleup": "nvlink"}, "write nvl8"),
        ("dgx-h100:64", {"scaleup": "nvl0"}, "write nvl8"),
        ("dgx-h100:64", {"scaleup": "nvl9999999"}, "write nvl8"),
        ("rtx-4090:8", {"scaleup": "nvl8"}, "has no NVLink"),
        ("a100-pcie:8", {"scaleup": "nvl8"}, "use nvl2"),
        ("tpu-v4:8", {"scaleup": "pcie"}, "no PCIe"),
    ],
)  # fmt: skip
def test_bad_text_gets_one_line(text, links, said):
    with pytest.raises(InputError) as raised:
        parse_cluster(text, **links)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400


@given(st.text(max_size=30), st.text(max_size=20), st.text(max_size=20))
def test_no_text_gives_anything_but_a_cluster_or_an_input_error(text, scaleup, scaleout):
    with contextlib.suppress(InputError):
        parse_cluster(text, scaleup=scaleup, scaleout=scaleout)
    with contextlib.suppress(InputError):
        parse_cluster("dgx-h100:64", scaleout=scaleout)
    with contextlib.suppress(InputError):
        parse_cluster("dgx-h100:64", scaleup=scaleup)
