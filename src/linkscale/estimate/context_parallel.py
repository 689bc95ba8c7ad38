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

import numpy as np

from linkscale.cost.collectives import Kind, collective_s
from linkscale.cost.kernels import FloatArray, Number
from linkscale.cost.layer import OpsCost
from linkscale.cost.network import Network
from linkscale.estimate.calls import Call, Exchange, exposed
from linkscale.plan.strategy import Choices
from linkscale.topology.groups import GroupGeometry


def cp_exchange(cost: OpsCost, cp: FloatArray, group: GroupGeometry, net: Network, choices: Choices) -> Exchange:
    """Price the context-parallel exchanges of one layer; groups of one rank exchange nothing."""
    # Layers that mix tokens by other means than attention have no keys and values.
    there = np.where((cp > 1.0) & (np.asarray(cost.kv_bytes) > 0.0), 1.0, 0.0)

    def call(what: str, kind: Kind, size: Number, forward: Number, backward: Number) -> Call:
        one = collective_s(kind, size, group, net)
        return Call(what, kind, np.asarray(size) + 0.0 * cp, one, group, there * forward, there * backward)

    torch = choices.stack in ("fsdp1", "fsdp2")
    match choices.cp_comm:
        case "p2p":
            return _ring(cost, cp, call, torch)
        case "all_gather":
            return _gathered(cost, cp, call, torch)
        case "a2a":
            return exposed(_traded(cost, call), 0.0 * cp)


_Call = Callable[[str, Kind, Number, Number, Number], Call]


def _gradients(cost: OpsCost, cp: FloatArray, call: _Call, torch: bool) -> Call:
    size = 2.0 * cost.kv_bytes if torch else cost.kv_bytes
    return call("gradients of keys and values", "send_recv", size, 0.0, cp if torch else cp - 1.0)


def _ring(cost: OpsCost, cp: FloatArray, call: _Call, torch: bool) -> Exchange:
    steps = cp - 1.0
    keys = call("keys and values", "send_recv", cost.kv_bytes, steps, steps)
    gradients = _gradients(cost, cp, call, torch)
    forward = keys.forward * np.maximum(0.0, keys.one.time_s - cost.attention_forward_s / cp)
    both = keys.one.time_s + gradients.one.time_s
    backward = keys.backward * np.maximum(0.0, both - cost.attention_backward_s / cp)
    # Nothing is left to compute while PyTorch brings the gradients home.
    home = (gradients.backward - keys.backward) * gradients.one.time_s
    return Exchange([keys, gradients], forward, backward + home)


def _gathered(cost: OpsCost, cp: FloatArray, call: _Call, torch: bool) -> Exchange:
    whole = cost.kv_bytes * cp
    keys = call("keys and values", "all_gather", whole, 1.0, 1.0)
    gradients = call("gradients of keys and values", "reduce_scatter", whole, 0.0, 1.0)
    if torch:
        gradients = _gradients(cost, cp, call, torch)
    return exposed([keys, gradients], 0.0 * cp)


def _traded(cost: OpsCost, call: _Call) -> list[Call]:
    # Queries with keys and values into attention, outputs out of it; backward their gradients the other way.
    half = cost.qo_bytes / 2.0
    into = call("queries, keys, values", "all_to_all", cost.kv_bytes + half, 1.0, 1.0)
    return [into, call("attention outputs", "all_to_all", half, 1.0, 1.0)]
