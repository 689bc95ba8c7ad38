"""Reading files from outside: bounded, UTF-8, errors in one line."""

from __future__ import annotations

from pathlib import Path

from linkscale.base.errors import InputError

MOST_BYTES = 64 * 1024 * 1024


def read_bytes(path: str | Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Read a file of at most ``most_bytes``; raise InputError for what is no such file."""
    source = Path(path)
    try:
        if source.is_dir():
            raise InputError(f"{source} is a directory; name a file")
        with source.open("rb") as file:
            data = file.read(most_bytes + 1)
    except FileNotFoundError:
        raise InputError(f"{source}: no such file") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{source}: cannot read ({getattr(error, 'strerror', None) or error})") from None
    if len(data) > most_bytes:
        raise InputError(f"{source} is larger than {most_bytes // 2**20} MiB, the most that is read")
    return data


def read_text(path: str | Path, most_bytes: int = MOST_BYTES) -> str:
    """Read a UTF-8 file; say where it stops being text."""
    data = read_bytes(path, most_bytes)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(f"{path}:{line}: not UTF-8 text (byte 0x{data[error.start]:02x})") from None
