"""Time and saved activations of scans, short convolutions and the index of sparse attention on one GPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linkscale.cost.device import Device
from linkscale.cost.kernels import FloatArray, Number
from linkscale.workload.ops import Conv1d, Index, Scan

# Backward computes the chunks again, then their gradients: as for attention.
SCAN_BACKWARD = 2.5
# Kernels of a scan forward and backward, and how often forward reads or writes the state of a chunk. One kernel makes
# the states, one applies them (flash-linear-attention); a third passes them on, after one that sums the decays and one
# that multiplies B and C (state-spaces/mamba, ops/triton/ssd_combined.py).
KERNELS = {"linear": (3.0, 6.0), "delta": (6.0, 12.0), "ssd": (5.0, 13.0)}
STATE_PASSES = {"linear": 2.0, "delta": 2.0, "ssd": 4.0}


@dataclass(frozen=True)
class ScanCost:
    """Seconds, kernels and bytes kept, per micro-batch."""

    forward_s: FloatArray
    backward_s: FloatArray
    forward_ops: float
    backward_ops: float
    saved_bytes: FloatArray


def scan_cost(op: Scan, tokens: FloatArray, tp: FloatArray, dev: Device) -> ScanCost:
    """Price a scan in chunks: its products, or reading and writing its tensors, whichever takes longer.

    Products are as long as a chunk or a state is wide, which keeps the matrix units from their rate by
    ``k / (k + k_half)``. Inputs are read to make the states and to apply them, backward twice as often. Kept are
    queries, keys, values and gates in 16 bits, and a 32-bit state per chunk and head.
    """
    inner = float(min(op.chunk, op.key_dim, op.value_dim))
    rate = dev.half_flops_per_s * (inner / (inner + dev.k_half))
    inputs = 2.0 * op.groups * op.key_dim + op.heads * op.value_dim + op.gates
    states = 4.0 * op.heads * op.key_dim * op.value_dim / op.chunk
    local = tokens / tp
    passes = 2.0 * (2.0 * inputs + op.heads * op.value_dim) + STATE_PASSES[op.kind] * states
    moved = local * passes / dev.memory_bytes_per_s
    forward = np.maximum(2.0 * op.products() * local / rate, moved)
    backward = np.maximum(SCAN_BACKWARD * 2.0 * op.products() * local / rate, 2.0 * moved)
    return ScanCost(forward, backward, *KERNELS[op.kind], local * (2.0 * inputs + states))


def convolution_cost(op: Conv1d, tokens: FloatArray, tp: FloatArray, dev: Device) -> ScanCost:
    """Price a short convolution as what it is: one pass over its channels, two backward; its input is kept."""
    elements = op.channels * tokens / tp
    once = 4.0 * elements / dev.memory_bytes_per_s
    return ScanCost(once, 1.5 * once, 1.0, 2.0, 2.0 * elements)


def index_cost(op: Index, micro_batch: Number, queries: Number, seq: float, dev: Device) -> ScanCost:
    """Price the search for keys: every query scores the keys before it, and the best are found in two passes.

    The scores are products of small heads; they are not kept, but computed again where the index learns.
    """
    pairs = micro_batch * queries * (0.5 * seq / op.compressed)
    rate = dev.half_flops_per_s * (op.dim / (op.dim + dev.k_half))
    scored = 2.0 * op.heads * (op.dim + 1.0) * pairs / rate
    searched = 2.0 * 4.0 * pairs / dev.memory_bytes_per_s
    kept = 2.0 * micro_batch * queries * ((op.heads + 1.0) * op.dim + 2.0 * op.selected)
    return ScanCost(np.asarray(scored + searched), np.asarray(2.0 * scored), 3.0, 3.0, np.asarray(kept))
