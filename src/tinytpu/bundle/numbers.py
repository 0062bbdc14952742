"""Bundle files: whitespace-separated decimal integers, `#` comments, line breaks without meaning (datasheet 2).

It decides which text is a list of records; what the records may say is the content's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kohakuaccel.diagnostics import EncodingRefusal, Refusal, SourceLine
from kohakuaccel.machine import Machine
from tinytpu.bundle.content import Bundle, Entry, numbered, payload
from tinytpu.isa.codes import Record

_TOKEN = re.compile(r"\S+")
_DECIMAL = re.compile(r"[+-]?[0-9]+")


def _tokens(text: str, file: str) -> Iterator[tuple[int, SourceLine]]:
    for number, line in enumerate(text.splitlines(), 1):
        for token in _TOKEN.finditer(line.partition("#")[0]):
            source = SourceLine(file, number, line.strip(), token.start() + 1)
            if not _DECIMAL.fullmatch(token[0]):
                raise EncodingRefusal("a bundle holds decimal integers", got=repr(token[0]), source=source)
            yield int(token[0]), source


def loads(text: str, machine: Machine, file: str = "bundle", *, check: bool = True) -> Bundle:
    """A bundle from its text; `file` names it in errors. Raises Refusal with the line, place, value and limit.

    check: refuse what the machine cannot take, too; without it only what is no list of records.
    """
    entries: list[Entry] = []
    with numbered():
        tokens = _tokens(text, file)
        ended: SourceLine | None = None
        last: SourceLine | None = None
        for kind, source in tokens:
            if ended is not None:
                raise Refusal("nothing follows END", where="bundle", got=kind, source=source)
            last = source
            if kind not in set(Record):
                raise EncodingRefusal("no such record", where="bundle", got=kind, limit=int(max(Record)), source=source)
            if kind == Record.END:
                ended = source
                continue
            entries.append(Entry(Record(kind), _values(machine, Record(kind), tokens, source), source))
        if ended is None:
            raise Refusal("a bundle ends with record 4", where="bundle", got="the end of the text", source=last)
    bundle = Bundle(tuple(entries))
    if check:
        bundle.check(machine)
    return bundle


def _values(
    machine: Machine, kind: Record, tokens: Iterator[tuple[int, SourceLine]], source: SourceLine
) -> tuple[int, ...]:
    count = payload(machine, kind)
    values = tuple(value for _, (value, _) in zip(range(count), tokens))
    if len(values) < count:
        rule = "a record holds all its numbers"
        raise Refusal(rule, where=f"{kind.name} record", got=f"{len(values)} numbers", limit=count, source=source)
    return values


def load(path: str | Path, machine: Machine) -> Bundle:
    """A bundle from a file, see loads."""
    return loads(Path(path).read_text(), machine, str(path))


def dump(bundle: Bundle) -> str:
    """The text of a bundle: a record a line. `loads` gives an equal bundle back."""
    lines = [" ".join(map(str, (int(entry.kind), *entry.values))) for entry in bundle.entries]
    return "\n".join([*lines, str(int(Record.END))]) + "\n"
