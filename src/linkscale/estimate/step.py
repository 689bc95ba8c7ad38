"""One training step in closed form, for a batch of strategies that share their choices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from linkscale.cost.device import Device, device
from linkscale.cost.kernels import FloatArray
from linkscale.cost.layer import Slice
from linkscale.cost.network import Network, network
from linkscale.cost.optimizer import optimizer_s
from linkscale.cost.waiting import expected_slowest
from linkscale.estimate.batching import distinct, over_distinct
from linkscale.estimate.data_parallel import DpGroups, Message, StageWork, dp_groups, dp_messages
from linkscale.estimate.memory import MemoryBytes, memory_bytes
from linkscale.estimate.messages import (
    OnStage,
    blocking,
    cp_messages,
    embedding_messages,
    norm_message,
    pipeline_messages,
    tp_messages,
)
from linkscale.estimate.numbers import Numbers, numbers_of
from linkscale.estimate.pipeline import StageLayers, bubble_s, stage_layers
from linkscale.estimate.units import Units, units
from linkscale.plan.strategy import Choices, StrategyBatch
from linkscale.profile.values import Profile
from linkscale.topology.cluster import Cluster
from linkscale.topology.groups import group_geometry
from linkscale.workload.counts import Decoder


@dataclass(frozen=True)
class BatchEstimate:
    """Estimates of a batch: arrays over strategies. ``breakdown_s`` sums to ``step_s``."""

    step_s: FloatArray
    breakdown_s: dict[str, FloatArray]
    memory: MemoryBytes
    capacity_bytes: float
    messages: list[Message]
    units: Units
    numbers: Numbers

    @cached_property
    def memory_bytes(self) -> FloatArray:
        """Bytes in use on the fullest GPU as the driver counts them."""
        return self.memory.device

    @cached_property
    def fits(self) -> npt.NDArray[np.bool_]:
        """Whether the fullest GPU holds it."""
        return self.memory.device <= self.capacity_bytes


CAUSES = ("compute", "recompute", "tp", "cp", "host")


@dataclass(frozen=True)
class _Stages:
    """Seconds per micro-batch on the slowest stage by cause, and of all the other stages together."""

    compute: FloatArray
    recompute: FloatArray
    tp: FloatArray
    cp: FloatArray
    host: FloatArray
    critical: OnStage
    others: FloatArray
    others_forward: FloatArray
    others_wgrad: FloatArray
    """Forward and weight gradients of all the other stages together."""
    busy: FloatArray
    """Computation of the stage that computes most, which need not be the slowest."""


def evaluate(
    decoder: Decoder, cluster: Cluster, batch: StrategyBatch, seq_len: int, global_batch: int, profile: Profile
) -> BatchEstimate:
    """Estimate step time and memory of every strategy of a batch.

    ``step = m * slowest stage + bubble + exposed communication + optimizer + waiting``; each term's formula stands
    in the function that computes it.
    """
    n = numbers_of(batch, global_batch)
    choices = batch.choices
    net = network(cluster, profile)
    dev = device(cluster.gpu, choices, profile)
    unit = _units(decoder, batch, float(seq_len), dev, cluster, profile, net)
    layers = stage_layers(sum(g.count for g in decoder.groups), n.pp, n.vpp)
    share = _recomputed_share(n, layers)
    stages = _stages(unit, n, layers, share)
    p2p = [*pipeline_messages(unit, n, choices, net), *embedding_messages(decoder, unit, n, choices, net)]
    groups = dp_groups(n.tp, n.cp, n.dp, n.shard_domain, choices, net)
    work = _first_stage(unit, n, layers, share, net)
    exchange = dp_messages(work, groups, n.bucket_bytes, choices, net, dev.memory_bytes_per_s)
    exchange.append(norm_message(n, net))
    tensor = tp_messages(unit, n, stages.critical, share, choices, net)
    messages = [*tensor, *cp_messages(unit, n, stages.critical, share, net), *p2p, *exchange]
    breakdown = _breakdown(n, stages, p2p, exchange, groups, work, cluster, dev, choices, profile)
    memory = memory_bytes(unit, n, layers, groups, choices)
    step = np.zeros_like(n.tp)
    for seconds in breakdown.values():
        step = step + seconds
    return BatchEstimate(step, breakdown, memory, cluster.gpu.memory_bytes, messages, unit, n)


def _units(
    decoder: Decoder, batch: StrategyBatch, seq: float, dev: Device, cluster: Cluster, profile: Profile, net: Network
) -> Units:
    """Price the units once per distinct (tp, cp, micro-batch): nothing else of a strategy touches them."""
    choices = batch.choices
    # The head runs in 16 bits whatever the layers run in.
    half = choices if choices.precision != "fp8" else msgspec.structs.replace(choices, precision="bf16")
    head_dev = device(cluster.gpu, half, profile)

    def price(rows: npt.NDArray[np.intp]) -> Units:
        tp, cp, micro = (np.asarray(c[rows], dtype=np.float64) for c in (batch.tp, batch.cp, batch.micro_batch))
        part = Slice(tp, micro, seq / cp, seq, choices)
        tensor = group_geometry(tp, np.ones_like(tp), net.domain_gpus)
        return units(decoder, part, tensor, group_geometry(cp, tp, net.domain_gpus), dev, head_dev, net)

    return over_distinct(price, distinct(batch.tp, batch.cp, batch.micro_batch))


def _recomputed_share(n: Numbers, layers: StageLayers) -> FloatArray:
    """Share of a stage's layers that are recomputed; ``recompute_layers`` counts per stage, 0 means all."""
    return np.where(n.recompute_layers > 0, np.minimum(1.0, n.recompute_layers / layers.middle), 1.0)


def _stages(unit: Units, n: Numbers, layers: StageLayers, share: FloatArray) -> _Stages:
    one = n.pp == 1
    first = _stage(unit, layers.first, share, np.ones_like(n.tp), np.where(one, 1.0, 0.0))
    last = _stage(unit, layers.last, share, np.where(one, 1.0, 0.0), np.ones_like(n.tp))
    middle = _stage(unit, layers.middle, share, np.zeros_like(n.tp), np.zeros_like(n.tp))
    one_of = [_sum(first), _sum(last), np.where(n.pp > 2, _sum(middle), 0.0)]
    slowest = np.maximum(np.maximum(one_of[0], one_of[1]), one_of[2])
    everything = np.where(one, one_of[0], one_of[0] + one_of[1] + (n.pp - 2.0) * one_of[2])

    def of(at_first: FloatArray, at_last: FloatArray, between: FloatArray) -> FloatArray:
        outer = np.where(one_of[0] >= one_of[1], at_first, at_last)
        return np.where((one_of[2] > one_of[0]) & (one_of[2] > one_of[1]), between, outer)

    def pick(cause: str) -> FloatArray:
        return of(first[cause], last[cause], middle[cause])

    here, none, alone = np.ones_like(n.tp), np.zeros_like(n.tp), np.where(one, 1.0, 0.0)
    critical = OnStage(of(layers.first, layers.last, layers.middle), of(here, alone, none), of(alone, here, none))
    busy = np.maximum(first["compute"] + first["recompute"], last["compute"] + last["recompute"])
    busy = np.where(n.pp > 2, np.maximum(busy, middle["compute"] + middle["recompute"]), busy)
    others = everything - slowest
    # The other stages hold the same mix of layers as the slowest one.
    return _Stages(
        **{cause: pick(cause) for cause in CAUSES}, critical=critical, others=others, busy=busy,
        others_forward=(n.pp - 1.0) * layers.middle * unit.layer.forward_s,
        others_wgrad=(n.pp - 1.0) * layers.middle * unit.layer.wgrad_s,
    )  # fmt: skip


def _sum(causes: dict[str, FloatArray]) -> FloatArray:
    total = causes[CAUSES[0]]
    for cause in CAUSES[1:]:
        total = total + causes[cause]
    return total


def _stage(
    unit: Units, count: FloatArray, share: FloatArray, with_embedding: FloatArray, with_head: FloatArray
) -> dict[str, FloatArray]:
    """Seconds of a stage per micro-batch by cause; exchanges are what stays exposed."""
    layer, embedding, head = unit.layer, unit.embedding, unit.head

    def edges(take: str) -> FloatArray:
        return np.asarray(with_embedding * getattr(embedding, take) + with_head * getattr(head, take))

    compute = count * (layer.forward_s + layer.backward_s) + edges("forward_s") + edges("backward_s")
    tp = count * layer.tp.total(share) + with_embedding * embedding.tp.total(0.0) + with_head * head.tp.total(0.0)
    host = count * layer.late(share) + with_embedding * embedding.late() + with_head * head.late()
    recompute = count * share * layer.recompute_s
    return {"compute": compute, "recompute": recompute, "tp": tp, "cp": count * layer.cp.total(share), "host": host}


def _first_stage(unit: Units, n: Numbers, layers: StageLayers, share: FloatArray, net: Network) -> StageWork:
    """Stage 0 is critical for the gradient exchange: later stages exchange while it cools down."""
    layer = unit.layer
    # Time in which the device waits for the host is time to exchange as well.
    forward = layer.forward_s + layer.late_forward()
    backward = layer.backward_s + share * layer.recompute_s + layer.late_backward(share)
    # Tensor-parallel exchanges inside a domain leave the NICs free meanwhile; across domains they hold them.
    inside = np.where(n.tp > net.domain_gpus, 0.0, 1.0)
    hidden = (1.0 - inside) * unit.exchange.hidden_s
    return StageWork(
        layers=layers.first,
        width=unit.width,
        layer_params=unit.layer_params,
        layer_tensors=unit.layer_tensors,
        edge_params=unit.edge_params(np.ones_like(n.pp), np.where(n.pp == 1, 1.0, 0.0)),
        layer_forward_s=forward + inside * layer.tp.forward_s,
        layer_backward_s=np.maximum(
            0.0, backward + inside * (layer.tp.backward_s + share * layer.tp.recompute_s) - hidden
        ),
        micro_batches=n.micro_batches,
        pp=n.pp,
        vpp=n.vpp,
    )


def _breakdown(
    n: Numbers, stages: _Stages, p2p: list[Message], exchange: list[Message], groups: DpGroups, work: StageWork,
    cluster: Cluster, dev: Device, choices: Choices, profile: Profile,
) -> dict[str, FloatArray]:  # fmt: skip
    none = np.zeros_like(n.tp)
    dp, pp = none, none
    for message in exchange:
        dp = dp + message.exposed_s
    for message in p2p:
        pp = pp + message.exposed_s
    shards = groups.shard.size
    update = optimizer_s(work.params, shards, float(work.width), dev, choices)
    # Where messages are not overlapped, a micro-batch on its way through the other stages waits at each link.
    idle = bubble_s(stages.others, stages.others_forward, stages.others_wgrad, n.pp, n.vpp, choices.schedule)
    bubble = idle + 2.0 * (n.pp - 1.0) * p2p[0].one.time_s * blocking(n, choices)
    wait = expected_slowest(cluster.gpus) * profile.jitter * (n.micro_batches * stages.busy + bubble)
    return {
        "compute": n.micro_batches * stages.compute,
        "recompute": n.micro_batches * stages.recompute,
        "tp": n.micro_batches * stages.tp,
        "cp": n.micro_batches * stages.cp,
        "ep": none,
        "pp": pp,
        "dp": dp,
        "bubble": bubble,
        "optimizer": np.asarray(update) + none,
        "input_host": n.micro_batches * stages.host,
        "wait": wait,
    }
