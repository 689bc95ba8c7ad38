"""Per-micro-batch cost of what a stage is made of: one layer, the embedding, the head with its loss."""

from __future__ import annotations

from dataclasses import dataclass, fields
from dataclasses import replace as dataclass_replace

import numpy as np

from linkscale.cost.device import Device
from linkscale.cost.kernels import FloatArray, Number
from linkscale.cost.layer import OpsCost, Slice, logits, ops_cost, regathers
from linkscale.cost.memory import (
    REPEATED_PRODUCTS,
    checkpoint_bytes,
    idle_logits_bytes,
    layer_activation_bytes,
    logits_bytes,
)
from linkscale.cost.network import Network
from linkscale.cost.params import whole_params
from linkscale.estimate.calls import Call, Exchange, mean_exchange
from linkscale.estimate.context_parallel import cp_exchange
from linkscale.estimate.expert_parallel import ep_exchange
from linkscale.estimate.parameters import Params, all_params, trained_params
from linkscale.estimate.tensor_parallel import LOSS_SUMS, TpExchange, mean_tp, prediction_calls, tp_exchange, unrepeated
from linkscale.plan.strategy import repeated_modules
from linkscale.topology.groups import GroupGeometry
from linkscale.workload.counts import Decoder
from linkscale.workload.ops import Experts, trained_ops

# Bytes moved per logit by the loss, forward and backward: Megatron's vocabulary-parallel loss casts to fp32 and
# makes separate passes for maximum, shift, exponent and sum; a compiled loss fuses them.
LOSS_BYTES = {"written": (26.0, 10.0), "compiled": (8.0, 6.0)}
# Host time of a layer's backward kernel over a forward one: autograd launches it without the modules' Python.
BACKWARD_LAUNCH = 0.5
# Share of a layer's forward launches that recomputation repeats: attention's few, or all.
RELAUNCHED = {"none": 0.0, "selective": 0.25, "full": 1.0}


@dataclass(frozen=True)
class Exposed:
    """Exposed seconds of one kind of exchange: forward, backward, and what recomputation repeats of the forward."""

    forward_s: FloatArray
    backward_s: FloatArray
    recompute_s: FloatArray

    def total(self, share: Number) -> FloatArray:
        """Return all of it, with a share of the forward repeated."""
        return self.forward_s + self.backward_s + share * self.recompute_s


@dataclass(frozen=True)
class UnitTime:
    """Seconds of one micro-batch through one unit, by cause."""

    forward_s: FloatArray
    backward_s: FloatArray
    wgrad_s: FloatArray
    """The part of backward that weight gradients take."""
    recompute_s: FloatArray
    tp: Exposed
    cp: Exposed
    ep: Exposed
    launch_forward_s: FloatArray
    launch_backward_s: FloatArray
    launch_recompute_s: FloatArray
    """Seconds that the host needs to launch each part; the device waits where it would be quicker."""

    @property
    def exchanges(self) -> tuple[Exposed, Exposed, Exposed]:
        """Exchanges of every kind."""
        return self.tp, self.cp, self.ep

    def late_forward(self) -> FloatArray:
        """Return the seconds for which the device waits to be told what to do, forward."""
        busy = self.forward_s
        for exposed in self.exchanges:
            busy = busy + exposed.forward_s
        return np.maximum(0.0, self.launch_forward_s - busy)

    def late_backward(self, share: Number = 0.0) -> FloatArray:
        """Return the same for backward, with a share of the forward repeated."""
        busy = self.backward_s + share * self.recompute_s
        for exposed in self.exchanges:
            busy = busy + exposed.backward_s + share * exposed.recompute_s
        return np.maximum(0.0, self.launch_backward_s + share * self.launch_recompute_s - busy)

    def late(self, share: Number = 0.0) -> FloatArray:
        """Return both together."""
        return self.late_forward() + self.late_backward(share)


@dataclass(frozen=True)
class Exchanges:
    """Exchanges inside a layer, call by call: what messages are told from, and no step needs."""

    tensor: TpExchange
    context: Exchange
    routing: Exchange
    prediction: list[Call]
    """Tensor-parallel calls of the modules that predict further tokens, their layers apart."""


@dataclass(frozen=True)
class Units:
    """Units of a decoder under a cut, per micro-batch."""

    layer: UnitTime
    embedding: UnitTime
    head: UnitTime
    boundary_bytes: FloatArray
    """What passes from layer to layer, all of it."""
    tp_hidden_s: FloatArray
    """Seconds of a layer's tensor-parallel exchanges that are hidden."""
    width: int
    layer_whole_params: float
    """Parameters of a layer that every tensor-parallel rank holds whole."""
    head_whole_params: float
    params: Params
    trained: Params
    """Those of them that are trained."""
    head_input: float
    """Whether (1 or 0) backward needs the input of the output projection, for its weight gradient."""
    expert_rows: float
    """The shorter side of an expert's weights."""
    activation_bytes: FloatArray
    whole_activation_bytes: FloatArray
    """What one layer holds while its backward runs, recomputed or not."""
    checkpoint_bytes: FloatArray
    backward_bytes: FloatArray
    """What a layer's backward holds besides: gradients of its ends, or what is exchanged there, and of those within."""
    embedding_kept_bytes: FloatArray
    head_kept_bytes: FloatArray
    logits_bytes: FloatArray
    idle_logits_bytes: FloatArray


def units(
    decoder: Decoder, part: Slice, tensor: GroupGeometry, context: GroupGeometry, dev: Device, head_dev: Device,
    net: Network,
) -> tuple[Units, Exchanges]:  # fmt: skip
    """Price the units of a decoder; layers of several kinds are averaged, since stages hold a mix of them."""
    total = float(sum(g.count for g in decoder.groups))
    costs = [(g.count / total, ops_cost(g.ops, part, dev)) for g in decoder.groups]
    weights, hidden = [w for w, _ in costs], decoder.head.k
    tensors = [tp_exchange(c, part, hidden, tensor, net, dev.ring_overlap) for _, c in costs]
    contexts = [cp_exchange(c, context.size, context, net, part.choices) for _, c in costs]
    routings = [ep_exchange(c, part, net) for _, c in costs]
    times = [
        _layer_time(c, part, x, y, z, dev) for (_, c), x, y, z in zip(costs, tensors, contexts, routings, strict=True)
    ]
    routed = [op for g in decoder.groups for op in g.ops if isinstance(op, Experts)]
    exchange = mean_tp(weights, tensors)
    kept = [layer_activation_bytes(c, part, hidden) for _, c in costs]
    embedding, head = ops_cost(decoder.embeddings, part, dev), ops_cost((*decoder.final, decoder.head), part, dev)
    none = np.zeros_like(part.tp)
    modules = decoder.prediction.modules if decoder.prediction else 0
    joint = decoder.prediction.joint if decoder.prediction else ()
    calls = prediction_calls(exchange, tensor, net, part.choices) if modules else []
    further = [_times(call, float(modules)) for call in calls]
    priced = Units(
        layer=_mean_time(weights, times),
        embedding=_edge_time(embedding, part, exchange, dev, embedding=True),
        head=_head_time(decoder, part, exchange, further, dev, head_dev),
        boundary_bytes=exchange.size_bytes,
        tp_hidden_s=exchange.hidden_s,
        width=hidden,
        layer_whole_params=sum(
            w * whole_params(trained_ops(g.ops)) for w, g in zip(weights, decoder.groups, strict=True)
        ),
        head_whole_params=whole_params(trained_ops(decoder.final)) + modules * whole_params(trained_ops(joint)),
        params=all_params(decoder, weights, part),
        trained=trained_params(decoder, weights, part),
        head_input=float(decoder.head.saves_input),
        expert_rows=float(min((min(op.k, op.ffn) for op in routed), default=0)),
        activation_bytes=_mean(weights, kept),
        whole_activation_bytes=_mean(weights, [np.asarray(c.saved_bytes) for _, c in costs]),
        checkpoint_bytes=checkpoint_bytes(part, hidden),
        backward_bytes=2.0 * np.maximum(exchange.size_bytes, checkpoint_bytes(part, hidden))
        + _mean(weights, [c.gradient_bytes + none for _, c in costs]),
        embedding_kept_bytes=embedding.saved_bytes + none,
        head_kept_bytes=head.saved_bytes + none,
        logits_bytes=(1.0 + modules) * logits_bytes(part, decoder.head),
        idle_logits_bytes=(1.0 + modules) * idle_logits_bytes(part, decoder.head),
    )
    return priced, Exchanges(exchange, mean_exchange(weights, contexts), mean_exchange(weights, routings), further)


def _times(call: Call, modules: float) -> Call:
    return dataclass_replace(call, forward=modules * call.forward, backward=modules * call.backward)


def _mean(weights: list[float], values: list[FloatArray]) -> FloatArray:
    return np.asarray(sum(w * v for w, v in zip(weights, values, strict=True)))


def _mean_exposed(weights: list[float], exposed: list[Exposed]) -> Exposed:
    return Exposed(*(_mean(weights, [getattr(e, f.name) for e in exposed]) for f in fields(Exposed)))


def _mean_time(weights: list[float], times: list[UnitTime]) -> UnitTime:
    """Average field by field, exchanges inside times included."""

    def mean(name: str) -> FloatArray:
        return _mean(weights, [getattr(t, name) for t in times])

    return UnitTime(
        mean("forward_s"), mean("backward_s"), mean("wgrad_s"), mean("recompute_s"),
        _mean_exposed(weights, [t.tp for t in times]), _mean_exposed(weights, [t.cp for t in times]),
        _mean_exposed(weights, [t.ep for t in times]),
        mean("launch_forward_s"), mean("launch_backward_s"), mean("launch_recompute_s"),
    )  # fmt: skip


def _layer_time(
    cost: OpsCost, part: Slice, exchange: TpExchange, context: Exchange, routing: Exchange, dev: Device
) -> UnitTime:
    none = np.zeros_like(part.tp)
    forward, backward = cost.forward_s + none, cost.backward_s + none
    calls = np.where(part.tp > 1, 2.0 * exchange.sites, 0.0) + context.calls_forward
    launch_forward = (cost.forward_ops + calls + routing.calls_forward) * dev.op_launch_s + cost.launch_forward_s
    launch_backward = (
        cost.launch_backward_s
        + (cost.backward_ops * BACKWARD_LAUNCH + calls + routing.calls_backward) * dev.op_launch_s
    )
    again = 1.0 if part.choices.recompute == "full" else 0.0
    sent_again = 1.0 if again or "moe" in repeated_modules(part.choices) else 0.0
    left_out = unrepeated(part.choices) * np.minimum(exchange.reduce.time_s, exchange.forward_s)
    return UnitTime(
        forward, backward, cost.wgrad_s + none, _recomputed(cost, part) + none,
        Exposed(exchange.forward_s, exchange.backward_s, again * (exchange.forward_s - left_out)),
        Exposed(context.forward_s, context.backward_s, _attends_again(part) * context.forward_s),
        Exposed(routing.forward_s, routing.backward_s, sent_again * routing.forward_s),
        launch_forward, launch_backward, RELAUNCHED[part.choices.recompute] * launch_forward,
    )  # fmt: skip


def _attends_again(part: Slice) -> float:
    """Whether recomputation runs attention, and with it the exchange of keys and values, a second time."""
    return 1.0 if part.choices.recompute == "full" or "core_attn" in repeated_modules(part.choices) else 0.0


def _recomputed(cost: OpsCost, part: Slice) -> Number:
    """Seconds of recomputation, before ``recompute_layers`` scales them."""
    match part.choices.recompute:
        case "none":
            return 0.0
        case "full":
            return cost.forward_s
        case "selective" if part.choices.stack == "megatron":
            return cost.repeated_s
        case "selective":
            streaming = cost.forward_s - cost.gemm_forward_s - cost.attention_forward_s
            return streaming + REPEATED_PRODUCTS * cost.gemm_forward_s


def _head_time(
    decoder: Decoder, part: Slice, exchange: TpExchange, further: list[Call], dev: Device, head_dev: Device
) -> UnitTime:
    """Time the head; every module that predicts a further token joins two inputs and runs the head once more."""
    head = _edge_time(_head_cost(decoder, part, head_dev), part, exchange, dev, embedding=False)
    if decoder.prediction is None:
        return head
    modules = float(decoder.prediction.modules)
    joint = _edge_time(ops_cost(decoder.prediction.joint, part, dev), part, exchange, dev, embedding=False)
    whole = _mean_time([1.0 + modules, modules], [head, joint])
    exposed = Exposed(
        sum((call.forward_s for call in further), head.tp.forward_s),
        sum((call.backward_s for call in further), head.tp.backward_s),
        head.tp.recompute_s,
    )
    return dataclass_replace(whole, tp=exposed)


def _head_cost(decoder: Decoder, part: Slice, dev: Device) -> OpsCost:
    cost = ops_cost((*decoder.final, decoder.head), part, dev)
    forward, backward = LOSS_BYTES["compiled" if part.choices.compile else "written"]
    count = logits(part, decoder.head)
    cost.forward_s = cost.forward_s + forward * count / dev.memory_bytes_per_s
    cost.dgrad_s = cost.dgrad_s + backward * count / dev.memory_bytes_per_s
    return cost


def _edge_time(cost: OpsCost, part: Slice, exchange: TpExchange, dev: Device, *, embedding: bool) -> UnitTime:
    """Embedding: the lookup is reduced; head: its input gathered and its loss summed; backward the other way round."""
    none = np.zeros_like(part.tp)
    gather = exchange.gather.time_s if part.choices.sequence_parallel else none
    if embedding:
        tp = Exposed(exchange.reduce.time_s, gather, none)
    else:
        loss = LOSS_SUMS * exchange.loss.time_s
        again = regathers(part.choices) * sum(cost.column_inputs)
        tp = Exposed(gather + loss, exchange.reduce.time_s + again * gather, none)
    return UnitTime(
        np.asarray(cost.forward_s) + none, np.asarray(cost.backward_s) + none, cost.wgrad_s + none, none,
        tp, Exposed(none, none, none), Exposed(none, none, none),
        cost.forward_ops * dev.op_launch_s + none, cost.backward_ops * dev.op_launch_s + none, none,
    )  # fmt: skip
