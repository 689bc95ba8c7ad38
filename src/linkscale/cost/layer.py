"""Time, traffic and saved activations of a run of operations on one GPU, for a batch of tensor-parallel cuts.

The functions price operations by their type; they never ask which model an operation came from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from linkscale.cost.device import Device, attention_rate
from linkscale.cost.kernels import (
    AttentionTime,
    FloatArray,
    Number,
    fused_attention_s,
    gemm_s,
    unfused_attention_s,
)
from linkscale.plan.strategy import DTYPE_BYTES, Choices
from linkscale.workload.ops import Attention, Elementwise, Embedding, Gemm, Norm, Op

# Passes over memory of eager PyTorch relative to fused kernels. SwiGLU: silu reads and writes, the product
# reads two and writes one: 5 passes against 3. A norm written in PyTorch operations upcasts, squares, averages,
# scales and downcasts: about twice a fused kernel's traffic.
EAGER_ELEMENTWISE = 5.0 / 3.0
EAGER_NORM = 2.0

# What backward keeps of the tensors between kernels, in bytes per element, is said of 16 bits with a residual stream
# in 16 bits. Under autocast (DistributedDataParallel) the residual stream stays fp32, and every linear layer that
# reads a norm's output keeps its own 16-bit copy. An RMS norm written in PyTorch operations upcasts: backward keeps
# the fp32 copy and the normalised values besides; a layer norm is one kernel everywhere and keeps its input.
HALF_BYTES = 2.0


@dataclass(frozen=True)
class Slice:
    """What of the model one GPU holds while it computes: arrays over strategies.

    ``tokens``: of one micro-batch on this rank (micro_batch * seq / cp). ``queries``: tokens of one sequence.
    """

    tp: FloatArray
    micro_batch: FloatArray
    queries: FloatArray
    seq: float
    choices: Choices

    @property
    def tokens(self) -> FloatArray:
        """Tokens of one micro-batch on this rank."""
        return self.micro_batch * self.queries

    def region_tokens(self, region: str) -> FloatArray:
        """Tokens times the share of features that this rank holds in a region."""
        if region == "tensor" or self.choices.sequence_parallel:
            return self.tokens / self.tp
        return self.tokens


@dataclass
class OpsCost:
    """Sums over operations, per micro-batch on one GPU. Seconds are of device time without host limits."""

    forward_s: Number = 0.0
    dgrad_s: Number = 0.0
    wgrad_s: Number = 0.0
    forward_ops: float = 0.0
    backward_ops: float = 0.0
    attention_forward_s: Number = 0.0
    attention_backward_s: Number = 0.0
    kv_bytes: Number = 0.0
    """Keys and values of this rank's tokens, what context-parallel ranks pass on."""
    qo_bytes: Number = 0.0
    """Queries and attention outputs of this rank's tokens."""
    gemm_forward_s: Number = 0.0
    saved_bytes: Number = 0.0
    """Activations kept for backward when nothing is recomputed."""
    attention_saved_bytes: Number = 0.0
    """The part of them that only the attention core needs (scores, probabilities)."""
    product_bytes: list[FloatArray] = field(default_factory=list)
    """Outputs of the matrix products, in order, separate ones apart."""
    attention_output_bytes: Number = 0.0
    """Attention's output and its log-sum-exp."""
    gradient_bytes: Number = 0.0
    """Gradients of activations alive at once where most are: those of one operation's inputs."""
    column_dgrad_s: list[FloatArray] = field(default_factory=list)
    column_wgrad_s: list[FloatArray] = field(default_factory=list)
    width: int = 0
    """Features of the tensor exchanged at each tensor-parallel boundary."""

    @property
    def backward_s(self) -> Number:
        """Seconds of the input and weight gradients together."""
        return self.dgrad_s + self.wgrad_s


def ops_cost(ops: Iterable[Op], part: Slice, dev: Device) -> OpsCost:
    """Price operations one after the other on one GPU."""
    total = OpsCost()
    for op in ops:
        match op:
            case Gemm():
                _add_gemm(total, op, part, dev)
            case Attention():
                _add_attention(total, op, part, dev)
            case Norm():
                _add_norm(total, op, part, dev)
            case Elementwise():
                _add_elementwise(total, op, part, dev)
            case Embedding():
                _add_embedding(total, op, part, dev)
    return total


def _add_gemm(total: OpsCost, op: Gemm, part: Slice, dev: Device) -> None:
    n = op.n / part.tp if op.shard == "column" else np.full_like(part.tp, op.n)
    k = op.k / part.tp if op.shard == "row" else np.full_like(part.tp, op.k)
    tokens, rate = part.tokens, dev.gemm_flops_per_s
    in_bytes = 1.0 if dev.low_precision else 2.0
    # The weight gradient is accumulated where it lies: read and written in the gradients' own type.
    grad_bytes = 2.0 * DTYPE_BYTES[part.choices.grad_dtype]
    forward = gemm_s(tokens, n, k, dev, rate, in_bytes=in_bytes)
    dgrad = gemm_s(tokens, k, n, dev, rate, in_bytes=in_bytes)
    wgrad = gemm_s(n, k, tokens, dev, rate, in_bytes=in_bytes, out_bytes=grad_bytes)
    if dev.low_precision:
        # Casting writes the operand and its transpose in 8 bits, 1 + 1 bytes per element; where no norm or
        # activation produces it in the same kernel (about half of the operands), it is also read, 2 bytes.
        forward = forward + 3.0 * tokens * k / dev.memory_bytes_per_s
        dgrad = dgrad + 3.0 * tokens * n / dev.memory_bytes_per_s
    total.forward_s += op.copies * forward
    total.gemm_forward_s += op.copies * forward
    total.dgrad_s += op.copies * dgrad
    total.wgrad_s += op.copies * wgrad
    total.forward_ops += op.copies
    total.backward_ops += 2 * op.copies
    total.product_bytes += [op.copies * HALF_BYTES * tokens * n * (width / op.n) for width in op.parts or (op.n,)]
    if op.saves_input:
        held = part.region_tokens("sequence") * op.k if op.shard != "row" else tokens * k
        total.saved_bytes += op.copies * in_bytes * held * _casts(op, part.choices)
    if op.shard == "column" and op.saves_input:
        total.column_dgrad_s.append(dgrad)
        total.column_wgrad_s.append(wgrad)
        total.width = op.k


def _add_attention(total: OpsCost, op: Attention, part: Slice, dev: Device) -> None:
    core, score_bytes = _attention_core(op, part, dev)
    total.forward_s += core.forward_s
    total.attention_forward_s += core.forward_s
    total.attention_backward_s += core.backward_s
    total.kv_bytes += 2.0 * op.kv_heads * (op.qk_dim + op.v_dim) * part.tokens / part.tp
    total.qo_bytes += 2.0 * op.heads * (op.qk_dim + op.v_dim) * part.tokens / part.tp
    total.dgrad_s += core.backward_s
    total.forward_ops += core.forward_ops
    total.backward_ops += core.backward_ops
    qkv = op.heads * op.qk_dim + op.kv_heads * (op.qk_dim + op.v_dim)
    total.saved_bytes += 2.0 * qkv * part.tokens / part.tp + score_bytes
    total.attention_saved_bytes += score_bytes
    outputs = HALF_BYTES * op.heads * op.v_dim * part.tokens / part.tp
    total.attention_output_bytes += outputs + (score_bytes if dev.attention is not None else 0.0)


def _attention_core(op: Attention, part: Slice, dev: Device) -> tuple[AttentionTime, Number]:
    """Return the core's time and the bytes of scores that it keeps for backward."""
    batch_heads = part.micro_batch * op.heads / part.tp
    keys = part.seq if op.window is None else float(min(part.seq, op.window))
    if dev.attention is None:
        time = unfused_attention_s(batch_heads, part.queries, part.seq, op.qk_dim, op.v_dim, op.dropout, dev)
        # Probabilities (2 bytes); with dropout also its mask (1) and the dropped probabilities (2).
        return time, (5.0 if op.dropout else 2.0) * batch_heads * part.queries * part.seq
    # A ring computes on one peer's tokens at a time; gathered or traded keys are met all at once.
    lengths = part.queries if part.choices.cp_comm == "p2p" else np.full_like(part.queries, part.seq)
    rate = dev.clock * np.array([attention_rate(dev.attention, float(n), op.qk_dim, op.causal) for n in lengths])
    # A causal mask halves the scores; a window leaves `keys` a query but for the first ones.
    share = 1.0 - keys / (2.0 * part.seq) if op.causal else 1.0
    time = fused_attention_s(
        batch_heads, part.queries, keys, op.qk_dim, op.v_dim, share, rate, dev.attention.backward_ratio, dev
    )
    return time, 4.0 * batch_heads * part.queries  # log-sum-exp, one float a row


def _add_norm(total: OpsCost, op: Norm, part: Slice, dev: Device) -> None:
    elements = op.size * op.copies * part.region_tokens(op.region)
    passes = EAGER_NORM if _eager(part.choices) else 1.0
    total.forward_s += passes * 4.0 * elements / dev.memory_bytes_per_s
    total.dgrad_s += passes * 6.0 * elements / dev.memory_bytes_per_s
    total.forward_ops += passes
    total.backward_ops += 2 * passes
    if op.saves_input:
        total.saved_bytes += _norm_saves(op, part.choices) * elements


def _add_elementwise(total: OpsCost, op: Elementwise, part: Slice, dev: Device) -> None:
    tokens = part.region_tokens(op.region)
    passes = EAGER_ELEMENTWISE if op.fusable and _eager(part.choices) else 1.0
    forward = 2.0 * (op.reads + op.writes) + op.mask_bytes
    # Backward reads the output's gradient and what was kept, and writes the input's gradient.
    backward = 2.0 * (op.writes + op.saves + op.reads) + op.mask_bytes
    total.forward_s += passes * forward * tokens / dev.memory_bytes_per_s
    total.dgrad_s += passes * backward * tokens / dev.memory_bytes_per_s
    total.forward_ops += passes
    total.backward_ops += passes
    saves = op.saves + (op.saves_between if _eager(part.choices) else 0)
    total.saved_bytes += (HALF_BYTES * saves + op.mask_bytes) * tokens
    total.gradient_bytes = np.maximum(total.gradient_bytes, HALF_BYTES * op.reads * tokens)


def _add_embedding(total: OpsCost, op: Embedding, part: Slice, dev: Device) -> None:
    elements = op.size * part.tokens
    total.forward_s += 4.0 * elements / dev.memory_bytes_per_s
    total.wgrad_s += (2.0 + 2.0 * DTYPE_BYTES[part.choices.grad_dtype]) * elements / dev.memory_bytes_per_s
    total.forward_ops += 2.0
    total.backward_ops += 2.0
    total.saved_bytes += 8.0 * part.tokens  # the indices


def _eager(choices: Choices) -> bool:
    """Whether memory-bound operations run as written; Megatron ships fused kernels, others need a compiler."""
    return choices.stack != "megatron" and not choices.compile


def residual_bytes(choices: Choices) -> float:
    """Bytes of one element of the residual stream."""
    return 4.0 if autocast(choices) else HALF_BYTES


def autocast(choices: Choices) -> bool:
    """Whether weights stay fp32 and each operation casts what it reads."""
    return choices.stack == "ddp"


def _casts(op: Gemm, choices: Choices) -> float:
    """Copies of a linear layer's input: under autocast each of several products casts the norm's fp32 output."""
    separate = autocast(choices) and _eager(choices) and op.shard == "column"
    return float(len(op.parts)) if separate and op.parts else 1.0


def _norm_saves(op: Norm, choices: Choices) -> float:
    """Bytes per element that a norm keeps for backward."""
    if op.kind == "layernorm" or not _eager(choices):
        return residual_bytes(choices)
    return 4.0 + residual_bytes(choices)
