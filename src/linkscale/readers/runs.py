"""Published training runs: a CSV with one measured run a row → ``RunRecord`` values, as stated, without meaning.

An empty cell is None: the source did not say. What to assume then is not the reader's business.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from linkscale.base.errors import InputError
from linkscale.base.model import Model

MAX_ROWS = 1_000_000
MAX_LINE_CHARS = 65_536
MAX_PROBLEMS = 1_000


class RunRecord(Model, frozen=True):
    """One published measurement: the columns of the file, typed. None: not stated."""

    id: str
    source_key: str
    line: int
    gpu: str
    num_gpus: int | None
    source_ref: str = ""
    gpus_per_node: int | None = None
    nvlink_domain_size: int | None = None
    scaleout_type: str = ""
    scaleout_gbps_per_gpu: float | None = None
    framework: str = ""
    model: str = ""
    params_b: float | None = None
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    ffn_hidden: int | None = None
    gated_mlp: bool | None = None
    vocab: int | None = None
    experts: int | None = None
    experts_topk: int | None = None
    moe_ffn_hidden: int | None = None
    seq_len: int | None = None
    global_batch_seqs: int | None = None
    micro_batch_seqs: int | None = None
    grad_accum: int | None = None
    tp: int | None = None
    sp: bool | None = None
    pp: int | None = None
    vpp: int | None = None
    cp: int | None = None
    ep: int | None = None
    dp: int | None = None
    sharding: str = ""
    recompute: str = ""
    precision: str = ""
    attention: str = ""
    step_time_s: float | None = None
    tokens_per_s_per_gpu: float | None = None
    tflops_per_gpu: float | None = None
    mfu_pct: float | None = None
    hfu_pct: float | None = None
    peak_mem_gib: float | None = None
    flops_convention: str = ""
    notes: str = ""


class BadRow(Model, frozen=True):
    """A row that could not be read, where and why."""

    line: int
    reason: str


class Runs(Model, frozen=True):
    """What a file of runs holds: the readable rows, and the others with their place."""

    records: tuple[RunRecord, ...]
    bad: tuple[BadRow, ...]


REQUIRED = ("id", "source_key", "gpu", "num_gpus")


def read_runs(path: str | Path) -> Runs:
    """Read a CSV of published runs; columns may come in any order, unknown ones are refused.

    Rows that break are left out and reported with their line. Memory is bounded by ``MAX_ROWS`` records.
    """
    try:
        with Path(path).open("rb") as file:
            return _read(file, str(path))
    except OSError as error:
        raise InputError(f"{path}: cannot read the runs ({error.strerror or error})") from None


def _read(file: BinaryIO, where: str) -> Runs:
    rows = csv.reader(_lines(file, where), strict=True)
    try:
        columns = _columns(next(rows, []), where)
    except csv.Error as error:
        raise InputError(f"{where}:1: the header is not CSV ({error})") from None
    records: list[RunRecord] = []
    bad: list[BadRow] = []
    for item in _parsed(rows, columns):
        if isinstance(item, RunRecord):
            records.append(item)
        elif len(bad) < MAX_PROBLEMS:
            bad.append(item)
        if len(records) > MAX_ROWS:
            raise InputError(f"{where}: more than {MAX_ROWS} rows; split the file")
    if not records and not bad:
        raise InputError(f"{where}: holds no rows; a header and one row a run would be right")
    return Runs(records=tuple(records), bad=tuple(bad))


def _lines(file: BinaryIO, where: str) -> Iterator[str]:
    """Yield decoded lines; a line too long to be a row, or bytes that are not UTF-8 text, end the reading."""
    number = 0
    while raw := file.readline(MAX_LINE_CHARS + 1):
        number += 1
        if len(raw) > MAX_LINE_CHARS:
            raise InputError(f"{where}:{number}: line longer than {MAX_LINE_CHARS} characters; a row a line is right")
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            byte = f"byte 0x{raw[error.start]:02x}"
            raise InputError(f"{where}:{number}: not UTF-8 text ({byte}); save the file as UTF-8") from None
        if "\x00" in text:
            raise InputError(f"{where}:{number}: holds a zero byte; this is no text file")
        yield text


def _columns(header: list[str], where: str) -> list[str]:
    names = [name.strip() for name in header]
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise InputError(f"{where}:1: column {missing[0]!r} is missing; a table of runs has {', '.join(REQUIRED)}, …")
    unknown = [name for name in names if name not in CONVERT]
    if unknown:
        raise InputError(f"{where}:1: unknown column {unknown[0]!r}; known: {', '.join(CONVERT)}")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError(f"{where}:1: column {twice[0]!r} stands twice")
    return names


def _parsed(rows: Any, columns: list[str]) -> Iterator[RunRecord | BadRow]:
    while True:
        line = rows.line_num + 1
        try:
            cells = next(rows, None)
        except csv.Error as error:
            yield BadRow(line=line, reason=f"broken CSV ({error})")
            continue
        if cells is None:
            return
        if cells:
            yield _record(cells, columns, line)


def _record(cells: list[str], columns: list[str], line: int) -> RunRecord | BadRow:
    if len(cells) != len(columns):
        return BadRow(line=line, reason=f"{len(cells)} cells, the header has {len(columns)}")
    values: dict[str, Any] = {"line": line}
    for name, cell in zip(columns, cells, strict=True):
        text = cell.strip()
        try:
            values[name] = CONVERT[name](text)
        except ValueError:
            return BadRow(line=line, reason=f"{name} = {_short(text)}; {EXPECTED[CONVERT[name]]} would be right")
    empty = [name for name in ("id", "source_key", "gpu") if not values[name]]
    if empty:
        return BadRow(line=line, reason=f"{empty[0]} is empty")
    return RunRecord(**values)


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "…")


def _count(text: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 15 or int(text) == 0:
        raise ValueError(text)
    return int(text)


def _number(text: str) -> float | None:
    if not text:
        return None
    value = float(text)
    if not math.isfinite(value) or value < 0.0:
        raise ValueError(text)
    return value


def _flag(text: str) -> bool | None:
    if text not in ("", "0", "1"):
        raise ValueError(text)
    return None if not text else text == "1"


Convert = Callable[[str], Any]
EXPECTED: dict[Convert, str] = {
    _count: "a positive whole number or nothing",
    _number: "a number that is not negative, or nothing",
    _flag: "0, 1 or nothing",
    str: "text",
}
_BY_TYPE: dict[Any, Convert] = {int | None: _count, float | None: _number, bool | None: _flag, str: str}
CONVERT: dict[str, Convert] = {
    field.name: _BY_TYPE[field.type] for field in msgspec.structs.fields(RunRecord) if field.name != "line"
}
