"""Fields of a strategy that are stated as text: ``tp=4,pp=8``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from linkscale.base.errors import InputError
from linkscale.base.units import parse_bytes
from linkscale.plan.defaults import check_field
from linkscale.plan.strategy import NUMBERS

SPELLINGS = {"sp": "sequence_parallel", "hsdp_domain": "shard_domain"}
"""Names that flags have and fields do not."""

_SWITCH = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
_WHOLE = re.compile(r"-?[0-9]{1,30}")
_LONGEST = 200


def parse_stated(text: str) -> dict[str, Any]:
    """Return the fields that text states, each checked on its own.

    >>> parse_stated("tp=4, micro-batch=2, sp=off, bucket_bytes=25 MB")
    {'tp': 4, 'micro_batch': 2, 'sequence_parallel': False, 'bucket_bytes': 25000000}
    """
    if len(text) > _LONGEST:
        raise InputError(f"{text[:40]!r}… has {len(text)} characters; write for example tp=4,pp=8")
    fields: dict[str, Any] = {}
    for name, value in _pairs(text):
        if name in fields:
            raise InputError(f"{text!r} states {name} twice; state it once")
        check_field(name, value)
        fields[name] = value
    return fields


def parse_varied(text: str) -> tuple[str, tuple[Any, ...]]:
    """Return the field that text names and the values it may take, each checked on its own.

    >>> parse_varied("schedule=1f1b,zb-v"), parse_varied("sp=on,off")
    (('schedule', ('1f1b', 'zb-v')), ('sequence_parallel', (True, False)))
    """
    if len(text) > _LONGEST:
        raise InputError(f"{text[:40]!r}… has {len(text)} characters; write for example schedule=1f1b,zb-v")
    name, equals, rest = (piece.strip() for piece in text.partition("="))
    values = [value.strip() for value in rest.split(",")]
    if not (name and equals and all(values)):
        raise InputError(f"{text!r} is not FIELD=VALUE,VALUE; write for example schedule=1f1b,zb-v")
    field = _field(name)
    return field, check_varied(field, [_value(field, value) for value in values])


def check_varied(field: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """Return the values that a field may take, once each; raise InputError where one is not right for it."""
    found = tuple(dict.fromkeys(values))
    for value in found:
        check_field(field, value)
    if not found:
        raise InputError(f"{field}: no value given to vary it over")
    return found


def _field(name: str) -> str:
    field = name.replace("-", "_")
    return SPELLINGS.get(field, field)


def _pairs(text: str) -> Iterator[tuple[str, object]]:
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            raise InputError(f"{part.strip()!r} is not FIELD=VALUE; write for example tp=4,pp=8")
        field = _field(name)
        yield field, _value(field, value)


def _value(field: str, text: str) -> object:
    """Return a number or a switch where the text spells one; ``check_field`` says what is right for the field."""
    if _WHOLE.fullmatch(text):
        return int(text)
    if field in NUMBERS:
        return round(parse_bytes(text)) if field.endswith("_bytes") else text
    return _SWITCH.get(text.lower(), text)
