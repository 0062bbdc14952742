"""The vector program of a relayout: which shuffles and selects turn L1 words of one order into another.

All element motion is one step: four words, cut into 4 groups of lanes, are transposed as a 4x4 matrix of groups, in two
swaps of rotated words under a lane mask. Groups of 4 lanes turn sub-tiles into rows and back; groups of 4 and then of 1
transpose 16x16 blocks. It must not know addresses or how pieces are dealt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kohakuaccel.diagnostics import SourceLine
from kohakuaccel.machine import Machine
from kohakutpu.isa import vector as isa
from kohakutpu.layouts import LANES, WORD_ELEMENTS
from kohakutpu.lower.relayout_walks import GROUP_WORDS, SLACK, Limits, Motion, Part
from kohakutpu.lower.vector_code import L1_DESCRIPTOR, SEL_K, SEL_V, Operand, VectorCode
from kohakutpu.lower.vector_stream import Dims

FP32 = int(isa.DTYPE.FP32)
FILL, DRAIN, FIRST, SECOND, THIRD, TAIL, SPREAD = 1, 2, 3, 4, 5, 6, 7
CHUNKS = 8  # words of a 128-element vector
ZERO, ONE = Operand(SEL_K, 0), Operand(SEL_K, 1)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the words of blocks lie in L1: word = base + inner*i + across*q + down*g + member*j."""

    base: int
    inner: int
    across: int
    down: int
    member: int

    def word(self, g: int, q: int, j: int) -> int:
        return self.base + g * self.down + q * self.across + j * self.member


def blocks(motion: Motion) -> tuple[int, int, int]:
    """(inner, across, down): words that one register takes along each direction; their product is at most 8."""
    inner = LANES if motion.kind == "turn" else 1
    across = min(CHUNKS // inner, motion.across)
    return inner, across, CHUNKS // inner // across if across == motion.across else 1


def places(motion: Motion, half: int) -> tuple[tuple[int, Place], ...]:
    """(descriptor, place) of each walk that a kind of motion uses."""
    n, q = motion.down, motion.across
    if motion.kind == "untile":
        return (FIRST, Place(0, 0, GROUP_WORDS, motion.pitch, 1)), (SECOND, Place(half, 0, 1, LANES * q, q))
    if motion.kind == "tile":
        return (FIRST, Place(0, 0, 1, LANES * q, q)), (SECOND, Place(half, 0, GROUP_WORDS, motion.pitch, 1))
    if motion.kind == "turn":
        return (
            (FIRST, Place(0, q, 1, 16 * q, 4 * q)),
            (SECOND, Place(0, 4 * q, 1, 16 * q, q)),
            (THIRD, Place(half, 4 * n, 16 * n, 1, n)),
        )
    return ()


PROLOGUE_WALKS: tuple[tuple[int, Dims], ...] = ((SPREAD, ((0, 1),)), (FIRST, ((2, CHUNKS),)))


def walks(motion: Motion, half: int) -> list[tuple[int, Dims]]:
    """(descriptor, dimensions in L1 words) that a part needs beside fill and drain."""
    inner, across, down = blocks(motion) if motion.kind in ("untile", "tile", "turn") else (1, 1, 1)
    found: list[tuple[int, Dims]] = [
        (d, ((p.inner, inner), (p.across, across), (p.down, down))) for d, p in places(motion, half)
    ]
    if motion.tail:
        found.append((TAIL, ((motion.across, CHUNKS),)))
    return found


class RelayoutCode:
    """Routines of all kinds of motion in a plan; every routine is entered with VL = 128.

    entries[motion] = (entry, entry behind the fill): a part that clears rows runs `fill`, a clearing, then the second.
    """

    def __init__(self, machine: Machine, source: SourceLine, parts: Sequence[Part], cols: int, limits: Limits) -> None:
        self.code = VectorCode(machine, source)
        self.half = limits.half
        self._touched = 0
        self._vl = machine.params.vlmax
        motions = list(dict.fromkeys(part.motion for part in parts))
        kinds = {motion.kind for motion in motions}
        masks = {"untile": (8, 4), "tile": (8, 4), "turn": (8, 4, 2, 1)}
        distances = sorted({d for kind in kinds for d in masks.get(kind, ())}, reverse=True)
        self._masks = {d: self.code.take() for d in distances}
        if distances or "tail" in kinds:
            self._touched = min(limits.piece + SLACK, machine.params.vl1)
        self._lanes = cols % WORD_ELEMENTS if "tail" in kinds or any(motion.tail for motion in motions) else 0
        clears = {part.clear for part in parts if part.clear[1]}
        self._zero = self.code.take() if "zero" in kinds or clears else -1
        self._temporary = [self.code.take() for _ in range(8 if distances else 2)]
        self.entries: dict[Motion, tuple[int, int]] = {}
        self.clearing = {clear: self._clearing(*clear) for clear in sorted(clears)}
        self.fill = self._fill() if clears else -1
        self.zeros = -1
        if "zero" in kinds:
            self.zeros = self._clearing(0, max(part.words for part in parts if part.motion.kind == "zero"))
        for motion in motions:
            self.entries[motion] = self._routine(motion, [part for part in parts if part.motion == motion])
        for value in (*distances, *(WORD_ELEMENTS - d for d in distances), WORD_ELEMENTS, self._lanes):
            if value:
                self.code.immediate(value)
        self.prologue = self.code.prologue(self._vl, self._prepare)

    def _fill(self) -> int:
        entry = self.code.begin(self._vl)
        self.code.fill(FILL, 0)
        self.code.emit("VHALT")
        return entry

    def _clearing(self, first: int, count: int) -> int:
        """A routine that zeroes L1 words (rounded up to whole vectors)."""
        entry = self.code.begin(self._vl)
        for word in range(first, first + count, CHUNKS):
            self.code.store(self._zero, word)
        self.code.emit("VHALT")
        return entry

    def _routine(self, motion: Motion, parts: Sequence[Part]) -> tuple[int, int]:
        code = self.code
        entry = code.begin(self._vl)
        if motion.kind != "zero":
            code.fill(FILL, 0)
            code.emit("VBAR")
        behind = code.pc
        result = 0
        if motion.kind == "tail":
            self._clear_tail(L1_DESCRIPTOR, 0, 1, max(part.words for part in parts))
        elif motion.kind in ("untile", "tile", "turn"):
            result = self.half
            if motion.kind == "tile" and motion.tail:
                self._clear_tail(TAIL, motion.across - 1, motion.across, LANES * motion.down)
            at = places(motion, self.half)
            self._pass(motion, 4, at[0], at[1] if motion.kind != "turn" else at[0])
            if motion.kind == "turn":
                self._pass(motion, 1, at[1], at[2])
            if motion.kind == "untile" and motion.tail:
                self._clear_tail(TAIL, result + motion.across - 1, motion.across, LANES * motion.down)
            if motion.kind == "tile" and motion.pitch > GROUP_WORDS * motion.across:
                self._empty_tiles(motion)
        code.drain(DRAIN, result)
        code.set_vl(self._vl)
        code.emit("VHALT")
        return entry, behind

    def _pass(self, motion: Motion, group: int, source: tuple[int, Place], target: tuple[int, Place]) -> None:
        """Transpose groups of lanes in every set of four words.

        The last block of a ragged row of sub-tiles also stores members that the row does not have; they land on the
        next row's first words, which are stored later: members go in falling, blocks in rising order.
        """
        code, half = self.code, len(self._temporary) // 2
        x, t = self._temporary[:half], self._temporary[half:]
        inner, across, down = blocks(motion)
        for g in range(0, motion.down, down):
            for q in range(0, motion.across, across):
                count = inner * min(across, motion.across - q) * min(down, motion.down - g)
                code.set_vl(WORD_ELEMENTS * count)
                for j in range(4):
                    code.load(x[j], source[1].word(g, q, j), source[0])
                for distance, pairs in ((2 * group, ((0, 2), (1, 3))), (group, ((0, 1), (2, 3)))):
                    for a, b in pairs:
                        code.rotate(t[a], x[b], WORD_ELEMENTS - distance)
                        code.rotate(t[b], x[a], distance)
                    mask = Operand(SEL_V, self._masks[distance])
                    for a, b in pairs:
                        code.alu("VSEL", x[a], Operand(SEL_V, x[a]), Operand(SEL_V, t[a]), mask)
                        code.alu("VSEL", x[b], Operand(SEL_V, t[b]), Operand(SEL_V, x[b]), mask)
                for j in reversed(range(4)):
                    code.store(x[j], target[1].word(g, q, j), target[0])

    def _clear_tail(self, descriptor: int, first: int, step: int, count: int) -> None:
        """Zero the lanes from the last column on in `count` words, `step` apart; other lanes only pass VLD and VST."""
        code = self.code
        for n in range(0, count, CHUNKS):
            code.set_vl(WORD_ELEMENTS * min(CHUNKS, count - n))
            register = self._temporary[n // CHUNKS % 2]
            code.load(register, first + n * step, descriptor)
            code.alu("VMOV", register, ZERO, predicate=0)
            code.store(register, first + n * step, descriptor)

    def _empty_tiles(self, motion: Motion) -> None:
        """Zero the sub-tiles of every row that lie past the last word of columns."""
        code, used = self.code, GROUP_WORDS * motion.across
        zero = self._temporary[0]
        code.set_vl(self._vl)
        code.move(zero, ZERO)
        for first in range(used, motion.pitch, CHUNKS):
            code.set_vl(WORD_ELEMENTS * min(CHUNKS, motion.pitch - first))
            for g in range(motion.down):
                code.store(zero, self.half + g * motion.pitch + first)

    def _prepare(self) -> None:
        """Lane masks, in every chunk of their registers, without any table: lanes below d by the vector length, their
        repetition by rotation, all chunks by a load that returns one word again and again.

        Edge pieces leave some of the words that a routine reads as they were, so they are written once (as FP32, which
        is two words per chunk): a word never written is not read (datasheet 6.3 leaves it undefined)."""
        code = self.code
        if self._touched:
            code.move(self._temporary[0], ZERO)
            for word in range(0, self._touched, 2 * CHUNKS):
                code.emit("VST", dtype=FP32, ad=FIRST, vd=self._temporary[0], off=word)
        for distance, mask in self._masks.items():
            self._low_lanes(mask, distance)
            for step in (8, 4, 2):
                if step > distance:
                    code.rotate(self._temporary[0], mask, step)
                    code.alu("VADD", mask, Operand(SEL_V, mask), c=Operand(SEL_V, self._temporary[0]))
            self._spread(mask)
        if self._lanes:
            lanes = self._temporary[0]
            self._low_lanes(lanes, self._lanes)
            self._spread(lanes)
            sources = {"sa": SEL_V, "va": lanes, "sb": SEL_K, "vb": 0, "sc": SEL_K, "vc": 0}
            code.emit("VCMPEQ", **sources, vd=0, pr=0, pm=0)
        if self._zero >= 0:
            code.move(self._zero, ZERO)

    def _low_lanes(self, register: int, lanes: int) -> None:
        """1.0 in the first `lanes` lanes of chunk 0, 0 in the others; VL is one chunk afterwards."""
        self.code.set_vl(WORD_ELEMENTS)
        self.code.move(register, ZERO)
        self.code.set_vl(lanes)
        self.code.move(register, ONE)
        self.code.set_vl(WORD_ELEMENTS)

    def _spread(self, register: int) -> None:
        """Chunk 0 into every chunk, through L1 word 0; VL is 128 afterwards."""
        self.code.store(register, 0)
        self.code.set_vl(self._vl)
        self.code.load(register, 0, SPREAD)
