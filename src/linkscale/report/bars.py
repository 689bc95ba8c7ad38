"""Stacked bars made of characters: every cause has its own glyph and colour, so that it reads without colour too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text


class Mark(NamedTuple):
    """How one cause looks."""

    glyph: str
    style: str


class Segment(NamedTuple):
    """One part of a stacked bar."""

    mark: Mark
    value: float


FREE = Mark("·", "bright_black")

TIME_MARKS: dict[str, Mark] = {
    "compute": Mark("█", "green"),
    "recompute": Mark("▓", "yellow"),
    "tp": Mark("▒", "blue"),
    "cp": Mark("▚", "cyan"),
    "ep": Mark("▞", "magenta"),
    "pp": Mark("▙", "bright_cyan"),
    "dp": Mark("░", "red"),
    "bubble": Mark("·", "bright_black"),
    "optimizer": Mark("▄", "bright_magenta"),
    "input_host": Mark("▀", "white"),
    "wait": Mark("▌", "bright_red"),
    "offload": Mark("▐", "bright_blue"),
}

MEMORY_MARKS: dict[str, Mark] = {
    "weights": Mark("█", "green"),
    "gradients": Mark("▓", "yellow"),
    "optimizer": Mark("▒", "blue"),
    "activations": Mark("░", "red"),
    "logits": Mark("▚", "cyan"),
    "buffers": Mark("▄", "magenta"),
    "other": Mark("▌", "white"),
}


def cells(values: Sequence[float], width: int) -> list[int]:
    """Share ``width`` cells out in proportion to the values, by largest remainder; they sum to the width.

    >>> cells([5.0, 3.0, 2.0], 7)
    [4, 2, 1]
    """
    total = sum(values)
    if total <= 0:
        return [0] * len(values)
    exact = [value / total * width for value in values]
    whole = [int(share) for share in exact]
    by_remainder = sorted(range(len(values)), key=lambda i: (whole[i] - exact[i], i))
    for index in by_remainder[: width - sum(whole)]:
        whole[index] += 1
    return whole


def stacked(segments: Sequence[Segment], width: int) -> Text:
    """Draw a stacked bar of exactly ``width`` cells."""
    bar = Text(no_wrap=True)
    for segment, length in zip(segments, cells([s.value for s in segments], width), strict=True):
        bar.append(segment.mark.glyph * length, style=segment.mark.style)
    return bar
