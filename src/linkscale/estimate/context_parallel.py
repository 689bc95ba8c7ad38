"""Context-parallel exchanges of one layer: keys and values met in a ring, gathered, or heads traded for tokens.

``p2p`` (Ring Attention, Liu et al. 2023; Megatron-LM and Transformer Engine): cp - 1 steps, each passing one peer's
keys and values behind the attention on the last one's; backward passes their gradients along, twice the bytes.
``all_gather`` (Llama Team 2024, section 3.3.2): keys and values are gathered before attention, and gathered again and
their gradients reduced backward, all exposed. ``a2a`` (DeepSpeed Ulysses, Jacobs et al. 2023): queries, keys, values
and outputs are traded, all exposed. Causal work is balanced: every rank holds one chunk from each end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linkscale.cost.collectives import CollectiveTime, Kind, collective_s
from linkscale.cost.kernels import FloatArray
from linkscale.cost.layer import OpsCost
from linkscale.cost.network import Network
from linkscale.plan.strategy import CpComm
from linkscale.topology.groups import GroupGeometry

KINDS: dict[CpComm, Kind] = {"p2p": "send_recv", "all_gather": "all_gather", "a2a": "all_to_all"}


@dataclass(frozen=True)
class CpExchange:
    """Exchanges of one layer and micro-batch: one call forward, how many, and what stays exposed."""

    size_bytes: FloatArray
    one: CollectiveTime
    calls_forward: FloatArray
    calls_backward: FloatArray
    forward_s: FloatArray
    backward_s: FloatArray


def cp_exchange(cost: OpsCost, cp: FloatArray, group: GroupGeometry, net: Network, how: CpComm) -> CpExchange:
    """Price the context-parallel exchanges of one layer; groups of one rank exchange nothing."""
    alone = cp <= 1.0
    found = {"p2p": _ring, "all_gather": _gathered, "a2a": _traded}[how](cost, cp, group, net)
    return CpExchange(
        found.size_bytes, found.one,
        *(np.where(alone, 0.0, x) for x in (
            found.calls_forward, found.calls_backward, found.forward_s, found.backward_s,
        )),
    )  # fmt: skip


def _ring(cost: OpsCost, cp: FloatArray, group: GroupGeometry, net: Network) -> CpExchange:
    size, steps = np.asarray(cost.kv_bytes), cp - 1.0
    one = collective_s("send_recv", size, group, net)
    back = collective_s("send_recv", 2.0 * size, group, net)
    forward = steps * np.maximum(0.0, one.time_s - cost.attention_forward_s / cp)
    backward = steps * np.maximum(0.0, back.time_s - cost.attention_backward_s / cp)
    return CpExchange(size, one, steps, 2.0 * steps, forward, backward)


def _gathered(cost: OpsCost, cp: FloatArray, group: GroupGeometry, net: Network) -> CpExchange:
    whole = cost.kv_bytes * cp
    gather = collective_s("all_gather", whole, group, net)
    reduce = collective_s("reduce_scatter", whole, group, net)
    once = np.ones_like(cp)
    return CpExchange(whole, gather, once, 2.0 * once, gather.time_s, gather.time_s + reduce.time_s)


def _traded(cost: OpsCost, cp: FloatArray, group: GroupGeometry, net: Network) -> CpExchange:
    # Two calls each way: queries with keys and values into attention, outputs out of it.
    both = (cost.kv_bytes + cost.qo_bytes) / 2.0
    one = collective_s("all_to_all", both, group, net)
    twice = np.full_like(cp, 2.0)
    return CpExchange(np.asarray(both), one, twice, twice, 2.0 * one.time_s, 2.0 * one.time_s)
