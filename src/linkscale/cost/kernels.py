"""Time of single kernels: matrix products, fused and unfused attention, streaming operations.

Every function takes and returns arrays (or scalars) and uses NumPy ufuncs only, so that a batch and its
members agree bit for bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from linkscale.cost.device import Device

FloatArray = npt.NDArray[np.float64]
Number = FloatArray | float

# Output tiles that matrix libraries choose among: rows, columns, rate relative to the largest tile. The large
# tile is the one the measured ceilings were reached with; smaller ones re-read their operands more often.
TILES = ((256.0, 128.0, 1.0), (128.0, 256.0, 1.0), (128.0, 128.0, 0.95), (128.0, 64.0, 0.8), (64.0, 64.0, 0.65))


def tile_efficiency(m: Number, n: Number, sm_count: float, groups: Number = 1.0) -> FloatArray:
    """Share of the matrix units that (m, n) outputs keep busy: edge tiles and the last wave are part empty.

    ``groups`` products run in one kernel, whose tiles share its waves.

    Source: tile and wave quantisation, stas00/ml-engineering:training/performance (time steps with ceil(tiles/SMs)).
    """
    best: Number = 0.0
    for rows, columns, rate in TILES:
        tiles = groups * (np.ceil(m / rows) * np.ceil(n / columns))
        waves = np.ceil(tiles / sm_count)
        best = np.maximum(best, rate * (groups * (m * n)) / (waves * sm_count * (rows * columns)))
    return np.asarray(best)


def gemm_s(
    m: Number, n: Number, k: Number, dev: Device, flops_per_s: float, *, in_bytes: float = 2.0, out_bytes: float = 2.0,
    groups: Number = 1.0,
) -> FloatArray:  # fmt: skip
    """Seconds of ``groups`` (m, k) @ (k, n) products: ``fixed + max(FLOPs / (rate * eff(m, n, k)), bytes / memory)``.

    ``in_bytes`` and ``out_bytes`` are per element of the operands and of the result (read and written where
    the result is accumulated).
    """
    efficiency = tile_efficiency(m, n, dev.sm_count, groups) * (k / (k + dev.k_half))
    compute = groups * (2.0 * m * n * k) / (flops_per_s * efficiency)
    moved = groups * (in_bytes * (m * k + k * n) + out_bytes * (m * n))
    return dev.kernel_fixed_s + np.maximum(compute, moved / dev.memory_bytes_per_s)


class AttentionTime(NamedTuple):
    """Seconds of the attention core, and kernels launched, forward and backward."""

    forward_s: FloatArray
    backward_s: FloatArray
    forward_ops: float
    backward_ops: float


def fused_attention_s(
    batch_heads: Number, queries: Number, keys: float, qk_dim: int, v_dim: int, share: float, rate: Number,
    backward_ratio: float, dev: Device,
) -> AttentionTime:  # fmt: skip
    """Seconds of one fused attention kernel; ``share`` is the part of the score matrix it computes."""
    flops = 2.0 * batch_heads * queries * keys * (qk_dim + v_dim) * share
    tiles = batch_heads * np.ceil(queries / 128.0)
    busy = tiles / (np.ceil(tiles / dev.sm_count) * dev.sm_count)
    forward = flops / (rate * busy)
    return AttentionTime(forward, 2.5 * flops / (rate * backward_ratio * busy), 1.0, 3.0)


def unfused_attention_s(
    batch_heads: Number, queries: Number, keys: float, qk_dim: int, v_dim: int, dropout: bool, dev: Device
) -> AttentionTime:
    """Seconds of attention as separate kernels: two batched products, softmax and dropout through memory.

    Bytes per score, 16-bit: forward 2 (write) + 4 (softmax) + 5 (dropout with its mask) + 2 (read); backward
    2 + 2 (value and score gradients) + 5 (dropout) + 6 (softmax) + 2 + 2 (query and key gradients).
    """
    scores = batch_heads * queries * keys
    memory = dev.memory_bytes_per_s

    def product(inner: Number, outer: int) -> FloatArray:
        work = 2.0 * scores * outer / (dev.half_flops_per_s * (inner / (inner + dev.k_half)))
        return np.maximum(work, 2.0 * scores / memory)

    dropout_bytes = 5.0 if dropout else 0.0
    forward = product(float(qk_dim), qk_dim) + product(keys, v_dim) + (4.0 + dropout_bytes) * scores / memory
    backward = (
        product(queries, v_dim) + product(float(v_dim), v_dim)  # values, scores
        + product(keys, qk_dim) + product(queries, qk_dim)  # queries, keys
        + (6.0 + dropout_bytes) * scores / memory
    )  # fmt: skip
    return AttentionTime(forward, backward, 5.0 if dropout else 4.0, 7.0 if dropout else 6.0)
