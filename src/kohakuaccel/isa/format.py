"""A layout of fields in a word of any width: checked when it is built, then it encodes, decodes and prints.

Every bit of the word belongs to exactly one field or constant; a table of fields that forgets or repeats a
bit cannot be constructed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import DefinitionError, EncodingRefusal, did_you_mean
from kohakuaccel.isa.field import Field, Slice

EXTRACT_COLUMNS = 6  # see Format.extraction


class Format:
    """Fields in a `width`-bit word; `constants` are (hi, lo) slices with a fixed value (reserved bits are 0).

    Tables hold one instruction a row: int64[n, nfields] decoded, uint64[n, ceil(width/64)] encoded, word 0
    being bits 63:0. A 64-bit unsigned field's column holds its bits as int64.
    """

    def __init__(
        self,
        name: str,
        width: int,
        fields: Sequence[Field],
        constants: Mapping[Slice | int, int] | None = None,
    ) -> None:
        self.name = name
        self.width = width
        self.words = -(-width // 64)
        self.fields = tuple(fields)
        self.names = tuple(f.name for f in self.fields)
        self._columns = {name: i for i, name in enumerate(self.names)}
        if len(self._columns) != len(self.fields):
            twice = next(n for n in self.names if self.names.count(n) > 1)
            raise DefinitionError("two fields have one name", where=f"format {name}", got=twice)
        owner: list[str | None] = [None] * width
        self.constant = 0
        self.constant_mask = 0
        for slot, value in (constants or {}).items():
            hi, lo = (slot, slot) if isinstance(slot, int) else slot
            if value >> (hi - lo + 1):
                raise DefinitionError("a constant does not fit its bits", where=f"format {name} [{hi}:{lo}]", got=value)
            self.constant |= value << lo
            self.constant_mask |= ((1 << (hi - lo + 1)) - 1) << lo
            self._claim(owner, f"constant [{hi}:{lo}]", hi, lo)
        for field in self.fields:
            for hi, lo in field.slices:
                self._claim(owner, field.name, hi, lo)
        missing = [bit for bit in range(width) if owner[bit] is None]
        if missing:
            raise DefinitionError("bits without a field or constant", where=f"format {name}", got=_ranges(missing))
        self._base = self.constant
        for field in self.fields:
            self._base |= field.put(field.default)

    def _claim(self, owner: list[str | None], who: str, hi: int, lo: int) -> None:
        if hi >= self.width:
            raise DefinitionError(
                "a field reaches beyond the word",
                where=f"format {self.name}.{who}",
                got=f"bit {hi}",
                limit=self.width - 1,
            )
        for bit in range(lo, hi + 1):
            if owner[bit] is not None:
                raise DefinitionError(f"bit {bit} belongs to {owner[bit]} and to {who}", where=f"format {self.name}")
            owner[bit] = who

    def __repr__(self) -> str:
        return f"<Format {self.name}: {self.width} bits, {len(self.fields)} fields>"

    def __getitem__(self, name: str) -> Field:
        return self.fields[self.column(name)]

    def column(self, name: str) -> int:
        """The position of a field in decoded rows."""
        try:
            return self._columns[name]
        except KeyError:
            raise self._unknown(name) from None

    def _unknown(self, name: str) -> EncodingRefusal:
        return EncodingRefusal(f"no field {name!r}{did_you_mean(name, self.names)}", where=self.name)

    def position(self, name: str) -> tuple[int, int]:
        """(lowest bit, width) of a field that is one piece, for compiled loops that shift by hand."""
        field = self[name]
        if len(field.slices) != 1:
            raise DefinitionError("the field is in several pieces; use extraction()", where=f"{self.name}.{name}")
        return field.slices[0][1], field.width

    # one instruction

    def encode(self, /, **values: Any) -> int:
        """The word for `values` (numbers or the fields' names for them); fields left out take their default.

        Raises EncodingRefusal naming field, value and limit.
        """
        word = self._base
        for name, value in values.items():
            field = self.fields[self.column(name)]
            word = (word & ~field.mask) | field.put(field.number(value, self.name))
        return word

    def decode(self, word: int) -> dict[str, int]:
        """Field values of a word. Raises EncodingRefusal when constant bits differ."""
        if not 0 <= word < 1 << self.width:
            raise EncodingRefusal(
                "not a word of this width", where=self.name, got=hex(word), limit=f"{self.width} bits"
            )
        differing = (word ^ self.constant) & self.constant_mask
        if differing:
            bits = _ranges([b for b in range(self.width) if differing >> b & 1])
            raise EncodingRefusal(f"constant bits {bits} differ", where=self.name, got=hex(word))
        return {field.name: field.get(word) for field in self.fields}

    def matches(self, word: int) -> bool:
        """Whether a word's constant bits are this format's."""
        return not (word ^ self.constant) & self.constant_mask

    def accepts(self, word: int) -> bool:
        """Whether a word is one that `encode` could have made: constant bits and every field's value."""
        return self.matches(word) and all(f.allows(f.get(word)) for f in self.fields)

    def differs_from(self, other: Format) -> bool:
        """Whether no word is accepted by both: some bits are constant in both and differ, or a field's values are
        none of the other's."""
        if (self.constant ^ other.constant) & self.constant_mask & other.constant_mask:
            return True
        for mine in self.fields:
            if not mine.mask & ~other.constant_mask and not mine.allows(mine.get(other.constant)):
                return True
            for theirs in other.fields:
                if mine.slices == theirs.slices and mine.excludes(theirs):
                    return True
        return False

    # tables

    def encode_table(self, n: int, /, **columns: Any) -> NDArray[np.uint64]:
        """uint64[n, words] for n instructions; a column is a number, a name, or int64[n].

        Raises EncodingRefusal naming the first row that does not fit.
        """
        base = self._base
        arrays: list[tuple[Field, NDArray[np.int64]]] = []
        for name, value in columns.items():
            field = self.fields[self.column(name)]
            if isinstance(value, str | int | np.integer):
                base = (base & ~field.mask) | field.put(field.number(value, self.name))
                continue
            column = np.asarray(value)
            if column.shape != (n,) or column.dtype.kind not in "iub":
                got = f"{column.dtype}{list(column.shape)}"
                raise EncodingRefusal("a column is int64[n]", where=f"{self.name}.{name}", got=got, limit=f"int64[{n}]")
            column = column.astype(np.int64, copy=False)
            field.check_column(column, self.name)
            base &= ~field.mask
            arrays.append((field, column))
        table = np.empty((n, self.words), np.uint64)
        for word in range(self.words):
            table[:, word] = (base >> (64 * word)) & 0xFFFF_FFFF_FFFF_FFFF
        for field, column in arrays:
            bits = column.view(np.uint64)
            for word, shift, size, at in field.parts():
                piece = (bits >> np.uint64(at)) & np.uint64((1 << size) - 1)
                table[:, word] |= piece << np.uint64(shift)
        return table

    def encode_rows(self, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """uint64[n, words] from decoded rows int64[n, nfields]; the reverse of decode_table."""
        rows = np.asarray(rows, np.int64)
        return self.encode_table(len(rows), **{f.name: rows[:, i].copy() for i, f in enumerate(self.fields)})

    def decode_table(self, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """int64[n, nfields]. Raises EncodingRefusal for the first row whose constant bits differ."""
        words = np.asarray(words, np.uint64)
        if words.ndim != 2 or words.shape[1] != self.words:
            raise EncodingRefusal(
                "encoded tables are uint64[n, words]",
                where=self.name,
                got=list(words.shape),
                limit=f"[n, {self.words}]",
            )
        for word in range(self.words):
            mask = np.uint64((self.constant_mask >> (64 * word)) & 0xFFFF_FFFF_FFFF_FFFF)
            want = np.uint64((self.constant >> (64 * word)) & 0xFFFF_FFFF_FFFF_FFFF)
            bad = (words[:, word] & mask) != want
            if bad.any():
                row = int(bad.argmax())
                raise EncodingRefusal("constant bits differ", where=f"{self.name}[{row}]", got=self.hex(words[row]))
        rows = np.zeros((len(words), len(self.fields)), np.int64)
        for column, field in enumerate(self.fields):
            bits = np.zeros(len(words), np.uint64)
            for word, shift, size, at in field.parts():
                bits |= ((words[:, word] >> np.uint64(shift)) & np.uint64((1 << size) - 1)) << np.uint64(at)
            value = bits.view(np.int64)
            if field.signed and field.width < 64:
                sign = np.int64(1) << np.int64(field.width - 1)
                value = (value ^ sign) - sign
            rows[:, column] = value
        return rows

    def extraction(self) -> NDArray[np.int64]:
        """int64[pieces, 6] for kohakuaccel.isa.kernels.extract.

        Columns: field, word, shift in the word, bits, shift in the value, and on the last piece of a signed
        field its width (else 0).
        """
        rows: list[tuple[int, ...]] = []
        for column, field in enumerate(self.fields):
            pieces = field.parts()
            for i, (word, shift, size, at) in enumerate(pieces):
                sign = field.width if field.signed and i == len(pieces) - 1 else 0
                rows.append((column, word, shift, size, at, sign))
        return np.array(rows, np.int64).reshape(-1, EXTRACT_COLUMNS)

    # words in several shapes

    def to_words(self, word: int) -> NDArray[np.uint64]:
        """uint64[words] of one encoded integer."""
        return int_to_words(word, self.words)

    def hex(self, words: NDArray[np.uint64] | int) -> str:
        """All hexadecimal digits of a word."""
        value = words if isinstance(words, int) else words_to_int(words)
        return f"{value:0{-(-self.width // 4)}x}"

    # text

    def format_row(self, row: Sequence[int] | NDArray[np.int64] | Mapping[str, int], always: Iterable[str] = ()) -> str:
        """One instruction as text: `name=value` for every field off its default, and those in `always`.

        A first field with named values prints as a bare mnemonic, a set one-bit field as its bare name.
        """
        if isinstance(row, Mapping):
            row = [row[n] for n in self.names]
        keep = set(always)
        parts: list[str] = []
        for column, field in enumerate(self.fields):
            value = int(row[column])
            if column == 0 and value in field.names:
                parts.append(field.names[value])
            elif value == field.default and field.name not in keep:
                continue
            elif field.width == 1 and value == 1 and not field.names:
                parts.append(field.name)
            else:
                parts.append(f"{field.name}={field.text(value)}")
        return " ".join(parts) if parts else self.name

    def parse_row(self, text: str) -> list[int]:
        """The reverse of format_row: int per field. Raises EncodingRefusal."""
        row = [f.default for f in self.fields]
        written: set[str] = set()
        first = self.fields[0]
        for position, token in enumerate(text.split()):
            key, equals, value = token.partition("=")
            if position == 0 and not equals and key == self.name:
                continue
            if position == 0 and not equals and isinstance(first.values, dict) and key in first.values:
                name, number = first.name, first.values[key]
            elif key not in self._columns:
                raise self._unknown(key)
            else:
                name = key
                number = self[key].parse(value if equals or self[key].width > 1 else "1", self.name)
            if name in written:
                raise EncodingRefusal(f"{name} is written twice", where=self.name, got=repr(text))
            written.add(name)
            row[self._columns[name]] = number
        return row


def int_to_words(value: int, words: int) -> NDArray[np.uint64]:
    """uint64[words], word 0 lowest."""
    return np.frombuffer(value.to_bytes(8 * words, "little"), np.uint64).copy()


def words_to_int(words: NDArray[np.uint64]) -> int:
    """The integer of uint64[words], word 0 lowest."""
    return int.from_bytes(np.ascontiguousarray(words, "<u8").tobytes(), "little")


def _ranges(bits: list[int]) -> str:
    """Bit numbers as "[hi:lo]" runs, highest first."""
    runs: list[list[int]] = []
    for bit in sorted(bits, reverse=True):
        if runs and runs[-1][1] == bit + 1:
            runs[-1][1] = bit
        else:
            runs.append([bit, bit])
    return " ".join(f"[{hi}:{lo}]" for hi, lo in runs)
