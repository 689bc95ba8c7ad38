"""The words of the pages: what a cause means, a strategy in one line, a cluster in three."""

from __future__ import annotations

from linkscale.plan.strategy import DEFAULT_MODULES, Strategy
from linkscale.report.context import Asked
from linkscale.report.text import gigabits, size
from linkscale.topology.cluster import Cluster

TIME_WORDS: dict[str, str] = {
    "compute": "forward, backward and loss on the GPU",
    "recompute": "activations computed a second time",
    "tp": "exposed tensor-parallel communication",
    "cp": "exposed context-parallel communication",
    "ep": "exposed expert-parallel communication",
    "pp": "exposed sends between pipeline stages",
    "dp": "exposed gradient and parameter exchange",
    "bubble": "idle while the pipeline fills and drains",
    "optimizer": "gradient norm, clipping, update",
    "input_host": "input and launches that the GPU waits for",
    "wait": "waiting for the slowest of all GPUs",
    "offload": "exposed copies to and from host memory",
}

MEMORY_WORDS: dict[str, str] = {
    "weights": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer states and master weights",
    "activations": "kept for backward, all micro-batches in flight",
    "logits": "logits and the loss",
    "buffers": "gradients of activations, messages",
    "other": "context, libraries, idle allocator memory",
}

DEGREES = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp")
"""Degrees of parallelism in the order in which a strategy is told."""

LEVEL_WORDS = {"device": "device", "domain": "scale-up", "node": "node", "fabric": "scale-out"}

_EXPERT_WORDS = {"grouped": [], "sequential": ["experts one by one"], "fused": ["experts fused"]}
_HIDING = {"shared-expert": "shared experts", "1f1b": "another micro-batch"}
_SCALEUP = {
    "nvswitch": "NVSwitch", "nvlink-mesh": "NVLink mesh", "bridge": "NVLink bridge", "xgmi": "xGMI", "pcie": "PCIe",
    "none": "none",
}  # fmt: skip
_SCALEOUT = {
    "infiniband": "InfiniBand", "roce": "RoCE", "efa": "EFA", "ethernet": "Ethernet", "omni-path": "Omni-Path",
    "none": "none",
}  # fmt: skip


def strategy_line(strategy: Strategy) -> str:
    """Name a strategy in one line: stack, degrees, then the choices that it runs with.

    >>> strategy_line(Strategy(tp=8, pp=4, dp=2))
    'megatron · tp 8 · pp 4 · dp 2 · micro-batch 1 · zero1 · sequence parallel · recompute selective · bf16 · flash'
    """
    return " · ".join([strategy.stack, *degrees(strategy), f"micro-batch {strategy.micro_batch}", *choices(strategy)])


def degrees(strategy: Strategy) -> list[str]:
    """Return the degrees of parallelism above 1."""
    named = {name: getattr(strategy, name) for name in DEGREES}
    return [f"{name} {value}" for name, value in named.items() if value > 1] or ["no parallelism"]


def choices(strategy: Strategy) -> list[str]:
    """Return the choices that matter on this strategy, in a reader's words."""
    words = [sharding(strategy)] if strategy.dp * strategy.cp > 1 else []
    words += ["sequence parallel"] if strategy.sequence_parallel and strategy.tp > 1 else []
    words += [f"recompute {recompute(strategy)}", strategy.precision, strategy.attention]
    words += ["compiled"] if strategy.compile else []
    return words + _unusual(strategy)


def sharding(strategy: Strategy) -> str:
    """Return the sharding with its domain."""
    if strategy.sharding == "hsdp":
        return f"hsdp over {strategy.shard_domain}"
    return "not sharded" if strategy.sharding == "none" else strategy.sharding


def recompute(strategy: Strategy) -> str:
    """Return what is recomputed."""
    layers = strategy.recompute_layers
    if strategy.recompute == "selective" and strategy.recompute_modules != DEFAULT_MODULES:
        return f"of {strategy.recompute_modules.replace(',', ', ')}"
    return f"{strategy.recompute} of {layers} layer{'s' if layers > 1 else ''}" if layers else strategy.recompute


def _unusual(strategy: Strategy) -> list[str]:
    """Return what few strategies have."""
    words = [f"gradients compressed to {strategy.compression}"] if strategy.compression != "none" else []
    words += ["hierarchical exchange"] if strategy.hierarchical else []
    words += [f"buckets of {size(strategy.bucket_bytes)}"] if strategy.bucket_bytes else []
    words += [f"schedule {strategy.schedule}"] if strategy.schedule != "1f1b" and strategy.pp > 1 else []
    words += (
        [f"tp overlap {strategy.tp_overlap}"] if strategy.tp_overlap in ("bulk", "ring") and strategy.tp > 1 else []
    )
    words += _offloaded(strategy)
    words += _routing(strategy) if strategy.ep * strategy.etp > 1 else []
    if strategy.dp * strategy.cp > 1:
        words += [] if strategy.overlap_grad_reduce else ["gradient exchange not overlapped"]
        words += ["no_sync"] if strategy.no_sync and strategy.sharding in ("zero3", "hsdp") else []
        gathers = strategy.sharding != "none" and not strategy.overlap_param_gather
        words += ["parameter gathering not overlapped"] if gathers else []
    return words + ([] if strategy.overlap_p2p or strategy.vpp == 1 else ["p2p not overlapped"])


def _offloaded(strategy: Strategy) -> list[str]:
    """Return what waits in host memory."""
    layers = strategy.offload_layers
    what = {"optimizer": strategy.offload_optimizer, "weights": strategy.offload_params,
            f"activations of {layers} layer{'s' if layers > 1 else ''}": layers > 0}  # fmt: skip
    words = [name for name, offloaded in what.items() if offloaded]
    return [f"{' and '.join(words)} on the host"] if words else []


def _routing(strategy: Strategy) -> list[str]:
    """Return how tokens reach their experts."""
    words = [f"dispatch {strategy.dispatcher}"]
    words += [f"tokens sent in {strategy.dispatch_dtype}"] if strategy.dispatch_dtype != "bf16" else []
    words += [f"results in {strategy.combine_dtype}"] if strategy.combine_dtype != "bf16" else []
    words += [f"hidden behind {_HIDING[strategy.a2a_overlap]}"] if strategy.a2a_overlap != "none" else []
    return words + _EXPERT_WORDS[strategy.expert_gemm]


def training_lines(job: Asked) -> list[tuple[str, str]]:
    """Say what is trained and on what, where that is not all weights on one document a sequence."""
    training = job.training
    words = []
    if training.adapters:
        words.append(f"LoRA of rank {training.lora_rank} on {training.lora_targets}")
    if training.packed_tokens:
        words.append(f"documents of {training.packed_tokens:,} tokens packed")
    if training.expert_spread:
        words.append(f"experts' shares spread by {training.expert_spread:.0%}")
    if training.capacity_factor:
        words.append(f"experts' capacity {training.capacity_factor:g} times a fair share")
    return [("training", " · ".join(words))] if words else []


def cluster_lines(cluster: Cluster) -> list[tuple[str, str]]:
    """Describe a cluster: its GPUs and both networks, Gb/s per GPU and per node, per direction."""
    nodes = f"{cluster.nodes:,} node{'s' if cluster.nodes > 1 else ''} of {min(cluster.gpus, cluster.gpus_per_node)}"
    gpus = f"{cluster.name} · {cluster.gpus:,} × {cluster.gpu.name} in {nodes}"
    return [("cluster", gpus), ("scale-up", _scaleup(cluster)), ("scale-out", _scaleout(cluster))]


def _scaleup(cluster: Cluster) -> str:
    up = cluster.scaleup
    if up.kind == "none" or up.domain_gpus == 1:
        return "none"
    switch = " · in-switch reduction" if up.nvls else ""
    host = "" if up.peer_to_peer else " · no peer-to-peer, through host memory"
    return f"{_SCALEUP[up.kind]}, {up.domain_gpus} GPUs · {_both(cluster, up.bandwidth_bytes_per_s)}{switch}{host}"


def _scaleout(cluster: Cluster) -> str:
    out = cluster.scaleout
    if out.kind == "none" or cluster.nodes == 1:
        return "none" if out.kind == "none" else f"not used by one node ({_SCALEOUT[out.kind]})"
    ports = f"{out.ports_per_node} port{'s' if out.ports_per_node > 1 else ''} of"
    each = f"{ports} {gigabits(out.port_bandwidth_bytes_per_s)} a node"
    return f"{_SCALEOUT[out.kind]} · {_both(cluster, out.bandwidth_bytes_per_s)} · {each}"


def _both(cluster: Cluster, bytes_per_s: float) -> str:
    return f"{gigabits(bytes_per_s)} per GPU, {gigabits(bytes_per_s * cluster.gpus_per_node)} per node"
