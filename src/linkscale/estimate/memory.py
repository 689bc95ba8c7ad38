"""Bytes on the fullest GPU of a strategy: the first, second or last pipeline stage, whichever holds most."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from linkscale.cost.kernels import FloatArray
from linkscale.cost.memory import COMMUNICATOR_BYTES, CONTEXT_BYTES, FRAGMENTATION, state_bytes
from linkscale.cost.offload import offloaded_state, on_device
from linkscale.estimate.numbers import Numbers
from linkscale.estimate.parameters import StageParams, stage_params
from linkscale.estimate.pipeline import StageLayers, chunks_in_flight
from linkscale.estimate.replicas import DpGroups
from linkscale.estimate.units import Units
from linkscale.plan.strategy import Choices

CAUSES = ("weights", "gradients", "optimizer", "activations", "logits", "buffers")


@dataclass(frozen=True)
class MemoryBytes:
    """Bytes by cause on the fullest stage; arrays over strategies."""

    weights: FloatArray
    gradients: FloatArray
    optimizer: FloatArray
    activations: FloatArray
    logits: FloatArray
    buffers: FloatArray
    communicators: FloatArray
    """How many communicators the GPU belongs to."""

    @property
    def allocated(self) -> FloatArray:
        """Live tensors at the peak."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.logits + self.buffers

    @property
    def reserved(self) -> FloatArray:
        """What the caching allocator holds for them."""
        return self.allocated * (1.0 + FRAGMENTATION)

    @property
    def device(self) -> FloatArray:
        """What the driver reports: the allocator's share, the context and NCCL's buffers."""
        return self.reserved + CONTEXT_BYTES + COMMUNICATOR_BYTES * self.communicators


def memory_bytes(unit: Units, n: Numbers, layers: StageLayers, groups: DpGroups, choices: Choices) -> MemoryBytes:
    """Take the fullest of the first, second and last stage."""
    zero, whole, one = np.zeros_like(n.tp), np.ones_like(n.tp), np.where(n.pp == 1, 1.0, 0.0)
    second = np.minimum(1.0, n.pp - 1.0)
    stages = [
        _stage(unit, n, layers.first, zero, whole, one, groups, choices),
        _stage(unit, n, layers.middle, second, one, one, groups, choices),
        _stage(unit, n, layers.last, n.pp - 1.0, one, whole, groups, choices),
    ]
    best = stages[0]
    for stage in stages[1:]:
        fuller = stage.allocated > best.allocated
        chosen = {c: np.where(fuller, getattr(stage, c), getattr(best, c)) for c in CAUSES}
        best = MemoryBytes(**chosen, communicators=best.communicators)
    return best


def _communicators(n: Numbers) -> FloatArray:
    """One for each parallel dimension in use, and one of all ranks."""
    used = 1.0 * (n.tp > 1) + (n.cp > 1) + 2.0 * (n.pp > 1) + (n.dp > 1) + (n.ep > 1) + (n.ep * n.etp > 1)
    return used + np.where(n.tp * n.cp * n.pp * n.dp > 1, 1.0, 0.0)


def _stage(
    unit: Units, n: Numbers, count: FloatArray, stage: FloatArray, embedding: FloatArray, head: FloatArray,
    groups: DpGroups, choices: Choices,
) -> MemoryBytes:  # fmt: skip
    # Under DualPipe every GPU holds a stage from each end of the pipeline.
    copies = 2.0 if choices.schedule == "dualpipe" else 1.0
    held, trained = (_times(copies, stage_params(p, count, embedding, head)) for p in (unit.params, unit.trained))
    state = state_bytes(
        held.layers * held.layer, held.edge, held.layer, groups.dense.shard.size, choices,
        frozen=held.dense - trained.dense, frozen_unit=held.layer - trained.layer,
    )  # fmt: skip
    routed = state_bytes(
        held.experts, 0.0, held.expert, groups.experts.shard.size, choices,
        frozen=held.experts - trained.experts, frozen_unit=held.expert - trained.expert,
    )  # fmt: skip
    on_host = (
        offloaded_state(held.dense, trained.dense, groups.dense.shard.size, choices),
        offloaded_state(held.experts, trained.experts, groups.experts.shard.size, choices),
    )

    def left(cause: str) -> FloatArray:
        """Bytes of the state on the device."""
        whole = getattr(state, cause) + getattr(routed, cause)
        return np.asarray(whole - sum(getattr(gone, cause) for gone in on_host))

    ahead = 1.0 if choices.a2a_overlap == "1f1b" else 0.0
    chunks = chunks_in_flight(n.pp, n.vpp, n.micro_batches, stage, choices.schedule, ahead)
    kept = _kept_bytes(unit, n, count, chunks, choices)
    # One layer's working set: its gradient and the recomputed activations are live together.
    buffers = unit.boundary_bytes * 2.0
    return MemoryBytes(
        weights=left("weights"), gradients=left("gradients"), optimizer=left("optimizer"), activations=kept,
        logits=head * unit.logits_bytes, buffers=buffers, communicators=_communicators(n),
    )  # fmt: skip


def _times(copies: float, held: StageParams) -> StageParams:
    return replace(held, layers=copies * held.layers, edge=copies * held.edge)


def _kept_bytes(unit: Units, n: Numbers, count: FloatArray, chunks: FloatArray, choices: Choices) -> FloatArray:
    """Activations of the micro-batches in flight; where a layer is recomputed, one is whole while that is done."""
    layers_held = on_device(chunks * count / n.vpp, np.minimum(1.0, n.offload_layers / np.maximum(count, 1.0)))
    if choices.recompute == "none":
        return layers_held * unit.activation_bytes
    if choices.recompute == "selective":
        return layers_held * unit.activation_bytes + (unit.whole_activation_bytes - unit.activation_bytes)
    share = n.recomputed_share(count)
    held = share * unit.checkpoint_bytes + (1.0 - share) * unit.activation_bytes
    return layers_held * held + unit.whole_activation_bytes
