"""Exact counts: parameters and FLOPs, by operation.

Conventions: matrix products count 2 FLOPs per multiply-add, the output projection included and the token lookup
not ("6N" for a training step); attention counts ``4 * heads * head_dim * seq`` per token and layer forward in full,
half of it causal, and a window no more than its tokens. Norms, softmax and activations are not counted, as papers do.
"""

from __future__ import annotations

from collections.abc import Iterable

from linkscale.workload.architecture import Architecture
from linkscale.workload.layers import Decoder, decoder
from linkscale.workload.ops import Attention, Elementwise, Embedding, Gemm, Norm, Op

__all__ = [
    "Decoder", "active_params", "attention_flops_per_token", "decoder", "flops_per_token",
    "layer_matmul_flops_per_token", "matmul_flops_per_token", "op_params", "params", "params_by_part",
]  # fmt: skip


def op_params(op: Op) -> int:
    """Parameters of one operation."""
    match op:
        case Gemm():
            return op.copies * (op.n * op.k + (op.n if op.bias else 0))
        case Norm():
            return op.size * (int(op.weight) + int(op.bias))
        case Embedding():
            return op.rows * op.size
        case Attention() | Elementwise():
            return 0


def params_by_part(arch: Architecture) -> dict[str, int]:
    """Parameters of the embeddings, one layer on average, all layers, final norm and output projection."""
    model = decoder(arch)
    head = op_params(model.head) - (model.head.n * model.head.k if model.tied else 0)
    return {
        "embeddings": _sum(model.embeddings),
        "layers": sum(group.count * _sum(group.ops) for group in model.groups),
        "final_norm": _sum(model.final),
        "output": head,
    }


def params(arch: Architecture) -> int:
    """Parameters, tied ones once: exactly those of the ``transformers`` class."""
    return sum(params_by_part(arch).values())


def active_params(arch: Architecture) -> int:
    """Parameters that touch one token: all of a dense model's."""
    return params(arch)


def matmul_flops_per_token(arch: Architecture) -> int:
    """Forward FLOPs per token of the matrix products, output projection included."""
    return layer_matmul_flops_per_token(arch) + _matmul([decoder(arch).head])


def layer_matmul_flops_per_token(arch: Architecture) -> int:
    """Forward FLOPs per token of the layers' matrix products."""
    return sum(group.count * _matmul(group.ops) for group in decoder(arch).groups)


def attention_flops_per_token(arch: Architecture, seq_len: int, *, causal: bool = False) -> float:
    """Forward FLOPs per token of attention scores and values, on average over a sequence."""
    total = 0.0
    for group in decoder(arch).groups:
        for op in group.ops:
            if isinstance(op, Attention):
                total += group.count * 2.0 * op.heads * (op.qk_dim + op.v_dim) * _keys(op, seq_len, causal)
    return total


def flops_per_token(arch: Architecture, seq_len: int, *, causal: bool = False) -> float:
    """Forward FLOPs per token; a training step is three times that."""
    return matmul_flops_per_token(arch) + attention_flops_per_token(arch, seq_len, causal=causal)


def _keys(op: Attention, seq_len: int, causal: bool) -> float:
    """Keys a query meets: all, or half of them under a causal mask; a window leaves no more than its own."""
    window = seq_len if op.window is None else min(op.window, seq_len)
    return window * (1.0 - window / (2.0 * seq_len)) if causal else float(window)


def _sum(ops: Iterable[Op]) -> int:
    return sum(op_params(op) for op in ops)


def _matmul(ops: Iterable[Op]) -> int:
    return sum(2 * op.n * op.k * op.copies for op in ops if isinstance(op, Gemm))
