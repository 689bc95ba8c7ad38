"""Parameters of operations on one tensor-parallel rank."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from linkscale.cost.kernels import FloatArray
from linkscale.plan.strategy import Stack
from linkscale.workload.counts import op_params
from linkscale.workload.ops import Conv1d, Embedding, Experts, Gemm, Norm, Op, Router, Weights

# Rows of a padded vocabulary on one rank come in these: Megatron-LM's --make-vocab-size-divisible-by.
MEGATRON_VOCAB_ROWS = 128.0


def local_params(ops: Iterable[Op], tp: FloatArray, stack: Stack) -> FloatArray:
    """Sum the parameters that one of ``tp`` ranks holds: its part of split products and tables, the rest whole.

    Routed experts are not among them: they have ranks of their own, see :func:`local_expert_params`.
    """
    return np.asarray(sum((_local(op, tp, stack) for op in ops), np.zeros_like(tp)))


def local_expert_params(ops: Iterable[Op], ep: FloatArray, etp: FloatArray) -> FloatArray:
    """Sum the parameters of routed experts on one of ``ep * etp`` ranks: some of the experts, a part of each."""

    def held(op: Experts) -> FloatArray:
        whole = float(op.experts * op.k * op.bias)  # the bias after an expert's second product is not cut
        return ((op_params(op) - whole) / etp + whole) / ep

    return np.asarray(sum((held(op) for op in ops if isinstance(op, Experts)), np.zeros_like(ep)))


def _local(op: Op, tp: FloatArray, stack: Stack) -> FloatArray | float:
    match op:
        case Gemm(shard="column"):
            return local_columns(op, tp, stack) * float(op.copies * (op.k + op.bias))
        case Gemm(shard="row"):
            return op.copies * (op.n * op.k / tp + float(op.n * op.bias))
        case Embedding(vocab_parallel=True):
            return local_vocab(op.rows, tp, stack) * op.size
        case Experts():
            return 0.0
        case Gemm(shard="none", half=True):
            return local_columns(op, tp, stack) * op.k
        case Gemm(shard="copies") | Conv1d() | Weights(region="tensor"):
            return op_params(op) / tp
        case _:
            return float(op_params(op))


def whole_params(ops: Iterable[Op]) -> float:
    """Sum the parameters that every tensor-parallel rank holds whole, but for tables: norms, routers, uncut products.

    Under sequence parallelism a rank has their gradients from its own tokens only.
    """
    return float(sum(_whole(op) for op in ops))


def _whole(op: Op) -> int:
    match op:
        case Gemm(shard="row"):
            return op.copies * op.n * op.bias
        case Gemm(shard="none") | Norm() | Router() | Weights(region="sequence"):
            return op_params(op)
        case _:
            return 0


def local_columns(op: Gemm, tp: FloatArray, stack: Stack) -> FloatArray:
    """Columns of a product's weight on one of ``tp`` ranks; ranks beyond the key-value heads repeat those.

    Adapters of products that only Megatron makes one have their first product once for each part elsewhere.
    """
    if op.shard != "column":
        return np.full_like(tp, op.n * adapter_parts(op, stack))
    if op.vocab:
        return local_vocab(op.n, tp, stack)
    return (op.n - op.kv_columns) / tp + op.kv_columns / np.minimum(tp, op.kv_heads)


def adapter_parts(op: Gemm, stack: Stack) -> int:
    """How often a stack has an adapter's first product: once for each part of its base that is a product of its own."""
    return op.parts if op.half and stack != "megatron" else 1


def local_vocab(rows: int, tp: FloatArray, stack: Stack) -> FloatArray:
    """Rows of a vocabulary on one of ``tp`` ranks: equal parts, of a multiple of 128 rows in Megatron-LM."""
    least = MEGATRON_VOCAB_ROWS if stack == "megatron" else 1.0
    return least * np.ceil(rows / (least * tp))


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
