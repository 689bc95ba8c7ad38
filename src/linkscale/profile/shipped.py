"""The profiles that ship with the package."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from linkscale.base.yaml import load_packaged
from linkscale.profile.values import AttentionCurve, Profile

# Generations without a table of their own borrow the nearest one's shares; the interval widens.
BORROWED = {"rubin": "blackwell", "cdna2": "cdna3", "cdna4": "cdna3", "gaudi": "ampere", "tpu": "ampere"}
BORROWED_SIGMA = 1.5


@cache
def _data() -> dict[str, Any]:
    data: dict[str, Any] = load_packaged("linkscale.profile", "data/shipped.yaml")
    return data


@cache
def fitted() -> dict[str, Any]:
    """Return the fitted parameters as they ship: by generation, and for all."""
    data: dict[str, Any] = load_packaged("linkscale.profile", "data/fitted.yaml")
    return data


@cache
def shipped_profile(arch: str) -> Profile:
    """Return the profile of a GPU generation; unknown ones borrow the nearest with a wider interval."""
    data = _data()
    name = arch if arch in data["profiles"] else BORROWED.get(arch, "ampere")
    raw = dict(data["profiles"][name])
    curves = {key: msgspec.convert(data["attention"][curve], AttentionCurve) for key, curve in raw["attention"].items()}
    learned = {**fitted()["all"], **fitted()["generations"][name]}
    profile = msgspec.convert({**raw, **learned, "name": arch, "attention": {}}, Profile)
    sigma = profile.interval_sigma * (1.0 if name == arch else BORROWED_SIGMA)
    return msgspec.structs.replace(profile, attention=curves, interval_sigma=sigma)
