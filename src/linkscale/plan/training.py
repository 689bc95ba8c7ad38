"""How a job trains its model, as its user states it: checked, and laid into the architecture."""

from __future__ import annotations

import msgspec

from linkscale.base.errors import InputError, unknown_name
from linkscale.plan.defaults import check_count
from linkscale.workload.architecture import Architecture
from linkscale.workload.training import TARGETS, Training


def with_training(
    arch: Architecture, seq_len: int, *, lora_rank: int | None = None, lora_targets: str | None = None,
    packed_tokens: int | None = None,
) -> Architecture:  # fmt: skip
    """Return a model trained as stated: None leaves what the architecture says, which is to train all weights.

    Raises InputError where a rank exceeds the model's width, targets are unknown or have no rank, or documents are
    longer than the sequences they are packed in.
    """
    asked = {"lora_rank": lora_rank, "lora_targets": lora_targets, "packed_tokens": packed_tokens}
    stated = {name: value for name, value in asked.items() if value is not None}
    for name in ("lora_rank", "packed_tokens"):
        if name in stated:
            check_count(name, stated[name])
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
