"""Tile code: a straight line of instructions over values, each a tile of lanes, before registers and slots exist.

Decides what an instruction of it is and that equal ones are made once. It must not know expressions, number formats,
registers or addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tinytpu.isa.codes import VPU
from tinytpu.isa.vpu import VPU_OPS


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tile that the host fills from data plan `data`: for the unit's tile and step of a fold, None where it is the
    same for all of them."""

    data: int
    tile: int | None
    step: int | None


@dataclass(frozen=True, slots=True)
class Fill:
    """A tile of one word, as an unsigned number."""

    bits: int

    @property
    def immediate(self) -> int | None:
        """The number as VFILL takes it, or None where it does not fit."""
        signed = self.bits - (1 << 32) if self.bits >> 31 else self.bits
        return signed if -128 <= signed < 128 else None


@dataclass(frozen=True, slots=True)
class Carry:
    """A value that an earlier program of the same unit left with the host."""

    value: int


@dataclass(frozen=True, slots=True)
class Pool:
    """A tile of several words, each of which is moved to all lanes where it is wanted: unsigned numbers, by lane."""

    words: tuple[int, ...]


Source = Leaf | Fill | Carry | Pool
"""What a value is that no instruction of the code makes."""


@dataclass(frozen=True, slots=True)
class Result:
    """Where an output tile goes: output `number` of the stage, for the unit's tile; of an output that has several terms
    an element, at a step."""

    number: int
    tile: int
    step: int = 0


Place = Result | Carry


TOUCH = "TOUCH"
"""The form of a line that makes nothing: what it reads is in a register from there on."""


@dataclass(frozen=True, slots=True)
class Line:
    """An instruction: its form (as `isa.words.row_of` takes it), the value it makes, the values it reads by field, and
    all other fields. A STORE that is an output has its place."""

    form: str
    dst: int | None
    sources: tuple[tuple[str, int], ...]
    fields: tuple[tuple[str, int | str], ...] = ()
    place: Place | None = None

    def reads(self) -> Iterator[int]:
        for _, value in self.sources:
            yield value


@dataclass
class Code:
    """A straight line of instructions. given: the values that no line makes."""

    lines: list[Line] = field(default_factory=list[Line])
    given: dict[int, Source] = field(default_factory=dict[int, Source])
    _known: dict[object, int] = field(default_factory=dict[object, int])
    _count: int = 0

    def _new(self) -> int:
        self._count += 1
        return self._count - 1

    def source(self, what: Source) -> int:
        """The value of a leaf, a fill or a carry."""
        if what not in self._known:
            self._known[what] = self._new()
            self.given[self._known[what]] = what
        return self._known[what]

    def fill(self, number: int) -> int:
        """Every lane holds `number`, modulo 2**32."""
        return self.source(Fill(number & 0xFFFFFFFF))

    def constant(self, value: int) -> int | None:
        """The word that every lane of a value holds, where that is known."""
        found = self.given.get(value)
        return found.bits if isinstance(found, Fill) else None

    def until(self, lines: int, values: int) -> Code:
        """The code as it was when it had so many lines and values, to be read only."""
        return Code(self.lines[:lines], {v: s for v, s in self.given.items() if v < values}, {}, values)

    @property
    def size(self) -> tuple[int, int]:
        """How many lines and values it has, see `until`."""
        return len(self.lines), self._count

    def emit(self, form: str, sources: Mapping[str, int], fields: Mapping[str, int | str] | None = None) -> int:
        """An instruction without effects besides its value; an equal one is not made again."""
        line = (form, tuple(sources.items()), tuple((fields or {}).items()))
        if line not in self._known:
            self._known[line] = self._new()
            self.lines.append(Line(form, self._known[line], line[1], line[2]))
        return self._known[line]

    def effect(self, form: str, sources: Mapping[str, int], fields: Mapping[str, int | str], *, made: bool) -> int:
        """An instruction that is kept in its place and made each time; returns its value, -1 where it makes none."""
        value = self._new() if made else -1
        self.lines.append(Line(form, value if made else None, tuple(sources.items()), tuple(fields.items())))
        return value

    def vpu(self, code: VPU, a: int, b: int | None = None) -> int:
        """An operation of the vector unit."""
        if VPU_OPS[code].operands == 1:
            return self.emit("VPU.1", {"src": a}, {"vpu": code.name})
        assert b is not None
        return self.emit("VPU.2", {"src": a, "src2": b}, {"vpu": code.name})

    def select(self, condition: int, true: int, false: int) -> int:
        """Lane by lane: `true` where the condition is not 0."""
        return self.emit("SELECT", {"src": condition, "src2": true, "wbase": false})

    def unary(self, form: str, a: int) -> int:
        """VNEG, VABS, TRANSPOSE: an instruction of the sequencer with one vreg operand."""
        return self.emit(form, {"src": a})

    def store(self, value: int, place: Place) -> None:
        """An output."""
        self.lines.append(Line("STORE", None, (("src", value),), (), place))

    def live(self) -> list[Line]:
        """The lines that an output or an effect needs, in order."""
        needed: set[int] = set()
        kept: list[Line] = []
        for line in reversed(self.lines):
            if line.dst is None or line.dst in needed:
                needed.update(line.reads())
                kept.append(line)
        return kept[::-1]
