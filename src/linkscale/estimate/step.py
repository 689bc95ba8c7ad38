"""One training step in closed form, for a batch of strategies that share their choices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from linkscale.cost.device import Device
from linkscale.cost.kernels import FloatArray
from linkscale.cost.network import Network
from linkscale.cost.offload import needed_host
from linkscale.cost.optimizer import optimizer_s
from linkscale.cost.waiting import expected_slowest
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
    whole_gradient_message,
)
from linkscale.estimate.numbers import Numbers, numbers_of
from linkscale.estimate.offload import copies, host_update_of
from linkscale.estimate.parameters import stage_params
from linkscale.estimate.pipeline import FILLING_SCHEDULES, StageLayers, bubble_s, stage_layers
from linkscale.estimate.prices import Prices, Setting, inside_choices
from linkscale.estimate.replicas import DpGroups, Message, StageWork, dp_groups
from linkscale.estimate.result import BREAKDOWN_KEYS
from linkscale.estimate.stages import Stages, stages
from linkscale.estimate.units import Exchanges, Units
from linkscale.plan.strategy import Choices, Schedule, StrategyBatch
from linkscale.profile.values import Profile
from linkscale.topology.cluster import Cluster
from linkscale.workload.counts import Decoder


@dataclass(frozen=True)
class Inside:
    """What strategies do inside their replicas, whatever these exchange with each other; arrays over strategies.

    None of it turns on sharding or gradient buckets.
    """

    unit: Units
    n: Numbers
    layers: StageLayers
    stage: Stages
    between: list[Message]
    """Messages between stages."""
    whole: Message
    """Gradients of what tensor-parallel ranks hold whole."""
    parts_s: dict[str, FloatArray]
    """Seconds of a step by cause."""

    schedule: Schedule

    @property
    def total_s(self) -> FloatArray:
        """Seconds of all parts: what a step takes at least, since exchange and optimizer only add to it."""
        return _sum(self.n, self.parts_s.values())

    @property
    def least_s(self) -> FloatArray:
        """Seconds of a step at least, whatever more is recomputed.

        More recomputation makes no stage faster, and so neither the slowest nor the sum of all others. A schedule that
        fills bubbles with weight gradients may come to have more of them to fill with, as another stage becomes the
        slowest: there the bubble, and with it the wait, counts for nothing.
        """
        if self.schedule in FILLING_SCHEDULES:
            return _sum(self.n, (s for name, s in self.parts_s.items() if name not in ("bubble", "wait")))
        return self.total_s


def _sum(n: Numbers, parts: Iterable[FloatArray]) -> FloatArray:
    total = np.zeros_like(n.tp)
    for seconds in parts:
        total = total + seconds
    return total


@dataclass(frozen=True)
class BatchEstimate:
    """Estimates of a batch: arrays over strategies. ``breakdown_s`` sums to ``step_s``."""

    step_s: FloatArray
    breakdown_s: dict[str, FloatArray]
    memory: MemoryBytes
    capacity_bytes: float
    inside: Inside
    exchange: list[Message]
    prices: Prices
    batch: StrategyBatch

    @cached_property
    def memory_bytes(self) -> FloatArray:
        """Bytes in use on the fullest GPU as the driver counts them."""
        return self.memory.device

    @cached_property
    def fits(self) -> npt.NDArray[np.bool_]:
        """Whether the fullest GPU holds it."""
        return self.memory.device <= self.capacity_bytes

    @property
    def units(self) -> Units:
        """What a layer, the embedding and the head cost."""
        return self.inside.unit

    @cached_property
    def within(self) -> Exchanges:
        """What is exchanged inside a layer, call by call."""
        return self.prices.exchanges(self.batch)

    @cached_property
    def messages(self) -> list[Message]:
        """Every kind of message of the slowest stage; a search asks for none."""
        unit, n, slowest = self.inside.unit, self.inside.n, self.inside.stage.slowest
        within = self.within
        inner = tp_messages(
            within.tensor, within.prediction, unit, n, slowest, self.batch.choices, self.prices.setting.net
        )
        inner += cp_messages(within.context, unit, n, slowest)
        inner += [*ep_messages(within.routing, unit, n, slowest), self.inside.whole]
        return [*inner, *self.inside.between, *self.exchange]


def evaluate(
    decoder: Decoder, cluster: Cluster, batch: StrategyBatch, seq_len: int, global_batch: int, profile: Profile
) -> BatchEstimate:
    """Estimate step time and memory of every strategy of a batch.

    ``step = m * slowest stage + bubble + exposed communication + optimizer + waiting``; each term's formula stands
    in the function that computes it.
    """
    return estimate_batch(Prices.of_batch(Setting(decoder, cluster, seq_len, global_batch, profile), batch), batch)


def estimate_batch(prices: Prices, batch: StrategyBatch) -> BatchEstimate:
    """Estimate step time and memory of every strategy of a batch; its units come from ``prices``."""
    setting, choices = prices.setting, batch.choices
    net, dev = setting.net, setting.device(choices)
    inside = inside_of(prices, batch)
    n = inside.n
    groups = dp_groups(n, choices, net)
    work = _first_stage(inside.unit, n, inside.layers.first, net)
    exchange = dp_messages(work, groups, n.bucket_bytes, choices, net, dev.memory_bytes_per_s)
    exchange.append(norm_message(n, choices, net))
    update, copied = _update_s(work, groups, inside.unit.expert_rows, dev, choices), np.zeros_like(n.tp)
    if choices.offload_optimizer or choices.offload_params or batch.offload_layers.any():
        found = needed_host(setting.cluster, choices)
        copied = copies(inside.unit, n, work, groups, choices, found).total
        update = host_update_of(work, groups, choices, found) if choices.offload_optimizer else update
    breakdown = _breakdown(inside, exchange, update, copied)
    step = _sum(n, breakdown.values())
    memory = memory_bytes(inside.unit, n, inside.layers, groups, choices)
    return BatchEstimate(step, breakdown, memory, setting.cluster.gpu.memory_bytes, inside, exchange, prices, batch)


def memory_batch(prices: Prices, batch: StrategyBatch) -> MemoryBytes:
    """Return the memory of every strategy of a batch alone, as ``estimate_batch`` does."""
    n, choices = numbers_of(batch, prices.setting.global_batch), batch.choices
    groups = dp_groups(n, choices, prices.setting.net)
    return memory_bytes(prices.units(batch), n, _layers(prices.setting.decoder, n), groups, choices)


def inside_of(prices: Prices, batch: StrategyBatch) -> Inside:
    """Time what happens inside the replicas of every strategy of a batch."""
    setting, choices = prices.setting, inside_choices(batch.choices)
    unit, n = prices.units(batch), numbers_of(batch, setting.global_batch)
    layers = _layers(setting.decoder, n)
    stage = stages(unit, n, layers)
    between = [
        *pipeline_messages(unit, n, choices, setting.net),
        *embedding_messages(unit, n, choices, setting.net),
    ]
    whole = whole_gradient_message(unit, n, layers, choices, setting.net)
    parts = _parts(setting, n, stage, between, whole, choices)
    return Inside(unit, n, layers, stage, between, whole, parts, choices.schedule)


def _layers(decoder: Decoder, n: Numbers) -> StageLayers:
    further = decoder.prediction.modules * len(decoder.prediction.groups) if decoder.prediction else 0
    return stage_layers(sum(g.count for g in decoder.groups), n.pp, n.vpp, further)


def _first_stage(unit: Units, n: Numbers, layers: FloatArray, net: Network) -> StageWork:
    """Stage 0 is critical for the gradient exchange: later stages exchange while it cools down."""
    layer, share = unit.layer, n.recomputed_share(layers)
    # Time in which the device waits for the host is time to exchange as well.
    forward = layer.forward_s + layer.late_forward()
    backward = layer.backward_s + share * layer.recompute_s + layer.late_backward(share)
    # Tensor-parallel exchanges inside a domain leave the NICs free meanwhile; across domains they hold them.
    inside = np.where(n.tp > net.domain_gpus, 0.0, 1.0)
    hidden = (1.0 - inside) * unit.tp_hidden_s
    first, last = np.ones_like(n.pp), np.where(n.pp == 1, 1.0, 0.0)
    return StageWork(
        layers=layers,
        width=unit.width,
        held=stage_params(unit.params, layers, first, last),
        trained=stage_params(unit.trained, layers, first, last),
        layer_forward_s=forward + inside * layer.tp.forward_s,
        layer_backward_s=np.maximum(
            0.0, backward + inside * (layer.tp.backward_s + share * layer.tp.recompute_s) - hidden
        ),
        micro_batches=n.micro_batches,
        pp=n.pp,
        vpp=n.vpp,
    )


def _update_s(work: StageWork, groups: DpGroups, expert_rows: float, dev: Device, choices: Choices) -> FloatArray:
    update = optimizer_s(work.trained.dense, groups.dense.shard.size, float(work.width), dev, choices)
    if work.routed:
        shards = groups.experts.shard.size
        update = update + optimizer_s(work.trained.experts, shards, expert_rows, dev, choices)
    return np.asarray(update)


def _parts(
    setting: Setting, n: Numbers, stage: Stages, between: list[Message], whole: Message, choices: Choices
) -> dict[str, FloatArray]:
    pp = _sum(n, (message.exposed_s for message in between))
    # Where messages are not overlapped, a micro-batch on its way through the other stages waits at each link.
    others = stage.others_s, stage.others_forward_s, stage.others_wgrad_s
    idle = bubble_s(*others, n.pp, n.vpp, n.micro_batches, choices.schedule)
    bubble = idle + 2.0 * (n.pp - 1.0) * between[0].one.time_s * blocking(n, choices)
    jitter = expected_slowest(setting.cluster.gpus) * setting.profile.jitter
    return {
        "compute": n.micro_batches * stage.slowest.compute_s,
        "recompute": n.micro_batches * stage.slowest.recompute_s,
        "tp": n.micro_batches * stage.slowest.tp_s + whole.exposed_s,
        "cp": n.micro_batches * stage.slowest.cp_s,
        "ep": n.micro_batches * stage.slowest.ep_s,
        "pp": pp,
        "bubble": bubble,
        "input_host": n.micro_batches * stage.slowest.host_s,
        "wait": jitter * (n.micro_batches * stage.busiest_s + bubble),
    }


def _breakdown(
    inside: Inside, exchange: list[Message], update_s: FloatArray, copied_s: FloatArray
) -> dict[str, FloatArray]:
    dp = _sum(inside.n, (message.exposed_s for message in exchange))
    parts = {**inside.parts_s, "dp": dp, "optimizer": update_s + np.zeros_like(dp), "offload": copied_s}
    return {key: parts[key] for key in BREAKDOWN_KEYS}
