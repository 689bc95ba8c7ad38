"""What can go wrong, as the user should hear it.

::

    LinkscaleError            every error a user can cause or act on; the CLI prints it as one line
    ├── InputError            the input is wrong: what, where, what would be right   (exit code 2)
    └── NothingFits           the answer is no: what is short and by how much        (exit code 1)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LinkscaleError(Exception):
    """Base of all errors meant for users; the message is one line."""

    exit_code = 2


class InputError(LinkscaleError):
    """Bad input: says what is wrong, where, and what would be right."""


class NothingFits(LinkscaleError):
    """A well-posed question whose answer is no."""

    exit_code = 1


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name closest to ``name``, ignoring case, or None when nothing is close."""
    by_lower = {k.lower(): k for k in known}
    hits = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[hits[0]] if hits else None


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Build the error for a name that no table holds, with the nearest one that it does."""
    known = sorted(known)
    hint = nearest(name, known)
    shown = ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
    tail = f"did you mean {hint!r}?" if hint else f"known: {shown}"
    return InputError(f"unknown {kind} {name!r}; {tail}")
