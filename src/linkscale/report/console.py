"""Where pages go: standard output, plain text unless it is a terminal that shows colour."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console, RenderableType

NARROWEST = 60
"""Below this, tables would hide their numbers; a narrower terminal wraps the lines instead."""

# For outputs that hold no such characters; every cause keeps a mark of its own.
ASCII = str.maketrans("█▓▒░▚▞▙▄▀▌▐·×…", "#%=-cep_^|h.x~")


def page_console(file: TextIO, width: int | None = None) -> Console:
    """Return a console that adds nothing of its own: no markup, no highlighting, no emoji."""
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def show(page: RenderableType, file: TextIO | None = None, width: int | None = None) -> None:
    """Print a page; where the output cannot hold its marks they become ASCII, other characters question marks."""
    target = sys.stdout if file is None else file
    if hasattr(target, "reconfigure"):
        target.reconfigure(errors="replace")
    console = page_console(target, width)
    if width is None:
        console.width = max(console.width, NARROWEST)
    with console.capture() as captured:
        console.print(page)
    text = captured.get()
    if not console.is_terminal:
        text = "\n".join(line.rstrip() for line in text.split("\n"))
    target.write(text if _holds_marks(target) else text.translate(ASCII))


def _holds_marks(target: TextIO) -> bool:
    """Whether the encoding of an output has the characters that bars are made of."""
    try:
        "█▚·".encode(getattr(target, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show on standard error how far long work is, when that is a terminal; yields ``advance(done, total)``."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = page_console(sys.stderr)
    with Progress(TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"),
                  TimeElapsedColumn(), console=console, transient=True) as bar:  # fmt: skip
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
