"""Fields of a configuration: typed reading with errors that name the field and the file."""

from __future__ import annotations

from typing import Any

from linkscale.base.errors import InputError

MOST = 2**31 - 1


class Fields:
    """A ``config.json`` as a dictionary, asked for one field at a time."""

    def __init__(self, data: dict[str, Any], where: str) -> None:
        self.data = data
        self.where = where

    def integer(self, *names: str, default: int | None = None) -> int:
        """Return the first of the names that is stated (older configurations use other spellings)."""
        for name in names:
            value = self.data.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
                raise InputError(f"{self.where}: {name} = {value!r}; it must be a whole number")
            if not 0 <= value <= MOST:
                raise InputError(f"{self.where}: {name} = {value:g}; it must lie between 0 and {MOST}")
            return int(value)
        if default is None:
            raise InputError(f"{self.where}: the field {names[0]!r} is missing; every {self.kind} configuration states it")
        return default

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean field."""
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InputError(f"{self.where}: {name} = {value!r}; it must be true or false")
        return value

    def text(self, *names: str, default: str) -> str:
        """Return a text field."""
        for name in names:
            value = self.data.get(name)
            if isinstance(value, str):
                return value
        return default

    def positive(self, *names: str) -> bool:
        """Whether any of the fields (dropout probabilities) is above zero."""
        return any(isinstance(self.data.get(n), int | float) and self.data[n] > 0 for n in names)

    @property
    def kind(self) -> str:
        """The configuration's ``model_type``."""
        return str(self.data.get("model_type", ""))
