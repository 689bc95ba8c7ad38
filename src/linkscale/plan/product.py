"""Product defaults: what a published run leaves unstated, from one table with sources (``data/product_defaults.yaml``).

A rule looks at the system and the software of a run, never at its result.
"""

from __future__ import annotations

from functools import cache

import msgspec

from linkscale.base.errors import InputError
from linkscale.base.model import Model
from linkscale.base.yaml import load_packaged
from linkscale.readers.runs import RunRecord

BEGINS = frozenset({"framework", "model", "gpu"})
CONTAINS = frozenset({"notes", "source_ref", "flops_convention"})

Value = str | bool | int | float
Wanted = str | bool | int | float


class Rule(Model, frozen=True):
    """One default: its value where every condition of ``when`` holds, and why."""

    value: Value
    source: str
    when: dict[str, list[Wanted]] = msgspec.field(default_factory=dict)

    def holds(self, record: RunRecord) -> bool:
        """Whether the rule speaks of this run."""
        return all(_meets(column, getattr(record, column), wanted) for column, wanted in self.when.items())


class Default(Model, frozen=True):
    """A value that the table gives for a field, and the sentence that says so."""

    value: Value
    said: str


class Defaults(Model, frozen=True):
    """All rules by field, in the order in which they are asked."""

    rules: dict[str, tuple[Rule, ...]]

    def find(self, field: str, record: RunRecord) -> Default | None:
        """Return the first rule's value for a field of a run, or None where no rule speaks of it."""
        for rule in self.rules[field]:
            if rule.holds(record):
                return Default(value=rule.value, said=f"{field} = {_text(rule.value)}: {rule.source}")
        return None


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _meets(column: str, stated: object, wanted: list[Wanted]) -> bool:
    if column in BEGINS:
        return str(stated).startswith(tuple(str(text) for text in wanted))
    if column in CONTAINS:
        text = str(stated).lower()
        return any(str(phrase).lower() in text for phrase in wanted)
    return any(_equals(stated, value) for value in wanted)


def _equals(stated: object, wanted: Wanted) -> bool:
    if isinstance(wanted, str) and wanted.startswith(">"):
        return isinstance(stated, int | float) and stated > float(wanted[1:])
    return stated == wanted


@cache
def product_defaults() -> Defaults:
    """Return the packaged table."""
    return read_defaults(load_packaged("linkscale.plan", "data/product_defaults.yaml"))


def read_defaults(data: object) -> Defaults:
    """Check a table of defaults: every rule has a source and asks for columns that a run has."""
    try:
        rules = msgspec.convert(data, dict[str, tuple[Rule, ...]])
    except msgspec.ValidationError as error:
        raise InputError(f"not a table of product defaults: {error}") from None
    for field, listed in rules.items():
        for rule in listed:
            strange = sorted(set(rule.when) - set(RunRecord.__struct_fields__))
            if strange:
                raise InputError(f"product defaults: {field}: `when` names {strange[0]!r}, which is no column of a run")
            if not rule.source:
                raise InputError(f"product defaults: {field} = {rule.value}: a default needs a source")
    return Defaults(rules=rules)
