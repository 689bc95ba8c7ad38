"""Megatron-LM launch arguments: a shell script, a cut of its argument lines, or ``--flag: value`` YAML → flags as text.

Nothing is executed. Understood: arrays (``ARGS=( … )``), arguments kept in a quoted variable, comments, line
continuations, tabs, quotes, ``--flag value``, ``--flag=value``, ``--flag: value``, and ``$VAR``, ``${VAR}``,
``${VAR:-default}`` of variables that the text sets itself. What flags mean is not the reader's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from linkscale.base.errors import InputError
from linkscale.base.model import Model
from linkscale.base.text import read_text

MAX_BYTES = 1 << 20
MAX_EXPANSION = 1 << 16
MAX_DEPTH = 4

_TOKEN = re.compile(
    r"(?P<space>(?:[ \t\r\f\v]|\\\r?\n)+)"
    r"|(?P<newline>\n)"
    r"|(?P<comment>\#[^\n]*)"
    # A list of layers as YAML leaves it, unquoted; short, so that a run of brackets is not scanned again from each.
    r"|(?P<list>\((?=\({0,8}\[)[\d\[\]()*+, ]{1,400}\))"
    r"|(?P<operator>[;&|()<>]+)"
    r"|(?P<word>(?:\\.|\$\{[^}\n]*\}|\"(?:\\.|[^\"\\])*\"|'[^']*'|[^\s;&|()<>\\\"'])+)",
    re.DOTALL,
)
_PIECE = re.compile(r"\\(?P<escaped>.)|\"(?P<double>(?:\\.|[^\"\\])*)\"|'(?P<single>[^']*)'", re.DOTALL)
_FLAG = re.compile(r"--(?P<name>[A-Za-z][\w-]*)(?:[=:](?P<value>.*))?\Z", re.DOTALL)
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)\+?=(?P<value>.*)\Z", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?::?-(?P<default>[^}]*))?\})")
_HOLDS_FLAGS = re.compile(r"(?:\A|\s)--[A-Za-z]")


class Flag(Model, frozen=True):
    """One flag as written: dashes for underscores in its name, its values as text, and its line."""

    name: str
    values: tuple[str, ...]
    line: int


class MegatronArgs(Model, frozen=True):
    """The flags of a launch in the order given, and the variables that the text sets."""

    where: str
    flags: tuple[Flag, ...]
    variables: dict[str, str]

    def last(self) -> dict[str, Flag]:
        """Return the flags by name; where one is repeated the last counts, as for the program itself."""
        return {flag.name: flag for flag in self.flags}


def read_megatron(path: str | Path) -> MegatronArgs:
    """Read the arguments of a launch script; nothing in it is run."""
    return parse_megatron(read_text(path, MAX_BYTES), str(path))


def parse_megatron(text: str, where: str = "<text>") -> MegatronArgs:
    """Parse launch arguments from text; ``where`` names it in errors."""
    found = _Found(where)
    found.take(text, 1)
    if not found.flags:
        raise InputError(f"{where}: holds no --flags; the arguments of a Megatron-LM launch would be right")
    flags = tuple(Flag(name=name, values=tuple(values), line=line) for name, values, line in found.flags)
    return MegatronArgs(where=where, flags=flags, variables=found.variables)


@dataclass
class _Found:
    where: str
    flags: list[tuple[str, list[str], int]] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)

    def take(self, text: str, first_line: int, depth: int = 0) -> None:
        """Collect the flags and variables of a text; a flag's values end at the next flag, operator or assignment."""
        open_values: list[str] | None = None
        for word, line in _words(text, first_line, self.where):
            raw_flag = _FLAG.match(word)
            if not raw_flag:
                open_values = self._plain(word, line, depth, open_values)
                continue
            open_values = []
            value = raw_flag["value"]
            if value:
                open_values.append(self._expand(value, line))
            self.flags.append((raw_flag["name"].replace("_", "-"), open_values, line))

    def _plain(self, word: str, line: int, depth: int, open_values: list[str] | None) -> list[str] | None:
        assigned = _ASSIGNMENT.match(word)
        if word == "(":
            return None
        if assigned:
            self._assign(assigned["name"], self._expand(assigned["value"], line), line, depth)
            return None
        if open_values is not None and "[@]" not in word:
            open_values.append(self._expand(word, line))
        return open_values

    def _assign(self, name: str, value: str, line: int, depth: int) -> None:
        if _HOLDS_FLAGS.search(value):
            if depth >= MAX_DEPTH:
                raise InputError(f"{self.where}:{line}: variables nested more than {MAX_DEPTH} deep")
            self.take(value, line, depth + 1)
        else:
            self.variables[name] = value

    def _expand(self, word: str, line: int) -> str:
        """Remove quotes and put in the variables known so far; an unknown one stays as written."""
        out: list[str] = []
        end = 0
        for piece in _PIECE.finditer(word):
            out.append(self._substitute(word[end : piece.start()]))
            end = piece.end()
            out.append(self._piece(piece))
        out.append(self._substitute(word[end:]))
        text = "".join(out)
        if len(text) > MAX_EXPANSION:
            raise InputError(f"{self.where}:{line}: a value grows beyond {MAX_EXPANSION} characters")
        return text

    def _piece(self, piece: re.Match[str]) -> str:
        if piece["single"] is not None:
            return piece["single"]
        if piece["escaped"] is not None:
            return piece["escaped"]
        return self._substitute(re.sub(r"\\(\r?\n)", "", piece["double"]))

    def _substitute(self, text: str) -> str:
        def known(match: re.Match[str]) -> str:
            name = match["plain"] or match["braced"]
            default = match["default"]
            return self.variables.get(name) or (default if default is not None else match[0])

        return _VARIABLE.sub(known, text)


def _words(text: str, first_line: int, where: str) -> Iterator[tuple[str, int]]:
    """Yield words with their lines; every operator as ``(``, since each ends the values of a flag."""
    at, line = 0, first_line
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise InputError(f"{where}:{line}: an open quote or a lone backslash; close it")
        if match.lastgroup in ("word", "list"):
            yield match[0], line
        elif match.lastgroup == "operator":
            yield "(", line
        line += match[0].count("\n")
        at = match.end()
