"""JSON files of a person: bounded, errors with line and column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from linkscale.base.errors import InputError
from linkscale.base.text import read_text

MOST_BYTES = 16 * 1024 * 1024


def load_json(path: str | Path) -> Any:
    """Read a JSON file; raise InputError with file, line and column for what is wrong in it."""
    text = read_text(path, MOST_BYTES)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}:{error.colno}: not valid JSON ({error.msg.lower()})") from None
    except RecursionError:
        raise InputError(f"{path}: nested too deeply") from None
    except ValueError as error:  # numbers of thousands of digits
        raise InputError(f"{path}: not valid JSON ({error})") from None
