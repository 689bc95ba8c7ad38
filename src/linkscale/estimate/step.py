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
from linkscale.estimate.data_parallel import dp_messages
from linkscale.estimate.memory import MemoryBytes, memory_bytes
from linkscale.estimate.messages import (
    blocking,
    cp_messages,
    embedding_messages,
    ep_messages,
    norm_message,
    pipeline_messages,
    tp_messages,
)
from linkscale.estimate.numbers import Numbers, numbers_of
from linkscale.estimate.pipeline import bubble_s, stage_layers
from linkscale.estimate.replicas import DpGroups, Message, StageWork, dp_groups
from linkscale.estimate.stages import Stages, stages
from linkscale.estimate.units import Units, units
from linkscale.plan.precision import FORMATS
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
    dev = device(cluster.gpu, choices, profile, cluster.host_cpu)
    unit = _units(decoder, batch, float(seq_len), dev, cluster, profile, net)
    further = decoder.prediction.modules * len(decoder.prediction.groups) if decoder.prediction else 0
    layers = stage_layers(sum(g.count for g in decoder.groups), n.pp, n.vpp, further)
    stage = stages(unit, n, layers)
    p2p = [*pipeline_messages(unit, n, choices, net), *embedding_messages(decoder, unit, n, choices, net)]
    groups = dp_groups(n, choices, net)
    work = _first_stage(unit, n, layers.first, net)
    exchange = dp_messages(work, groups, n.bucket_bytes, choices, net, dev.memory_bytes_per_s)
    exchange.append(norm_message(n, net))
    inner = [*tp_messages(unit, n, stage.slowest, choices, net), *cp_messages(unit, n, stage.slowest)]
    inner += ep_messages(unit, n, stage.slowest)
    messages = [*inner, *p2p, *exchange]
    breakdown = _breakdown(n, stage, p2p, exchange, groups, work, unit.expert_rows, cluster, dev, choices, profile)
    memory = memory_bytes(unit, n, layers, groups, choices)
    step = np.zeros_like(n.tp)
    for seconds in breakdown.values():
        step = step + seconds
    return BatchEstimate(step, breakdown, memory, cluster.gpu.memory_bytes, messages, unit, n)


def _units(
    decoder: Decoder, batch: StrategyBatch, seq: float, dev: Device, cluster: Cluster, profile: Profile, net: Network
) -> Units:
    """Price the units once per distinct (tp, cp, ep, etp, micro-batch): nothing else of a strategy touches them."""
    choices = batch.choices
    # The head runs in 16 bits whatever the layers run in.
    half = msgspec.structs.replace(choices, precision="bf16") if FORMATS[choices.precision].narrow else choices
    head_dev = device(cluster.gpu, half, profile, cluster.host_cpu)
    columns = (batch.tp, batch.cp, batch.micro_batch, batch.ep, batch.etp)

    def price(rows: npt.NDArray[np.intp]) -> Units:
        tp, cp, micro, ep, etp = (np.asarray(c[rows], dtype=np.float64) for c in columns)
        part = Slice(tp, micro, seq / cp, seq, choices, ep, etp)
        tensor = group_geometry(tp, np.ones_like(tp), net.domain_gpus)
        return units(decoder, part, tensor, group_geometry(cp, tp, net.domain_gpus), dev, head_dev, net)

    return over_distinct(price, distinct(*columns))


def _first_stage(unit: Units, n: Numbers, layers: FloatArray, net: Network) -> StageWork:
    """Stage 0 is critical for the gradient exchange: later stages exchange while it cools down."""
    layer, share = unit.layer, n.recomputed_share(layers)
    # Time in which the device waits for the host is time to exchange as well.
    forward = layer.forward_s + layer.late_forward()
    backward = layer.backward_s + share * layer.recompute_s + layer.late_backward(share)
    # Tensor-parallel exchanges inside a domain leave the NICs free meanwhile; across domains they hold them.
    inside = np.where(n.tp > net.domain_gpus, 0.0, 1.0)
    hidden = (1.0 - inside) * unit.exchange.hidden_s
    return StageWork(
        layers=layers,
        width=unit.width,
        layer_params=unit.layer_params,
        layer_tensors=unit.layer_tensors,
        expert_params=unit.expert_params,
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
    n: Numbers, stage: Stages, p2p: list[Message], exchange: list[Message], groups: DpGroups, work: StageWork,
    expert_rows: float,    cluster: Cluster, dev: Device, choices: Choices, profile: Profile,
) -> dict[str, FloatArray]:  # fmt: skip
    none = np.zeros_like(n.tp)
    dp, pp = none, none
    for message in exchange:
        dp = dp + message.exposed_s
    for message in p2p:
        pp = pp + message.exposed_s
    update = optimizer_s(work.params, groups.dense.shard.size, float(work.width), dev, choices)
    if work.routed:
        shards = groups.experts.shard.size
        update = update + optimizer_s(work.stage_expert_params, shards, expert_rows, dev, choices)
    # Where messages are not overlapped, a micro-batch on its way through the other stages waits at each link.
    others = stage.others_s, stage.others_forward_s, stage.others_wgrad_s
    idle = bubble_s(*others, n.pp, n.vpp, choices.schedule)
    bubble = idle + 2.0 * (n.pp - 1.0) * p2p[0].one.time_s * blocking(n, choices)
    wait = expected_slowest(cluster.gpus) * profile.jitter * (n.micro_batches * stage.busiest_s + bubble)
    return {
        "compute": n.micro_batches * stage.slowest.compute_s,
        "recompute": n.micro_batches * stage.slowest.recompute_s,
        "tp": n.micro_batches * stage.slowest.tp_s,
        "cp": n.micro_batches * stage.slowest.cp_s,
        "ep": n.micro_batches * stage.slowest.ep_s,
        "pp": pp,
        "dp": dp,
        "bubble": bubble,
        "optimizer": np.asarray(update) + none,
        "input_host": n.micro_batches * stage.slowest.host_s,
        "wait": wait,
    }
