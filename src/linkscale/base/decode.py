"""Plain data → values, with one line for what does not fit and the nearest known field."""

from __future__ import annotations

import re
from typing import Any, TypeVar, get_args

import msgspec

from linkscale.base.errors import InputError, nearest

T = TypeVar("T", bound=msgspec.Struct)

_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_AT = re.compile(r" - at `\$\.?([^`]*)`")


def decode(data: Any, kind: type[T], where: str) -> T:
    """Convert plain data into a value of ``kind``; ``where`` names the file in errors."""
    if not isinstance(data, dict):
        raise InputError(f"{where}: expected keys and values, found {_kind(data)}")
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {_told(str(error), kind)}") from None


def _kind(data: Any) -> str:
    return "nothing" if data is None else type(data).__name__


def _told(message: str, kind: type[msgspec.Struct]) -> str:
    at = _AT.search(message)
    field = f"{at[1]}: " if at and at[1] else ""
    text = _AT.sub("", message)
    unknown = _UNKNOWN.search(text)
    if unknown:
        known = _known(kind, at[1] if at else "")
        return f"{field}unknown field {unknown[1]!r}" + _hint(unknown[1], known)
    return f"{field}{text[0].lower()}{text[1:]}".replace("`", "")


def _hint(name: str, known: tuple[str, ...]) -> str:
    hint = nearest(name, known)
    if hint:
        return f"; did you mean {hint!r}?"
    return f"; known: {', '.join(known[:8])}{', …' if len(known) > 8 else ''}" if known else ""


def _known(kind: type[msgspec.Struct], path: str) -> tuple[str, ...]:
    """Return the fields that a value has at a path of nested ones, as msgspec writes it: ``memory.banks[0]``."""
    for part in filter(None, path.split(".")):
        hints = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        inner = _struct_in(hints.get(part.partition("[")[0]))
        if inner is None:
            return ()
        kind = inner
    return kind.__struct_fields__


def _struct_in(hint: Any) -> type[msgspec.Struct] | None:
    """Return the first struct of a type: of ``X``, ``X | None``, ``tuple[X, ...]``."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint
    return next((found for found in map(_struct_in, get_args(hint)) if found is not None), None)
