"""A published run and what its product does where the run does not say."""

from __future__ import annotations

from typing import Any

from linkscale.base.errors import InputError
from linkscale.plan.defaults import check_field
from linkscale.plan.product import Defaults
from linkscale.readers.runs import RunRecord

SPELLINGS = {"fsdp": "zero3"}
"""What sources write for a choice that has another name here."""


class Asked:
    """One record on its way to a case; collects the sentences of the defaults that it used."""

    def __init__(self, record: RunRecord, table: Defaults) -> None:
        self.record = record
        self.table = table
        self.assumptions: list[str] = []

    def say(self, sentence: str) -> None:
        """Keep a sentence, once."""
        if sentence not in self.assumptions:
            self.assumptions.append(sentence)

    def may(self, field: str) -> Any:
        """Return the table's value for a field, or None where no rule speaks of the run."""
        found = self.table.find(field, self.record)
        if found is None:
            return None
        self.say(found.said)
        return found.value

    def default(self, field: str) -> Any:
        """Return the table's value for a field and keep its sentence."""
        value = self.may(field)
        if value is None:
            raise InputError(f"no product default for {field} of {self.record.framework!r} on {self.record.gpu!r}")
        return value

    def stated_or(self, field: str, stated: Any) -> Any:
        """Return what a column states, or the table's value."""
        return self.default(field) if stated is None else stated

    def known_or(self, field: str, stated: str) -> Any:
        """Return the choice that a column names, or the table's value."""
        if stated in ("", "unknown"):
            return self.default(field)
        value = SPELLINGS.get(stated, stated)
        check_field(field, value)
        return value
