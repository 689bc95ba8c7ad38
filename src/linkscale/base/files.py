"""Writing files so that nothing is half-written."""

from __future__ import annotations

import os
from pathlib import Path

from linkscale.base.errors import InputError


def write_text(path: str | Path, text: str) -> None:
    """Write text as UTF-8: beside the target, then renamed over it."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        why = error.strerror or error
        raise InputError(f"{target}: cannot write ({why}); name a file in an existing folder") from None
