"""Parameters of operations on one tensor-parallel rank."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from linkscale.cost.kernels import FloatArray
from linkscale.workload.counts import op_params
from linkscale.workload.ops import Conv1d, Embedding, Experts, Gemm, Norm, Op, Router, Weights


def local_params(ops: Iterable[Op], tp: FloatArray) -> FloatArray:
    """Sum the parameters that one of ``tp`` ranks holds: split products, experts and tables 1/tp, the rest whole."""
    split, whole = 0.0, 0.0
    for op in ops:
        count, kept = float(op_params(op)), float(_whole(op))
        split, whole = split + count - kept, whole + kept
    return np.asarray(split / tp + whole)


def _whole(op: Op) -> int:
    """Parameters of an operation that every tensor-parallel rank holds."""
    match op:
        case Gemm(shard="column" | "copies"):
            return 0
        case Gemm(shard="row"):
            return op.n * op.copies if op.bias else 0
        case Experts():
            return op.experts * op.k if op.bias else 0
        case Embedding(vocab_parallel=True) | Conv1d() | Weights(region="tensor"):
            return 0
        case _:
            return op_params(op)


def parameter_tensors(ops: Iterable[Op]) -> float:
    """Count the parameter tensors of operations, as frameworks that exchange them one by one see them."""
    return float(sum(_tensors(op) for op in ops))


def _tensors(op: Op) -> int:
    match op:
        case Gemm():
            return op.copies * (1 + op.bias)
        case Experts():  # all experts' matrices are one tensor
            return 2 * (1 + op.bias)
        case Norm() | Router() | Conv1d():
            return 1 + op.bias
        case Weights():
            return 1
        case _:
            return 0
