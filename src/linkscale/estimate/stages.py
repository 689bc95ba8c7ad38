"""Pipeline stages in seconds: what each spends on a micro-batch, which is the slowest, what the others add."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from linkscale.cost.kernels import FloatArray
from linkscale.estimate.numbers import Numbers
from linkscale.estimate.pipeline import StageLayers
from linkscale.estimate.units import Units


@dataclass(frozen=True)
class Stage:
    """One stage: its layers, whether it holds the embedding and the head (1 or 0), and seconds per micro-batch."""

    layers: FloatArray
    embedding: FloatArray
    head: FloatArray
    compute_s: FloatArray
    recompute_s: FloatArray
    tp_s: FloatArray
    """Tensor-parallel communication, the exposed part."""
    cp_s: FloatArray
    """Context-parallel communication, the exposed part."""
    ep_s: FloatArray
    """Exchanges of tokens with their experts, the exposed part."""
    host_s: FloatArray

    @property
    def total_s(self) -> FloatArray:
        """Seconds of one micro-batch, forward and backward."""
        return self.compute_s + self.recompute_s + self.tp_s + self.cp_s + self.ep_s + self.host_s

    @property
    def busy_s(self) -> FloatArray:
        """Seconds in which the device computes."""
        return self.compute_s + self.recompute_s


@dataclass(frozen=True)
class Stages:
    """The slowest stage; the seconds of all the others together; the computation of the stage with most of it.

    ``others_forward_s`` and ``others_wgrad_s``: what of the others is forward, and weight gradients, of their layers.
    """

    slowest: Stage
    others_s: FloatArray
    others_forward_s: FloatArray
    others_wgrad_s: FloatArray
    busiest_s: FloatArray


def stages(unit: Units, n: Numbers, layers: StageLayers) -> Stages:
    """Time the first, the last and the fullest stage between them; short stages between count for what they hold."""
    whole, none, alone = np.ones_like(n.tp), np.zeros_like(n.tp), np.where(n.pp == 1, 1.0, 0.0)
    fullest = np.where(n.pp > 2, layers.middle, 0.0)
    first = _stage(unit, n, layers.first, whole, alone)
    last = _stage(unit, n, layers.last, alone, whole)
    middle = _stage(unit, n, fullest, none, none)
    slowest = _slower(_slower(first, last), middle)
    between = middle.total_s * (layers.between / layers.middle)
    everything = np.where(n.pp == 1, first.total_s, first.total_s + last.total_s + between)
    busiest = np.maximum(np.maximum(first.busy_s, last.busy_s), middle.busy_s)
    held = layers.first + layers.last + layers.between
    others = np.where(n.pp == 1, 0.0, held - slowest.layers)
    return Stages(
        slowest, everything - slowest.total_s, others * unit.layer.forward_s, others * unit.layer.wgrad_s, busiest
    )


def _slower(one: Stage, other: Stage) -> Stage:
    chosen = other.total_s > one.total_s
    return Stage(**{f.name: np.where(chosen, getattr(other, f.name), getattr(one, f.name)) for f in fields(Stage)})


def _stage(unit: Units, n: Numbers, layers: FloatArray, embedding: FloatArray, head: FloatArray) -> Stage:
    layer, share = unit.layer, n.recomputed_share(layers)

    def edges(take: str) -> FloatArray:
        return np.asarray(embedding * getattr(unit.embedding, take) + head * getattr(unit.head, take))

    compute = layers * (layer.forward_s + layer.backward_s) + edges("forward_s") + edges("backward_s")
    tp = layers * layer.tp.total(share) + embedding * unit.embedding.tp.total(0.0) + head * unit.head.tp.total(0.0)
    host = layers * layer.late(share) + embedding * unit.embedding.late() + head * unit.head.late()
    recompute = layers * share * layer.recompute_s
    cp, ep = layers * layer.cp.total(share), layers * layer.ep.total(share)
    return Stage(layers, embedding, head, compute, recompute, tp, cp, ep, host)
