"""Bytes on the fullest GPU of a strategy at its fullest moment: of the first, second or last pipeline stage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from linkscale.cost.kernels import FloatArray
from linkscale.cost.memory import (
    COMMUNICATOR_BYTES,
    CONTEXT_BYTES,
    FRAGMENTATION,
    HeldParams,
    Moment,
    StateBytes,
    complete_share,
    from_torch,
    moments,
    state_bytes,
)
from linkscale.cost.offload import offloaded_state, on_device
from linkscale.estimate.numbers import Numbers
from linkscale.estimate.parameters import Params
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
    idle: FloatArray
    """What the allocator holds beside them for other moments, and can lend to nothing else."""
    communicators: FloatArray
    """How many communicators the GPU belongs to."""
    fragmentation: float
    """What the allocator holds unused between them, over what it holds."""

    @property
    def allocated(self) -> FloatArray:
        """Live tensors at the peak."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.logits + self.buffers

    @property
    def reserved(self) -> FloatArray:
        """What the caching allocator holds."""
        return (self.allocated + self.idle) * (1.0 + self.fragmentation)

    @property
    def device(self) -> FloatArray:
        """What the driver reports: the allocator's share, the context and NCCL's buffers."""
        return self.reserved + CONTEXT_BYTES + COMMUNICATOR_BYTES * self.communicators


def memory_bytes(unit: Units, n: Numbers, layers: StageLayers, groups: DpGroups, choices: Choices) -> MemoryBytes:
    """Take the fullest of the first, second and last stage, at the fullest of its moments."""
    none, whole, alone = np.zeros_like(n.tp), np.ones_like(n.tp), np.where(n.pp == 1, 1.0, 0.0)
    second = np.minimum(1.0, n.pp - 1.0)
    # A stage that is alone is the last one, with all that it holds.
    places = (
        _Place(layers.first, none, whole, none),
        _Place(layers.middle, second, alone, none),
        _Place(layers.last, n.pp - 1.0, alone, whole),
    )
    stages = [_stage(unit, n, place, groups, choices) for place in places]
    found = [
        _at(stage, moment, unit, n, choices)
        for stage in stages
        for moment in moments(choices)
        if moment != "loss" or stage is stages[-1]
    ]
    return replace(reduce(_fuller, found), communicators=_communicators(n))


def _fuller(best: MemoryBytes, found: MemoryBytes) -> MemoryBytes:
    """Keep the moment with more live tensors; what is reserved is what any moment needs."""
    before, after = best.allocated, found.allocated
    fuller = after > before
    chosen = {c: np.where(fuller, getattr(found, c), getattr(best, c)) for c in CAUSES}
    idle = np.maximum(before + best.idle, after + found.idle) - np.maximum(before, after)
    return replace(best, **chosen, idle=idle)


def _communicators(n: Numbers) -> FloatArray:
    """One for each parallel dimension in use, and one of all ranks."""
    used = 1.0 * (n.tp > 1) + (n.cp > 1) + 2.0 * (n.pp > 1) + (n.dp > 1) + (n.ep > 1) + (n.ep * n.etp > 1)
    return used + np.where(n.tp * n.cp * n.pp * n.dp > 1, 1.0, 0.0)


@dataclass(frozen=True)
class _Place:
    """A stage: its layers, its place in the pipeline, whether it has the embedding and the head."""

    layers: FloatArray
    stage: FloatArray
    embedding: FloatArray
    head: FloatArray


@dataclass(frozen=True)
class _Both:
    """Parameters that a group of ranks holds, and those of them that are trained."""

    held: HeldParams
    trained: HeldParams
    shards: FloatArray


@dataclass(frozen=True)
class _Stage:
    """What one stage holds."""

    dense: _Both
    experts: _Both
    kept: FloatArray
    """Activations kept for backward of all micro-batches in flight."""
    kept_before: FloatArray
    """The same without the micro-batch whose backward ends."""
    layer: FloatArray
    """What one layer keeps."""
    again: FloatArray
    """What the layer whose backward runs has computed again."""


def _stage(unit: Units, n: Numbers, place: _Place, groups: DpGroups, choices: Choices) -> _Stage:
    # Under DualPipe every GPU holds a stage from each end of the pipeline.
    copies = 2.0 if choices.schedule == "dualpipe" else 1.0
    all_of, trained = unit.params, unit.trained
    ahead = 1.0 if choices.a2a_overlap == "1f1b" else 0.0
    chunks = chunks_in_flight(n.pp, n.vpp, n.micro_batches, place.stage, choices.schedule, ahead)
    layer, again = _layer_bytes(unit, n, place.layers, choices)
    sent = unit.checkpoint_bytes * np.where(n.pp > 1, 1.0, 0.0) if _keeps_outputs(choices) else 0.0
    edge = place.embedding * unit.embedding_kept_bytes + sent
    offloaded = np.minimum(1.0, n.offload_layers / np.maximum(place.layers, 1.0))

    def kept(chunks: FloatArray) -> FloatArray:
        return on_device(chunks * place.layers / n.vpp, offloaded) * layer + chunks * edge

    return _Stage(
        dense=_Both(_dense(all_of, place, copies), _dense(trained, place, copies), groups.dense.shard.size),
        experts=_Both(_experts(all_of, place, copies), _experts(trained, place, copies), groups.experts.shard.size),
        kept=kept(chunks), kept_before=kept(np.maximum(0.0, chunks - 1.0)), layer=layer, again=again,
    )  # fmt: skip


def _dense(params: Params, place: _Place, copies: float) -> HeldParams:
    head = copies * place.head * params.head
    table = copies * params.edge(place.embedding, place.head) - head
    return HeldParams(copies * place.layers * params.layer, params.layer, table, head)


def _experts(params: Params, place: _Place, copies: float) -> HeldParams:
    return HeldParams(copies * place.layers * params.expert, params.expert)


def _keeps_outputs(choices: Choices) -> bool:
    """Whether a stage keeps what it has sent on: Megatron frees it (Korthikanti et al. 2022, appendix B)."""
    return from_torch(choices) or choices.flat_gradients


def _at(stage: _Stage, moment: Moment, unit: Units, n: Numbers, choices: Choices) -> MemoryBytes:
    """Return what a stage holds at a moment; the loss is asked of the last one only."""
    none = np.zeros_like(n.tp)
    state = _state(stage, moment, np.where(n.micro_batches > 1, 1.0, 0.0), choices)
    logits, dead = (unit.logits_bytes, unit.idle_logits_bytes) if moment == "loss" else (none, none)
    return MemoryBytes(
        weights=np.asarray(state.weights), gradients=np.asarray(state.gradients),
        optimizer=np.asarray(state.optimizer), activations=_activations(stage, moment, unit), logits=logits,
        buffers=_buffers(moment, unit), idle=state.idle + dead, communicators=none,
        fragmentation=0.0 if choices.planned_memory else FRAGMENTATION,
    )  # fmt: skip


def _state(stage: _Stage, moment: Moment, earlier: FloatArray, choices: Choices) -> StateBytes:
    dense = _on_device(stage.dense, moment, earlier, choices)
    if not np.any(stage.experts.held.layers > 0.0):
        return dense
    experts = _on_device(stage.experts, moment, earlier, choices)
    return StateBytes(
        dense.weights + experts.weights, dense.gradients + experts.gradients, dense.optimizer + experts.optimizer,
        dense.idle + experts.idle,
    )  # fmt: skip


def _on_device(both: _Both, moment: Moment, earlier: FloatArray, choices: Choices) -> StateBytes:
    """State at a moment, without what is on the host; gradients are there as far as they are complete."""
    state = state_bytes(both.held, both.shards, choices, moment, earlier, trained=both.trained)
    if not choices.offload_optimizer:
        return state
    gone = offloaded_state(both.held.total, both.trained.total, both.shards, choices)
    complete = complete_share(both.trained, choices, moment, earlier)
    pooled = (1.0 - complete) * gone.gradients if choices.stack == "fsdp2" else 0.0
    return StateBytes(
        state.weights - gone.weights, state.gradients - complete * gone.gradients,
        state.optimizer - gone.optimizer, state.idle - pooled,
    )  # fmt: skip


def _activations(stage: _Stage, moment: Moment, unit: Units) -> FloatArray:
    match moment:
        case "loss":
            return stage.kept + unit.head_kept_bytes
        case "first":
            return stage.kept + stage.again
        case "second":
            return np.maximum(0.0, stage.kept - stage.layer) + stage.again
        case "last":
            return stage.kept_before + stage.layer + stage.again
        case "table":
            return stage.kept_before
        case "update":
            return np.zeros_like(stage.kept)


def _buffers(moment: Moment, unit: Units) -> FloatArray:
    """Gradients of activations where backward runs, and what tensor-parallel ranks exchange."""
    match moment:
        case "first" | "second" | "last":
            return unit.backward_bytes
        case "loss" | "table":
            return 2.0 * unit.boundary_bytes
        case "update":
            return np.zeros_like(unit.backward_bytes)


def _layer_bytes(unit: Units, n: Numbers, count: FloatArray, choices: Choices) -> tuple[FloatArray, FloatArray]:
    """Bytes that a layer keeps on average, and what one holds besides while it is computed again."""
    if choices.recompute != "full":
        return unit.activation_bytes, unit.whole_activation_bytes - unit.activation_bytes
    share = n.recomputed_share(count)
    return share * unit.checkpoint_bytes + (1.0 - share) * unit.activation_bytes, unit.whole_activation_bytes
