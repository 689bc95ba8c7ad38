"""Numbers as text. GB = 1e9 bytes, GiB = 2**30, Gb = 1e9 bits; the text always says which."""

from __future__ import annotations

import math

_DURATIONS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_COUNTS = ((1e12, "T"), (1e9, "B"), (1e6, "M"))


def significant(value: float, digits: int = 4) -> str:
    """Return a number with so many significant digits, whole digits always in full.

    >>> significant(5.43219), significant(16128.2), significant(0.00123456)
    ('5.432', '16,128', '0.001235')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    magnitude = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    return f"{value:,.{max(0, digits - 1 - magnitude)}f}"


def duration_unit(largest_s: float) -> tuple[float, str]:
    """Return the scale and name of the unit in which a column of durations up to this one reads well."""
    return next((unit for unit in _DURATIONS if largest_s >= unit[0]), _DURATIONS[-1])


def duration(seconds: float, digits: int = 3) -> str:
    """Return a duration in its own unit.

    >>> duration(5.4321), duration(0.0123), duration(0.0)
    ('5.43 s', '12.3 ms', '0')
    """
    if seconds == 0:
        return "0"
    scale, unit = duration_unit(abs(seconds))
    return f"{significant(seconds / scale, digits)} {unit}"


def size(size_bytes: float, digits: int = 3) -> str:
    """Return a size in decimal units.

    >>> size(134_217_728), size(0)
    ('134 MB', '0 B')
    """
    for scale, unit in _SIZES:
        if abs(size_bytes) >= scale:
            return f"{significant(size_bytes / scale, digits)} {unit}"
    return f"{size_bytes:,.0f} B"


def gigabytes(size_bytes: float) -> str:
    """Return a size in GB with two decimals, for columns that add up."""
    return f"{size_bytes / 1e9:,.2f}"


def both_gigabytes(size_bytes: float) -> str:
    """Return a size in GB and in GiB, since tools differ.

    >>> both_gigabytes(80 * 2**30)
    '85.90 GB (80.00 GiB)'
    """
    return f"{gigabytes(size_bytes)} GB ({size_bytes / 2**30:,.2f} GiB)"


def count(value: float) -> str:
    """Return a number of things; calls per step may be a mean over stages and so not whole."""
    return f"{value:,.0f}" if value == round(value) or value >= 1000 else significant(value, 3)


def large(value: float) -> str:
    """Return a large number with a letter.

    >>> large(405_853_388_800), large(2048)
    ('405.9 B', '2,048')
    """
    for scale, letter in _COUNTS:
        if value >= scale:
            return f"{significant(value / scale)} {letter}"
    return count(value)


def plural(number: int, noun: str, ending: str = "s") -> str:
    """Return a count with its noun.

    >>> plural(1, "row"), plural(2048, "micro-batch", "es")
    ('1 row', '2,048 micro-batches')
    """
    return f"{number:,} {noun}{'' if number == 1 else ending}"


def percent(share: float) -> str:
    """Return a share with one decimal; what rounds to nothing has no sign.

    >>> percent(0.0234), percent(-0.0001)
    ('2.3%', '0.0%')
    """
    return f"{round(share, 3) + 0.0:.1%}"


def gigabits(bytes_per_s: float) -> str:
    """Return a bandwidth in Gb/s.

    >>> gigabits(50e9), gigabits(12.5e9 / 8)
    ('400 Gb/s', '12.5 Gb/s')
    """
    text = significant(bytes_per_s * 8 / 1e9)
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} Gb/s"
