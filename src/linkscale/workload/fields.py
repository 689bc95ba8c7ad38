"""Fields of a configuration, read one at a time: errors name the field, the file and what would be right."""

from __future__ import annotations

from typing import Any

from linkscale.base.errors import InputError
from linkscale.workload.architecture import MOST


class Fields:
    """A ``config.json`` as a dictionary. A field that is null counts as left out, as in ``transformers``.

    ``used`` names the fields that were asked for: what is stated beyond them has not been understood.
    """

    def __init__(self, data: dict[str, Any], where: str, prefix: str = "", used: set[str] | None = None) -> None:
        self.data = data
        self.where = where
        self.prefix = prefix
        self.used: set[str] = set() if used is None else used

    @property
    def kind(self) -> str:
        """The configuration's ``model_type``."""
        return str(self.data.get("model_type", ""))

    def count(self, *names: str) -> int:
        """Return the first of the names that is stated (configurations of old spell some fields otherwise)."""
        found = self._count(names)
        if found is None:
            raise self.wrong(names[0], f"is missing; every {self.kind} configuration states it".replace("  ", " "))
        return found

    def count_or(self, default: int, *names: str) -> int:
        """Return the first of the names that is stated, or what the family's class takes without it."""
        found = self._count(names)
        return default if found is None else found

    def flag(self, name: str, default: bool | None = None) -> bool:
        """Return a boolean field; without a default it is required."""
        value = self._get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "is missing; state true or false" if value is None else _not(value, "true or false"))
        return value

    def text(self, name: str, default: str) -> str:
        """Return a text field."""
        value = self._get(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, _not(value, "a name"))
        return value or default

    def share(self, name: str, default: float) -> float:
        """Return a number from 0 to 1."""
        value = self._get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise self.wrong(name, _not(value, "a number from 0 to 1"))
        return float(value)

    def names(self, name: str) -> list[str] | None:
        """Return a list of names, or None where it is left out."""
        value = self._get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise self.wrong(name, "must be a list of names")
        return value

    def numbers(self, name: str) -> list[int] | None:
        """Return a list of whole numbers from 0, or None where it is left out."""
        value = self._get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(type(v) is int and 0 <= v <= MOST for v in value):
            raise self.wrong(name, "must be a list of whole numbers")
        return value

    def number_or(self, default: int, name: str) -> int:
        """Return a whole number that may be 0, or the default where it is left out."""
        value = self._get(name)
        return 0 if value in (0, False) else self.count_or(default, name)

    def ignore(self, *names: str) -> None:
        """Mark fields as understood that do not change the shape."""
        self.used.update(self.prefix + name for name in names)

    def filled(self, defaults: dict[str, Any]) -> Fields:
        """Return the same fields, with defaults where they are left out."""
        stated = {name: value for name, value in self.data.items() if value is not None}
        return Fields({**self.data, **defaults, **stated}, self.where, self.prefix, self.used)

    def part(self, *names: str) -> Fields:
        """Return the first of the nested objects that is stated, else an empty one."""
        for name in names:
            value = self._get(name)
            if isinstance(value, dict):
                return Fields(value, self.where, f"{self.prefix}{name}.", self.used)
            if value is not None:
                raise self.wrong(name, _not(value, "an object with fields of its own"))
        return Fields({}, self.where, f"{self.prefix}{names[0]}.", self.used)

    def wrong(self, name: str, what: str) -> InputError:
        """Return the error about a field."""
        return InputError(f"{self.where}: {self.prefix}{name} {what}")

    def _get(self, name: str) -> Any:
        self.used.add(self.prefix + name)
        return self.data.get(name)

    def _count(self, names: tuple[str, ...]) -> int | None:
        for name in names:
            value = self._get(name)
            if value is None:
                continue
            # JSON has one kind of number: 4096.0 means 4096; true, "12", 1e300 and NaN mean no count.
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 1 <= value <= MOST or value != int(value):
                raise self.wrong(name, _not(value, f"a whole number from 1 to {MOST}"))
            return int(value)
        return None


def _not(value: object, right: str) -> str:
    shown = f"{value:.6g}" if isinstance(value, float) else _short(value)
    return f"= {shown}; it must be {right}"


def _short(value: object) -> str:
    if isinstance(value, int) and abs(value) > 10**15:
        return "a number of " + str(value.bit_length()) + " bits"
    text = repr(value) if isinstance(value, str | int | bool) else f"a {type(value).__name__}"
    return text if len(text) <= 40 else text[:39] + "…"
