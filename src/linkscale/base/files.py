"""Writing files so that nothing is half-written."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from linkscale.base.errors import InputError


def write_text(path: str | Path, text: str) -> None:
    """Write text as UTF-8: beside the target, then renamed over it.

    What a symbolic link names is replaced, not the link. A device or a pipe is written to: renaming over
    ``/dev/null`` would take it from the whole machine.
    """
    target = Path(path)
    try:
        if target.exists() and not target.is_file() and not target.is_dir():
            target.write_text(text, encoding="utf-8")
        else:
            _replace(target.resolve(), text)
    except OSError as error:
        why = error.strerror or error
        raise InputError(f"{target}: cannot write ({why}); name a file in an existing folder") from None


def _replace(target: Path, text: str) -> None:
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(target)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
