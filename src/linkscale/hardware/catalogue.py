"""The catalogue: hardware by name, read one entry at a time from packaged YAML or from a file of the user.

A user's file has the same entries under ``gpus:`` and ``systems:``. An entry that carries the name of a packaged one,
or says ``like: NAME``, states only what differs.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import msgspec

from linkscale.base.decode import decode
from linkscale.base.errors import InputError, unknown_name
from linkscale.base.yaml import Document, load_packaged, load_yaml
from linkscale.hardware.entries import GpuEntry, NicEntry, NvSwitchEntry, SwitchEntry, SystemEntry
from linkscale.hardware.parts import gpu_value
from linkscale.hardware.types import Gpu

Kind = Literal["gpus", "systems", "nics", "switches", "nvswitches"]
KINDS: tuple[Kind, ...] = get_args(Kind)
PACKAGE = "linkscale.hardware"
ENTRY_TYPES: dict[Kind, type[msgspec.Struct]] = {
    "gpus": GpuEntry, "systems": SystemEntry, "nics": NicEntry, "switches": SwitchEntry, "nvswitches": NvSwitchEntry,
}  # fmt: skip
BY_FILE: tuple[Kind, ...] = ("gpus", "systems")
"""Kinds with one file per entry; the others are short and share a file."""

T = TypeVar("T", bound=msgspec.Struct)
Plain = dict[str, Any]


class Catalogue:
    """Hardware by name. Names ignore case; aliases and a user's file are looked up too."""

    def __init__(self, extra: Document | None = None) -> None:
        self._extra = extra
        self._own = _own_entries(extra)

    def names(self, kind: Kind) -> list[str]:
        """Return the names of all entries of a kind, the user's included, in lower case."""
        return sorted({*_packaged_names(kind), *self._own.get(kind, {})})

    def gpu(self, name: str) -> Gpu:
        """Return a GPU as the cost rooms need it."""
        entry = self.gpu_entry(name)
        try:
            return gpu_value(entry)
        except InputError as error:
            raise InputError(f"GPU {entry.name}: {error}") from None

    def gpu_entry(self, name: str) -> GpuEntry:
        """Return all facts of a GPU."""
        return self._entry("gpus", name, GpuEntry)

    def system(self, name: str) -> SystemEntry:
        """Return all facts of a node, rack or cloud instance."""
        return self._entry("systems", name, SystemEntry)

    def entry(self, kind: Kind, name: str) -> msgspec.Struct:
        """Return all facts of any entry."""
        return self._entry(kind, name, ENTRY_TYPES[kind])

    def key(self, kind: Kind, name: str) -> str | None:
        """Return the key that a name or alias stands for, or None."""
        return self._find(kind, name)

    def where(self, kind: Kind, key: str) -> str:
        """Return the place of an entry, for errors and for ``catalog``."""
        if self._extra and key in self._own.get(kind, {}):
            return self._extra.where(kind, self._spelled(kind, key))
        return f"hardware/data/{kind}/{key}.yaml" if kind in BY_FILE else f"hardware/data/{kind}.yaml"

    def _entry(self, kind: Kind, name: str, shape: type[T]) -> T:
        key = self._find(kind, name)
        if key is None:
            raise unknown_name(_SINGULAR[kind], name, [*self.names(kind), *aliases(kind)])
        where = self.where(kind, key)
        try:
            return decode(self._plain(kind, key), shape, where)
        except InputError as error:
            raise error if str(error).startswith(where) else InputError(f"{where}: {error}") from None

    def _find(self, kind: Kind, name: str) -> str | None:
        key = name.strip().lower()
        if key in self._own.get(kind, {}) or key in _packaged_names(kind):
            return key
        if key in aliases(kind):
            return aliases(kind)[key]
        return _by_prefix(key) if kind == "gpus" else None

    def _spelled(self, kind: Kind, key: str) -> str:
        """Return the key as the user wrote it."""
        table = self._extra.data[kind] if self._extra else {}
        return next((name for name in table if name.strip().lower() == key), key)

    def _plain(self, kind: Kind, key: str, seen: tuple[str, ...] = ()) -> Plain:
        """Return an entry as plain data, with what a user's entry inherits."""
        own = self._own.get(kind, {}).get(key)
        if own is None:
            return _packaged(kind, key)
        base = own.get("like") or key
        if base == key and key not in _packaged_names(kind):
            return self._sourced(own)
        found = key if base == key else self._find(kind, str(base))
        if found is None:
            raise unknown_name(f"{_SINGULAR[kind]} in `like`", str(base), self.names(kind))
        if found in seen:
            raise InputError(f"{self.where(kind, key)}: `like` leads back to {found!r}")
        inherited = _packaged(kind, key) if found == key else self._plain(kind, found, (*seen, key))
        return _over(inherited, self._sourced(own))

    def _sourced(self, own: Plain) -> Plain:
        """Name the user's file as the source of every block that names none."""
        source = f"the user's {self._extra.name if self._extra else 'file'}"
        stated = {name: value for name, value in own.items() if name != "like"}
        if "name" not in stated:  # a NIC or switch is one block
            return {"source": source, **stated}
        return {name: {"source": source, **v} if isinstance(v, dict) else v for name, v in stated.items()}


def load_catalogue(extra: str | Path | None = None) -> Catalogue:
    """Return the packaged catalogue, with a user's YAML file over it.

    >>> load_catalogue().gpu("H100").memory_bandwidth_bytes_per_s
    3350000000000.0
    """
    return Catalogue(load_yaml(extra)) if extra is not None else _packaged_catalogue()


@cache
def _packaged_catalogue() -> Catalogue:
    return Catalogue()


_SINGULAR: dict[Kind, str] = {
    "gpus": "GPU", "systems": "system", "nics": "NIC", "switches": "switch", "nvswitches": "NVSwitch generation",
}  # fmt: skip


def _own_entries(extra: Document | None) -> dict[str, dict[str, Plain]]:
    """Return a user's entries by kind and lower-case name."""
    if extra is None or extra.data is None:
        return {}
    if not isinstance(extra.data, dict):
        raise InputError(f"{extra.name}: expected `gpus:` and `systems:` with entries by name")
    for kind in extra.data:
        if kind not in KINDS:
            raise InputError(f"{extra.where(kind)}: {unknown_name('section', str(kind), KINDS)}")
    return {kind: _keyed(extra, kind, table) for kind, table in extra.data.items() if table is not None}


def _keyed(extra: Document, kind: str, table: object) -> dict[str, Plain]:
    if not isinstance(table, dict):
        raise InputError(f"{extra.where(kind)}: expected entries by name under {kind!r}")
    keyed: dict[str, Plain] = {}
    for name, entry in table.items():
        if not isinstance(entry, dict):
            raise InputError(f"{extra.where(kind, name)}: expected keys and values under {name!r}")
        if name.strip().lower() in keyed:
            raise InputError(f"{extra.where(kind, name)}: {name!r} stands twice; names ignore case")
        keyed[name.strip().lower()] = {"name": name, **entry} if kind in BY_FILE else entry
    return keyed


def _over(base: Plain, own: Plain) -> Plain:
    """Lay a user's entry over another: blocks are merged, all else is replaced.

    A block's note and disagreement speak of the old figures, so they go.
    """
    merged = dict(base)
    for name, value in own.items():
        old = base.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            kept = {field: fact for field, fact in old.items() if field not in ("note", "disagreement")}
            merged[name] = {**kept, **value}
        else:
            merged[name] = value
    return merged


@cache
def _packaged_names(kind: Kind) -> frozenset[str]:
    if kind not in BY_FILE:
        return frozenset(_shared_file(kind))
    folder = files(PACKAGE).joinpath(f"data/{kind}")
    return frozenset(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml"))


@cache
def _packaged(kind: Kind, key: str) -> Plain:
    data = load_packaged(PACKAGE, f"data/{kind}/{key}.yaml") if kind in BY_FILE else _shared_file(kind)[key]
    return dict(data)


@cache
def _shared_file(kind: Kind) -> dict[str, Plain]:
    return dict(load_packaged(PACKAGE, f"data/{kind}.yaml"))


@cache
def _alias_tables() -> dict[str, dict[str, str]]:
    return dict(load_packaged(PACKAGE, "data/aliases.yaml"))


def aliases(kind: Kind) -> dict[str, str]:
    """Return the other names of packaged entries."""
    return _alias_tables().get(kind, {})


def _by_prefix(name: str) -> str | None:
    """Return the GPU of a name that says more than its part: ``B200 (power limited)``."""
    tables: Iterable[tuple[str, str]] = sorted(_alias_tables()["prefixes"].items(), key=lambda pair: -len(pair[0]))
    return next((key for prefix, key in tables if name == prefix or name.startswith(f"{prefix} (")), None)
