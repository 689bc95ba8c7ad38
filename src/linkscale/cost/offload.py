"""What leaves a GPU for its host's memory, and at what rates: ZeRO-Offload, ZeRO-Infinity, FSDP's CPU offload.

Sources: Ren et al. 2021 (arXiv 2101.06840: gradients to the host, the update there, weights back); Rajbhandari et al.
2021 (arXiv 2104.07857: weights and activations too, each layer's moved behind the compute of others).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linkscale.base.errors import InputError
from linkscale.cost.kernels import FloatArray, Number
from linkscale.cost.memory import StateBytes
from linkscale.cost.optimizer import MASTER_BYTES, UPDATES, streamed_bytes
from linkscale.plan.strategy import DTYPE_BYTES, Choices, Strategy
from linkscale.topology.cluster import Cluster

# Achieved over label rate of pinned copies: 55.4 of 63 GB/s over PCIe 5 (H200), 359 of 450 GB/s over the link between
# a Grace CPU and its GPU (GB300); stas00/ml-engineering:network/README.md (2026-08-22).
PCIE_FRACTION = 55.43 / 63.0
CHIP_TO_CHIP_FRACTION = 359.0 / 450.0
# Chosen: what streaming kernels sustain of the label rate of server memory (STREAM reports some 80%).
HOST_MEMORY_FRACTION = 0.8
# Layers whose activations are on the device at a time: the one at work and the one on its way.
LAYERS_IN_FLIGHT = 2.0


@dataclass(frozen=True)
class Host:
    """One GPU's share of its host: bytes/s of its link per direction, and of memory (0: not known)."""

    link_bytes_per_s: float
    memory_bytes_per_s: float


def host(cluster: Cluster) -> Host:
    """Return what a GPU gets of its host; all GPUs of a node share the memory, which also bounds their links."""
    gpu, sharing = cluster.gpu, min(cluster.gpus, cluster.gpus_per_node)
    chip = gpu.chip_to_chip_bandwidth_bytes_per_s
    own = chip * CHIP_TO_CHIP_FRACTION if chip else gpu.pcie_bandwidth_bytes_per_s * PCIE_FRACTION
    memory = cluster.host_memory_bytes_per_s * HOST_MEMORY_FRACTION / sharing
    return Host(min(own, memory) if memory else own, memory)


def offloads(strategy: Choices) -> bool:
    """Whether a strategy keeps anything on the host."""
    layers = strategy.offload_layers if isinstance(strategy, Strategy) else 0
    return strategy.offload_optimizer or strategy.offload_params or layers > 0


def needed_host(cluster: Cluster, choices: Choices) -> Host:
    """Return the host of a GPU that offloads; raise InputError where the catalogue does not know what that needs."""
    found = host(cluster)
    if not found.link_bytes_per_s:
        raise InputError(
            f"the catalogue gives {cluster.gpu.name} no link to its host: nothing can be offloaded; "
            "add pcie_per_gpu to its entry"
        )
    if choices.offload_optimizer and not found.memory_bytes_per_s:
        raise InputError(
            f"the catalogue does not know the host memory of {cluster.name}, where offload_optimizer updates; "
            "add host_memory_per_node to its entry"
        )
    return found


def host_update_s(params: Number, shards: Number, choices: Choices, found: Host) -> FloatArray:
    """Seconds of the update on the host: memory streamed as a device would, or weights sent back, whichever is longer.

    Both run in pieces side by side. Weights that stay on the host are not sent back.
    """
    updated = params if choices.sharding == "none" else params / shards
    streamed = streamed_bytes(choices) * updated / found.memory_bytes_per_s
    back = 0.0 if choices.offload_params else DTYPE_BYTES[choices.param_dtype] * updated / found.link_bytes_per_s
    return np.maximum(streamed, back)


def on_device(layers: FloatArray, share: FloatArray) -> FloatArray:
    """Layers whose activations a device holds of those kept for backward, a share of which waits on the host."""
    return (1.0 - share) * layers + np.minimum(share * layers, LAYERS_IN_FLIGHT)


def offloaded_state(params: Number, trained: Number, shards: Number, choices: Choices) -> StateBytes:
    """Bytes of a stage's ``params``, of which ``trained`` are, that are on the host instead of the device.

    The optimizer takes the master weights along; where ranks keep shards of gradients, it takes those too. Fully
    sharded stacks leave a 16-bit copy of the weights behind, unless it is offloaded as well.
    """
    if not choices.offload_optimizer:
        return StateBytes(0.0, 0.0, 0.0)
    full = choices.sharding in ("zero3", "hsdp")
    shard = trained if choices.sharding == "none" else trained / shards
    moments = UPDATES[choices.optimizer].moments_bytes * shard
    held = {"zero2": DTYPE_BYTES[choices.grad_dtype], "zero3": MASTER_BYTES, "hsdp": MASTER_BYTES}
    gradients = 0.0 if choices.no_sync else held.get(choices.sharding, 0.0) * shard
    if not full:
        return StateBytes(0.0, gradients, moments + MASTER_BYTES * shard)
    copy = 2.0 * params / shards if choices.offload_params else 0.0
    return StateBytes((MASTER_BYTES - 2.0) * shard + copy, gradients, moments)
