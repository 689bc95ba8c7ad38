"""Entries taken apart: one fact a line, with its value in SI units, its source and what others print."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from linkscale.base.model import Model
from linkscale.base.units import Unit, parse_quantity
from linkscale.hardware.entries import UNITS, Block

IN_PLACE = frozenset({"source", "disagreement", "note", "usable_source"})
"""Fields of a block that speak of its facts rather than being one."""

IDENTITY = frozenset({"name", "title", "disagreement", "note"})


class Fact(Model, frozen=True):
    """One fact. ``text`` as the file spells it; ``value`` in the SI ``unit``, or null for words."""

    name: str
    text: str
    value: float | None
    unit: str
    source: str
    disagreement: str = ""
    note: str = ""


def facts_of(entry: msgspec.Struct) -> tuple[Fact, ...]:
    """Return all facts of an entry, what it is first; names are ``block.field``."""
    if isinstance(entry, Block):
        return tuple(_block("", entry))
    fields = [(name, getattr(entry, name)) for name in entry.__struct_fields__]
    first = next((value.source for _, value in fields if isinstance(value, Block)), "")
    fields.sort(key=lambda field: isinstance(field[1], Block | tuple))
    return tuple(fact for name, value in fields for fact in _facts(name, value, first))


def _facts(name: str, value: object, source: str) -> Iterator[Fact]:
    """Yield the facts of one field; what stands outside all blocks follows the product page of the first one."""
    match value:
        case Block():
            yield from _block(name, value)
        case tuple():
            for number, item in enumerate(value, 1):
                yield from _block(f"{name}.{number}", item)
        case None | "":
            return
        case _ if name not in IDENTITY:
            yield _fact(name, value, None, source)


def _block(name: str, block: Block) -> Iterator[Fact]:
    units = UNITS.get(type(block).__name__, {})
    for field in block.__struct_fields__:
        value = getattr(block, field)
        if field in IN_PLACE or value is None or value == "":
            continue
        source = getattr(block, f"{field}_source", block.source)
        path = f"{name}.{field}" if name else field
        yield _fact(path, value, units.get(field), source, block.disagreement, block.note)


def _fact(
    name: str, value: object, unit: Unit | None, source: str, disagreement: str = "", note: str = ""
) -> Fact:  # fmt: skip
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    number = parse_quantity(str(value), unit) if unit else float(str(value)) if plain else None
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return Fact(name=name, text=text, value=number, unit=unit or ("count" if plain else ""), source=source,
                disagreement=disagreement, note=note)  # fmt: skip
