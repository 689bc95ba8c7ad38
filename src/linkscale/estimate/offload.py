"""Seconds of copies between a GPU and its host that nothing hides: activations, weights, gradients.

Activations of a layer leave behind its forward and return behind its backward; a layer's weights come behind the
compute of the layer before; gradients leave behind the backward of the next layer. What a copy exceeds its cover is
exposed, and so is the first or last one, which has none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linkscale.cost.kernels import FloatArray
from linkscale.cost.offload import LAYERS_IN_FLIGHT, Host, host_update_s
from linkscale.estimate.numbers import Numbers
from linkscale.estimate.parameters import StageParams
from linkscale.estimate.replicas import DpGroups, StageWork
from linkscale.estimate.units import Units
from linkscale.plan.strategy import DTYPE_BYTES, Choices


@dataclass(frozen=True)
class Copies:
    """Exposed seconds of one step by what is copied."""

    activations: FloatArray
    weights: FloatArray
    gradients: FloatArray

    @property
    def total(self) -> FloatArray:
        """Seconds of all copies."""
        return self.activations + self.weights + self.gradients


def copies(unit: Units, n: Numbers, work: StageWork, groups: DpGroups, choices: Choices, found: Host) -> Copies:
    """Price the copies of the critical stage."""
    shards, none = groups.dense.shard.size, np.zeros_like(n.tp)
    weights = _weights(work, shards, groups.experts.shard.size, choices, found) if choices.offload_params else none
    gradients = (
        _gradients(work, shards, groups.experts.shard.size, choices, found) if choices.offload_optimizer else none
    )
    return Copies(_activations(unit, n, work, choices, found), weights, gradients)


def host_update_of(work: StageWork, groups: DpGroups, choices: Choices, found: Host) -> FloatArray:
    """Return the seconds in which the host updates the critical stage's parameters."""
    dense = host_update_s(work.trained.dense, groups.dense.shard.size, choices, found)
    return dense + host_update_s(work.trained.experts, groups.experts.shard.size, choices, found)


def _activations(unit: Units, n: Numbers, work: StageWork, choices: Choices, found: Host) -> FloatArray:
    """Store what ``offload_layers`` layers keep, and load it again."""
    one = kept_bytes(unit, n, work.layers, choices) / found.link_bytes_per_s
    late = np.maximum(0.0, one - work.layer_forward_s) + np.maximum(0.0, one - work.layer_backward_s)
    # The last layers are still there when backward begins.
    layers = np.maximum(0.0, np.minimum(n.offload_layers, work.layers) - LAYERS_IN_FLIGHT)
    return np.asarray(n.micro_batches * layers * late)


def kept_bytes(unit: Units, n: Numbers, layers: FloatArray, choices: Choices) -> FloatArray:
    """Return what a layer keeps for backward, on average where some layers are recomputed."""
    if choices.recompute != "full":
        return unit.activation_bytes
    share = n.recomputed_share(layers)
    return share * unit.checkpoint_bytes + (1.0 - share) * unit.activation_bytes


def _weights(
    work: StageWork, shards: FloatArray, expert_shards: FloatArray, choices: Choices, found: Host
) -> FloatArray:
    """Bring the shards of a layer, forward and backward of every micro-batch, before its ranks gather them."""
    one = _shard_bytes(work.held, shards, expert_shards, DTYPE_BYTES[choices.param_dtype]) / found.link_bytes_per_s
    late = np.maximum(0.0, one - work.layer_forward_s) + np.maximum(0.0, one - work.layer_backward_s)
    return np.asarray(work.micro_batches * (one + (work.layers - 1.0) * late))


def _gradients(
    work: StageWork, shards: FloatArray, expert_shards: FloatArray, choices: Choices, found: Host
) -> FloatArray:
    """Send gradients after the backward that completes them: every time where ranks keep shards, else once."""
    every = choices.sharding in ("zero2", "zero3", "hsdp") and not choices.no_sync
    alone = choices.sharding == "none"
    one = np.ones_like(work.layers)
    sizes = _shard_bytes(work.trained, one if alone else shards, one if alone else expert_shards,
                         DTYPE_BYTES[choices.grad_dtype])  # fmt: skip
    each = sizes / found.link_bytes_per_s
    late = np.maximum(0.0, each - work.layer_backward_s)
    return np.asarray((work.micro_batches if every else 1.0) * (each + (work.layers - 1.0) * late))


def _shard_bytes(held: StageParams, shards: FloatArray, expert_shards: FloatArray, param_bytes: float) -> FloatArray:
    """Bytes of an average layer's part on one rank, the edges' share of it included."""
    dense = held.layer + held.edge / np.maximum(held.layers, 1.0)
    return np.asarray(param_bytes * (dense / shards + held.expert / expert_shards))
