"""Plan files: YAML that people write and ``linkscale plan -o`` saves, read into a Plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from linkscale.base.decode import decode
from linkscale.base.errors import InputError
from linkscale.base.yaml import load_yaml
from linkscale.plan.defaults import check_field
from linkscale.plan.plan import Plan


class PlanFile(NamedTuple):
    """A plan as read, and the names of the fields of its strategy that the file states."""

    plan: Plan
    stated: frozenset[str]


def read_plan(path: str | Path) -> PlanFile:
    """Read a plan; errors name the file, and the line of a field of the strategy."""
    document = load_yaml(path)
    data = document.data
    strategy = data.get("strategy") if isinstance(data, dict) else None
    stated = strategy if isinstance(strategy, dict) else {}
    for name, value in stated.items():
        with errors_at(document.where("strategy", name)):
            check_field(name, value)
    with errors_at(document.name):
        plan = decode(data, Plan, document.name)
    return PlanFile(plan, frozenset(stated))


@contextmanager
def errors_at(place: str) -> Iterator[None]:
    """Put the place before an error that does not name it."""
    try:
        yield
    except InputError as error:
        text = str(error)
        raise InputError(text if text.startswith(place) else f"{place}: {text}") from None
