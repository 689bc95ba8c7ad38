"""Gradients and parameters exchanged in buckets: plain data parallelism and optimizers divided over its ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linkscale.cost.collectives import Kind, collective_s
from linkscale.cost.kernels import FloatArray
from linkscale.cost.network import Network
from linkscale.estimate.replicas import DpGroups, Message, StageWork, shares, slowdown
from linkscale.plan.strategy import DTYPE_BYTES, Choices, Stack
from linkscale.topology.groups import GroupGeometry

# Megatron's bucket: 40 M parameters, or 1 M per data-parallel rank where that is more, so that large groups do
# not become latency bound (--ddp-bucket-size). PyTorch DDP's: 25 MiB (bucket_cap_mb). DeepSpeed's: 500 M elements
# (reduce_bucket_size, allgather_bucket_size). FSDP's is a layer.
MEGATRON_BUCKET_PARAMS = 40e6
MEGATRON_BUCKET_PARAMS_PER_RANK = 1e6
DDP_BUCKET_BYTES = 25.0 * 1024 * 1024
DEEPSPEED_BUCKET_PARAMS = 5e8


@dataclass(frozen=True)
class _Held:
    """Trained parameters of a stage that are exchanged in a group of their own, in buckets of at most so many."""

    prefix: str
    params: FloatArray
    bucket_params: FloatArray
    group: GroupGeometry


def _held(work: StageWork, groups: DpGroups, bucket_bytes: FloatArray, choices: Choices) -> list[_Held]:
    """Return what is exchanged: routed experts, where there are any, beside the rest."""
    grad = DTYPE_BYTES[choices.grad_dtype]

    def held(prefix: str, params: FloatArray, layer: FloatArray, group: GroupGeometry) -> _Held:
        own = _own_bucket_params(layer, group, choices.stack, grad)
        return _Held(prefix, params, np.where(bucket_bytes > 0, bucket_bytes / grad, own), group)

    dense = held("", work.trained.dense, work.trained.layer, groups.dense.shard)
    if not work.routed:
        return [dense]
    return [dense, held("expert ", work.trained.experts, work.trained.expert, groups.experts.shard)]


def gradients(
    kind: Kind, work: StageWork, groups: DpGroups, bucket_bytes: FloatArray, choices: Choices, net: Network
) -> list[Message]:
    """Gradients overlap only the last micro-batch's backward; ranks that keep a shard of them reduce in every one."""
    return _bucketed(
        "gradients", kind, DTYPE_BYTES[choices.grad_dtype], _held(work, groups, bucket_bytes, choices), work, net,
        layer_s=work.layer_backward_s if choices.overlap_grad_reduce else None,
        every=choices.sharding == "zero2" and not choices.no_sync,
    )  # fmt: skip


def parameters(
    work: StageWork, groups: DpGroups, bucket_bytes: FloatArray, choices: Choices, net: Network
) -> list[Message]:
    """Parameters of a distributed optimizer are gathered behind the next step's first forward, but for one bucket."""
    return _bucketed(
        "parameters", "all_gather", DTYPE_BYTES[choices.param_dtype], _held(work, groups, bucket_bytes, choices), work,
        net, layer_s=work.layer_forward_s if choices.overlap_param_gather else None, every=False,
    )  # fmt: skip


def _own_bucket_params(
    layer_params: FloatArray, group: GroupGeometry, stack: Stack, grad_bytes: float
) -> FloatArray | float:
    """Parameters of a bucket of the stack's own."""
    match stack:
        case "megatron":
            return np.maximum(MEGATRON_BUCKET_PARAMS, MEGATRON_BUCKET_PARAMS_PER_RANK * group.size)
        case "fsdp1" | "fsdp2":
            return layer_params
        case "deepspeed":
            return DEEPSPEED_BUCKET_PARAMS
        case "ddp":
            return DDP_BUCKET_BYTES / grad_bytes


def _bucketed(
    what: str, kind: Kind, param_bytes: float, held: list[_Held], work: StageWork, net: Network, *,
    layer_s: FloatArray | None, every: bool,
) -> list[Message]:  # fmt: skip
    """Exchange a stage's parameters or gradients in buckets, once a step or for ``every`` micro-batch.

    ``layer_s``: seconds per layer of the pass that all of it hides behind (None: behind nothing, and in one piece). One
    bucket is exposed: the first that is gathered, the last that is reduced. Chunks of a virtual pipeline other than
    the first run up to ``pp`` micro-batches later forward and earlier backward, each, which is cover as well.
    """
    times = work.micro_batches if every else np.ones_like(work.layers)
    totals = [h.params * param_bytes for h in held]
    if layer_s is None:
        ones = [collective_s(kind, total, h.group, net) for h, total in zip(held, totals, strict=True)]
        return [
            Message("dp", h.prefix + what, kind, total, times, one, h.group, times * one.time_s)
            for h, total, one in zip(held, totals, ones, strict=True)
        ]
    counts = [
        np.ceil(total / np.maximum(np.minimum(total, h.bucket_params * param_bytes), 1.0))
        for h, total in zip(held, totals, strict=True)
    ]
    sizes = [total / np.maximum(count, 1.0) for total, count in zip(totals, counts, strict=True)]
    ones = [collective_s(kind, size, h.group, net) for h, size in zip(held, sizes, strict=True)]
    each_s = [count * one.time_s for count, one in zip(counts, ones, strict=True)]
    all_s = np.asarray(sum(each_s[1:], each_s[0]))
    chunk = work.layers * layer_s / work.vpp
    apart = 1.0 if every else np.minimum(work.pp, work.micro_batches)
    early = (work.vpp - 1.0) * apart * chunk
    exposed = np.maximum(ones[0].time_s, np.maximum(all_s - chunk - early, all_s / work.vpp - chunk))
    exposed = times * (exposed + slowdown(all_s - exposed, ones[0], net))
    parts = shares(each_s)
    return [
        Message("dp", h.prefix + what, kind, size, times * count, one, h.group, part * exposed)
        for h, size, count, one, part in zip(held, sizes, counts, ones, parts, strict=True)
    ]
