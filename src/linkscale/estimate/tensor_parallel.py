"""Tensor-parallel exchanges of one layer: what there is, and what stays exposed under each way of hiding it.

With sequence parallelism a layer gathers before each column-parallel product and scatters after each
row-parallel one, forward and backward; Megatron gathers the input again for the weight gradient, where PyTorch's
DTensor keeps it whole. Without sequence parallelism a layer all-reduces once per pair and direction. The embedding
and the head are cut like half a layer each, and the loss over a split vocabulary sums three numbers a token (maximum,
sum of exponentials, the target's logit). ``async`` (Megatron): backward, the input's regathering hides behind the
input gradient's product, and the input gradient's reduction behind the weight gradient's; ``bulk`` the same, by
Transformer Engine's kernels on fewer multiprocessors than NCCL's channels take. ``ring``: each exchange is
cut into tp pieces pipelined with its own product. (Korthikanti et al. 2022, section 4.2.2; Megatron-LM,
core/tensor_parallel/layers.py.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from linkscale.cost.collectives import CollectiveTime, Kind, collective_s
from linkscale.cost.kernels import FloatArray, Number
from linkscale.cost.layer import OpsCost, Slice, regathers
from linkscale.cost.network import Network
from linkscale.estimate.calls import Call
from linkscale.plan.strategy import Choices
from linkscale.topology.groups import GroupGeometry

LOSS_SUMS = 3.0
# Multiprocessors of Transformer Engine's bulk overlap (pytorch/module/base.py, initialize_ub: num_sm).
BULK_SMS = 16.0


def unrepeated(choices: Choices) -> float:
    """Reductions of a layer that recomputation leaves out: PyTorch stops at the last tensor that backward needs."""
    return 1.0 if choices.stack in ("fsdp1", "fsdp2") else 0.0


@dataclass(frozen=True)
class TpExchange:
    """Seconds per layer and micro-batch: exposed forward and backward, and all of it."""

    size_bytes: FloatArray
    gather: CollectiveTime
    reduce: CollectiveTime
    sites: float
    inputs: float
    """Sites whose input backward needs once more, which stacks that do not keep it whole gather again."""
    forward_s: FloatArray
    backward_s: FloatArray
    hidden_s: FloatArray
    loss: CollectiveTime
    loss_bytes: FloatArray


def tp_exchange(
    cost: OpsCost, part: Slice, hidden_size: int, group: GroupGeometry, net: Network, ring_overlap: float
) -> TpExchange:
    """Price the tensor-parallel exchanges of one layer; each is of all tokens, ``hidden_size`` features wide."""
    size = 2.0 * hidden_size * part.tokens
    sites, inputs = float(len(cost.column_wgrad_s)), sum(cost.column_inputs)
    if part.choices.sequence_parallel:
        gather = collective_s("all_gather", size, group, net)
        reduce = collective_s("reduce_scatter", size, group, net)
        once = gather.time_s + reduce.time_s
    else:
        gather = reduce = collective_s("all_reduce", size, group, net)
        once = reduce.time_s
    forward, backward = sites * once, sites * once
    hidden = (
        _hidden_forward(cost, part, forward, ring_overlap),
        _hidden_backward(cost, part, gather, reduce, backward, ring_overlap),
    )
    backward = backward + regathers(part.choices) * inputs * gather.time_s
    # A hidden collective still takes multiprocessors from the product that hides it.
    sms = np.maximum(gather.sms, reduce.sms)
    if part.choices.tp_overlap == "bulk":
        sms = np.minimum(sms, BULK_SMS)
    covered = 1.0 - sms / net.sm_count
    forward, backward = forward - covered * hidden[0], backward - covered * hidden[1]
    numbers = 4.0 * part.tokens
    loss = collective_s("all_reduce", numbers, group, net)
    return TpExchange(size, gather, reduce, sites, inputs, forward, backward, hidden[0] + hidden[1], loss, numbers)


def prediction_calls(exchange: TpExchange, group: GroupGeometry, net: Network, choices: Choices) -> list[Call]:
    """Return the calls of one module that predicts a further token, its layers apart, in one micro-batch.

    The token is looked up once more; the product that joins it with the features before it gathers both, twice the
    width, and its features are gathered again behind it; the head and its loss run once more. Full recomputation
    repeats the product. (Megatron-LM, core/transformer/multi_token_prediction.py.)
    """
    width, both = exchange.size_bytes, 2.0 * exchange.size_bytes
    kept, again = regathers(choices), 1.0 if choices.recompute == "full" else 0.0

    def call(what: str, kind: Kind, size: FloatArray, forward: float, backward: float) -> Call:
        times = np.ones_like(size)
        return Call(what, kind, size, collective_s(kind, size, group, net), group, forward * times, backward * times)

    loss = call("further loss", "all_reduce", exchange.loss_bytes, LOSS_SUMS, 0.0)
    if choices.sequence_parallel:
        return [
            call("features to join", "all_gather", both, 1.0, kept + again),
            call("gradients of these features", "reduce_scatter", both, 0.0, 1.0),
            call("further head, joint features", "all_gather", width, 2.0, 2.0 + kept + again),
            call("further lookup and head", "reduce_scatter", width, 1.0, 1.0),
            loss,
        ]
    return [
        call("gradients of joined features", "all_reduce", both, 0.0, 1.0),
        call("joint features", "all_gather", width, 1.0, again),
        call("further lookup and head", "all_reduce", width, 1.0, 1.0),
        loss,
    ]


def mean_tp(weights: Sequence[float], exchanges: Sequence[TpExchange]) -> TpExchange:
    """Average the exchanges of layers of several kinds: each is of the same size, their number differs."""

    def mean(name: str) -> FloatArray:
        return np.asarray(sum(w * getattr(e, name) for w, e in zip(weights, exchanges, strict=True)))

    return replace(
        exchanges[0], sites=sum(w * e.sites for w, e in zip(weights, exchanges, strict=True)),
        inputs=sum(w * e.inputs for w, e in zip(weights, exchanges, strict=True)),
        forward_s=mean("forward_s"), backward_s=mean("backward_s"), hidden_s=mean("hidden_s"),
    )  # fmt: skip


def _hidden_forward(cost: OpsCost, part: Slice, total: FloatArray, ring_overlap: float) -> FloatArray:
    if part.choices.tp_overlap != "ring":
        return np.zeros_like(total)
    return ring_overlap * np.minimum(total * (1.0 - 1.0 / part.tp), cost.gemm_forward_s)


def _hidden_backward(
    cost: OpsCost, part: Slice, gather: CollectiveTime, reduce: CollectiveTime, total: FloatArray, ring_overlap: float
) -> FloatArray:
    hidden: Number = np.zeros_like(total)
    if part.choices.tp_overlap == "none":
        return np.asarray(hidden)
    for dgrad, wgrad, again in zip(cost.column_dgrad_s, cost.column_wgrad_s, cost.column_inputs, strict=True):
        hidden = hidden + np.minimum(reduce.time_s, wgrad)
        if part.choices.sequence_parallel:
            # Ring: also the gradient's gathering before the row-parallel product, in pieces; one product covers once.
            pieces = 1.0 - 1.0 / part.tp if part.choices.tp_overlap == "ring" else 0.0
            hidden = hidden + np.minimum(gather.time_s * (regathers(part.choices) * again + pieces), dgrad)
    return np.asarray(hidden)
