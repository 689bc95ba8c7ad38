"""Clusters and estimates for tests, built by hand so that a test can turn one screw."""

from __future__ import annotations

from typing import Any

from linkscale.estimate import BatchEstimate, evaluate
from linkscale.hardware.types import Gpu
from linkscale.plan.strategy import Strategy
from linkscale.profile import Profile, shipped_profile
from linkscale.topology.cluster import Cluster, ScaleOut, ScaleUp
from linkscale.workload import Architecture, decoder

A100 = Gpu(
    name="a100", arch="ampere", peak_flops_per_s={"bf16": 312e12, "fp16": 312e12}, memory_bytes=80 * 2.0**30,
    memory_bandwidth_bytes_per_s=2.039e12, nvlink_generation=3, nvlink_links=12, nvlink_bandwidth_bytes_per_s=300e9,
    pcie_bandwidth_bytes_per_s=31.5e9, power_w=400.0, sm_count=108, boost_clock_hz=1.41e9,
)  # fmt: skip

GPT = Architecture(
    name="gpt", model_type="gpt2", vocab=51200, hidden=4096, layers=24, heads=32, kv_heads=32, head_dim=128,
    ffn_hidden=16384, gated_mlp=False, norm="layernorm", norm_bias=True, qkv_bias=True, attention_out_bias=True,
    mlp_bias=True, positions="learned", max_positions=2048,
)  # fmt: skip


def cluster(gpus: int, *, nic_gbps: float = 200.0, gpu: Gpu = A100) -> Cluster:
    """Return DGX A100 nodes with one port per GPU."""
    rate = nic_gbps / 8 * 1e9
    up = ScaleUp(kind="nvswitch", domain_gpus=8, bandwidth_bytes_per_s=gpu.nvlink_bandwidth_bytes_per_s)
    out = ScaleOut(
        kind="infiniband", bandwidth_bytes_per_s=rate, ports_per_node=8, port_bandwidth_bytes_per_s=rate
    )  # fmt: skip
    return Cluster(name="test", gpu=gpu, gpus=gpus, gpus_per_node=8, host_cpu="amd", scaleup=up, scaleout=out)


def estimate(
    global_batch: int, *, arch: Architecture = GPT, nic_gbps: float = 200.0, profile: Profile | None = None,
    seq_len: int = 2048, **strategy: Any,
) -> BatchEstimate:  # fmt: skip
    """Estimate one strategy on as many GPUs as it needs."""
    chosen = Strategy(**{"attention": "flash", "recompute": "none", **strategy})
    place = cluster(chosen.gpus, nic_gbps=nic_gbps)
    return evaluate(decoder(arch), place, chosen.batch(), seq_len, global_batch, profile or shipped_profile("ampere"))


def message(found: BatchEstimate, group: str, what: str) -> tuple[float, float, float, float]:
    """Return size, count, seconds of one call and exposed seconds of one kind of message."""
    for m in found.messages:
        if m.group_name == group and m.what == what:
            return float(m.size_bytes[0]), float(m.count[0]), float(m.one.time_s[0]), float(m.exposed_s[0])
    raise LookupError(f"no message {what} of {group}")
