"""Optimizers: bytes of state, and time of a step: streaming over gradients, master weights and moments."""

from __future__ import annotations

from dataclasses import dataclass

from linkscale.cost.device import Device
from linkscale.cost.kernels import Number
from linkscale.plan.strategy import DTYPE_BYTES, Choices, Optimizer

MASTER_BYTES = 4.0
"""The fp32 copy of a 16-bit weight."""


@dataclass(frozen=True)
class Update:
    """What an optimizer keeps per parameter beside the master weight, and how often it multiplies matrices.

    ``products``: matrix products of Newton-Schulz iterations (Muon), each ``rows * rows * columns`` of a weight.
    """

    moments_bytes: float
    products: float = 0.0


UPDATES: dict[Optimizer, Update] = {
    "adamw": Update(8.0),  # two fp32 moments
    "adamw-bf16": Update(4.0),  # two bf16 moments
    "adamw-8bit": Update(2.0 + 8.0 / 2048.0),  # two 8-bit moments, an fp32 scale for each block of 2048
    "sgd": Update(4.0),  # fp32 momentum
    "muon": Update(4.0, products=15.0),  # fp32 momentum; five iterations of three products (Jordan et al. 2024)
}


def streamed_bytes(choices: Choices) -> float:
    """Bytes of memory that the update of one parameter moves.

    Read gradient, master and moments, write master, moments and the 16-bit weight; once more over the gradients for
    their norm; fp16 also unscales (reads and writes) them.
    """
    grad = DTYPE_BYTES[choices.grad_dtype]
    unscale = 2.0 * grad if choices.precision == "fp16" else 0.0
    return grad + 2.0 * (MASTER_BYTES + UPDATES[choices.optimizer].moments_bytes) + 2.0 + grad + unscale


def optimizer_s(params: Number, shards: Number, rows: float, dev: Device, choices: Choices) -> Number:
    """Seconds of clipping, update and zeroing for ``params`` parameters on a rank, updated in ``shards`` parts.

    The update streams :func:`streamed_bytes` through the device's memory; zeroing touches all gradients held. Muon
    adds ``2 * rows`` FLOPs per parameter and product, ``rows`` the shorter side of a weight.
    """
    kind = UPDATES[choices.optimizer]
    grad, update = DTYPE_BYTES[choices.grad_dtype], streamed_bytes(choices)
    updated = params if choices.sharding == "none" else params / shards
    keeps_shards = choices.sharding in ("zero3", "hsdp") or (choices.sharding == "zero2" and not choices.no_sync)
    held = params / shards if keeps_shards else params
    streamed = (update * updated + grad * held) / dev.memory_bytes_per_s
    return streamed + kind.products * 2.0 * rows * updated / dev.half_flops_per_s
