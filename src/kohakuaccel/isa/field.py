"""One field of an instruction: where its bits are, which values it takes, how a value is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import DefinitionError, EncodingRefusal

Slice = tuple[int, int]


class Field:
    """A named field of at most 64 bits.

    slices:  (hi, lo) bit pairs or single bit numbers, most significant first: address bits 39:34 kept apart
             from 33:0 are `Field("addr", (68, 63), (251, 218))`.
    signed:  two's complement.
    values:  what may be encoded: None (whatever fits the bits), a range, or a mapping from the names used in
             text to values. Decoding is tolerant: it returns what the bits hold.
    default: what is encoded when a field is left out; without one, 0 or the lowest allowed value.
    style:   how numbers print: "d" decimal, "x" hexadecimal.
    """

    __slots__ = (
        "default",
        "doc",
        "high",
        "low",
        "name",
        "names",
        "signed",
        "slices",
        "style",
        "values",
        "width",
    )

    def __init__(
        self,
        name: str,
        *slices: Slice | int,
        signed: bool = False,
        default: int | None = None,
        values: range | Mapping[str, int] | None = None,
        style: str = "d",
        doc: str = "",
    ) -> None:
        self.name = name
        self.slices: tuple[Slice, ...] = tuple((s, s) if isinstance(s, int) else s for s in slices)
        self.signed = signed
        self.style = style
        self.doc = doc
        for hi, lo in self.slices:
            if not hi >= lo >= 0:
                raise DefinitionError("a slice is (hi, lo) with hi >= lo >= 0", where=f"field {name}", got=(hi, lo))
        self.width = sum(hi - lo + 1 for hi, lo in self.slices)
        if not 1 <= self.width <= 64:
            raise DefinitionError("a field has 1 to 64 bits", where=f"field {name}", got=self.width)
        self.low = -(1 << (self.width - 1)) if signed else 0
        self.high = (1 << (self.width - int(signed))) - 1
        self.names: dict[int, str] = {}
        self.values: range | dict[str, int] | None = values if isinstance(values, range) else None
        if isinstance(values, range):
            if not values or values.step != 1:
                raise DefinitionError("a value range is not empty and steps by 1", where=f"field {name}", got=values)
            edges = (values[0], values[-1])
            if edges[0] < self.low or edges[1] > self.high:
                raise DefinitionError(
                    "values do not fit the bits",
                    where=f"field {name}",
                    got=f"{edges[0]}..{edges[1]}",
                    limit=self.limit,
                )
            self.low, self.high = edges
        elif values is not None:
            self.values = {str(k): int(v) for k, v in values.items()}
            self.names = {v: k for k, v in self.values.items()}
            bad = [v for v in self.names if not self.low <= v <= self.high]
            if bad:
                raise DefinitionError("values do not fit the bits", where=f"field {name}", got=bad[0], limit=self.limit)
        self.default = (0 if self.allows(0) else min(self.names, default=self.low)) if default is None else default
        if not self.allows(self.default):
            raise DefinitionError("the default is not a value of the field", where=f"field {name}", got=default)

    def __repr__(self) -> str:
        bits = ",".join(f"{hi}:{lo}" for hi, lo in self.slices)
        return f"Field({self.name} [{bits}])"

    @property
    def limit(self) -> str:
        """The allowed values, as error texts show them."""
        if self.names:
            return "one of " + ", ".join(f"{name}={value}" for value, name in sorted(self.names.items()))
        kind = "signed" if self.signed else "unsigned"
        return f"{self.low}..{self.high} ({self.width} bits {kind})"

    @property
    def mask(self) -> int:
        """The field's bits as an integer."""
        return sum(((1 << (hi - lo + 1)) - 1) << lo for hi, lo in self.slices)

    def allows(self, value: int) -> bool:
        return value in self.names if self.names else self.low <= value <= self.high

    def excludes(self, other: Field) -> bool:
        """Whether no value is allowed by both fields."""
        if self.names and other.names:
            return self.names.keys().isdisjoint(other.names)
        if self.names:
            return not any(other.allows(value) for value in self.names)
        if other.names:
            return other.excludes(self)
        return self.high < other.low or other.high < self.low

    def refuse(self, value: Any, place: str, row: int | None = None) -> EncodingRefusal:
        where = f"{place}.{self.name}" if row is None else f"{place}[{row}].{self.name}"
        hint = self.doc and f"the field is: {self.doc}"
        return EncodingRefusal("value does not fit the field", where=where, got=value, limit=self.limit, hint=hint)

    def number(self, value: Any, place: str) -> int:
        """A value or one of the field's names as a checked integer."""
        if isinstance(value, str):
            if not isinstance(self.values, dict) or value not in self.values:
                raise self.refuse(repr(value), place)
            return self.values[value]
        if not isinstance(value, int | np.integer):
            raise self.refuse(f"{value!r} ({type(value).__name__})", place)
        number = int(value)
        if not self.allows(number):
            raise self.refuse(number, place)
        return number

    def put(self, value: int) -> int:
        """The field's bits, in place, for an in-range value."""
        word, left = 0, self.width
        bits = value & ((1 << self.width) - 1)
        for hi, lo in self.slices:
            size = hi - lo + 1
            left -= size
            word |= ((bits >> left) & ((1 << size) - 1)) << lo
        return word

    def get(self, word: int) -> int:
        """The value that `word` holds in this field."""
        value = 0
        for hi, lo in self.slices:
            size = hi - lo + 1
            value = value << size | ((word >> lo) & ((1 << size) - 1))
        if self.signed and value >> (self.width - 1):
            value -= 1 << self.width
        return value

    def parts(self) -> list[tuple[int, int, int, int]]:
        """(word, shift in the 64-bit word, bits, shift in the value) pieces, none across a 64-bit word."""
        pieces: list[tuple[int, int, int, int]] = []
        left = self.width
        for hi, lo in self.slices:
            left -= hi - lo + 1
            at = lo
            while at <= hi:
                end = min(hi, at | 63)
                pieces.append((at // 64, at % 64, end - at + 1, left + at - lo))
                at = end + 1
        return pieces

    def check_column(self, column: NDArray[np.int64], place: str) -> None:
        """Refuses the first value of int64[n] that the field does not take."""
        if column.size == 0:
            return
        if self.names:
            bad = ~np.isin(column, list(self.names))
        elif self.width == 64 and not self.signed:
            return  # an int64 column holds the 64 bits as they are
        else:
            if int(column.min()) >= self.low and int(column.max()) <= self.high:
                return
            bad = (column < self.low) | (column > self.high)
        if bad.any():
            row = int(bad.argmax())
            raise self.refuse(int(column[row]), place, row)

    def text(self, value: int) -> str:
        """A value as text: its name, or a number."""
        if value in self.names:
            return self.names[value]
        return hex(value) if self.style == "x" else str(value)

    def parse(self, text: str, place: str) -> int:
        """The reverse of `text`. Numbers out of the field's values are refused."""
        if isinstance(self.values, dict) and text in self.values:
            return self.values[text]
        try:
            number = int(text, 0)
        except ValueError:
            raise self.refuse(repr(text), place) from None
        return self.number(number, place)
