"""The relayout band: one buffer into another byte order on the vector cores, as visible as any computation.

It decides whether and in how many trips an order can become another, and deals the pieces; how a trip is cut is
`relayout_plan`, what happens in L1 is `relayout_code`. FP32 has no band: it is cut into other
rows (`row_moves`), but not turned or tiled.

Bits. Words that only move (row-major <-> operand pack, another pitch or row split) keep every bit. The word that holds
a row's last columns, when it has lanes to clear, passes VLD and VST: a signalling NaN becomes quiet, its payload stays
(datasheet 2.8). Orders whose words differ (sub-tiles, transposes) merge lanes with VSEL, and any NaN becomes 0x7E00, as
after every operation of the core (2.6). Everything else is exact: VLD, VSHUF, VSEL and VST round no FP16 value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.machine import Machine, Unit
from kohakuaccel.program import UnitProgram
from kohakuaccel.schedule import Array
from kohakutpu.layouts import FP32, WORD_BYTES, WORD_ELEMENTS, DrainedTiles, Layout, RowMajor
from kohakutpu.lower import relayout_plan
from kohakutpu.lower.relayout_code import DRAIN, FILL, PROLOGUE_WALKS, RelayoutCode, walks
from kohakutpu.lower.relayout_walks import SLACK, STRIDE_BYTES, Inexpressible, Limits, Matrix, Part
from kohakutpu.lower.vector_code import L1_DESCRIPTOR
from kohakutpu.lower.vector_stream import VectorStream
from kohakutpu.machines import load

PIECES = (240, 192, 128, 64, 32, 16)  # words per RUN that are tried, until the program fits
_NOWHERE = SourceLine("", 0)  # a program that does not fit is tried smaller, never shown
_HOW = {
    "move": "whole words, no arithmetic",
    "tail": "last columns' words, lanes cleared",
    "zero": "padding, zeros",
    "untile": "4 sub-tiles -> 4 row words by 2 masked swaps",
    "tile": "4 row words -> 4 sub-tiles by 2 masked swaps",
    "turn": "16x16 transposes by 4 masked swaps",
}


@lru_cache(maxsize=64)
def _planned(
    machine: Machine, source: Matrix, target: Matrix, transpose: bool, batch: int
) -> tuple[list[Part], RelayoutCode] | None:
    """The parts of one trip and their program, with the largest pieces whose program fits; None when there is none."""
    p = machine.params
    most = min(p.walk_max, (p.vl1 - SLACK) // 2)
    for piece in (n for n in PIECES if n <= most):
        limits = Limits.of(machine, piece)
        try:
            parts = relayout_plan.parts(source, target, transpose, batch, limits)
            code = RelayoutCode(machine, _NOWHERE, parts, source.cols, limits)
        except (Inexpressible, Refusal):
            continue
        if len(code.code.words) <= p.imem:
            return parts, code
    return None


def can_relayout(
    source: Layout, target: Layout, transpose: bool = False, batch: int = 1, machine: Machine | None = None
) -> bool:
    """Whether one trip through the cores (of the default machine, if none is named) makes `target` from `source`.

    transpose: every batch item, rows x cols in the source, is stored as cols x rows. batch: the items in a row-major
    order's rows; other orders carry their own and must agree.
    """
    if not (isinstance(source, Matrix) and isinstance(target, Matrix)) or FP32 in (source.element, target.element):
        return False
    return _planned(machine or load("ship_3x2"), source, target, transpose, batch) is not None


@dataclass(frozen=True, slots=True)
class Trip:
    """One relayout band's worth: source order, target order, whether items are transposed on the way, and how many."""

    source: Matrix
    target: Matrix
    transpose: bool
    batch: int = 1


def trips(
    source: Layout, target: Layout, transpose: bool = False, batch: int = 1, machine: Machine | None = None
) -> list[Trip] | None:
    """The trips from source to target, through row-major orders where one is not enough; None: take the host."""
    if not (isinstance(source, Matrix) and isinstance(target, Matrix)) or FP32 in (source.element, target.element):
        return None
    if not isinstance(source, RowMajor):
        batch = source.batch
    elif not isinstance(target, RowMajor):
        batch = target.batch
    if can_relayout(source, target, transpose, batch, machine):
        return [Trip(source, target, transpose, batch)]
    rows = source.rows // batch if isinstance(source, RowMajor) else source.rows
    found: list[Trip] = []
    here: Matrix = source
    if not isinstance(here, RowMajor):
        found.append(Trip(here, RowMajor.of(batch * rows, source.cols), False, batch))
        here = found[-1].target
    if transpose:
        turned = target if isinstance(target, RowMajor) else RowMajor.of(batch * source.cols, rows)
        found.append(Trip(here, turned, True, batch))
        here = turned
    if here != target:
        found.append(Trip(here, target, False, batch))
    return found if all(can_relayout(t.source, t.target, t.transpose, batch, machine) for t in found) else None


def path(
    source: Layout, target: Layout, transpose: bool = False, batch: int = 1, machine: Machine | None = None
) -> list[Matrix] | None:
    """Intermediate orders of `trips`: none for one trip, None when the cores cannot do it."""
    found = trips(source, target, transpose, batch, machine)
    return None if found is None else [trip.target for trip in found[:-1]]


@dataclass(frozen=True, slots=True)
class RelayoutBand:
    """Buffer dst, in dst_layout, holds what buffer src holds in src_layout (transposed item by item on demand).

    Every data word of dst_layout is written exactly once; words and lanes without an element are zeros whatever the
    source's padding holds. Refused when `can_relayout` says no.
    """

    machine: Machine
    src: int
    dst: int
    src_layout: Matrix
    dst_layout: Matrix
    transpose: bool
    batch: int
    source: SourceLine

    @property
    def engine(self) -> str:
        return "VC"

    @property
    def cores(self) -> tuple[Unit, ...]:
        return self.machine.units_of("VC", mesh=0)

    def plan(self) -> tuple[list[Part], RelayoutCode]:
        """The parts and their program."""
        found = _planned(self.machine, self.src_layout, self.dst_layout, self.transpose, self.batch)
        if found is not None:
            return found
        raise Refusal(
            "a relayout moves whole words, sub-tiles or 16x16 blocks between regular walks",
            where=str(self),
            limit=f"strides below {STRIDE_BYTES:,} bytes, {self.machine.params.imem} program words",
            hint="go through the orders that relayout.path names, or through the host",
            source=self.source,
        )

    def __str__(self) -> str:
        turned = " transposed" if self.transpose else ""
        return f"{self.src_layout} -> {self.dst_layout}{turned}"

    def describe(self) -> Sequence[str]:
        parts, code = self.plan()
        runs = sum(len(part.target) for part in parts)
        lines = [
            f"relayout {self}: {sum(part.words * len(part.target) for part in parts)} words in {runs} pieces on "
            f"{min(runs, len(self.cores))} cores"
        ]
        for kind, how in _HOW.items():
            chosen = [part for part in parts if part.motion.kind == kind]
            if chosen:
                words = sum(part.words * len(part.target) for part in chosen)
                lines.append(f"{how}: {words} words, at most {max(part.words for part in chosen)} per RUN")
        return [*lines, f"program {len(code.code.words)} of {self.machine.params.imem} words"]

    def reads(self) -> Sequence[int]:
        return (self.src,)

    def writes(self) -> Sequence[tuple[int, NDArray[np.int64]]]:
        ranges: list[NDArray[np.int64]] = [np.zeros((0, 2), np.int64)]
        for part in self.plan()[0]:
            run = part.drain[0][1] if part.drain[0][0] == WORD_BYTES else 1
            first = part.target
            for stride, bound in part.drain[1 if run > 1 or part.drain[0] == (WORD_BYTES, 1) else 0 :]:
                first = (first[:, None] + np.arange(bound, dtype=np.int64)[None, :] * stride).reshape(-1)
            ranges.append(np.stack([first // WORD_BYTES, np.full_like(first, run)], axis=1))
        return ((self.dst, np.concatenate(ranges)),)

    def run(self, values: dict[int, Array]) -> None:
        bits = np.ascontiguousarray(values[self.src]).reshape(-1).view(np.uint16)
        nan = (bits & 0x7FFF) > 0x7C00
        cols = self.src_layout.cols
        if self.transpose or isinstance(self.src_layout, DrainedTiles) or isinstance(self.dst_layout, DrainedTiles):
            bits = np.where(nan, np.uint16(0x7E00), bits)
        elif cols % WORD_ELEMENTS:
            last = np.arange(bits.size) % cols >= cols // WORD_ELEMENTS * WORD_ELEMENTS
            bits = np.where(nan & last, bits | np.uint16(0x0200), bits)
        if self.transpose:
            bits = np.ascontiguousarray(bits.reshape(self.batch, -1, cols).transpose(0, 2, 1))
        values[self.dst] = bits.astype(np.uint16).reshape(-1).view(np.float16)

    def programs(self, source: int) -> list[UnitProgram]:
        """The stream of each core with work: pieces of a part dealt in contiguous shares."""
        parts, code = self.plan()
        cores = self.cores
        streams: dict[int, VectorStream] = {}
        turn = 0
        for part in parts:
            for n, share in enumerate(np.array_split(np.arange(len(part.target)), len(cores))):
                if len(share):
                    unit = cores[(n + turn) % len(cores)]
                    if unit.index not in streams:
                        streams[unit.index] = self._open(unit, code, source)
                    self._emit(streams[unit.index], code, part, share)
            turn += len(part.target) % len(cores)
        return [streams[i].finish() for i in sorted(streams)]

    def _open(self, unit: Unit, code: RelayoutCode, source: int) -> VectorStream:
        stream = VectorStream(self.machine, unit, source)
        stream.program(code.code.words)
        stream.shape(L1_DESCRIPTOR, ((1, self.machine.params.vl1),))
        for descriptor, dims in PROLOGUE_WALKS:
            stream.shape(descriptor, dims)
        for descriptor in range(self.machine.params.descs):
            if descriptor not in (FILL, DRAIN):
                stream.base(descriptor, -1, 0)
        stream.run(code.prologue)
        return stream

    def _emit(self, stream: VectorStream, code: RelayoutCode, part: Part, share: NDArray[np.int64]) -> None:
        entry, behind = code.entries[part.motion]
        stream.shape(DRAIN, part.drain)
        to = (DRAIN, self.dst, part.target[share])
        if part.motion.kind == "zero":
            stream.run(code.zeros)
            stream.runs(entry, [to])
            return
        stream.shape(FILL, part.fill)
        for descriptor, dims in walks(part.motion, code.half):
            stream.shape(descriptor, dims)
        moves = [(FILL, self.src, part.source[share]), to]
        if part.clear[1]:
            stream.runs(code.fill, moves, code.clearing[part.clear], behind)
        else:
            stream.runs(entry, moves)
