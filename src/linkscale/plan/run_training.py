"""What a published run trains and on what: all weights or adapters, on whole sequences or packed documents."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from linkscale.plan.asked import Asked
from linkscale.readers.runs import RunRecord
from linkscale.workload.architecture import Architecture
from linkscale.workload.training import Training


def adapters(record: RunRecord) -> bool:
    """Whether a row trains low-rank adapters: sources write it behind the model's name."""
    return "(LoRA)" in record.model


def as_trained(asked: Asked, arch: Architecture) -> Architecture:
    """Return a run's model with what is trained of it, and on what."""
    packed = asked.may("packed_tokens") or 0
    if not adapters(asked.record):
        return _with(arch, Training(packed_tokens=packed)) if packed else arch
    rank, targets = asked.default("lora_rank"), asked.default("lora_targets")
    return _with(arch, Training(lora_rank=rank, lora_targets=targets, packed_tokens=packed))


@lru_cache(maxsize=512)
def _with(arch: Architecture, training: Training) -> Architecture:
    """One object per shape, so that runs of the same model are estimated together."""
    return msgspec.structs.replace(arch, training=training)
