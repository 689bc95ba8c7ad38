"""The front door: which names there are, and that each is the room's own."""

from __future__ import annotations

import subprocess
import sys

import pytest

import linkscale

NAMES = [
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


def test_the_front_door_has_these_names_and_no_others():
    assert linkscale.__all__ == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_name_can_be_had(name):
    assert getattr(linkscale, name) is getattr(linkscale, name)
    assert name in dir(linkscale)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'plam'"):
        linkscale.plam  # noqa: B018


@pytest.mark.parametrize("first", ["import linkscale.plan.strategy", "import linkscale.search", "pass"])
def test_plan_is_the_function_whatever_was_imported_before(first):
    code = (
        f"import linkscale\n{first}\nfrom linkscale.plan.strategy import Strategy\n"
        "assert callable(linkscale.plan), linkscale.plan\nassert linkscale.Strategy is Strategy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
