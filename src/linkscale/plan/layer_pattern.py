"""Lists of layers as Megatron's flags write them: ``([0]*3+[1]*58)``, and pipeline layouts as ``Et|(tt|)*30mL``.

Megatron evaluates the first as Python; here only lists of digits, sums, repeats and brackets are understood.
"""

from __future__ import annotations

import re

MOST = 10_000
"""Layers that a pattern may list."""
_DEEPEST = 16
_TOKEN = re.compile(r"\s*(\d{1,5}|[\[\](),+*])")
_REPEATED = re.compile(r"\(([^()]*)\)(?:\*(\d{1,4}))?")


def layer_pattern(text: str) -> list[int]:
    """Return the numbers that an expression lists; raise ValueError, with what would be right, for anything else.

    >>> layer_pattern("([0]*2+[1]*3)")
    [0, 0, 1, 1, 1]
    """
    tokens, at = [], 0
    while at < len(text.rstrip()):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(text[at : at + 20])
        tokens.append(found[1])
        at = found.end()
    reader = _Expression(tokens)
    numbers = reader.sum(0)
    if reader.at != len(tokens):
        raise ValueError("".join(tokens[reader.at :])[:20])
    return numbers


class _Expression:
    """The rules of the expression, each a method that moves on over what it read."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0

    def take(self, wanted: str) -> bool:
        """Move over a token, if it is next."""
        if self.at < len(self.tokens) and self.tokens[self.at] == wanted:
            self.at += 1
            return True
        return False

    def number(self) -> int:
        if self.at >= len(self.tokens) or not self.tokens[self.at].isdigit():
            raise ValueError("".join(self.tokens[self.at : self.at + 3]) or "its end")
        self.at += 1
        return int(self.tokens[self.at - 1])

    def sum(self, depth: int) -> list[int]:
        numbers = self.product(depth)
        while self.take("+"):
            numbers = numbers + self.product(depth)
            if len(numbers) > MOST:
                raise ValueError(f"more than {MOST} layers")
        return numbers

    def product(self, depth: int) -> list[int]:
        numbers = self.atom(depth)
        while self.take("*"):
            times = self.number()
            if len(numbers) * times > MOST:
                raise ValueError(f"more than {MOST} layers")
            numbers = numbers * times
        return numbers

    def atom(self, depth: int) -> list[int]:
        if depth > _DEEPEST:
            raise ValueError(f"brackets more than {_DEEPEST} deep")
        close = ")"
        if self.take("("):
            numbers = self.sum(depth + 1)
        elif self.take("["):
            close, numbers = "]", [self.number()]
            while self.take(","):
                numbers.append(self.number())
        else:
            raise ValueError("".join(self.tokens[self.at : self.at + 3]) or "its end")
        if not self.take(close):
            raise ValueError("an open bracket")
        return numbers


def layout_stages(text: str) -> int:
    """Return the stages of a pipeline layout: one more than its bars, repeats counted.

    >>> layout_stages("Et|(tt|)*30mL")
    32
    """
    bars = sum(part[1].count("|") * int(part[2] or 1) for part in _REPEATED.finditer(text))
    return bars + _REPEATED.sub("", text).count("|") + 1
