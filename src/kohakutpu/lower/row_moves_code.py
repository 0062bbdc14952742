"""The vector program of a move: pieces of rows assembled from lanes of other rows.

A strip whose lanes sit elsewhere in its words is read twice, one word apart, rotated, and merged under a lane mask;
strips behind one another overwrite each other from the last to the first under the vector length. It must not know
addresses. Words are of 16 elements: in FP32 each is two of L1, and what is assembled passes the core's E8M15.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kohakuaccel.diagnostics import SourceLine
from kohakuaccel.machine import Machine
from kohakutpu.isa import vector as isa
from kohakutpu.layouts import WORD_ELEMENTS, ceil_div
from kohakutpu.lower.vector_code import L1_DESCRIPTOR, SEL_K, SEL_V, Operand, VectorCode
from kohakutpu.lower.vector_stream import Dims

OUT, FIRST_FILL, PARTS, SPREAD = 1, 2, 5, 7
CHUNKS = 8  # words of a 128-element vector
FRONT = CHUNKS  # words in front of the strips: a strip that begins late in a chunk is read from before its start
MASKS = WORD_ELEMENTS  # words at the end that hold lane masks
ROWS = 8  # most rows that one RUN assembles
SCRATCH = 15  # the S register for numbers that have none of their own
ZERO, ONE = Operand(SEL_K, 0), Operand(SEL_K, 1)


@dataclass(frozen=True, slots=True)
class Part:
    """`count` elements from lane `lane` of a strip's first word on, placed at element `at` of the piece."""

    lane: int
    at: int
    count: int

    @property
    def words(self) -> int:
        """Words that are read for it."""
        return ceil_div(self.lane + self.count, WORD_ELEMENTS)

    @property
    def rotation(self) -> int:
        """Lanes that its elements move down."""
        return (self.lane - self.at) % WORD_ELEMENTS


@dataclass(frozen=True, slots=True)
class Recipe:
    """A piece of `words` words made of parts one behind another, zeros behind. plain: one part, moved whole."""

    parts: tuple[Part, ...]
    words: int
    plain: bool

    @property
    def elements(self) -> int:
        return sum(part.count for part in self.parts)


def whole_words(machine: Machine, source: SourceLine) -> VectorCode:
    """The routine (at 0) that moves what one walk gathers to where another scatters it."""
    code = VectorCode(machine, source)
    code.fill(FIRST_FILL, 0)
    code.emit("VBAR")
    code.drain(OUT, 0)
    code.emit("VHALT")
    return code


class SpliceCode:
    """Routines for some recipes. counts: rows per RUN of each; entries[recipe, rows]: for that many, and for one; size:
    L1 words of 16 elements (2 in FP32)."""

    def __init__(
        self, machine: Machine, source: SourceLine, recipes: Sequence[tuple[Recipe, int]], size: int = 1
    ) -> None:
        self.machine = machine
        self.size = size
        self.code = VectorCode(machine, source)
        self.counts = dict(recipes)
        self.entries: dict[tuple[Recipe, int], int] = {}
        self._vl = machine.params.vlmax
        self._masks_at = machine.params.vl1 - size * MASKS
        self._a, self._b, self._result = (self.code.take() for _ in range(3))
        self._mask_registers = [self.code.take() for _ in range(PARTS)]
        self._touched = 0
        self._open = True
        self.code.immediate(self._vl)
        for recipe, rows in recipes:
            for count in sorted({rows, 1}):
                self.entries[recipe, count] = self._routine(recipe, count)
        self._rotations = sorted({p.rotation for recipe, _ in recipes for p in recipe.parts} - {0})
        self._open = False
        self.prologue = self.code.prologue(self._vl, self._prepare)

    @staticmethod
    def rows(machine: Machine, recipe: Recipe, longest: int, size: int = 1) -> int:
        """Rows that one RUN may take: what L1 and the walks hold, a power of two, at most `longest`."""
        p = machine.params
        widest = max(recipe.words, *(part.words for part in recipe.parts))
        room = p.vl1 // size - MASKS - FRONT - CHUNKS - 1
        each = recipe.words + sum(q.words for q in recipe.parts)
        most = min(longest, ROWS, p.walk_max // size // widest, room // each)
        return 1 << (max(most, 1).bit_length() - 1)

    def walks(self) -> list[tuple[int, Dims]]:
        """(descriptor, dimensions in L1 words) the routines rely on."""
        return [(L1_DESCRIPTOR, ((self.size, self.machine.params.vl1 // self.size),)), (SPREAD, ((0, CHUNKS),))]

    # numbers beyond the S registers' constants are loaded where they are used

    def _number(self, value: int) -> int:
        if value in self.code._immediates or (self._open and self.code._next_s < SCRATCH):
            return self.code.immediate(value)
        self.code.words += isa.seti(SCRATCH, value)
        return SCRATCH

    def _set_vl(self, n: int) -> None:
        if self.code._vl != n:
            self.code.emit("VSETVL", va=self._number(n))
            self.code._vl = n

    def _load(self, vd: int, word: int, descriptor: int | None = None) -> None:
        self.code.load(vd, word, descriptor, self.size > 1)

    def _rotate(self, vd: int, va: int, lanes: int) -> None:
        self.code.emit("VSHUF", vd=vd, va=va, vb=self._number(lanes))

    # routines

    def _routine(self, recipe: Recipe, rows: int) -> int:
        code, size = self.code, self.size
        entry = code.begin(self._vl)
        places: list[int] = []
        at = size * FRONT
        for n, part in enumerate(recipe.parts):
            places.append(at)
            code.fill(FIRST_FILL + n, at)
            at += size * rows * part.words
        out = at
        self._touched = max(self._touched, out + size * max(rows * recipe.words, CHUNKS + 1))
        masks: dict[int, int] = {}
        for rotation in dict.fromkeys(p.rotation for p in recipe.parts if p.rotation):
            masks[rotation] = self._mask_registers[len(masks)]
            self._load(masks[rotation], self._masks_at + size * rotation, SPREAD)
        code.emit("VBAR")
        for r in range(rows):
            firsts = [place + size * r * part.words for place, part in zip(places, recipe.parts)]
            for chunk in range(0, recipe.words, CHUNKS):
                count = min(CHUNKS, recipe.words - chunk)
                self._chunk(recipe, firsts, masks, chunk, count)
                code.store(self._result, out + size * (r * recipe.words + chunk), wide=size > 1)
        code.drain(OUT, out)
        self._set_vl(self._vl)
        code.emit("VHALT")
        return entry

    def _chunk(self, recipe: Recipe, firsts: Sequence[int], masks: dict[int, int], chunk: int, count: int) -> None:
        """`count` words from word `chunk` on into the result register; VL covers them afterwards."""
        code, width, begin = self.code, WORD_ELEMENTS * count, WORD_ELEMENTS * chunk
        self._set_vl(width)
        fresh = True
        if recipe.elements < begin + width:
            code.move(self._result, ZERO)
            fresh = False
        for part, first in reversed(list(zip(recipe.parts, firsts))):
            if part.at >= begin + width or part.at + part.count <= begin:
                continue
            end = min(part.at + part.count - begin, width)
            place = first + self.size * ((begin - part.at + part.lane) // WORD_ELEMENTS)
            self._load(self._a, place)
            if part.rotation:
                self._load(self._b, place + self.size)
                self._rotate(self._a, self._a, part.rotation)
                self._rotate(self._b, self._b, part.rotation)
                mask = Operand(SEL_V, masks[part.rotation])
                code.alu("VSEL", self._a, Operand(SEL_V, self._a), Operand(SEL_V, self._b), mask)
            if not fresh:
                self._set_vl(end)
            code.move(self._result, Operand(SEL_V, self._a))
            self._set_vl(width)
            fresh = False

    def _prepare(self) -> None:
        """Zeros in every L1 word that may be read without having been filled (one never written is not read, datasheet
        6.3), and per rotation a word with 1.0 in the lanes that come from the first of two words."""
        code = self.code
        code.move(self._result, ZERO)
        for word in range(0, self._touched, self.size * CHUNKS):
            code.store(self._result, word, wide=self.size > 1)
        self._set_vl(WORD_ELEMENTS)
        for rotation in self._rotations:
            code.move(self._a, ZERO)
            self._set_vl(WORD_ELEMENTS - rotation)
            code.move(self._a, ONE)
            self._set_vl(WORD_ELEMENTS)
            code.store(self._a, self._masks_at + self.size * rotation, wide=self.size > 1)
        self._set_vl(self._vl)
