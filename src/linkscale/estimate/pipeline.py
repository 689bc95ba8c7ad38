"""Pipeline stages in closed form: layers per stage, micro-batches in flight, bubble.

1F1B: ``step = m * t_max + (sum of the other stages) / vpp`` for per-micro-batch stage times t (forward and backward);
with equal stages the bubble is (pp - 1) / (vpp * m) of the ideal time (Narayanan et al. 2021, section 2.2). Schedules
that run weight gradients apart from the rest of backward fill bubbles with them (Qi et al. 2023; DeepSeek-V3 report,
table 2). With F forward, I the input gradients and W the weight gradients of a stage, and enough micro-batches:

- ZB-H1: ``(pp - 1)(F + I - W)``.
- ZB-V: ``(pp - 1) max(I / 2, I - W)`` until the last stage is through. No stage is idle between its first operation and
  its last where the three parts take equal time; but stages end in turn, and the gradient norm waits for the last
  (section 4 of the paper leaves that wait out by checking the norm afterwards).
- DualPipe: ``(pp / 2 - 1)(F + 2I - W)`` as the report says, less what its middle stages gain by running their first
  pair apart: I - F a hop, at most F.

These are the lengths of the published orders, walked operation by operation (tests/oracles/test_schedules.py); ZB-V's
and DualPipe's hold for W <= F <= I, as in any decoder.
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
    others_s: FloatArray, forward_s: FloatArray, wgrad_s: FloatArray, pp: FloatArray, vpp: FloatArray,
    micro_batches: FloatArray, schedule: str,
) -> FloatArray:  # fmt: skip
    """Idle seconds while a pipeline fills and drains.

    ``others_s``: forward and backward of all stages but the slowest, per micro-batch; ``forward_s`` and ``wgrad_s``:
    the parts of it that are forward and weight gradients.
    """
    dgrad_s, hops = others_s - forward_s - wgrad_s, np.maximum(pp - 1.0, 1.0)
    # The share of the hops that as many micro-batches after the first can cover.
    covered = np.minimum(micro_batches - 1.0, hops) / hops
    match schedule:
        case "zb-h1":
            return np.asarray(forward_s + dgrad_s - covered * wgrad_s)
        case "zb-v":
            late = np.clip(micro_batches - pp, 0.0, hops) / hops
            staggered = (dgrad_s + (1.0 - late) * np.maximum(0.0, dgrad_s - wgrad_s)) / 2.0
            return np.maximum(staggered, (1.0 - covered) * forward_s + dgrad_s - late * wgrad_s)
        case "dualpipe":
            between = (pp / 2.0 - 1.0) / hops
            apart = np.clip(between * (dgrad_s - forward_s), 0.0, forward_s / hops)
            return np.maximum(0.0, between * (forward_s + 2.0 * dgrad_s - wgrad_s) - apart)
        case _:
            return others_s / vpp


def chunks_in_flight(
    pp: FloatArray, vpp: FloatArray, micro_batches: FloatArray, stage: FloatArray, schedule: str, ahead: float = 0.0
) -> FloatArray:
    """Model chunks (1/vpp of a stage) whose activations a stage holds at its fullest.

    1F1B holds ``pp - stage`` micro-batches; interleaved warms up with ``2 (pp - stage - 1) + (vpp - 1) pp`` chunks and
    runs one more, and ``ahead`` of it where forward and backward of two micro-batches run side by side (Megatron-LM,
    core/pipeline_parallel/schedules.py, get_pp_rank_microbatches; early versions warmed up with everything where there
    are only ``pp`` micro-batches); GPipe holds all. ZB-H1 holds ``pp`` on every stage: what later stages send back
    earlier waits for its weight gradients (Qi et al. 2023, section 2.2). ZB-V holds two chunks of each of ``pp``
    micro-batches on every stage, DualPipe ``pp + 1`` micro-batches. Activations count until their weight gradients are
    done.
    """
    everything = micro_batches * vpp
    match schedule:
        case "gpipe":
            return everything
        case "zb-h1":
            return np.minimum(everything, pp)
        case "zb-v":
            return np.minimum(np.minimum(everything, 2.0 * pp), micro_batches + stage + 1.0)
        case "dualpipe":
            return np.minimum(everything, pp + 1.0)
        case _:
            interleaved = 2.0 * (pp - stage - 1.0) + (vpp - 1.0) * pp + 1.0
            return np.minimum(everything, ahead + np.where(vpp > 1, interleaved, pp - stage))
