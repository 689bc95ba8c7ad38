"""Exact counts: parameters and FLOPs, by operation.

Conventions: matrix products count 2 FLOPs per multiply-add, the output projection included and the token lookup
not ("6N" for a training step); routed experts count those that a token passes. Attention counts
``2 * heads * (qk_dim + v_dim) * keys`` per token and layer forward, the keys in full or, causal, those before the query
(half of a sequence), and a window no more than its tokens; with it are counted the index of sparse attention and the
scans of linear attention and state-space layers, in chunks. Norms, softmax, activations and the search for the best
are not counted, as papers do. Modules that predict further tokens and vision towers are counted apart: the
``transformers`` class of the decoder has neither.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from linkscale.workload.architecture import Architecture
from linkscale.workload.layers import Decoder, decoder
from linkscale.workload.ops import (
    Attention,
    Conv1d,
    Elementwise,
    Embedding,
    Experts,
    Gemm,
    Index,
    LayerGroup,
    MixStreams,
    Norm,
    Op,
    Router,
    Scan,
    Weights,
    module_of,
    trained_ops,
)

__all__ = [
    "Decoder", "active_op_params", "active_params", "attention_flops_per_token", "decoder", "flops_per_token",
    "layer_matmul_flops_per_token", "matmul_flops_per_token", "modules_flops_per_token", "op_params", "params",
    "params_by_part", "prediction_flops_per_token", "prediction_params", "tower_params", "trained_params",
    "training_flops_per_token",
]  # fmt: skip


TRAINING_FORWARDS = 3.0
"""Forwards that a step costs: backward takes two, one for the inputs and one for the weights."""


def op_params(op: Op) -> int:
    """Parameters of one operation."""
    match op:
        case Gemm():
            return op.copies * (op.n * op.k + (op.n if op.bias else 0))
        case Experts():
            return op.experts * _expert_params(op)
        case Router():
            return op.experts * (op.k + int(op.bias))
        case Conv1d():
            return op.channels * (op.kernel + int(op.bias))
        case Norm():
            return op.size * (int(op.weight) + int(op.bias))
        case Embedding():
            return op.rows * op.size
        case Weights():
            return op.size
        case Attention() | Elementwise() | Index() | Scan() | MixStreams():
            return 0


def active_op_params(op: Op) -> int:
    """Parameters of one operation that touch one token: of routed experts, those that it passes."""
    return op.top_k * _expert_params(op) if isinstance(op, Experts) else op_params(op)


def _expert_params(op: Experts) -> int:
    biases = op.wide + op.k if op.bias else 0
    return op.k * (op.wide + op.ffn) + biases


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
    """Parameters that touch one token: all of a dense model's, the token table included."""
    return params(arch) - sum(
        group.count * (op_params(op) - active_op_params(op)) for group in decoder(arch).groups for op in group.ops
    )


def trained_params(arch: Architecture, *, apart: bool = False) -> int:
    """Parameters that are trained: all of them, or those of adapters.

    ``apart``: queries, keys and values, and gate and up, are products of their own, with an adapter each.
    """
    if not arch.training.adapters:
        return params(arch)
    every = [(group.count, op) for group in decoder(arch).groups for op in trained_ops(group.ops)]
    return sum(count * op_params(op) * (op.parts if apart and isinstance(op, Gemm) else 1) for count, op in every)


def prediction_params(arch: Architecture) -> int:
    """Parameters of the modules that predict further tokens, beside those of the decoder that they share."""
    found = decoder(arch).prediction
    return 0 if found is None else found.modules * (_sum(found.joint) + _groups(found.groups))


def tower_params(arch: Architecture) -> dict[str, int]:
    """Parameters of each tower beside the decoder, by its name."""
    return {tower.name: _groups(tower.groups) for tower in arch.towers}


def _groups(groups: Iterable[LayerGroup]) -> int:
    return sum(group.count * _sum(group.ops) for group in groups)


def matmul_flops_per_token(arch: Architecture) -> int:
    """Forward FLOPs per token of the matrix products, output projection included."""
    model = decoder(arch)
    return layer_matmul_flops_per_token(arch) + _matmul([*model.final, model.head])


def layer_matmul_flops_per_token(arch: Architecture) -> int:
    """Forward FLOPs per token of the layers' matrix products."""
    return sum(group.count * _matmul(group.ops) for group in decoder(arch).groups)


def attention_flops_per_token(arch: Architecture, seq_len: int, *, causal: bool = False) -> float:
    """Forward FLOPs per token of attention scores and values, of indexes and of scans, on average over a sequence."""
    groups = decoder(arch).groups
    return sum(group.count * _mixing(op, seq_len, causal) for group in groups for op in group.ops)


def modules_flops_per_token(arch: Architecture, seq_len: int, modules: Collection[str]) -> float:
    """Forward FLOPs per token of the layers' operations that belong to some modules; scores and values in full."""
    names = {*modules, "shared_experts"} if "moe" in modules else modules
    ops = [(g.count, op) for g in decoder(arch).groups for op in g.ops if module_of(op) in names]
    return sum(count * (_products(op) + _mixing(op, seq_len, causal=False)) for count, op in ops)


def prediction_flops_per_token(arch: Architecture, seq_len: int, *, causal: bool = False) -> float:
    """Forward FLOPs per token of the modules that predict further tokens, each with an output projection."""
    model = decoder(arch)
    if model.prediction is None:
        return 0.0
    ops = [*model.prediction.joint, model.head, *(op for g in model.prediction.groups for op in g.ops)]
    return model.prediction.modules * (_matmul(ops) + sum(_mixing(op, seq_len, causal) for op in ops))


def flops_per_token(arch: Architecture, seq_len: int, *, causal: bool = False) -> float:
    """Forward FLOPs per token; a step that trains all weights is three times that."""
    return matmul_flops_per_token(arch) + attention_flops_per_token(arch, seq_len, causal=causal)


def training_flops_per_token(arch: Architecture, seq_len: int, *, causal: bool = False) -> float:
    """FLOPs per token of a step: forward, input gradients, and the weight gradients of what is trained.

    Three forwards where all weights are trained; frozen products leave out the third of them.
    """
    model = decoder(arch)
    every = [(group.count, op) for group in model.groups for op in group.ops]
    every += [(1, op) for op in (*model.final, model.head)]
    without = 2 * sum(count * _products(op) for count, op in every if not getattr(op, "trained", True))
    return TRAINING_FORWARDS * flops_per_token(arch, seq_len, causal=causal) - without


def _mixing(op: Op, seq_len: int, causal: bool) -> float:
    match op:
        case Attention():
            return 2.0 * op.heads * (op.qk_dim + op.v_dim) * op.keys(seq_len, causal=causal)
        case Index():
            return 2.0 * op.heads * (op.dim + 1) * seq_len / op.compressed * (0.5 if causal else 1.0)
        case Scan():
            return 2.0 * op.products()
        case _:
            return 0.0


def _sum(ops: Iterable[Op]) -> int:
    return sum(op_params(op) for op in ops)


def _matmul(ops: Iterable[Op]) -> int:
    return 2 * sum(_products(op) for op in ops)


def _products(op: Op) -> int:
    """Multiply-adds of one token."""
    match op:
        case Gemm():
            return op.n * op.k * op.copies
        case Router():
            return op.experts * op.k
        case Experts():
            return op.top_k * op.k * (op.wide + op.ffn)
        case Conv1d():
            return op.channels * op.kernel
        case MixStreams():
            return op.streams**2 * op.size
        case _:
            return 0
