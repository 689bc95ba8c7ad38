"""Quantities: text like ``400 Gb/s`` is parsed once, at the edge, into SI floats; and printed again.

GB is 1e9 bytes, GiB 2**30 bytes, Gb 1e9 bits.
"""

from __future__ import annotations

import re
from typing import Literal

from linkscale.base.errors import InputError

Unit = Literal["bytes", "bytes/s", "flops", "flops/s", "s", "W", "Hz", "count", "usd"]

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {f"{p}i": 2.0 ** (10 * (i + 1)) for i, p in enumerate("KMGTPE")}
_SMALL = {"": 1.0, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9}
_SHAPE = re.compile(r"\s*([-+]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-zµ/$]*)\s*")
_LARGEST = 1e30


def _symbols() -> dict[str, dict[str, float]]:
    """Return the accepted symbols of each unit and what they are worth."""
    size = {f"{p}B": f for p, f in {**_DECIMAL, **_BINARY}.items()}
    bits = {f"{p}{b}": f / 8 for p, f in _DECIMAL.items() for b in ("b", "bit")}
    rate = {f"{s}/s": f for s, f in {**size, **bits}.items()} | {f"{p}bps": f / 8 for p, f in _DECIMAL.items()}
    work = {f"{p}{w}": f for p, f in _DECIMAL.items() for w in ("FLOP", "FLOPs", "F")}
    return {
        "bytes": size,
        "bytes/s": rate,
        "flops": work,
        "flops/s": {f"{s}/s": f for s, f in work.items()} | {f"{p}FLOPS": f for p, f in _DECIMAL.items()},
        "s": {f"{p}s": f for p, f in _SMALL.items()} | {"min": 60.0, "h": 3600.0, "d": 86400.0},
        "W": {f"{p}W": f for p, f in _DECIMAL.items()},
        "Hz": {f"{p}Hz": f for p, f in _DECIMAL.items()},
        "count": dict(_DECIMAL) | {"B": 1e9},
        "usd": {f"{p}USD": f for p, f in _DECIMAL.items()} | {f"{p}$": f for p, f in _DECIMAL.items()} | dict(_DECIMAL),
    }


SYMBOLS = _symbols()
EXAMPLES = {
    "bytes": "80 GB or 80 GiB", "bytes/s": "450 GB/s or 400 Gb/s", "flops": "1 TFLOP", "flops/s": "989 TFLOP/s",
    "s": "5 us", "W": "700 W", "Hz": "1.41 GHz", "count": "15T or 131072", "usd": "5M",
}  # fmt: skip


def parse_quantity(text: str | float, unit: Unit, where: str = "") -> float:
    """Return the SI value of a quantity. A bare number is in the SI unit itself.

    >>> parse_quantity("400 Gb/s", "bytes/s")
    50000000000.0
    >>> parse_quantity("80 GiB", "bytes") == 80 * 2**30
    True
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        return _finite(float(text), text, unit, where)
    match = _SHAPE.fullmatch(str(text))
    symbols = SYMBOLS[unit]
    if not match or (match[2] and match[2] not in symbols):
        raise InputError(f"{where}{': ' if where else ''}{text!r} is no quantity in {unit}; write {EXAMPLES[unit]}")
    number = float(match[1].replace(",", "").replace("_", ""))
    return _finite(number * symbols.get(match[2], 1.0), text, unit, where)


def _finite(value: float, text: object, unit: Unit, where: str) -> float:
    if not -_LARGEST < value < _LARGEST:
        at = f"{where}: " if where else ""
        raise InputError(f"{at}{text!r} is out of range; write something like {EXAMPLES[unit]}")
    return value


def parse_bytes(text: str | float) -> float:
    """Return bytes of text such as ``25 MB``."""
    return parse_quantity(text, "bytes")
