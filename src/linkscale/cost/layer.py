"""Time, traffic and saved activations of a run of operations on one GPU, for a batch of tensor-parallel cuts.

The functions price operations by their type; they never ask which model an operation came from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from linkscale.cost.device import Device, attention_rate
from linkscale.cost.experts import ExpertsCost, Kernels, experts_cost, router_cost, share
from linkscale.cost.kernels import (
    AttentionTime,
    FloatArray,
    Number,
    fused_attention_s,
    gemm_s,
    unfused_attention_s,
)
from linkscale.cost.params import local_columns
from linkscale.cost.recompute import add_cores, dropped_bytes, repeats
from linkscale.cost.scans import ScanCost, convolution_cost, index_cost, scan_cost
from linkscale.plan.strategy import DTYPE_BYTES, Choices, repeated_modules
from linkscale.workload.ops import (
    Attention,
    Conv1d,
    Elementwise,
    Embedding,
    Experts,
    Gemm,
    Index,
    MixStreams,
    Norm,
    Op,
    Router,
    Scan,
    Weights,
    module_of,
)

# Passes over memory of eager PyTorch relative to fused kernels. SwiGLU: silu reads and writes, the product
# reads two and writes one: 5 passes against 3. A norm written in PyTorch operations upcasts, squares, averages,
# scales and downcasts: about twice a fused kernel's traffic.
EAGER_ELEMENTWISE = 5.0 / 3.0
EAGER_NORM = 2.0

# Bytes of an element of a tensor between kernels. Under autocast (DistributedDataParallel) the residual stream alone
# stays fp32, and every linear layer that reads a norm's output keeps its own 16-bit copy.
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
    ep: Number = 1.0
    etp: Number = 1.0

    @property
    def tokens(self) -> FloatArray:
        """Tokens of one micro-batch on this rank."""
        return self.micro_batch * self.queries

    @property
    def routed_tokens(self) -> FloatArray:
        """Tokens that this rank sends to experts: tensor-parallel ranks share them."""
        return self.tokens / self.tp

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
    forward_ops: Number = 0.0
    backward_ops: Number = 0.0
    launch_forward_s: Number = 0.0
    """Host seconds beside those of the kernels counted in ``forward_ops``."""
    launch_backward_s: Number = 0.0
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
    attention_input_bytes: Number = 0.0
    """Queries, keys and values kept for backward."""
    product_bytes: list[FloatArray] = field(default_factory=list)
    """Outputs of the matrix products in their order, separate ones apart."""
    attention_output_bytes: Number = 0.0
    """Attention's output and, where it is fused, its log-sum-exp."""
    gradient_bytes: Number = 0.0
    """Gradients of activations alive at once where most are: those of one operation's inputs."""
    column_dgrad_s: list[FloatArray] = field(default_factory=list)
    column_wgrad_s: list[FloatArray] = field(default_factory=list)
    column_inputs: list[float] = field(default_factory=list)
    """Whether (1 or 0) backward needs the input of each column-parallel product again, for a weight gradient."""
    experts: Experts | None = None
    """The routed experts, what the exchange of tokens is about."""
    router: Router | None = None
    beside_forward_s: Number = 0.0
    """Seconds of products that every token passes beside its routed experts."""
    beside_backward_s: Number = 0.0
    repeated_s: Number = 0.0
    """Seconds of the forward that selective recomputation repeats, module by module."""
    dropped_bytes: Number = 0.0
    """What of ``saved_bytes`` it does not keep."""
    unfolded: bool = False
    """Whether attention's input is unfolded from a latent by operations that are repeated."""
    activation_s: Number = 0.0
    """Seconds of the activation of routed experts, forward."""
    activation_bytes: Number = 0.0
    """What it returns, kept for the product after it."""

    @property
    def backward_s(self) -> Number:
        """Seconds of the input and weight gradients together."""
        return self.dgrad_s + self.wgrad_s


def regathers(choices: Choices) -> float:
    """How often backward gathers a column-parallel product's input again: what DTensor keeps, Megatron does not."""
    return 1.0 if choices.sequence_parallel and choices.stack in ("megatron", "deepspeed") else 0.0


def ops_cost(ops: Iterable[Op], part: Slice, dev: Device) -> OpsCost:
    """Price operations one after the other on one GPU."""
    total, chosen = OpsCost(), repeated_modules(part.choices)
    for op in ops:
        if not repeats(op, chosen):
            _add(total, op, part, dev)
            continue
        # Sums grow in place: take copies.
        forward, saved = np.array(total.forward_s), np.array(total.saved_bytes)
        _add(total, op, part, dev)
        total.repeated_s = total.repeated_s + (total.forward_s - forward)
        total.dropped_bytes = total.dropped_bytes + dropped_bytes(op, total.saved_bytes - saved, part, dev)
        total.unfolded = total.unfolded or module_of(op) == "mla_up_proj"
    add_cores(total, chosen)
    return total


def _add(total: OpsCost, op: Op, part: Slice, dev: Device) -> None:
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
        case Router() | Experts():
            _add_experts(total, op, part, dev)
        case MixStreams():
            _add_elementwise(total, _mixing(op), part, dev)
        case Scan() | Conv1d() | Index():
            _add_scan(total, _scan(op, part, dev))
        case Weights():  # read with the tensors beside them: nothing of their own
            pass


def _add_gemm(total: OpsCost, op: Gemm, part: Slice, dev: Device) -> None:
    n = local_columns(op, part.tp, part.choices.stack)
    k = op.k / part.tp if op.shard == "row" else np.full_like(part.tp, op.k)
    half = op.half or not dev.operand.narrow
    tokens, rate = part.tokens, dev.half_flops_per_s if op.half else dev.gemm_flops_per_s
    copies = op.copies / part.tp if op.shard == "copies" else op.copies
    launched = 1 if op.shard == "copies" else op.copies
    in_bytes = 2.0 if half else dev.operand.operand_bytes
    # The weight gradient is accumulated where it lies: read and written in the gradients' own type.
    grad_bytes = 2.0 * DTYPE_BYTES[part.choices.grad_dtype]
    forward = gemm_s(tokens, n, k, dev, rate, in_bytes=in_bytes)
    dgrad = gemm_s(tokens, k, n, dev, rate, in_bytes=in_bytes)
    wgrad = gemm_s(n, k, tokens, dev, rate, in_bytes=in_bytes, out_bytes=grad_bytes)
    wgrad = wgrad if op.trained else np.zeros_like(wgrad)
    cast_bytes = dev.operand.cast_bytes if op.trained else dev.operand.frozen_cast_bytes
    cast = 0.0 if half else cast_bytes / dev.memory_bytes_per_s
    forward, dgrad = forward + cast * tokens * k, dgrad + cast * tokens * n
    total.forward_s += copies * forward
    total.gemm_forward_s += copies * forward
    total.dgrad_s += copies * dgrad
    total.wgrad_s += copies * wgrad
    total.forward_ops += launched
    total.backward_ops += (1 + op.trained) * launched
    if not op.half:  # checkpointing by operation counts base products; an adapter's cost little to repeat
        total.product_bytes += [copies * HALF_BYTES * tokens * n * (width / op.n) for width in op.widths or (op.n,)]
    if op.beside_routing:
        total.beside_forward_s += copies * forward
        total.beside_backward_s += copies * (dgrad + wgrad)
    if op.saves_input:
        whole = op.shard in ("row", "copies") or (op.shard == "column" and not regathers(part.choices))
        held = tokens * k if whole else part.region_tokens("sequence") * op.k
        # An adapter beside a frozen product reads its input in 16 bits.
        total.saved_bytes += copies * (in_bytes if op.trained else HALF_BYTES) * held * _casts(op, part.choices)
    if op.shard == "column" and op.boundary:
        total.column_inputs.append(1.0 if op.saves_input else 0.0)
        total.column_dgrad_s.append(dgrad)
        total.column_wgrad_s.append(wgrad)


def _add_experts(total: OpsCost, op: Router | Experts, part: Slice, dev: Device) -> None:
    grad_bytes = 2.0 * DTYPE_BYTES[part.choices.grad_dtype]
    if isinstance(op, Router):
        total.router = op
        cost = router_cost(op, part.region_tokens("sequence"), dev, grad_bytes)
        inputs: Number = 0.0
    else:
        total.experts = op
        passes = EAGER_ELEMENTWISE if _eager(part.choices) else 1.0
        held = share(op, part.routed_tokens, part.ep, part.etp, part.choices.dispatcher)
        kernels = _expert_kernels(part.choices)
        cost = experts_cost(op, held, dev, grad_bytes=grad_bytes, passes=passes, kernels=kernels)
        inputs = held.copies * dev.operand.operand_bytes * (op.k + op.ffn / part.etp)
    _add_expert_sums(total, cost if op.trained else _frozen(cost, inputs))


def _frozen(cost: ExpertsCost, inputs: Number) -> ExpertsCost:
    """Leave out the weight gradients, and the ``inputs`` of products, in bytes, that were kept for them."""
    none = np.zeros_like(cost.wgrad_s)
    return replace(cost, wgrad_s=none, saved_bytes=cost.saved_bytes - inputs, activation_bytes=none)


def _expert_kernels(choices: Choices) -> Kernels:
    """Megatron's grouped products are Transformer Engine's loop over streams, PyTorch's one kernel."""
    in_streams = choices.expert_gemm == "grouped" and choices.stack in ("megatron", "deepspeed")
    return "streams" if in_streams else choices.expert_gemm


def _add_expert_sums(total: OpsCost, cost: ExpertsCost) -> None:
    total.forward_s += cost.forward_s
    total.gemm_forward_s += cost.product_forward_s
    total.dgrad_s += cost.dgrad_s
    total.wgrad_s += cost.wgrad_s
    total.forward_ops += cost.forward_ops
    total.backward_ops += cost.backward_ops
    total.activation_s += cost.activation_s
    total.activation_bytes += cost.activation_bytes
    total.launch_forward_s += cost.launch_forward_s
    total.launch_backward_s += cost.launch_backward_s
    total.saved_bytes += cost.saved_bytes
    total.product_bytes.append(np.asarray(cost.product_bytes))


def _scan(op: Scan | Conv1d | Index, part: Slice, dev: Device) -> ScanCost:
    match op:
        case Scan():
            return scan_cost(op, part.tokens, part.tp, dev)
        case Conv1d():
            return convolution_cost(op, part.tokens, part.tp, dev)
        case Index():
            return index_cost(op, part.micro_batch, part.queries, part.seq, dev)


def _add_scan(total: OpsCost, cost: ScanCost) -> None:
    total.forward_s += cost.forward_s
    total.dgrad_s += cost.backward_s
    total.forward_ops += cost.forward_ops
    total.backward_ops += cost.backward_ops
    total.saved_bytes += cost.saved_bytes


def _mixing(op: MixStreams) -> Elementwise:
    """What mixing streams reads and writes: memory bounds it, its matrices are tiny."""
    wide = op.streams * op.size
    return Elementwise(name=op.name, reads=wide + op.size, writes=wide, saves=wide + op.size, region="sequence")


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
    # Ranks beyond the key-value heads hold a copy of one; shared keys are values too.
    pairs = op.kv_heads * (op.qk_dim + (0 if op.shared_kv else op.v_dim)) / np.minimum(part.tp, op.kv_heads)
    inputs = 2.0 * part.tokens * (op.heads * op.qk_dim / part.tp + pairs)
    total.saved_bytes += inputs + score_bytes
    total.attention_input_bytes += inputs
    total.attention_saved_bytes += score_bytes
    fused = dev.attention is not None
    total.attention_output_bytes += HALF_BYTES * op.heads * op.v_dim * part.tokens / part.tp
    total.attention_output_bytes += score_bytes if fused else 0.0


def _attention_core(op: Attention, part: Slice, dev: Device) -> tuple[AttentionTime, Number]:
    """Return the core's time and the bytes of scores that it keeps for backward."""
    batch_heads = part.micro_batch * op.heads / part.tp
    keys = op.keys(part.seq, causal=False)
    if dev.attention is None:
        time = unfused_attention_s(batch_heads, part.queries, part.seq, op.qk_dim, op.v_dim, op.dropout, dev)
        # Probabilities (2 bytes); with dropout also its mask (1) and the dropped probabilities (2).
        return time, (5.0 if op.dropout else 2.0) * batch_heads * part.queries * part.seq
    # A ring computes on one peer's tokens at a time; gathered or traded keys are met all at once.
    lengths = part.queries if part.choices.cp_comm == "p2p" else np.full_like(part.queries, part.seq)
    lengths = np.minimum(lengths, op.length(part.seq))
    # A batch has few lengths: a curve is read once for each.
    distinct, place = np.unique(lengths, return_inverse=True)
    rates = np.array([attention_rate(dev.attention, float(n), op.qk_dim, op.causal) for n in distinct])
    rate = dev.clock * rates[place]
    # A causal mask halves the scores; a window leaves `keys` a query but for the first ones.
    share = op.keys(part.seq, causal=True) / keys if op.causal else 1.0
    time = fused_attention_s(
        batch_heads, part.queries, keys, op.qk_dim, op.v_dim, share, rate, dev.attention.backward_ratio, dev
    )
    return time, 4.0 * batch_heads * part.queries  # log-sum-exp, one float a row


def _add_norm(total: OpsCost, op: Norm, part: Slice, dev: Device) -> None:
    elements = op.size * op.copies * op.share * part.region_tokens(op.region)
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
    total.forward_ops += 2.0
    if not op.trained:  # nothing before a frozen table has a gradient
        return
    total.wgrad_s += (2.0 + 2.0 * DTYPE_BYTES[part.choices.grad_dtype]) * elements / dev.memory_bytes_per_s
    total.backward_ops += 2.0
    total.saved_bytes += 8.0 * part.tokens  # the indices


def logits(part: Slice, head: Gemm) -> FloatArray:
    """Logits of one micro-batch on one rank."""
    return part.tokens * local_columns(head, part.tp, part.choices.stack)


def _eager(choices: Choices) -> bool:
    """Whether memory-bound operations run as written; Megatron ships fused kernels, others need a compiler."""
    return choices.stack != "megatron" and not choices.compile


def autocast(choices: Choices) -> bool:
    """Whether weights stay fp32 and each operation casts what it reads."""
    return choices.stack == "ddp"


def residual_bytes(choices: Choices) -> float:
    """Bytes of one element of the residual stream."""
    return 4.0 if autocast(choices) else HALF_BYTES


def _casts(op: Gemm, choices: Choices) -> float:
    """Copies of a linear layer's input: under autocast each of several products casts the norm's fp32 output."""
    separate = autocast(choices) and _eager(choices) and op.shard == "column"
    return float(max(1, len(op.widths))) if separate else 1.0


def _norm_saves(op: Norm, choices: Choices) -> float:
    """Bytes per element that a norm keeps for backward.

    A layer norm, or a compiled RMS norm, keeps its input. Written in PyTorch operations, an RMS norm upcasts: backward
    keeps the fp32 copy and the normalised values.
    """
    if op.kind == "layernorm" or not _eager(choices):
        return residual_bytes(choices)
    return 4.0 + residual_bytes(choices)
