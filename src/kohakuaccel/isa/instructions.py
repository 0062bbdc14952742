"""A set of formats told apart by constant bits; assembler and disassembler from one syntax table.

A syntax is a template such as "VLD v{vd},A{ad}{off:+} {dtype}". Fields that the template does not show and
that do not hold the syntax's implied value print as `name=value` behind it, so every word has a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kohakuaccel.diagnostics import DefinitionError, EncodingRefusal, did_you_mean
from kohakuaccel.isa.format import Format

Row = Mapping[str, int]
_PIECE = re.compile(r"\{(\w+)(:\+)?\}")
_EXTRA = re.compile(r"\s+(\w+)=(\S+)$")
_COMMENT = re.compile(r"[;#].*$")


@dataclass(frozen=True)
class Operand:
    """An operand written over several fields. show: field values -> (text, fields it covers);
    read: text matched by `pattern` -> field values."""

    pattern: str
    show: Callable[[Row], tuple[str, tuple[str, ...]]]
    read: Callable[[str], dict[str, int]]


@dataclass(frozen=True)
class Syntax:
    """One way to write an instruction. implied: values of fields the template does not show; a text names
    another field whose value it repeats. Fields neither shown nor implied have their default."""

    template: str
    implied: Mapping[str, int | str] = field(default_factory=dict[str, "int | str"])


class InstructionSet:
    """Formats by mnemonic, all of one width; `opcode` is (hi, lo) of the opcode bits, constant in each."""

    def __init__(
        self,
        name: str,
        opcode: tuple[int, int],
        formats: Mapping[str, Format],
        syntax: Mapping[str, Sequence[Syntax]] | None = None,
        operands: Mapping[str, Operand] | None = None,
    ) -> None:
        self.name = name
        self.opcode = opcode
        self.formats = dict(formats)
        self.operands = dict(operands or {})
        widths = {f.width for f in self.formats.values()}
        if len(widths) != 1:
            raise DefinitionError("the formats of a set have one width", where=name, got=sorted(widths))
        self.width = widths.pop()
        hi, lo = opcode
        mask = ((1 << (hi - lo + 1)) - 1) << lo
        self._by_code: dict[int, list[str]] = {}
        self.codes: dict[str, int] = {}
        for mnemonic, fmt in self.formats.items():
            if fmt.constant_mask & mask != mask:
                raise DefinitionError(f"opcode bits [{hi}:{lo}] are not constant", where=f"{name}.{mnemonic}")
            self.codes[mnemonic] = code = (fmt.constant & mask) >> lo
            for other in self._by_code.setdefault(code, []):
                theirs = self.formats[other]
                if not (fmt.constant ^ theirs.constant) & fmt.constant_mask & theirs.constant_mask:
                    raise DefinitionError(f"cannot be told apart from {other}", where=f"{name}.{mnemonic}")
            self._by_code[code].append(mnemonic)
        self.syntax = {m: tuple((syntax or {}).get(m, ())) or (Syntax(m),) for m in self.formats}
        self._patterns = {m: [self._pattern(m, s) for s in table] for m, table in self.syntax.items()}

    def __repr__(self) -> str:
        return f"<InstructionSet {self.name}: {len(self.formats)} instructions of {self.width} bits>"

    def format(self, mnemonic: str) -> Format:
        try:
            return self.formats[mnemonic]
        except KeyError:
            hint = did_you_mean(mnemonic, self.formats)
            raise EncodingRefusal(f"no instruction {mnemonic!r}{hint}", where=self.name) from None

    def columns(self, opcode: int | str) -> tuple[str, ...]:
        """Field names of an instruction, given by mnemonic or opcode (the first format of that opcode)."""
        return self.format(opcode if isinstance(opcode, str) else self._named(opcode)[0]).names

    def _named(self, code: int) -> list[str]:
        try:
            return self._by_code[code]
        except KeyError:
            raise EncodingRefusal("no such opcode", where=self.name, got=hex(code)) from None

    def encode(self, mnemonic: str, /, **values: Any) -> int:
        return self.format(mnemonic).encode(**values)

    def find(self, word: int) -> str | None:
        """The mnemonic whose constant bits `word` has, or None."""
        code = (word >> self.opcode[1]) & ((1 << (self.opcode[0] - self.opcode[1] + 1)) - 1)
        return next((m for m in self._by_code.get(code, ()) if self.formats[m].matches(word)), None)

    def decode(self, word: int) -> tuple[str, dict[str, int]]:
        """(mnemonic, field values). Raises EncodingRefusal for a word of no instruction."""
        mnemonic = self.find(word)
        if mnemonic is None:
            raise EncodingRefusal("no instruction has this word", where=self.name, got=self._hex(word))
        return mnemonic, self.formats[mnemonic].decode(word)

    def _hex(self, word: int) -> str:
        return f"0x{word:0{-(-self.width // 4)}x}"

    # text

    def _pattern(self, mnemonic: str, syntax: Syntax) -> re.Pattern[str]:
        fmt, out, at = self.formats[mnemonic], "", 0
        for piece in _PIECE.finditer(syntax.template):
            out += _literal(syntax.template[at : piece.start()])
            at = piece.end()
            name = piece[1]
            if name in self.operands:
                out += f"(?P<{name}>{self.operands[name].pattern})"
            elif name not in fmt.names:
                raise DefinitionError(f"the syntax shows no field {name!r}", where=f"{self.name}.{mnemonic}")
            elif piece[2]:
                out += rf"(?P<{name}>[+-]\w+)?"
            else:
                out += rf"(?P<{name}>-?\w+)"
        return re.compile(out + _literal(syntax.template[at:]))

    def _show(self, fmt: Format, values: Row, syntax: Syntax) -> tuple[str, list[str]]:
        shown: set[str] = set()

        def piece(found: re.Match[str]) -> str:
            name = found[1]
            if name in self.operands:
                text, covered = self.operands[name].show(values)
                shown.update(covered)
                return text
            shown.add(name)
            if found[2]:
                return f"{values[name]:+d}" if values[name] else ""
            return fmt[name].text(values[name])

        text = _PIECE.sub(piece, syntax.template)
        extras: list[str] = []
        for item in fmt.fields:
            implied = syntax.implied.get(item.name, item.default)
            wanted = values[implied] if isinstance(implied, str) else implied
            if item.name not in shown and values[item.name] != wanted:
                extras.append(f"{item.name}={item.text(values[item.name])}")
        return text, extras

    def text(self, word: int) -> str:
        """One word as text: its instruction, or `.word` when no encoder would write it."""
        mnemonic = self.find(word)
        if mnemonic is None:
            return f".word {self._hex(word)}"
        fmt = self.formats[mnemonic]
        values = fmt.decode(word)
        if not all(f.allows(values[f.name]) for f in fmt.fields):
            return f".word {self._hex(word)}"
        best = min((self._show(fmt, values, s) for s in self.syntax[mnemonic]), key=lambda shown: len(shown[1]))
        return " ".join([best[0], *best[1]])

    def parse(self, text: str) -> int:
        """One instruction's text as a word. Raises EncodingRefusal."""
        line = text.strip()
        if line.startswith(".word"):
            try:
                word = int(line[5:].strip(), 0)
            except ValueError:
                word = -1
            if not 0 <= word < 1 << self.width:
                raise EncodingRefusal("not a word", where=self.name, got=repr(text), limit=f"{self.width} bits")
            return word
        extras: dict[str, str] = {}
        while found := _EXTRA.search(line):
            extras[found[1]] = found[2]
            line = line[: found.start()]
        head = line.lstrip("+ ").split(" ")[0] if line else ""
        candidates = [m for m in self.formats if m == head or self.syntax[m][0].template.split(" ")[0] == head]
        if not candidates:
            known = {s.template.split(" ")[0] for table in self.syntax.values() for s in table}
            raise EncodingRefusal(
                f"no instruction {head!r}{did_you_mean(head, known)}", where=self.name, got=repr(text)
            )
        for mnemonic in candidates:
            for syntax, pattern in zip(self.syntax[mnemonic], self._patterns[mnemonic]):
                match = pattern.fullmatch(line)
                if match:
                    return self._build(mnemonic, syntax, match, extras, text)
        ways = "; ".join(s.template for m in candidates for s in self.syntax[m])
        raise EncodingRefusal("the operands do not fit the instruction", where=self.name, got=repr(text), limit=ways)

    def _build(self, mnemonic: str, syntax: Syntax, match: re.Match[str], extras: Mapping[str, str], text: str) -> int:
        fmt = self.formats[mnemonic]
        values: dict[str, int] = {}

        def put(name: str, value: int) -> None:
            if values.setdefault(name, value) != value:
                raise EncodingRefusal(f"{name} is written twice", where=f"{self.name}.{mnemonic}", got=repr(text))

        for name, got in match.groupdict().items():
            if name in self.operands:
                for key, value in self.operands[name].read(got or "").items():
                    put(key, value)
            elif got:
                put(name, fmt[name].parse(got, mnemonic))
        for name, got in extras.items():
            put(name, fmt[name].parse(got, mnemonic))
        for name, implied in syntax.implied.items():
            if name not in values:
                values[name] = values[implied] if isinstance(implied, str) else implied
        return fmt.encode(**values)

    def disassemble(self, words: Iterable[int]) -> str:
        """A line per word."""
        return "\n".join(self.text(int(word)) for word in words)

    def assemble(self, text: str) -> list[int]:
        """Words of a text with one instruction a line; `;` and `#` open comments. Raises EncodingRefusal."""
        return [self.parse(line) for line in source_lines(text)]


def source_lines(text: str) -> list[str]:
    """Lines of an assembly text without comments and blanks."""
    lines = (_COMMENT.sub("", line).strip() for line in text.splitlines())
    return [line for line in lines if line]


def _literal(text: str) -> str:
    """A template's literal text as a pattern in which blanks and the space after commas are free."""
    return "".join(r"\s*,\s*" if c == "," else r"\s+" if c == " " else re.escape(c) for c in text)
