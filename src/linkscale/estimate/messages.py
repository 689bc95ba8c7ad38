"""Messages of tensor and pipeline parallelism and of the gradient norm: size, count, what stays exposed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from linkscale.cost.collectives import CollectiveTime, Kind, collective_s
from linkscale.cost.kernels import FloatArray
from linkscale.cost.network import Network
from linkscale.estimate.batching import distinct, over_distinct
from linkscale.estimate.context_parallel import KINDS
from linkscale.estimate.data_parallel import Message
from linkscale.estimate.numbers import Numbers
from linkscale.estimate.pipeline import StageLayers
from linkscale.estimate.units import Units
from linkscale.plan.strategy import DTYPE_BYTES, Choices
from linkscale.topology.groups import GroupGeometry, group_geometry
from linkscale.workload.counts import Decoder


def pipeline_messages(unit: Units, n: Numbers, choices: Choices, net: Network) -> list[Message]:
    """Activations and their gradients to the neighbouring stages.

    A message is the boundary tensor, 1/tp of it per rank: sequence parallelism holds it so, and without it Megatron
    scatters it and gathers it again behind the link (Narayanan et al. 2021, section 4.1). Interleaving sends it vpp
    times as often. Without overlap every micro-batch waits for one message each way; with it (interleaved
    schedules only) warm-up and cool-down still do, pp - 1 times each way.
    """
    size = unit.exchange.size_bytes / n.tp
    neighbours = group_geometry(np.minimum(n.pp, 2.0), n.tp * n.cp * n.dp, net.domain_gpus)
    piped = np.where(n.pp > 1, 1.0, 0.0)
    count = 2.0 * n.micro_batches * n.vpp * piped
    waited = np.where(blocking(n, choices) > 0, count, np.minimum(count, 2.0 * (n.pp - 1.0)))
    one = collective_s("send_recv", size, neighbours, net)
    sent = Message("pp", "activations and gradients", "send_recv", size, count, one, neighbours, waited * one.time_s)
    if choices.sequence_parallel:
        return [sent]
    tensor = group_geometry(n.tp, np.ones_like(n.tp), net.domain_gpus)
    whole = unit.exchange.size_bytes
    again = collective_s("all_gather", whole, tensor, net)
    return [sent, Message("pp", "scattered boundary", "all_gather", whole, count, again, tensor, waited * again.time_s)]


def embedding_messages(decoder: Decoder, unit: Units, n: Numbers, choices: Choices, net: Network) -> list[Message]:
    """Gradients of a tied table, summed over the first and the last stage of a pipeline, which hold a copy each.

    Exposed: they are complete when all gradients are (Megatron-LM, core/distributed/finalize_model_grads.py).
    """
    if not decoder.tied:
        return []
    ends = group_geometry(np.minimum(n.pp, 2.0), np.maximum(n.pp - 1.0, 1.0) * n.tp * n.cp * n.dp, net.domain_gpus)
    size = unit.tied_params * DTYPE_BYTES[choices.grad_dtype]
    one = collective_s("all_reduce", size, ends, net)
    once = np.where(n.pp > 1, 1.0, 0.0)
    return [Message("pp", "embedding gradients", "all_reduce", size, once, one, ends, one.time_s)]


def blocking(n: Numbers, choices: Choices) -> FloatArray:
    """1 where every boundary message is waited for: only interleaved schedules overlap them."""
    return np.where(choices.overlap_p2p & (n.vpp > 1), 0.0, 1.0)


def norm_message(n: Numbers, net: Network) -> Message:
    """The gradient norm: one number summed over all ranks before clipping, exposed."""
    ranks = n.tp * n.cp * n.pp * n.dp

    def price(rows: npt.NDArray[np.intp]) -> tuple[GroupGeometry, CollectiveTime]:
        everyone = group_geometry(ranks[rows], np.ones(len(rows)), net.domain_gpus)
        return everyone, collective_s("all_reduce", 4.0, everyone, net)

    # Every strategy of a cluster sums over the same ranks: price that once.
    everyone, one = over_distinct(price, distinct(ranks.astype(np.int64)))
    size, once = np.full_like(n.tp, 4.0), np.ones_like(n.tp)
    return Message("world", "gradient norm", "all_reduce", size, once, one, everyone, one.time_s)


def tp_messages(unit: Units, n: Numbers, layers: StageLayers, choices: Choices, net: Network) -> list[Message]:
    """The exchanges of the critical stage; their exposed seconds stand in the breakdown's tp."""
    exchange = unit.exchange
    group = group_geometry(n.tp, np.ones_like(n.tp), net.domain_gpus)
    calls = n.micro_batches * layers.middle * exchange.sites
    exposed = n.micro_batches * layers.middle * unit.layer.tp.total(1.0)
    again = np.where(unit.layer.tp.recompute_s > 0, 1.0, 0.0)
    if not choices.sequence_parallel:
        count = calls * (2.0 + again)
        return [Message("tp", "activations", "all_reduce", exchange.size_bytes, count, exchange.reduce, group, exposed)]
    gathers, reductions = (3.0 + again) * exchange.gather.time_s, (2.0 + again) * exchange.reduce.time_s
    part = gathers / np.maximum(gathers + reductions, 1e-300)

    def row(kind: Kind, count: FloatArray, one: CollectiveTime, share: FloatArray) -> Message:
        return Message("tp", "activations", kind, exchange.size_bytes, count, one, group, exposed * share)

    return [
        row("all_gather", calls * (3.0 + again), exchange.gather, part),
        row("reduce_scatter", calls * (2.0 + again), exchange.reduce, 1.0 - part),
    ]


def cp_messages(unit: Units, n: Numbers, layers: StageLayers, choices: Choices, net: Network) -> list[Message]:
    """Keys and values between context-parallel ranks on the critical stage."""
    context, exposed = unit.context, unit.layer.cp
    group = group_geometry(n.cp, n.tp, net.domain_gpus)
    again = np.where(exposed.recompute_s > 0, 1.0, 0.0)
    calls = n.micro_batches * layers.middle * (context.calls_forward * (1.0 + again) + context.calls_backward)
    seconds = n.micro_batches * layers.middle * exposed.total(1.0)
    what = "queries, keys, values" if choices.cp_comm == "a2a" else "keys and values"
    return [Message("cp", what, KINDS[choices.cp_comm], context.size_bytes, calls, context.one, group, seconds)]
