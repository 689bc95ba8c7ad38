"""Time of the optimizer step: streaming over gradients, master weights and moments."""

from __future__ import annotations

from linkscale.cost.device import Device
from linkscale.cost.kernels import Number
from linkscale.plan.strategy import DTYPE_BYTES, Choices


def optimizer_s(params: Number, shards: Number, dev: Device, choices: Choices) -> Number:
    """Seconds of clipping, Adam and zeroing for ``params`` parameters on a rank, updated in ``shards`` parts.

    Bytes per parameter updated: read gradient, master and two moments, write master, two moments and the 16-bit
    weight; once more over the gradients for their norm; fp16 also unscales (reads and writes) them. Zeroing
    touches all gradients held.
    """
    grad = DTYPE_BYTES[choices.grad_dtype]
    unscale = 2.0 * grad if choices.precision == "fp16" else 0.0
    update = grad + 12.0 + 12.0 + 2.0 + grad + unscale
    updated = params if choices.sharding == "none" else params / shards
    keeps_shards = choices.sharding in ("zero3", "hsdp") or (choices.sharding == "zero2" and not choices.no_sync)
    held = params / shards if keeps_shards else params
    return (update * updated + grad * held) / dev.memory_bytes_per_s
