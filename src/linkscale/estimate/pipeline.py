"""Pipeline stages in closed form: layers per stage, micro-batches in flight, bubble.

1F1B: ``step = m * t_max + (sum of the other stages) / vpp`` for per-micro-batch stage times t (forward and backward);
with equal stages the bubble is (pp - 1) / (vpp * m) of the ideal time (Narayanan et al. 2021, section 2.2). Schedules
that run weight gradients W apart from the rest of backward fill bubbles with them (Qi et al. 2023; DeepSeek-V3 report,
table 2): ZB-H1 ``(pp - 1)(F + B - 2W)`` and DualPipe ``(pp / 2 - 1)(2F + 2B - 3W - F)`` of a stage, B the whole
backward; ZB-V leaves ``(pp - 1)(F + B - 3W)``, nothing where the three parts take equal time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linkscale.cost.kernels import FloatArray
from linkscale.plan.strategy import Schedule

FILLING_SCHEDULES: tuple[Schedule, ...] = ("zb-h1", "zb-v", "dualpipe")
"""Schedules that run weight gradients in what would be a bubble."""


@dataclass(frozen=True)
class StageLayers:
    """Layers on the first, the last and the fullest stage between them; arrays over strategies."""

    first: FloatArray
    middle: FloatArray
    last: FloatArray
    between: FloatArray
    """Layers on all stages between the first and the last."""


def stage_layers(layers: int, pp: FloatArray, vpp: FloatArray, prediction: int = 0) -> StageLayers:
    """Split layers over stages.

    Evenly where that divides; interleaved stages that divide only when the embedding and the loss count as a
    layer each give the outer stages one layer less; otherwise the outer stages are the short ones. Layers of modules
    that predict further tokens (``prediction``) come on top of the last stage's, before its loss (Megatron-LM,
    core/transformer/multi_token_prediction.py): where a layout has to be written anyway, it fills all other stages and
    leaves the rest to the last one, as Megatron-Bridge's layouts of DeepSeek-V3 do (recipes/deepseek).
    """
    even = np.mod(layers, pp * vpp) == 0
    counted = ~even & (vpp > 1) & (np.mod(layers + 2, pp * vpp) == 0)
    base = np.floor(layers / pp)
    rest = layers - base * pp
    middle = np.where(even, layers / pp, np.where(counted, (layers + 2) / pp, base + (rest > 0)))
    first = np.where(even, layers / pp, np.where(counted, middle - 1, base + (rest > pp - 2)))
    last = np.where(even, layers / pp, np.where(counted, middle - 1, base + (rest > pp - 1)))
    full = vpp * np.ceil((layers + prediction) / (pp * vpp))
    spared = layers - (pp - 1) * full
    laid_out = ~even & ~counted & (prediction > 0) & (spared > 0)
    first, middle, last = (
        np.where(laid_out, own, usual) for own, usual in ((full, first), (full, middle), (spared, last))
    )
    between = np.where(pp > 2, layers - first - last, 0.0)
    return StageLayers(first + prediction * (pp == 1), middle, last + prediction, between)


def bubble_s(
    others_s: FloatArray, forward_s: FloatArray, wgrad_s: FloatArray, pp: FloatArray, vpp: FloatArray, schedule: str
) -> FloatArray:
    """Idle seconds while a pipeline fills and drains.

    ``others_s``: forward and backward of all stages but the slowest, per micro-batch; ``forward_s`` and ``wgrad_s``:
    the parts of it that are forward and weight gradients.
    """
    match schedule:
        case "zb-h1":
            return np.maximum(0.0, others_s - 2.0 * wgrad_s)
        case "zb-v":
            return np.maximum(0.0, others_s - 3.0 * wgrad_s)
        case "dualpipe":
            stages = np.maximum(pp - 1.0, 1.0)
            one = 2.0 * others_s - forward_s - 3.0 * wgrad_s  # F&B + B - 3W, summed over the other stages
            return np.maximum(0.0, (pp / 2.0 - 1.0) * one / stages)
        case _:
            return others_s / vpp


def chunks_in_flight(
    pp: FloatArray, vpp: FloatArray, micro_batches: FloatArray, stage: FloatArray, schedule: str
) -> FloatArray:
    """Model chunks (1/vpp of a stage) whose activations a stage holds at its fullest.

    1F1B holds ``pp - stage`` micro-batches; interleaved warms up with ``2 (pp - stage - 1) + (vpp - 1) pp`` chunks
    and runs one more, or warms up with everything when there are only ``pp`` micro-batches (Megatron-LM,
    core/pipeline_parallel/schedules.py); GPipe holds all. ZB-H1 holds what 1F1B does; ZB-V two chunks of each of
    ``pp`` micro-batches on every stage, DualPipe ``pp + 1`` micro-batches.
    """
    everything = micro_batches * vpp
    if schedule == "zb-v":
        return np.minimum(everything, 2.0 * pp)
    if schedule == "dualpipe":
        return np.minimum(everything, pp + 1.0)
    if schedule == "gpipe":
        return everything
    plain = pp - stage
    interleaved = np.where(micro_batches == pp, everything, 2.0 * (pp - stage - 1.0) + (vpp - 1.0) * pp + 1.0)
    return np.minimum(everything, np.where(vpp > 1, interleaved, plain))
