"""The one YAML loader: YAML 1.2 scalars, no aliases, no duplicate keys, line numbers kept for errors.

Plain PyYAML follows YAML 1.1: it reads ``1e9`` as text, ``on`` as true and ``12:30`` as 750. Here only ``true`` and
``false`` are booleans, numbers are JSON's (and ``0x``, ``0o``), all else is text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from linkscale.base.errors import InputError
from linkscale.base.text import read_text

# Only composed, never constructed: no tag runs code, and an alias stays one shared node until it is refused.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEEPEST = 100
MOST_BYTES = 16 * 1024 * 1024
Path_ = tuple[str | int, ...]

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = {".inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan")}
_LONGEST_INT = 400


@dataclass(frozen=True)
class Document:
    """Plain data and where it came from."""

    data: Any
    name: str
    lines: dict[Path_, int] = field(default_factory=dict)

    def where(self, *path: str | int) -> str:
        """Return ``file:line`` of a key, or of its nearest known parent."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return f"{self.name}:{self.lines[path[:end]]}"
        return self.name


def load_yaml(path: str | Path) -> Document:
    """Read a YAML file of a person; raise InputError with file and line for what is wrong in it."""
    return parse_yaml(read_text(path, MOST_BYTES), str(path))


def parse_yaml(text: str, name: str = "<text>") -> Document:
    """Parse YAML text."""
    try:
        node = yaml.compose(text, Loader=LOADER)
    except yaml.YAMLError as error:
        raise InputError(_told(error, name)) from None
    except RecursionError:
        raise InputError(f"{name}: nested too deeply") from None
    document = Document(None, name)
    data = None if node is None else _build(node, (), document)
    return Document(data, name, document.lines)


def load_packaged(package: str, path: str) -> Any:
    """Read a YAML file that ships inside a package; returns plain data."""
    return parse_yaml(files(package).joinpath(path).read_text(encoding="utf-8"), path).data


def _told(error: yaml.YAMLError, name: str) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"{name}:{mark.line + 1}: not valid YAML ({problem})" if mark else f"{name}: not valid YAML ({problem})"


def _build(node: yaml.Node, path: Path_, document: Document, seen: set[int] | None = None) -> Any:
    seen = set() if seen is None else seen
    line = node.start_mark.line + 1
    document.lines.setdefault(path, line)
    if id(node) in seen:
        raise InputError(f"{document.name}:{line}: aliases (*name) are not read here; write the value out")
    if len(path) > DEEPEST:
        raise InputError(f"{document.name}:{line}: nested deeper than {DEEPEST} levels")
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return [_build(child, (*path, i), document, seen) for i, child in enumerate(node.value)]
    return _mapping(node, path, document, seen)


def _mapping(node: yaml.Node, path: Path_, document: Document, seen: set[int]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise InputError(f"{document.name}:{line}: a key must be plain text")
        key = str(key_node.value)
        if key in result:
            raise InputError(f"{document.name}:{line}: key {key!r} stands twice; keep one")
        document.lines[(*path, key)] = line
        result[key] = _build(value_node, (*path, key), document, seen)
    return result


def _scalar(node: yaml.ScalarNode) -> Any:
    text = node.value
    if node.style in ("'", '"', "|", ">"):
        return text
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text) and len(text) <= _LONGEST_INT:
        return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return _SPECIAL.get(text, text)
