"""Bytes on the fullest GPU of a strategy: the first, second or last pipeline stage, whichever holds most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linkscale.cost.kernels import FloatArray
from linkscale.cost.memory import (
    COMMUNICATOR_BYTES,
    CONTEXT_BYTES,
    FRAGMENTATION,
    Moment,
    StageParams,
    moments,
    state_bytes,
)
from linkscale.estimate.data_parallel import DpGroups
from linkscale.estimate.numbers import Numbers
from linkscale.estimate.pipeline import StageLayers, chunks_in_flight
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
    idle: FloatArray
    """What the pools of communication streams hold beyond their live tensors."""

    @property
    def allocated(self) -> FloatArray:
        """Live tensors at the peak."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.logits + self.buffers

    @property
    def reserved(self) -> FloatArray:
        """What the caching allocator holds for them, in pools of its own for each stream."""
        return (self.allocated + self.idle) * (1.0 + FRAGMENTATION)

    @property
    def device(self) -> FloatArray:
        """What the driver reports: the allocator's share, the context and NCCL's buffers."""
        return self.reserved + CONTEXT_BYTES + COMMUNICATOR_BYTES * self.communicators


def memory_bytes(unit: Units, n: Numbers, layers: StageLayers, groups: DpGroups, choices: Choices) -> MemoryBytes:
    """Take the fullest of the first, second and last stage."""
    zero, whole, one = np.zeros_like(n.tp), np.ones_like(n.tp), np.where(n.pp == 1, 1.0, 0.0)
    second = np.minimum(1.0, n.pp - 1.0)
    places = (
        Place(layers.first, zero, whole, one),
        Place(layers.middle, second, one, one),
        Place(layers.last, n.pp - 1.0, one, whole),
    )
    best: MemoryBytes | None = None
    for place in places:
        stage = _stage(unit, n, place, choices)
        for moment in moments(choices):
            best = _fuller(best, _at(stage, moment, unit, n, groups, choices))
    assert best is not None
    return best


@dataclass(frozen=True)
class Place:
    """A stage: its layers, its place in the pipeline, whether it has the embedding and the head."""

    layers: FloatArray
    stage: FloatArray
    embedding: FloatArray
    head: FloatArray


def _fuller(best: MemoryBytes | None, found: MemoryBytes) -> MemoryBytes:
    if best is None:
        return found
    fuller = found.allocated > best.allocated
    chosen = {c: np.where(fuller, getattr(found, c), getattr(best, c)) for c in (*CAUSES, "idle")}
    return MemoryBytes(**chosen, communicators=best.communicators)


def _communicators(n: Numbers) -> FloatArray:
    """One for each parallel dimension in use, and one of all ranks."""
    used = 1.0 * (n.tp > 1) + (n.cp > 1) + 2.0 * (n.pp > 1) + (n.dp > 1)
    return used + np.where(n.tp * n.cp * n.pp * n.dp > 1, 1.0, 0.0)


@dataclass(frozen=True)
class _Stage:
    """What one stage holds: parameters, kept activations of all micro-batches in flight, of one fewer, of a layer."""

    params: StageParams
    kept: FloatArray
    kept_before: FloatArray
    """Without the micro-batch whose backward ends."""
    layer: FloatArray
    """What one layer keeps."""
    working: FloatArray
    """What the layer whose backward runs holds besides: what was recomputed, and gradients of activations."""
    head_kept: FloatArray
    logits: FloatArray


def _stage(unit: Units, n: Numbers, place: Place, choices: Choices) -> _Stage:
    root = place.embedding * unit.embedding_params + place.head * unit.head_params
    params = StageParams(
        total=place.layers * unit.layer_params + root, layer=unit.layer_params, root=root,
        head=place.head * unit.head_params,
    )  # fmt: skip
    chunks = chunks_in_flight(n.pp, n.vpp, n.micro_batches, place.stage, choices.schedule)
    held, working = _layer_bytes(unit, n, place.layers, choices)
    edge = place.embedding * unit.embedding_kept_bytes
    per_chunk = (place.layers * held + edge) / n.vpp
    gradients = unit.gradient_bytes + 2.0 * unit.checkpoint_bytes
    return _Stage(
        params=params, kept=chunks * per_chunk, kept_before=np.maximum(0.0, chunks - 1.0) * per_chunk,
        layer=held, working=working + gradients, head_kept=place.head * unit.head_kept_bytes,
        logits=place.head * unit.logits_bytes,
    )  # fmt: skip


def _at(stage: _Stage, moment: Moment, unit: Units, n: Numbers, groups: DpGroups, choices: Choices) -> MemoryBytes:
    shards = np.where(choices.sharding == "none", 1.0, groups.shard.size)
    state = state_bytes(stage.params, shards, choices, moment, n.micro_batches > 1)
    none = np.zeros_like(n.tp)
    activations = {
        "loss": stage.kept + stage.head_kept,
        "first": stage.kept + stage.working,
        "second": np.maximum(0.0, stage.kept - stage.layer) + stage.working,
        "last": stage.kept_before + stage.layer + stage.working,
        "root": stage.kept_before,
    }[moment]
    return MemoryBytes(
        weights=state.weights + none, gradients=state.gradients + none, optimizer=state.optimizer + none,
        activations=activations, logits=stage.logits if moment == "loss" else none,
        buffers=unit.exchange.size_bytes * 2.0, communicators=_communicators(n), idle=state.idle + none,
    )  # fmt: skip


def _layer_bytes(unit: Units, n: Numbers, count: FloatArray, choices: Choices) -> tuple[FloatArray, FloatArray]:
    """Bytes that a layer keeps on average, and what one holds besides while its backward runs."""
    if choices.recompute != "full":
        return unit.activation_bytes, unit.whole_activation_bytes - unit.activation_bytes
    share = np.where(n.recompute_layers > 0, np.minimum(1.0, n.recompute_layers / np.maximum(count, 1.0)), 1.0)
    held = share * unit.checkpoint_bytes + (1.0 - share) * unit.activation_bytes
    return held, unit.whole_activation_bytes
