"""Exchanges of tokens with routed experts: what is sent to whom, and what stays exposed.

Megatron-LM's dispatchers (core/transformer/moe/token_dispatcher.py). ``alltoall``: each copy of a token is sent to the
rank of its expert, with its probability, after all have told all how many come (where places are not fixed by a
capacity); ranks that hold parts of the same expert gather the copies, and scatter the sums back. ``allgather``: all
tokens, and what the router says of them, go to all ranks of the experts' group. ``deepep``, ``hybridep``: a token goes
once to every node, see :mod:`linkscale.cost.dispatch`. Backward sends gradients the other way. Tokens are in 16 bits;
the router works in fp32, as Megatron-LM recommends, so that its probabilities and the sums weighed by them do too.
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
# Sums over ranks are made in the router's type, which is fp32 (reduce_scatter_to_sequence_parallel_region of both).
SUM_BYTES = PROBABILITY_BYTES
COUNT_BYTES = 8.0
CHOICE_BYTES = 1.0
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
    everyone = group_geometry(ep * etp, np.ones_like(ep), domain)
    match choices.dispatcher:
        case "alltoall":
            across = group_geometry(ep, etp, domain)
            traded = _traded(experts, part, across, net)
            parts = group_geometry(etp, np.ones_like(etp), domain)
            return [_counts(experts, everyone, net), *traded, *_in_parts(experts, part, parts, net)]
        case "allgather":
            return _gathered(experts, part, everyone, net)
        case "deepep" | "hybridep":
            return _dispatched(experts, router, part, everyone, net, choices.dispatcher)


def _call(
    what: str, kind: Kind, size: FloatArray, group: GroupGeometry, net: Network, forward: float, backward: float
) -> Call:
    there = np.where(group.size > 1.0, 1.0, 0.0)
    return Call(what, kind, size, collective_s(kind, size, group, net), group, there * forward, there * backward)


def _counts(experts: Experts, everyone: GroupGeometry, net: Network) -> Call:
    """Every rank tells all how many tokens it has for each expert: 64-bit numbers."""
    size = COUNT_BYTES * experts.experts * everyone.size
    return _call("counts of tokens", "all_gather", size, everyone, net, 0.0 if experts.capacity else 1.0, 0.0)


def _copies(experts: Experts, part: Slice) -> FloatArray:
    """Copies of tokens that a rank sends, or the fullest receives."""
    return part.routed_tokens * (experts.top_k * (experts.capacity or 1.0)) * _fullest(experts, part)


def _traded(experts: Experts, part: Slice, across: GroupGeometry, net: Network) -> list[Call]:
    copies, choices = _copies(experts, part), part.choices
    numbers = copies * experts.k
    return [
        _call("tokens to experts", "all_to_all", numbers * _sent(choices.dispatch_dtype), across, net, 1.0, 0.0),
        _call("results of experts", "all_to_all", numbers * _sent(choices.combine_dtype), across, net, 1.0, 0.0),
        _call("gradients to and from experts", "all_to_all", 2.0 * numbers, across, net, 0.0, 2.0),
        _call("probabilities", "all_to_all", PROBABILITY_BYTES * copies, across, net, 1.0, 1.0),
    ]


def _in_parts(experts: Experts, part: Slice, parts: GroupGeometry, net: Network) -> list[Call]:
    """Between ranks that hold parts of the same experts; what one direction gathers, the other sums."""
    copies = _copies(experts, part) * parts.size
    tokens, sums, probabilities = 2.0 * copies * experts.k, SUM_BYTES * copies * experts.k, PROBABILITY_BYTES * copies
    return [
        _call("copies for parts of experts", "all_gather", tokens, parts, net, 1.0, 0.0),
        _call("gradients of these copies", "reduce_scatter", tokens, parts, net, 0.0, 1.0),
        _call("probabilities of these copies", "all_gather", probabilities, parts, net, 1.0, 0.0),
        _call("gradients of these probabilities", "reduce_scatter", probabilities, parts, net, 0.0, 1.0),
        _call("sums of parts of experts", "reduce_scatter", sums, parts, net, 1.0, 0.0),
        _call("gradients of these sums", "all_gather", sums, parts, net, 0.0, 1.0),
    ]


def _gathered(experts: Experts, part: Slice, everyone: GroupGeometry, net: Network) -> list[Call]:
    tokens = part.routed_tokens * everyone.size
    each, numbers = tokens * experts.experts, tokens * experts.k
    return [
        _call("choices of experts", "all_gather", CHOICE_BYTES * each, everyone, net, 1.0, 0.0),
        _call("probabilities", "all_gather", PROBABILITY_BYTES * each, everyone, net, 1.0, 0.0),
        _call("gradients of probabilities", "reduce_scatter", PROBABILITY_BYTES * each, everyone, net, 0.0, 1.0),
        _call("tokens to experts", "all_gather", 2.0 * numbers, everyone, net, 1.0, 0.0),
        _call("gradients from experts", "reduce_scatter", 2.0 * numbers, everyone, net, 0.0, 1.0),
        _call("results of experts", "reduce_scatter", SUM_BYTES * numbers, everyone, net, 1.0, 0.0),
        _call("gradients to experts", "all_gather", SUM_BYTES * numbers, everyone, net, 0.0, 1.0),
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
