"""Parameters of operations on one tensor-parallel rank."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from linkscale.cost.kernels import FloatArray
from linkscale.workload.counts import op_params
from linkscale.workload.ops import Embedding, Gemm, Norm, Op


def local_params(ops: Iterable[Op], tp: FloatArray) -> FloatArray:
    """Sum the parameters that one of ``tp`` ranks holds: split products and tables 1/tp, the rest whole."""
    split, whole = 0.0, 0.0
    for op in ops:
        count = float(op_params(op))
        bias = float(op.n * op.copies) if isinstance(op, Gemm) and op.bias and op.shard == "row" else 0.0
        if (isinstance(op, Gemm) and op.shard != "none") or (isinstance(op, Embedding) and op.vocab_parallel):
            split, whole = split + count - bias, whole + bias
        else:
            whole += count
    return np.asarray(split / tp + whole)


def parameter_tensors(ops: Iterable[Op]) -> float:
    """Count the parameter tensors of operations, as frameworks that exchange them one by one see them."""
    holders = (op for op in ops if isinstance(op, Gemm | Norm))
    return float(sum((op.copies if isinstance(op, Gemm) else 1) * (1 + op.bias) for op in holders))
