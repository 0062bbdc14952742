"""Trace lines: `TRACE cycle=N unit=U ev=E [key=value]...`, written and strictly read (datasheet 16).

It decides what a line is; it knows no units and no events.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kohakuaccel.diagnostics import Refusal, SourceLine

_PAIR = re.compile(r"([A-Za-z_]\w*)=(\S+)")
_WORD = re.compile(r"\S+")
_HEAD = ("cycle", "unit", "ev")


@dataclass(frozen=True)
class Event:
    """Something that a unit did in a cycle. fields: what more is known, whole numbers or names."""

    cycle: int
    unit: str
    ev: str
    fields: Mapping[str, int | str] = field(default_factory=dict[str, "int | str"])

    def __str__(self) -> str:
        pairs = {"cycle": self.cycle, "unit": self.unit, "ev": self.ev, **self.fields}
        return " ".join(["TRACE", *(f"{key}={value}" for key, value in pairs.items())])


def dump(found: Iterable[Event]) -> str:
    """The text of a trace, a line per event."""
    return "".join(f"{event}\n" for event in found)


def parse(text: str, file: str = "trace") -> list[Event]:
    """The events of a trace's text. Raises Refusal with line and column for anything that is no trace line, for a key
    written twice, and for cycles that go back."""
    found: list[Event] = []
    for number, line in enumerate(text.splitlines(), 1):
        event = _event(line, SourceLine(file, number, line.strip()))
        if found and event.cycle < found[-1].cycle:
            rule = "events stand in the order of their cycles"
            raise _refuse(rule, SourceLine(file, number, line.strip(), 1), event.cycle, f"{found[-1].cycle} or later")
        found.append(event)
    return found


def _refuse(rule: str, source: SourceLine, got: object, limit: object = None) -> Refusal:
    return Refusal(rule, where=f"line {source.line}", got=got, limit=limit, source=source)


def _event(line: str, source: SourceLine) -> Event:
    words = [(word[0], word.start()) for word in _WORD.finditer(line)]

    def at(position: int) -> SourceLine:
        return SourceLine(source.file, source.line, source.text, position + 1)

    if not words or words[0][0] != "TRACE":
        raise _refuse("a trace line begins with TRACE", at(0), repr(line.strip()))
    pairs: dict[str, str] = {}
    for word, position in words[1:]:
        pair = _PAIR.fullmatch(word)
        if pair is None:
            raise _refuse("a word of a trace line is key=value", at(position), repr(word))
        if pair[1] in pairs:
            raise _refuse("a key is written once", at(position), pair[1])
        if len(pairs) < len(_HEAD) and pair[1] != _HEAD[len(pairs)]:
            raise _refuse("a trace line begins with cycle, unit and ev", at(position), pair[1], _HEAD[len(pairs)])
        pairs[pair[1]] = pair[2]
    if len(pairs) < len(_HEAD):
        raise _refuse("a trace line has cycle, unit and ev", at(len(line)), repr(line.strip()))
    if not pairs["cycle"].isdecimal():
        raise _refuse("a cycle is a whole number", at(words[1][1]), repr(pairs["cycle"]))
    fields = {key: int(v) if re.fullmatch(r"-?\d+", v) else v for key, v in pairs.items() if key not in _HEAD}
    return Event(int(pairs["cycle"]), pairs["unit"], pairs["ev"], fields)
