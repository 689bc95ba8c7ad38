"""The value and the document of ``catalog``: what the package knows of hardware and models, and who says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from linkscale.base.errors import unknown_name
from linkscale.base.model import Model
from linkscale.hardware.catalogue import Catalogue
from linkscale.hardware.entries import Block
from linkscale.hardware.facts import Fact, facts_of
from linkscale.report.json_document import document
from linkscale.workload import Architecture, load_architecture, packaged_models, params

Kind = Literal["gpus", "systems", "nics", "switches", "nvswitches", "models"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Entry(Model, frozen=True):
    """One entry with all that is known of it."""

    name: str
    title: str
    facts: tuple[Fact, ...]
    disagreement: str = ""
    note: str = ""


class Listing(Model, frozen=True):
    """Entries of one kind; one of them where a name was asked for."""

    kind: Kind
    entries: tuple[Entry, ...]


def known_kind(text: str) -> Kind:
    """Return the kind of that name."""
    found = next((kind for kind in KINDS if kind == text.strip().lower()), None)
    if found is None:
        raise unknown_name("kind of entry", text, KINDS)
    return found


def listing(kind: Kind, name: str | None, catalogue: Catalogue) -> Listing:
    """Return all entries of a kind, or the one of a name."""
    wanted = [name] if name is not None else names(kind, catalogue)
    return Listing(kind=kind, entries=tuple(_entry(kind, each, catalogue) for each in wanted))


def catalog_document(found: Listing) -> dict[str, Any]:
    """Return ``linkscale.catalog/1``."""
    return document("catalog", found)


def names(kind: Kind, catalogue: Catalogue) -> Sequence[str]:
    """Return the names of all entries of a kind."""
    return packaged_models() if kind == "models" else catalogue.names(kind)


def _entry(kind: Kind, name: str, catalogue: Catalogue) -> Entry:
    if kind == "models":
        return _model_entry(load_architecture(name))
    entry = catalogue.entry(kind, name)
    key = catalogue.key(kind, name) or name
    shown = getattr(entry, "name", key)
    return Entry(
        name=shown, title=getattr(entry, "title", shown), facts=facts_of(entry),
        disagreement="" if isinstance(entry, Block) else getattr(entry, "disagreement", ""),
        note="" if isinstance(entry, Block) else getattr(entry, "note", ""),
    )  # fmt: skip


def _model_entry(model: Architecture) -> Entry:
    counted = Fact(name="parameters", text=f"{params(model):,}", value=float(params(model)), unit="count",
                   source="counted from the fields below")  # fmt: skip
    fields = [name for name in model.__struct_fields__ if name not in ("name", "source")]
    stated = [_model_fact(name, getattr(model, name), model.source) for name in fields]
    return Entry(name=model.name, title=model.model_type, facts=(counted, *stated))


def _model_fact(name: str, value: object, source: str) -> Fact:
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    text = str(value).lower() if isinstance(value, bool) else "none" if value is None else str(value)
    return Fact(name=name, text=text, value=number, unit="count" if number is not None else "", source=source)
