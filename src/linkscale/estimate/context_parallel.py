"""Context-parallel exchanges of one layer: keys and values met in a ring, gathered, or heads traded for tokens.

``p2p`` (Ring Attention, Liu et al. 2023; Megatron-LM and Transformer Engine): cp - 1 steps, each passing one peer's
keys and values behind the attention on the last one's; backward passes their gradients along, in 16 bits;
PyTorch's ring passes them in fp32, and once more to bring them home, and does so where it gathers keys and values too.
``all_gather`` (Llama Team 2024, section 3.3.2): keys and values are gathered before attention, and gathered again and
their gradients reduced backward, all exposed. ``a2a`` (DeepSpeed Ulysses, Jacobs et al. 2023): queries, keys, values
and outputs are traded, all exposed. Causal work is balanced: every rank holds one chunk from each end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from linkscale.cost.collectives import CollectiveTime, Kind, collective_s
from linkscale.cost.kernels import FloatArray, Number
from linkscale.cost.layer import OpsCost
from linkscale.cost.network import Network
from linkscale.plan.strategy import Choices
from linkscale.topology.groups import GroupGeometry


@dataclass(frozen=True)
class CpCall:
    """One kind of exchange of a layer and micro-batch, and how often it is made forward and backward."""

    what: str
    kind: Kind
    size_bytes: FloatArray
    one: CollectiveTime
    forward: FloatArray
    backward: FloatArray


@dataclass(frozen=True)
class CpExchange:
    """Exchanges of one layer and micro-batch, and what stays exposed of them."""

    calls: list[CpCall]
    forward_s: FloatArray
    backward_s: FloatArray

    @property
    def calls_forward(self) -> FloatArray:
        """Calls that the host launches forward."""
        return np.asarray(sum(call.forward for call in self.calls))


def cp_exchange(cost: OpsCost, cp: FloatArray, group: GroupGeometry, net: Network, choices: Choices) -> CpExchange:
    """Price the context-parallel exchanges of one layer; groups of one rank exchange nothing."""
    there = np.where(cp > 1.0, 1.0, 0.0)

    def call(what: str, kind: Kind, size: Number, forward: Number, backward: Number) -> CpCall:
        one = collective_s(kind, size, group, net)
        return CpCall(what, kind, np.asarray(size) + 0.0 * cp, one, there * forward, there * backward)

    torch = choices.stack in ("fsdp1", "fsdp2")
    match choices.cp_comm:
        case "p2p":
            return _ring(cost, cp, call, torch)
        case "all_gather":
            return _gathered(cost, cp, call, torch)
        case "a2a":
            return _traded(cost, call)


_Call = Callable[[str, Kind, Number, Number, Number], CpCall]


def _gradients(cost: OpsCost, cp: FloatArray, call: _Call, torch: bool) -> CpCall:
    size = 2.0 * cost.kv_bytes if torch else cost.kv_bytes
    return call("gradients of keys and values", "send_recv", size, 0.0, cp if torch else cp - 1.0)


def _ring(cost: OpsCost, cp: FloatArray, call: _Call, torch: bool) -> CpExchange:
    steps = cp - 1.0
    keys = call("keys and values", "send_recv", cost.kv_bytes, steps, steps)
    gradients = _gradients(cost, cp, call, torch)
    forward = keys.forward * np.maximum(0.0, keys.one.time_s - cost.attention_forward_s / cp)
    both = keys.one.time_s + gradients.one.time_s
    backward = keys.backward * np.maximum(0.0, both - cost.attention_backward_s / cp)
    # Nothing is left to compute while PyTorch brings the gradients home.
    home = (gradients.backward - keys.backward) * gradients.one.time_s
    return CpExchange([keys, gradients], forward, backward + home)


def _gathered(cost: OpsCost, cp: FloatArray, call: _Call, torch: bool) -> CpExchange:
    whole = cost.kv_bytes * cp
    keys = call("keys and values", "all_gather", whole, 1.0, 1.0)
    gradients = call("gradients of keys and values", "reduce_scatter", whole, 0.0, 1.0)
    if torch:
        gradients = _gradients(cost, cp, call, torch)
    return _exposed([keys, gradients])


def _traded(cost: OpsCost, call: _Call) -> CpExchange:
    # Queries with keys and values into attention, outputs out of it; backward their gradients the other way.
    half = cost.qo_bytes / 2.0
    into = call("queries, keys, values", "all_to_all", cost.kv_bytes + half, 1.0, 1.0)
    return _exposed([into, call("attention outputs", "all_to_all", half, 1.0, 1.0)])


def _exposed(calls: list[CpCall]) -> CpExchange:
    """Nothing hides these calls."""
    forward = sum(call.forward * call.one.time_s for call in calls)
    backward = sum(call.backward * call.one.time_s for call in calls)
    return CpExchange(calls, np.asarray(forward), np.asarray(backward))
