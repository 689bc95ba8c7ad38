"""Exchanges of tokens with routed experts: what is sent to whom, and what stays exposed.

Megatron-LM's dispatchers (core/transformer/moe/token_dispatcher.py). ``alltoall``: each copy of a token is sent to the
rank of its expert, with its probability; ranks that hold parts of the same expert gather the copies, and scatter the
sums back. ``allgather``: all tokens go to all ranks of the experts' group. ``deepep``, ``hybridep``: a token goes once
to every node, see :mod:`linkscale.cost.dispatch`. Backward sends gradients the other way, in 16 bits.
"""

from __future__ import annotations

import numpy as np

from linkscale.cost.collectives import Kind, collective_s
from linkscale.cost.dispatch import KERNEL_SMS, dispatch_s, sent_bytes
from linkscale.cost.kernels import FloatArray
from linkscale.cost.layer import OpsCost, Slice
from linkscale.cost.network import Network
from linkscale.cost.routing import expected_peak
from linkscale.estimate.calls import Call, Exchange, exposed
from linkscale.plan.strategy import DTYPE_BYTES, CommDtype, Dispatcher
from linkscale.topology.groups import GroupGeometry, group_geometry
from linkscale.workload.ops import Experts, Router

PROBABILITY_BYTES = 4.0
# Tokens sent in 8 bits bring an fp32 scale for every 128 numbers (DeepSeek-V3, arXiv 2412.19437, section 3.3).
SCALE_BYTES = 4.0 / 128.0


def ep_exchange(cost: OpsCost, part: Slice, net: Network) -> Exchange:
    """Price the exchanges of tokens of one layer, and hide what the strategy hides."""
    if cost.experts is None or cost.router is None:
        return exposed([], np.zeros_like(part.tp))
    return _hidden(exposed(_calls(cost.experts, cost.router, part, net), np.zeros_like(part.tp)), cost, part, net)


def _calls(experts: Experts, router: Router, part: Slice, net: Network) -> list[Call]:
    ep, etp = part.ep + 0.0 * part.tp, part.etp + 0.0 * part.tp
    domain, choices = net.domain_gpus, part.choices
    match choices.dispatcher:
        case "alltoall":
            across = group_geometry(ep, etp, domain)
            return _traded(experts, part, across, group_geometry(etp, np.ones_like(etp), domain), net)
        case "allgather":
            return _gathered(experts, part, group_geometry(ep * etp, np.ones_like(ep), domain), net)
        case "deepep" | "hybridep":
            everyone = group_geometry(ep * etp, np.ones_like(ep), domain)
            return _dispatched(experts, router, part, everyone, net, choices.dispatcher)


def _call(
    what: str, kind: Kind, size: FloatArray, group: GroupGeometry, net: Network, forward: float, backward: float
) -> Call:
    there = np.where(group.size > 1.0, 1.0, 0.0)
    return Call(what, kind, size, collective_s(kind, size, group, net), group, there * forward, there * backward)


def _traded(experts: Experts, part: Slice, across: GroupGeometry, parts: GroupGeometry, net: Network) -> list[Call]:
    copies = part.routed_tokens * (experts.top_k * (experts.capacity or 1.0)) * _fullest(experts, part)
    numbers, choices = copies * experts.k, part.choices
    return [
        _call("tokens to experts", "all_to_all", numbers * _sent(choices.dispatch_dtype), across, net, 1.0, 0.0),
        _call("results of experts", "all_to_all", numbers * _sent(choices.combine_dtype), across, net, 1.0, 0.0),
        _call("gradients to and from experts", "all_to_all", 2.0 * numbers, across, net, 0.0, 2.0),
        _call("probabilities", "all_to_all", PROBABILITY_BYTES * copies, across, net, 1.0, 1.0),
        _call("copies for parts of experts", "all_gather", 2.0 * numbers * parts.size, parts, net, 1.0, 1.0),
        _call("sums of parts of experts", "reduce_scatter", 2.0 * numbers * parts.size, parts, net, 1.0, 1.0),
    ]


def _gathered(experts: Experts, part: Slice, everyone: GroupGeometry, net: Network) -> list[Call]:
    whole = 2.0 * part.routed_tokens * experts.k * everyone.size
    return [
        _call("tokens to experts", "all_gather", whole, everyone, net, 1.0, 1.0),
        _call("results of experts", "reduce_scatter", whole, everyone, net, 1.0, 1.0),
    ]


def _dispatched(
    experts: Experts, router: Router, part: Slice, everyone: GroupGeometry, net: Network, dispatcher: Dispatcher
) -> list[Call]:
    tokens = part.routed_tokens * experts.k * _fullest(experts, part)
    there, choices = np.where(everyone.size > 1.0, 1.0, 0.0), part.choices

    def call(what: str, number_bytes: float, forward: float, backward: float) -> Call:
        network, nvlink = sent_bytes(number_bytes * tokens, experts, router, everyone)
        one = dispatch_s(network, nvlink, everyone, net, KERNEL_SMS[dispatcher])
        return Call(what, "all_to_all", network + nvlink, one, everyone, there * forward, there * backward)

    return [
        call("tokens to experts", _sent(choices.dispatch_dtype), 1.0, 0.0),
        call("results of experts", _sent(choices.combine_dtype), 1.0, 0.0),
        call("gradients to and from experts", 2.0, 0.0, 2.0),
    ]


def _sent(dtype: CommDtype) -> float:
    return DTYPE_BYTES[dtype] + (SCALE_BYTES if DTYPE_BYTES[dtype] < 2.0 else 0.0)


def _fullest(experts: Experts, part: Slice) -> FloatArray:
    """What the fullest rank receives over the mean: all wait for it."""
    return expected_peak(experts, part.routed_tokens * part.etp * part.ep, part.ep + 0.0 * part.tp)


def _hidden(whole: Exchange, cost: OpsCost, part: Slice, net: Network) -> Exchange:
    """Hide exchanges behind products that need none of them; what hides slows the products by the SMs it holds.

    ``shared-expert``: behind the experts that every token passes. ``1f1b``: forward behind the backward of another
    micro-batch's layer, backward behind its forward (DeepSeek-V3, section 3.2.1; Megatron-LM's
    --overlap-moe-expert-parallel-comm).
    """
    if part.choices.a2a_overlap == "none":
        return whole
    beside = cost.beside_forward_s, cost.beside_backward_s
    forward, backward = beside if part.choices.a2a_overlap == "shared-expert" else (cost.backward_s, cost.forward_s)
    held = max((float(np.max(call.one.sms, initial=0.0)) for call in whole.calls), default=0.0)
    kept = 1.0 - held / net.sm_count
    return Exchange(
        whole.calls,
        whole.forward_s - kept * np.minimum(whole.forward_s, forward),
        whole.backward_s - kept * np.minimum(whole.backward_s, backward),
    )
