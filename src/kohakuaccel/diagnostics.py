"""The errors and warnings of the whole stack. The bottom layer: it imports nothing of ours.

Every refusal carries the same five facts (rule, where, got, limit, hint), so a caller can test for them and
a person can read them in one sentence: "<where>: <what> is <got>; the limit is <limit> (<rule>). <hint>".
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


def did_you_mean(name: str, known: Iterable[object]) -> str:
    """The end of an error about an unknown name: what is close to it, else what is known."""
    names = sorted(str(k) for k in known)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(names)}" if names else ""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the user's own program: file, 1-based line number, its text when it could be read, and the 1-based
    column where one is known (0: none)."""

    file: str
    line: int
    text: str = ""
    column: int = 0

    def __str__(self) -> str:
        column = f":{self.column}" if self.column else ""
        text = f": {self.text}" if self.text else ""
        return f"{self.file}:{self.line}{column}{text}"


class KohakuError(Exception):
    """Base of every error this project raises on purpose.

    rule:   the rule that was broken, in a few words ("FILL n fits the 8-bit stream count").
    where:  the place: a field, an instruction, a port, a unit.
    got:    the offending value.   limit: what the rule allows.   hint: the way out.
    source: the user's own line, where one is known.
    """

    def __init__(
        self,
        rule: str,
        *,
        where: str = "",
        got: object = None,
        limit: object = None,
        hint: str = "",
        source: SourceLine | None = None,
    ) -> None:
        self.rule = rule
        self.where = where
        self.got = got
        self.limit = limit
        self.hint = hint
        self.source = source
        super().__init__(self._text())

    def _text(self) -> str:
        parts = f"{self.where}: {self.rule}" if self.where else self.rule
        if self.got is not None:
            parts += f"; got {self.got}"
        if self.limit is not None:
            parts += f"; the limit is {self.limit}"
        if self.hint:
            parts += f". {self.hint[0].upper()}{self.hint[1:]}"
        if self.source is not None:
            parts += f"\n  at {self.source}"
        return parts

    def __str__(self) -> str:
        return self._text()


class Refusal(KohakuError, ValueError):
    """Something that cannot be right, refused before anything ran. Nothing was changed."""


class EncodingRefusal(Refusal):
    """A value that does not fit its instruction field."""


class DefinitionError(KohakuError, TypeError):
    """A format, field table or machine description that contradicts itself."""


class Unsupported(Refusal):
    """A lawful request that this machine or this version cannot serve."""


class OutOfMemory(Refusal, MemoryError):
    """A device memory that cannot hold what was asked; the text shows the memory map."""


class Fault(KohakuError, RuntimeError):
    """A unit stopped. `unit` names it, `index` is the instruction's number in its stream since the kick
    (-1 when none was executing), `disassembly` its text. Device memory keeps what was there."""

    def __init__(
        self,
        rule: str,
        *,
        unit: str,
        index: int = -1,
        disassembly: str = "",
        code: int | None = None,
        hint: str = "",
        source: SourceLine | None = None,
    ) -> None:
        self.unit = unit
        self.index = index
        self.disassembly = disassembly
        self.code = code
        place = unit if index < 0 else f"{unit}, instruction {index}"
        if disassembly:
            place += f" ({disassembly})"
        super().__init__(
            rule, where=place, got=None if code is None else f"fault {code:#04x}", hint=hint, source=source
        )


class Hang(Fault):
    """Nothing can make progress any more. `waits` says who waits for what, one entry per waiting party."""

    def __init__(self, waits: Iterable[str], *, unit: str = "machine", hint: str = "") -> None:
        self.waits = tuple(waits)
        super().__init__("nothing can make progress: " + "; ".join(self.waits), unit=unit, hint=hint)


class KohakuWarning(UserWarning):
    """Something counted that a user should see once."""
