"""Mixtures of experts in published runs: which are packaged models (``data/run_models.yaml``), and what a row says."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache

import msgspec

from linkscale.base.errors import InputError
from linkscale.base.model import Model
from linkscale.base.yaml import load_packaged
from linkscale.plan.asked import Asked
from linkscale.readers.runs import RunRecord
from linkscale.workload.architecture import Architecture
from linkscale.workload.config import packaged_architecture
from linkscale.workload.parts import LayerKind, Moe

Changes = tuple[tuple[str, str | bool | int], ...]


class RunModel(Model, frozen=True):
    """A packaged model, how rows spell it, and where the software's shape of it differs."""

    rows: tuple[str, ...]
    model: str
    source: str
    changes: dict[str, str | bool | int] = msgspec.field(default_factory=dict)

    def names(self, row: str) -> bool:
        """Whether a row's model is this one: DeepSeekV3 is not DeepSeekV31."""
        return any(row == name or (row.startswith(name) and not row[len(name)].isalnum()) for name in self.rows)


@cache
def run_models() -> tuple[RunModel, ...]:
    """Return the packaged table."""
    return msgspec.convert(load_packaged("linkscale.plan", "data/run_models.yaml"), tuple[RunModel, ...])


def mixture(record: RunRecord) -> bool:
    """Whether a row runs a mixture of experts."""
    return bool(record.experts or record.experts_topk) or "MoE:" in record.notes


def run_model(record: RunRecord) -> RunModel | None:
    """Return the packaged model that a row's mixture is, or None."""
    return next((known for known in run_models() if known.names(record.model)), None) if mixture(record) else None


def disagreement(record: RunRecord) -> str:
    """Return where a row's shape and the packaged model that it names differ, or nothing."""
    known = run_model(record)
    if known is None:
        return ""
    arch = packaged_architecture(known.model)
    for name, stated, packaged in _compared(record, arch):
        fewer = name == "layers" and "proxy" in record.model and stated is not None and stated < packaged
        if stated not in (None, packaged) and not fewer:
            return f"the source states {name} = {stated}, but {known.model} has {packaged}"
    return ""


def _compared(record: RunRecord, arch: Architecture) -> Iterator[tuple[str, int | None, int]]:
    for name in ("layers", "hidden", "heads", "kv_heads"):
        yield name, getattr(record, name), getattr(arch, name)
    for moe in arch.routed()[:1]:
        yield "experts", record.experts, moe.experts
        yield "experts_topk", record.experts_topk, moe.top_k
        yield "moe_ffn_hidden", record.moe_ffn_hidden, moe.hidden


def packaged_run(asked: Asked, known: RunModel) -> Architecture:
    """Return the packaged model of a run, as the run's software trained it."""
    record = asked.record
    asked.say(f"shape of {known.model}: {known.source}")
    arch = packaged_architecture(known.model)
    return _trained(
        known.model, tuple(known.changes.items()), record.model, record.layers or arch.layers,
        record.vocab or asked.may("vocab") or arch.vocab,
        asked.default("prediction_modules") if arch.prediction_kinds else 0, asked.may("capacity"),
    )  # fmt: skip


@lru_cache(maxsize=512)
def _trained(
    model: str, changes: Changes, name: str, layers: int, vocab: int, modules: int, capacity: float | None
) -> Architecture:
    """Return a packaged model with a run's changes: one object per shape, so that such runs are estimated together."""
    arch = packaged_architecture(model).with_layers(layers)
    fields = dict(changes)
    unknown = sorted(set(fields) - set(Architecture.__struct_fields__))
    if unknown:
        raise InputError(f"run models: {unknown[0]!r} is no field of an architecture")
    return msgspec.structs.replace(
        arch, name=name, vocab=vocab, kinds=_with_capacity(arch.kinds, capacity), prediction_modules=modules,
        prediction_kinds=_with_capacity(arch.prediction_kinds, capacity) if modules else (), **fields,
    )  # fmt: skip


def _with_capacity(kinds: tuple[LayerKind, ...], capacity: float | None) -> tuple[LayerKind, ...]:
    return tuple(
        msgspec.structs.replace(kind, mlp=msgspec.structs.replace(kind.mlp, capacity=capacity))
        if capacity is not None and isinstance(kind.mlp, Moe) else kind
        for kind in kinds
    )  # fmt: skip
