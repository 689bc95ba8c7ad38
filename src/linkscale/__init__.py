"""Linkscale: predict, plan and explain large-model training on NVLink clusters.

The front door: the names of ``__all__``, each imported from its room on first use, so that ``import linkscale`` costs
a few milliseconds.

>>> import linkscale
>>> linkscale.Strategy(tp=8, pp=2, dp=4).gpus
64
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "predict",
    "plan",
    "Architecture",
    "Cluster",
    "Strategy",
    "Estimate",
    "load_architecture",
    "parse_cluster",
    "InputError",
    "LinkscaleError",
    "__version__",
]

_HOMES = {
    "predict": "linkscale.api",
    "plan": "linkscale.api",
    "Architecture": "linkscale.workload",
    "Cluster": "linkscale.topology.cluster",
    "Strategy": "linkscale.plan.strategy",
    "Estimate": "linkscale.estimate.result",
    "load_architecture": "linkscale.workload",
    "parse_cluster": "linkscale.topology",
    "InputError": "linkscale.base.errors",
    "LinkscaleError": "linkscale.base.errors",
}

if TYPE_CHECKING:
    from linkscale.api import plan, predict
    from linkscale.base.errors import InputError, LinkscaleError
    from linkscale.estimate.result import Estimate
    from linkscale.plan.strategy import Strategy
    from linkscale.topology import parse_cluster
    from linkscale.topology.cluster import Cluster
    from linkscale.workload import Architecture, load_architecture


def _load(name: str) -> Any:
    return getattr(import_module(_HOMES[name]), name)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'linkscale' has no attribute {name!r}")
    value = _load(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _FrontDoor(ModuleType):
    """The package itself, whose ``plan`` is the function and not the room of the same name.

    Importing ``linkscale.plan.strategy`` makes Python set the room as attribute ``plan`` of its parent; without this
    the meaning of ``linkscale.plan`` would depend on what was imported before. ``from linkscale.plan import ...``
    reaches the room as ever.
    """

    @property
    def plan(self) -> Any:
        return _load("plan")

    @plan.setter
    def plan(self, room: ModuleType) -> None:
        """Leave the function in its place."""


sys.modules[__name__].__class__ = _FrontDoor
