"""Rules of offloading to host memory: what each stack can keep there."""

from __future__ import annotations

import numpy as np

from linkscale.plan.rules import BoolArray, Job, Rule
from linkscale.plan.strategy import Optimizer, Stack, Strategy, StrategyBatch

ON_HOST: tuple[Optimizer, ...] = ("adamw", "adamw-bf16", "sgd")
"""Updates that are elementwise, and not of blocks that a kernel of the device packs."""

FSDP: tuple[Stack, ...] = ("fsdp1", "fsdp2")


def _optimizer(job: Job, b: StrategyBatch) -> bool:
    choices = b.choices
    return not choices.offload_optimizer or (choices.optimizer in ON_HOST and choices.stack != "ddp")


def _optimizer_not(job: Job, s: Strategy) -> str:
    if s.stack == "ddp":
        return "stack ddp has no offload_optimizer; use stack deepspeed, megatron or fsdp2"
    return f"optimizer {s.optimizer} does not update on the host; use {', '.join(ON_HOST)}, or no offload_optimizer"


def _params(job: Job, b: StrategyBatch) -> bool:
    choices = b.choices
    sharded = choices.sharding in ("zero3", "hsdp") and choices.stack in ("deepspeed", *FSDP)
    return not choices.offload_params or sharded


def _params_not(job: Job, s: Strategy) -> str:
    return (
        f"offload_params brings shards of weights as layers are gathered, but stack {s.stack} has sharding "
        f"{s.sharding} here; use stack fsdp2 or deepspeed with zero3, or turn offload_params off"
    )


def _together(job: Job, b: StrategyBatch) -> bool:
    choices = b.choices
    if choices.offload_params:
        return choices.offload_optimizer
    return choices.stack not in FSDP or not choices.offload_optimizer


def _together_not(job: Job, s: Strategy) -> str:
    if s.offload_params:
        return "offload_params needs offload_optimizer: weights in host memory are updated there; turn on both"
    return (
        f"CPU offload of stack {s.stack} takes weights and optimizer together; turn on both offload_params and "
        "offload_optimizer, or neither"
    )


def _layers(job: Job, b: StrategyBatch) -> BoolArray:
    return np.asarray(b.offload_layers <= -(-job.arch.layers // b.pp))


def _layers_not(job: Job, s: Strategy) -> str:
    per_stage = -(-job.arch.layers // s.pp)
    return f"offload_layers = {s.offload_layers}, but a stage has {per_stage} layers; use {per_stage} or fewer"


OFFLOAD_RULES: tuple[Rule, ...] = (
    Rule("offload layers", _layers, _layers_not),
    Rule("offload optimizer", _optimizer, _optimizer_not),
    Rule("offload params", _params, _params_not),
    Rule("offload together", _together, _together_not),
)
