"""A set of formats told apart by constant bits or by fields' values; assembler and disassembler from one syntax table.

A syntax is a template such as "VLD v{vd},A{ad}{off:+} {dtype}". Fields that the template does not show and
that do not hold the syntax's implied value print as `name=value` behind it, so every word has a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kohakuaccel.diagnostics import DefinitionError, EncodingRefusal, SourceLine, did_you_mean
from kohakuaccel.isa.field import Field
from kohakuaccel.isa.format import Format
from kohakuaccel.isa.template import OPERAND, Misfit, Operands, Template

Row = Mapping[str, int]
Numbers = Callable[[str], int | None]
"""Reads a number, or a name that stands for one; None where the text is neither."""
_EXTRA = re.compile(r"\s+(\w+)=(\S+)")
_HEAD = re.compile(r"[+\s]*([\w.]*)")
_TOKEN = re.compile(r"\S+")
_WORD = re.compile(r"[-\w]*")
_LISTED = 12  # names that an error lists; of more, it shows the nearest
_NUMBER = re.compile(r"-?\w+")
_COMMENT = re.compile(r"[;#].*$")
RAW = ".word"


@dataclass(frozen=True)
class Operand:
    """An operand written over several fields. show: field values -> (text, fields it covers);
    read: text matched by `pattern` -> field values, where it fits (else EncodingRefusal).
    numbers: names that stand for numbers are replaced by these before `read` sees the text."""

    pattern: str
    show: Callable[[Row], tuple[str, tuple[str, ...]]]
    read: Callable[[str], dict[str, int]]
    numbers: bool = False


@dataclass(frozen=True)
class Syntax:
    """One way to write an instruction. implied: values of fields the template does not show; a text names
    another field whose value it repeats. Fields neither shown nor implied have their default."""

    template: str
    implied: Mapping[str, int | str] = field(default_factory=dict[str, "int | str"])


@dataclass(frozen=True)
class _Written:
    """A text on its way to a word: where it stands, and how its numbers read."""

    text: str
    start: int
    source: SourceLine | None
    numbers: Numbers | None

    def at(self, position: int) -> SourceLine | None:
        return None if self.source is None else replace(self.source, column=position + 1)

    def refuse(self, rule: str, where: str, position: int, **facts: Any) -> EncodingRefusal:
        got = facts.pop("got", repr(self.text[self.start :].strip()))
        return EncodingRefusal(rule, where=where, got=got, source=self.at(position), **facts)

    def refuse_name(self, got: str, names: Mapping[str, int], where: str, position: int) -> EncodingRefusal:
        """Refuses a text that is none of the names of a field."""
        if len(names) > _LISTED:
            return self.refuse(f"no such value{did_you_mean(got.upper(), names)}", where, position, got=repr(got))
        listed = ", ".join(f"{name}={value}" for name, value in sorted(names.items(), key=lambda item: item[1]))
        rule = "value does not fit the field"
        return self.refuse(rule, where, position, got=repr(got), limit=f"one of {listed}")

    def value(self, item: Field, text: str, place: str, position: int) -> int:
        """A field's value from its text. Raises EncodingRefusal at the text's place."""
        number = None if self.numbers is None or text in item.names.values() else self.numbers(text)
        try:
            return item.parse(text, place) if number is None else item.number(number, place)
        except EncodingRefusal as error:
            error.source = self.at(position)
            raise

    def operand(self, operand: Operand, text: str, position: int) -> dict[str, int]:
        """Field values of an operand's text. Raises EncodingRefusal at the text's place."""

        def number(found: re.Match[str]) -> str:
            value = self.numbers(found[0]) if self.numbers else None
            return found[0] if value is None else str(value)

        try:
            return operand.read(_NUMBER.sub(number, text) if operand.numbers else text)
        except EncodingRefusal as error:
            error.source = self.at(position)
            raise


class InstructionSet:
    """Formats by mnemonic, all of one width; `opcode` is (hi, lo) of the opcode bits, constant in each.

    ignore_case: texts may be written in any case. raw: the format of a word that no syntax shows, which then prints as
    `.word` and the fields of `raw`; without it such a word prints whole, in hexadecimal. extras: whether fields that a
    syntax does not show print as `name=value`; where not, a word that needs them has no text but `.word`.
    """

    def __init__(
        self,
        name: str,
        opcode: tuple[int, int],
        formats: Mapping[str, Format],
        syntax: Mapping[str, Sequence[Syntax]] | None = None,
        operands: Mapping[str, Operand] | None = None,
        *,
        ignore_case: bool = False,
        raw: Format | None = None,
        extras: bool = True,
    ) -> None:
        self.name = name
        self.opcode = opcode
        self.formats = dict(formats)
        self.operands = dict(operands or {})
        self.ignore_case, self.raw, self.extras = ignore_case, raw, extras
        widths = {f.width for f in (*self.formats.values(), *((raw,) if raw else ()))}
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
                if not fmt.differs_from(self.formats[other]) and not self.formats[other].differs_from(fmt):
                    raise DefinitionError(f"cannot be told apart from {other}", where=f"{name}.{mnemonic}")
            self._by_code[code].append(mnemonic)
        self.syntax = {m: tuple((syntax or {}).get(m, ())) or (Syntax(m),) for m in self.formats}
        self._by_head: dict[str, list[tuple[str, Syntax, Template]]] = {}
        for mnemonic, table in self.syntax.items():
            for item in table:
                template = self._template(mnemonic, item)
                for head in dict.fromkeys((template.head, mnemonic)):
                    self._by_head.setdefault(self._fold(head), []).append((mnemonic, item, template))

    def __repr__(self) -> str:
        return f"<InstructionSet {self.name}: {len(self.formats)} instructions of {self.width} bits>"

    def _fold(self, text: str) -> str:
        return text.upper() if self.ignore_case else text

    @property
    def heads(self) -> tuple[str, ...]:
        """The first words of all syntaxes: what a line may begin with."""
        return tuple(dict.fromkeys(t.head.lstrip("+ ") for table in self._by_head.values() for _, _, t in table))

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
        """The mnemonic whose constant bits `word` has, preferably one that accepts all fields, or None."""
        code = (word >> self.opcode[1]) & ((1 << (self.opcode[0] - self.opcode[1] + 1)) - 1)
        fitting = [m for m in self._by_code.get(code, ()) if self.formats[m].matches(word)]
        return next((m for m in fitting if self.formats[m].accepts(word)), fitting[0] if fitting else None)

    def decode(self, word: int) -> tuple[str, dict[str, int]]:
        """(mnemonic, field values). Raises EncodingRefusal for a word of no instruction."""
        mnemonic = self.find(word)
        if mnemonic is None:
            raise EncodingRefusal("no instruction has this word", where=self.name, got=self._hex(word))
        return mnemonic, self.formats[mnemonic].decode(word)

    def _hex(self, word: int) -> str:
        return f"0x{word:0{-(-self.width // 4)}x}"

    # text

    def _template(self, mnemonic: str, syntax: Syntax) -> Template:
        named = {f.name: _names_pattern(f) for f in self.formats[mnemonic].fields if f.names}
        patterns = {**named, **{name: operand.pattern for name, operand in self.operands.items()}}
        template = Template(syntax.template, patterns, ignore_case=self.ignore_case)
        for name in template.names:
            if name not in self.operands and name not in self.formats[mnemonic].names:
                raise DefinitionError(f"the syntax shows no field {name!r}", where=f"{self.name}.{mnemonic}")
        return template

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

        text = OPERAND.sub(piece, syntax.template)
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
        if mnemonic is None or not self.formats[mnemonic].accepts(word):
            return self._raw_text(word)
        fmt = self.formats[mnemonic]
        values = fmt.decode(word)
        best = min((self._show(fmt, values, s) for s in self.syntax[mnemonic]), key=lambda shown: len(shown[1]))
        return self._raw_text(word) if best[1] and not self.extras else " ".join([best[0], *best[1]])

    def _raw_text(self, word: int) -> str:
        if self.raw is None:
            return f"{RAW} {self._hex(word)}"
        return " ".join([RAW, *(str(value) for value in self.raw.decode(word).values())])

    def parse(
        self, text: str, *, start: int = 0, source: SourceLine | None = None, numbers: Numbers | None = None
    ) -> int:
        """One instruction's text, from position `start` on, as a word.

        numbers: reads the operands that are numbers, before a field does. Raises EncodingRefusal, at the column of
        `source` where the text stops to fit.
        """
        written = _Written(text, start, source, numbers)
        head = _HEAD.match(text, start)
        word = head[1] if head else ""
        at = head.start(1) if head else start
        if self._fold(word) == self._fold(RAW):
            return self._parse_raw(written, at + len(RAW))
        found = self._by_head.get(self._fold(word)) or self._by_head.get(self._fold(f"+ {word}"))
        misfits: list[tuple[Misfit, str]] = []
        for mnemonic, syntax, template in found or ():
            match = template.match(text, start + len(text[start:]) - len(text[start:].lstrip()))
            if isinstance(match, Operands):
                extras = self._read_extras(written, match.end)
                if not isinstance(extras, Misfit):
                    return self._build(mnemonic, syntax, match, extras, written)
                match = extras
            misfits.append((match, mnemonic))
        if not found:
            rule = f"no instruction {text[at:].split(' ')[0]!r}{did_you_mean(self._fold(word), self.heads)}"
            raise written.refuse(rule, self.name, at)
        worst = max(misfit.at for misfit, _ in misfits)
        last = [(misfit, mnemonic) for misfit, mnemonic in misfits if misfit.at == worst]
        names: dict[str, int] = {}
        for misfit, mnemonic in last:
            if misfit.name in self.formats[mnemonic].names:
                names |= {name: value for value, name in self.formats[mnemonic][misfit.name].names.items()}
        if names:
            word = _WORD.match(text, worst)
            got = word[0] if word else text[worst:]
            place = f"{self.formats[last[0][1]].name}.{last[0][0].name}"
            raise written.refuse_name(got, names, place, worst)
        raise written.refuse(
            "the operands do not fit the instruction",
            self.name,
            worst,
            limit="; ".join(dict.fromkeys(template.text for _, _, template in found)),
            hint=f"{' or '.join(dict.fromkeys(m.expected for m, _ in last))} is expected at {text[worst:]!r}",
        )

    def _parse_raw(self, written: _Written, at: int) -> int:
        tokens = [(t[0], t.start()) for t in _TOKEN.finditer(written.text, at)]
        if self.raw is not None and len(tokens) == len(self.raw.fields):
            pairs = zip(self.raw.fields, tokens)
            return self.raw.encode(**{f.name: written.value(f, text, RAW, place) for f, (text, place) in pairs})
        if self.raw is None and len(tokens) == 1:
            try:
                word = int(tokens[0][0], 0)
            except ValueError:
                word = -1
            if 0 <= word < 1 << self.width:
                return word
        limit = " ".join(self.raw.names) if self.raw else f"{self.width} bits"
        raise written.refuse("not a word", self.name, at, limit=limit)

    def _read_extras(self, written: _Written, at: int) -> Misfit | dict[str, tuple[str, int]]:
        """What stands behind the template: `name=value` pairs."""
        extras: dict[str, tuple[str, int]] = {}
        while written.text[at:].strip():
            found = _EXTRA.match(written.text, at) if self.extras else None
            if found is None:
                return Misfit(at + len(written.text[at:]) - len(written.text[at:].lstrip()), "the end of the line")
            extras[found[1]] = found[2], found.start(1)
            at = found.end()
        return extras

    def _build(
        self, mnemonic: str, syntax: Syntax, match: Operands, extras: Mapping[str, tuple[str, int]], written: _Written
    ) -> int:
        fmt = self.formats[mnemonic]
        values: dict[str, int] = {}

        def put(name: str, value: int, position: int) -> None:
            if values.setdefault(name, value) != value:
                raise written.refuse(f"{name} is written twice", f"{self.name}.{mnemonic}", position)

        for name, (got, position) in match.values.items():
            if name in self.operands:
                for key, value in written.operand(self.operands[name], got, position).items():
                    put(key, value, position)
            elif got:
                put(name, written.value(fmt[name], self._spelt(fmt[name], got), fmt.name, position), position)
        for name, (got, position) in extras.items():
            put(name, written.value(fmt[name], got, fmt.name, position), position)
        for name, implied in syntax.implied.items():
            if name not in values:
                values[name] = values[implied] if isinstance(implied, str) else implied
        return fmt.encode(**values)

    def _spelt(self, item: Field, text: str) -> str:
        """A value's name as the field spells it, where case is free."""
        if not self.ignore_case:
            return text
        return next((name for name in item.names.values() if name.upper() == text.upper()), text)

    def disassemble(self, words: Iterable[int]) -> str:
        """A line per word."""
        return "\n".join(self.text(int(word)) for word in words)

    def assemble(self, text: str) -> list[int]:
        """Words of a text with one instruction a line; `;` and `#` open comments. Raises EncodingRefusal."""
        return [self.parse(line) for line in source_lines(text)]


def _names_pattern(item: Field) -> str:
    """A pattern for the names of a field, or a number."""
    names = "|".join(re.escape(name) for name in sorted(item.names.values(), key=len, reverse=True))
    return rf"(?:{names})(?!\w)|-?\d\w*"


def source_lines(text: str) -> list[str]:
    """Lines of an assembly text without comments and blanks."""
    lines = (_COMMENT.sub("", line).strip() for line in text.splitlines())
    return [line for line in lines if line]
