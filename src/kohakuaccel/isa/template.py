"""Templates of instruction text, such as "VLD v{vd},A{ad}{off:+} {dtype}", and text matched to them piece by piece.

It decides which text fits and where the first misfit is. It must not know fields, values or instructions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

OPERAND = re.compile(r"\{(\w+)(:\+)?\}")
_LITERAL = re.compile(r"\s+|\w+|[^\s\w]")
_FREE = "=,()[]"  # marks with blanks around them or without, as one likes
_AROUND = re.compile(rf"\s*([{re.escape(_FREE)}])\s*")
NUMBER = r"-?\w+"
SIGNED = r"(?:[+-]\w+)?"


class Piece(NamedTuple):
    """A part of a template: its pattern, the operand it reads (or None), and how an error calls it."""

    pattern: re.Pattern[str]
    name: str | None
    label: str


class Operands(NamedTuple):
    """What a text gave: operand -> (its text, its position), and where the matching ended."""

    values: dict[str, tuple[str, int]]
    end: int


class Misfit(NamedTuple):
    """Where a text stops to fit, what would have, and the operand that would have stood there, if it is one."""

    at: int
    expected: str
    name: str | None = None


@dataclass(frozen=True, init=False)
class Template:
    """A template ready to match. `patterns` are regular expressions of operands; other operands are numbers or names.

    A blank stands for blanks, the marks `= , ( ) [ ]` for themselves with or without blanks around; anything else is
    literal, its case free where `ignore_case` says so.
    """

    text: str
    pieces: tuple[Piece, ...]

    def __init__(self, text: str, patterns: Mapping[str, str], *, ignore_case: bool = False) -> None:
        pieces: list[Piece] = []
        flags = re.IGNORECASE if ignore_case else 0

        def literal(chunk: str) -> None:
            for token in _LITERAL.findall(chunk):
                if token.isspace():
                    pieces.append(Piece(re.compile(r"\s+"), None, "a blank"))
                else:
                    around = r"\s*" if token in _FREE else ""
                    pieces.append(Piece(re.compile(around + re.escape(token) + around, flags), None, repr(token)))

        plain, at = _AROUND.sub(r"\1", text), 0
        for found in OPERAND.finditer(plain):
            literal(plain[at : found.start()])
            at, name = found.end(), found[1]
            pattern = patterns.get(name, SIGNED if found[2] else NUMBER)
            pieces.append(Piece(re.compile(pattern, flags), name, name.strip("_")))
        literal(plain[at:])
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "pieces", tuple(pieces))

    @property
    def head(self) -> str:
        """The first word: the mnemonic."""
        return self.text.split(" ")[0]

    @property
    def names(self) -> tuple[str, ...]:
        """The operands, in order."""
        return tuple(p.name for p in self.pieces if p.name is not None)

    def match(self, text: str, start: int = 0) -> Operands | Misfit:
        """The operands of `text` from `start` on, or where it does not fit. What follows is not looked at."""
        at = start
        values: dict[str, tuple[str, int]] = {}
        for pattern, name, label in self.pieces:
            found = pattern.match(text, at)
            if found is None:
                blanks = len(text) - at - len(text[at:].lstrip())
                return Misfit(at + blanks, label, name)
            if name is not None:
                values[name] = (found[0], found.start())
            at = found.end()
        return Operands(values, at)
