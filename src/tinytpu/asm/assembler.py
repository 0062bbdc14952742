"""TASM to bundles: statements, labels, names for numbers; errors with line and column (datasheet 8, 9).

It decides what a line is. How an instruction is written stands in the opcode table, what a bundle may hold in the
bundle's own check.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from kohakuaccel.diagnostics import EncodingRefusal, KohakuError, Refusal, SourceLine, did_you_mean
from kohakuaccel.isa.template import Misfit, Template
from kohakuaccel.machine import Machine
from tinytpu.asm import values
from tinytpu.bundle.content import MEMORIES, Bundle, Entry, numbered, payload
from tinytpu.isa import words
from tinytpu.isa.codes import SXU, Column, Record

_LABEL = re.compile(r"\s*([A-Za-z_]\w*)\s*:")
_NAME = re.compile(r"[A-Za-z_]\w*")
_WORDS = re.compile(r"\S+")
_TARGETED = re.compile(r"(\s*(?:SKIP_IF_PRED|SKIP_IF_NOT_PRED|LOOP_END))\s+([A-Za-z_]\w*)\s*", re.IGNORECASE)
_DATA = {kind: Template(f"{name}[{{slot}}]=", {}, ignore_case=True) for kind, name in MEMORIES.items()}
_OUTPUTS = {
    Record.MXU_RESULT: Template("OUTPUT_MXU{flag}", {"flag": r"(?:\s+\w+)?"}, ignore_case=True),
    Record.OUTPUT_VMEM: Template("OUTPUT_VMEM VMEM[{slot}]", {}, ignore_case=True),
    Record.OUTPUT_AMEM: Template("OUTPUT_ASRAM AMEM[{slot}]", {}, ignore_case=True),
}


@dataclass
class _Line:
    """A line being read: its text without comment, the position reached, and its place."""

    text: str
    at: int
    source: SourceLine

    @property
    def rest(self) -> str:
        return self.text[self.at :].strip()

    def place(self, position: int) -> SourceLine:
        return replace(self.source, column=position + 1)

    def skip_blanks(self) -> None:
        self.at += len(self.text[self.at :]) - len(self.text[self.at :].lstrip())


@dataclass
class _Assembler:
    machine: Machine
    names: dict[str, int] = field(default_factory=dict[str, int])
    labels: dict[str, int] = field(default_factory=dict[str, int])
    open_labels: list[tuple[str, SourceLine]] = field(default_factory=list[tuple[str, SourceLine]])
    targets: list[tuple[int, str, SourceLine]] = field(default_factory=list[tuple[int, str, SourceLine]])
    entries: list[Entry] = field(default_factory=list[Entry])
    program: list[list[int]] = field(default_factory=list[list[int]])
    ended: bool = False

    def number(self, text: str) -> int:
        """A number, or the one that a name of `.equ` stands for. Raises EncodingRefusal."""
        value = self.names.get(text, values.integer(text))
        if value is None:
            near = did_you_mean(text, self.names) if self.names else ""
            raise EncodingRefusal(f"neither a number nor a name of .equ{near}", where="number", got=repr(text))
        return value

    def number_at(self, line: _Line, text: str, position: int) -> int:
        try:
            return self.number(text)
        except EncodingRefusal as error:
            error.source = line.place(position)
            raise

    # lines

    def line(self, line: _Line) -> None:
        if found := _LABEL.match(line.text):
            self.label(found[1], line.place(found.start(1)))
            line.at = found.end()
        line.skip_blanks()
        if not line.rest:
            return
        if self.ended:
            raise Refusal("nothing follows END", where="TASM", got=repr(line.rest), source=line.place(line.at))
        head = re.match(r"[.\w]*", line.text[line.at :])
        word = head[0].upper() if head else ""
        if self.open_labels and (word in _STATEMENTS or word == ".EQU"):
            name, source = self.open_labels[0]
            raise Refusal("a label names an instruction", where=f"label {name}", got=word, source=source)
        if word == ".EQU":
            self.equ(line)
        elif word in _STATEMENTS:
            self.statement(word, line)
        else:
            self.instruction(line)

    def label(self, name: str, source: SourceLine) -> None:
        if name in self.labels or name in [known for known, _ in self.open_labels]:
            raise Refusal("a label is written once", where="label", got=name, source=source)
        self.open_labels.append((name, source))

    def equ(self, line: _Line) -> None:
        tokens = [(token[0], token.start()) for token in _WORDS.finditer(line.text, line.at)][1:]
        if len(tokens) != 2 or not _NAME.fullmatch(tokens[0][0]):
            raise EncodingRefusal(
                "the directive names a number", where=".equ", got=repr(line.rest), limit=".equ NAME int",
                source=line.place(line.at),
            )  # fmt: skip
        (name, at), (text, position) = tokens
        if name in self.names:
            raise EncodingRefusal("a name stands for one number", where=".equ", got=name, source=line.place(at))
        self.names[name] = self.number_at(line, text, position)

    def statement(self, word: str, line: _Line) -> None:
        if word == "END":
            if line.rest.upper() != "END":
                at = line.at + len("END")
                raise EncodingRefusal("END stands alone", where="TASM", got=repr(line.rest), source=line.place(at))
            self.ended = True
            return
        kind = _STATEMENTS[word]
        template = (_DATA | _OUTPUTS)[kind]
        match = template.match(line.text, line.at)
        if isinstance(match, Misfit):
            raise EncodingRefusal(
                "the statement is incomplete", where=word, got=repr(line.rest), limit=template.text,
                hint=f"{match.expected} is expected at {line.text[match.at :]!r}", source=line.place(match.at),
            )  # fmt: skip
        (text, position), *_ = match.values.values()
        first = self.number_at(line, text.strip(), position) if text else 1
        source = line.place(line.at)
        line.at = match.end
        rest = self.data(kind, line) if kind in MEMORIES else ()
        if kind in _OUTPUTS and line.rest:
            line.skip_blanks()
            raise EncodingRefusal(
                "nothing follows", where=word, got=repr(line.rest), limit=template.text, source=line.place(line.at)
            )
        self.entries.append(Entry(kind, (first, *rest), source))

    def data(self, kind: Record, line: _Line) -> tuple[int, ...]:
        found: list[int] = []
        for token in _WORDS.finditer(line.text, line.at):
            value = values.word(token[0]) if kind == Record.VMEM and token[0] not in self.names else None
            if isinstance(value, str):
                raise EncodingRefusal(
                    f"the value is {value}", where="VMEM", got=token[0], source=line.place(token.start())
                )
            found.append(self.number_at(line, token[0], token.start()) if value is None else value)
        wanted = payload(self.machine, kind) - 1
        if len(found) != wanted:
            raise EncodingRefusal(
                "a slot is filled whole", where=MEMORIES[kind], got=f"{len(found)} values", limit=wanted,
                source=line.place(line.at),
            )  # fmt: skip
        return tuple(found)

    def instruction(self, line: _Line) -> None:
        pc = len(self.program)
        text, source = line.text, line.place(line.at)
        if found := _TARGETED.fullmatch(text, line.at):
            self.targets.append((pc, found[2], line.place(found.start(2))))
            text = text[: found.end(1)]
        try:
            row = words.read(self.machine, text, start=line.at, source=source, numbers=self.number)
        except EncodingRefusal as error:
            if error.source is None and isinstance(error.got, str):  # from `number`, which knows no column
                error.source = line.place(max(text.find(error.got.strip("'"), line.at), line.at))
            raise
        for name, _ in self.open_labels:
            self.labels[name] = pc
        self.open_labels.clear()
        self.program.append(row)
        self.entries.append(Entry(Record.INSTRUCTION, tuple(row), source))

    # the whole

    def finish(self, last: SourceLine) -> Bundle:
        if self.open_labels:
            name, source = self.open_labels[0]
            raise Refusal("a label names an instruction", where=f"label {name}", got="the end", source=source)
        if not self.ended:
            raise Refusal("the text ends with END", where="TASM", got="the end of the text", source=last)
        for pc, name, source in self.targets:
            self.check_target(pc, name, source)
        return Bundle(tuple(self.entries), dict(self.labels))

    def check_target(self, pc: int, name: str, source: SourceLine) -> None:
        """The label behind a SKIP or LOOP_END is where it goes, which no bit of the word says."""
        code = SXU(self.program[pc][Column.OP])
        if name not in self.labels:
            raise Refusal(f"no label {name!r}{did_you_mean(name, self.labels)}", where=code.name, source=source)
        goes = self._body_of(pc) if code == SXU.LOOP_END else pc + 2
        if self.labels[name] != goes:
            raise Refusal(
                "the instruction goes elsewhere", where=f"pc {pc}, {code.name}",
                got=f"{name} at pc {self.labels[name]}", limit="no loop" if goes is None else f"pc {goes}",
                hint="a SKIP passes one instruction, a LOOP_END returns to the first one of its loop", source=source,
            )  # fmt: skip

    def _body_of(self, end: int) -> int | None:
        """The first instruction of the loop that the LOOP_END at `end` closes."""
        open_loops: list[int] = []
        for pc, row in enumerate(self.program[:end]):
            if row[Column.OP] == SXU.LOOP_BEGIN:
                open_loops.append(pc + 1)
            elif row[Column.OP] == SXU.LOOP_END and open_loops:
                open_loops.pop()
        return open_loops[-1] if open_loops else None


_STATEMENTS = {
    **{name: kind for kind, name in MEMORIES.items()},
    "OUTPUT_MXU": Record.MXU_RESULT,
    "OUTPUT_VMEM": Record.OUTPUT_VMEM,
    "OUTPUT_ASRAM": Record.OUTPUT_AMEM,
    "END": Record.END,
}


def assemble(text: str, machine: Machine, file: str = "tasm", *, check: bool = True) -> Bundle:
    """The bundle of a TASM text, with its labels; `file` names it in errors.

    check: refuse what the machine cannot take, too; without it only what is no TASM.
    Raises Refusal with line, column, place, value, limit and the way out.
    """
    work = _Assembler(machine)
    source = SourceLine(file, 1)
    with numbered():
        for number, raw in enumerate(text.splitlines(), 1):
            source = SourceLine(file, number, raw.strip())
            try:
                work.line(_Line(raw.partition("#")[0].rstrip(), 0, source))
            except KohakuError as error:
                if error.source is None:
                    error.source = source
                raise
        bundle = work.finish(source)
    if check:
        bundle.check(machine)
    return bundle
