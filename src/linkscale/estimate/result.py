"""Estimate: what a strategy is expected to do, and why. Its fields are those of ``linkscale.predict/1``."""

from __future__ import annotations

from typing import Literal

from linkscale.base.model import Model

Level = Literal["device", "domain", "node", "fabric"]

BREAKDOWN_KEYS = (
    "compute", "recompute", "tp", "cp", "ep", "pp", "dp", "bubble", "optimizer", "input_host", "wait",
    "offload",
)  # fmt: skip


class Breakdown(Model, frozen=True):
    """Seconds of one step by cause; communication is the exposed part only. The fields sum to the step."""

    compute: float
    recompute: float
    tp: float
    cp: float
    ep: float
    pp: float
    dp: float
    bubble: float
    optimizer: float
    input_host: float
    wait: float
    offload: float = 0.0


class Communication(Model, frozen=True):
    """One kind of message of the critical GPU in one step. ``size_bytes`` is of one message as NCCL counts it."""

    group: str
    what: str
    ranks: int
    collective: str
    algorithm: str
    protocol: str
    level: Level
    size_bytes: float
    count: float
    time_s: float
    exposed_s: float
    hbm_bytes: float
    sms: float


class Memory(Model, frozen=True):
    """Bytes on the fullest GPU by cause; ``total`` is their sum."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    buffers: float
    other: float
    total: float


class Estimate(Model, frozen=True):
    """The answer of ``predict`` for one strategy."""

    step_s: float
    p10_s: float
    p90_s: float
    tokens_per_s_per_gpu: float
    mfu: float
    mfu_causal: float
    mfu_peak_flops: float
    hfu: float
    breakdown_s: Breakdown
    communication: tuple[Communication, ...]
    memory_bytes: Memory
    allocated_bytes: float
    reserved_bytes: float
    device_bytes: float
    device_capacity_bytes: float
    fits: bool
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
