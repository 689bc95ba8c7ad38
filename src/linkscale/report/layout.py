"""Pieces that every page is laid from: sections, fact lists, tables that fit 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

WIDEST = 160
"""Pages do not grow beyond this; longer lines are hard to follow."""

ROOMY = 120
"""From this width on, a table may use one line where it needs two at 80 columns."""


def indent(body: RenderableType) -> Padding:
    """Put a body under its title."""
    return Padding(body, (0, 0, 0, 2), expand=False)


def section(title: str, *bodies: RenderableType, note: str = "") -> Group:
    """Return a titled part of a page, set off by an empty line."""
    head = Text.assemble("\n", (title, "bold"), (f"  {note}" if note else "", "bright_black"))
    return Group(head, *(indent(body) for body in bodies))


def facts(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Return names with what they are, one a line."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bright_black", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    return table


def table(columns: Sequence[str], *, gap: int = 2) -> Table:
    """Return an empty table without rules; a column named ``<left`` is text, the others are numbers.

    A column whose name ends in ``~`` may be wrapped, the others keep their words in one line.
    """
    body = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="bright_black", show_edge=False)
    for name in columns:
        left, wraps = name.startswith("<"), name.endswith("~")
        body.add_column(
            name.strip("<~"), justify="left" if left else "right", no_wrap=not wraps,
            overflow="fold" if wraps else "ellipsis",
        )  # fmt: skip
    return body


def bullets(lines: Iterable[str], mark: str = "-", style: str = "") -> Table:
    """Return a list whose long lines hang under their first word."""
    body = Table.grid(padding=(0, 1, 0, 0))
    body.add_column(no_wrap=True)
    body.add_column(overflow="fold")
    for line in lines:
        body.add_row(Text(mark, style=style), Text(line, style=style))
    return body


class Fluid:
    """A part of a page that is drawn for the columns there are."""

    def __init__(self, draw: Callable[[int], RenderableType]) -> None:
        self._draw = draw

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._draw(min(options.max_width, WIDEST))
