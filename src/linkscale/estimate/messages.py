"""Messages of tensor and pipeline parallelism and of the gradient norm: size, count, what stays exposed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from linkscale.cost.collectives import CollectiveTime, Kind, collective_s
from linkscale.cost.kernels import FloatArray
from linkscale.cost.layer import regathers
from linkscale.cost.network import Network
from linkscale.estimate.batching import distinct, over_distinct
from linkscale.estimate.calls import Call, Exchange
from linkscale.estimate.numbers import Numbers
from linkscale.estimate.pipeline import StageLayers
from linkscale.estimate.replicas import Message
from linkscale.estimate.stages import Stage
from linkscale.estimate.tensor_parallel import LOSS_SUMS, TpExchange, unrepeated
from linkscale.estimate.units import Exposed, Units
from linkscale.plan.strategy import DTYPE_BYTES, Choices
from linkscale.topology.groups import GroupGeometry, group_geometry


def pipeline_messages(unit: Units, n: Numbers, choices: Choices, net: Network) -> list[Message]:
    """Activations and their gradients to the neighbouring stages.

    A message is the boundary tensor, 1/tp of it per rank: sequence parallelism holds it so, and without it Megatron
    scatters it and gathers it again behind the link (Narayanan et al. 2021, section 4.1), where other stacks send it
    whole. Interleaving sends it vpp times as often. Without overlap every micro-batch waits for one message each way;
    with it (interleaved schedules only) warm-up and cool-down still do, pp - 1 times each way.
    """
    scattered = choices.sequence_parallel or choices.stack == "megatron"
    size = unit.boundary_bytes / (n.tp if scattered else 1.0)
    # Stages wait for the slowest link between any two: that over a domain's border, where they span several.
    apart = n.tp * n.cp * n.dp
    apart = np.where(n.pp * apart > net.domain_gpus, np.maximum(apart, net.domain_gpus), apart)
    neighbours = group_geometry(np.minimum(n.pp, 2.0), apart, net.domain_gpus)
    piped = np.where(n.pp > 1, 1.0, 0.0)
    count = 2.0 * n.micro_batches * n.vpp * piped
    waited = np.where(blocking(n, choices) > 0, count, np.minimum(count, 2.0 * (n.pp - 1.0)))
    one = collective_s("send_recv", size, neighbours, net)
    sent = Message("pp", "activations and gradients", "send_recv", size, count, one, neighbours, waited * one.time_s)
    if choices.sequence_parallel or not scattered:
        return [sent]
    tensor = group_geometry(n.tp, np.ones_like(n.tp), net.domain_gpus)
    whole = unit.boundary_bytes
    again = collective_s("all_gather", whole, tensor, net)
    return [sent, Message("pp", "scattered boundary", "all_gather", whole, count, again, tensor, waited * again.time_s)]


def embedding_messages(unit: Units, n: Numbers, choices: Choices, net: Network) -> list[Message]:
    """Gradients of the token table, summed over the first and the last stage of a pipeline where both hold a copy.

    The last stage does for a tied output projection, and to look up what modules that predict further tokens join.
    Exposed: they are complete when all gradients are (Megatron-LM, core/distributed/finalize_model_grads.py).
    """
    if not np.any(unit.trained.table > 0.0):
        return []
    ends = group_geometry(np.minimum(n.pp, 2.0), np.maximum(n.pp - 1.0, 1.0) * n.tp * n.cp * n.dp, net.domain_gpus)
    size = unit.trained.table * DTYPE_BYTES[choices.grad_dtype]
    one = collective_s("all_reduce", size, ends, net)
    once = np.where(n.pp > 1, 1.0, 0.0)
    return [Message("pp", "embedding gradients", "all_reduce", size, once, one, ends, one.time_s)]


def whole_gradient_message(unit: Units, n: Numbers, layers: StageLayers, choices: Choices, net: Network) -> Message:
    """Gradients of what every tensor-parallel rank holds whole, summed once a step, exposed; of the stage with most.

    Under sequence parallelism a rank has them from its own tokens only (Megatron-LM,
    core/distributed/finalize_model_grads.py, _allreduce_non_tensor_model_parallel_grads).
    """
    tensor = group_geometry(n.tp, np.ones_like(n.tp), net.domain_gpus)
    fullest = np.maximum(layers.first, np.where(n.pp > 2, layers.middle, 0.0))
    params = np.maximum(
        fullest * unit.layer_whole_params, layers.last * unit.layer_whole_params + unit.head_whole_params
    )
    size = params * DTYPE_BYTES[choices.grad_dtype]
    one = collective_s("all_reduce", size, tensor, net)
    split = choices.sequence_parallel and choices.stack in ("megatron", "deepspeed")
    once = np.where(n.tp > 1, 1.0 if split else 0.0, 0.0)
    return Message("tp", "gradients of whole weights", "all_reduce", size, once, one, tensor, once * one.time_s)


def blocking(n: Numbers, choices: Choices) -> FloatArray:
    """1 where every boundary message is waited for: only interleaved schedules overlap them."""
    return np.where(choices.overlap_p2p & (n.vpp > 1), 0.0, 1.0)


def norm_message(n: Numbers, choices: Choices, net: Network) -> Message:
    """The gradient norm: one number summed before clipping, exposed.

    Over all ranks; where every data-parallel rank has all gradients, over the ranks of one replica (Megatron-LM,
    core/optimizer/optimizer.py, get_grad_stats_parallel_group).
    """
    replicated = choices.sharding == "none"
    ranks = n.tp * n.pp * (1.0 if replicated else n.cp * n.dp)

    def price(rows: npt.NDArray[np.intp]) -> tuple[GroupGeometry, CollectiveTime]:
        everyone = group_geometry(ranks[rows], np.ones(len(rows)), net.domain_gpus)
        return everyone, collective_s("all_reduce", 4.0, everyone, net)

    # Strategies of a cluster sum over the same ranks: price that once.
    everyone, one = over_distinct(price, distinct(ranks.astype(np.int64)))
    size, once = np.full_like(n.tp, 4.0), np.where(ranks > 1, 1.0, 0.0)
    group = "model" if replicated else "world"
    return Message(group, "gradient norm", "all_reduce", size, once, one, everyone, once * one.time_s)


def tp_messages(
    exchange: TpExchange, further: list[Call], unit: Units, n: Numbers, stage: Stage, choices: Choices, net: Network
) -> list[Message]:
    """The exchanges of the slowest stage, embedding's and head's included; together they expose the breakdown's tp."""
    group = group_geometry(n.tp, np.ones_like(n.tp), net.domain_gpus)
    forward, repeated, ended, kept = _tp_calls(exchange, unit, n, stage, choices)
    loss = stage.head * LOSS_SUMS * exchange.loss.time_s
    sums = Message(
        "tp", "loss", "all_reduce", exchange.loss_bytes, n.micro_batches * stage.head * LOSS_SUMS, exchange.loss, group,
        n.micro_batches * loss,
    )  # fmt: skip
    kinds: list[tuple[Kind, FloatArray, CollectiveTime]] = [
        ("all_reduce", 2.0 * forward + repeated - ended, exchange.reduce)
    ]
    if choices.sequence_parallel:
        kinds = [
            ("all_gather", 2.0 * forward + repeated + kept, exchange.gather),
            ("reduce_scatter", 2.0 * forward + repeated - ended, exchange.reduce),
        ]
    rows = [
        Message("tp", "activations", kind, exchange.size_bytes, n.micro_batches * count, one, group, loss)
        for kind, count, one in kinds
    ]
    ends = n.micro_batches * stage.head
    predicted = [
        Message("tp", c.what, c.kind, c.size_bytes, ends * c.often, c.one, c.geometry, ends * c.often * c.one.time_s)
        for c in further
    ]
    apart = sum((row.exposed_s for row in predicted), n.micro_batches * loss)
    return [*_shared(rows, n.micro_batches * stage.tp_s - apart), sums, *predicted]


def _tp_calls(exchange: TpExchange, unit: Units, n: Numbers, stage: Stage, choices: Choices) -> tuple[FloatArray, ...]:
    """Exchanges per micro-batch: of one direction, repeated by recomputation, left out of it, of inputs again."""
    sites, halves = exchange.sites, stage.embedding + stage.head
    again = np.where(unit.layer.tp.recompute_s > 0, n.recomputed_share(stage.layers), 0.0)
    # Embedding and head are one pair together: without sequence parallelism one exchange, with it two, each way.
    forward = stage.layers * sites + halves / 2.0
    inputs = stage.layers * exchange.inputs + stage.head * unit.head_input
    repeated = again * stage.layers
    return forward, repeated * sites, repeated * unrepeated(choices), regathers(choices) * inputs


def _shared(rows: list[Message], exposed_s: FloatArray) -> list[Message]:
    """Share exposed seconds among messages by how long they take."""
    total: FloatArray = np.full_like(exposed_s, 1e-300)
    for row in rows:
        total = total + row.time_s
    return [replace(row, exposed_s=exposed_s * (row.time_s / total)) for row in rows]


def cp_messages(exchange: Exchange, unit: Units, n: Numbers, stage: Stage) -> list[Message]:
    """Exchanges between context-parallel ranks on the slowest stage."""
    return _inside("cp", exchange, unit.layer.cp, stage.cp_s, n, stage)


def ep_messages(exchange: Exchange, unit: Units, n: Numbers, stage: Stage) -> list[Message]:
    """Exchanges of tokens with their experts on the slowest stage."""
    return _inside("ep", exchange, unit.layer.ep, stage.ep_s, n, stage)


def _inside(
    name: str, exchange: Exchange, time: Exposed, stage_s: FloatArray, n: Numbers, stage: Stage
) -> list[Message]:
    """Exchanges inside layers, as many as a step has; recomputation repeats those that run forward."""
    again = np.where(time.recompute_s > 0, n.recomputed_share(stage.layers), 0.0)
    layers, none = n.micro_batches * stage.layers, np.zeros_like(n.tp)
    rows = [
        Message(name, c.what, c.kind, c.size_bytes, layers * ((1.0 + again) * c.forward + c.backward), c.one,
                c.geometry, none)
        for c in exchange.calls
    ]  # fmt: skip
    return _shared(rows, n.micro_batches * stage_s)
