"""How a job trains its model, as its user states it: checked, and laid into the architecture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from linkscale.base.errors import InputError, unknown_name
from linkscale.plan.defaults import check_count
from linkscale.workload.architecture import Architecture
from linkscale.workload.training import MOST_UNEVEN, TARGETS, Training

FIELDS = Training.__struct_fields__
"""What a job may state of its training."""


def with_training(arch: Architecture, seq_len: int, asked: Mapping[str, Any]) -> Architecture:
    """Return a model trained as stated: None leaves what the architecture says, which is to train all weights.

    Raises InputError where a rank exceeds the model's width, targets are unknown or have no rank, documents are
    longer than the sequences they are packed in, or a model without routed experts is told about their load.
    """
    stated = {name: value for name, value in asked.items() if value is not None}
    for name in stated:
        if name not in FIELDS:
            raise unknown_name("field of the training", name, FIELDS)
    for name in ("lora_rank", "packed_tokens"):
        if name in stated:
            check_count(name, stated[name])
    _check_experts(arch, stated)
    lora_targets = stated.get("lora_targets")
    if lora_targets is not None and lora_targets not in TARGETS:
        raise unknown_name("LoRA targets", str(lora_targets), TARGETS)
    training: Training = msgspec.structs.replace(arch.training, **stated)
    if lora_targets is not None and not training.adapters:
        raise InputError(f"lora_targets {lora_targets} without a rank; give lora_rank too, for example 16")
    if training.lora_rank > arch.hidden:
        raise InputError(f"lora_rank = {training.lora_rank}, but {arch.name} is {arch.hidden} wide; use a lower rank")
    if training.packed_tokens > seq_len:
        raise InputError(
            f"packed_tokens = {training.packed_tokens}, but sequences have {seq_len} tokens; leave it out where one "
            "document fills a sequence"
        )
    return msgspec.structs.replace(arch, training=training) if stated else arch


def _check_experts(arch: Architecture, stated: Mapping[str, Any]) -> None:
    for name in ("expert_spread", "capacity_factor"):
        value = stated.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST_UNEVEN:
            raise InputError(f"{name} = {value!r}; it must be a number above 0, at most {MOST_UNEVEN:g}")
        if not arch.routed():
            raise InputError(f"{name} is about routed experts, and {arch.name} has none; leave it out")
