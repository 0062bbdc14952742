"""Envelope streams of a vector core: program memory, descriptors, RUNs, with addresses relative to buffers.

Rows are [op, a, b, value], exactly what the unit executes: IMEM(addr, word), DESC(descriptor, field, value), RUN(pc).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.machine import Machine, Unit
from kohakuaccel.program import UnitProgram
from kohakutpu.layouts import WORD_BYTES
from kohakutpu.lower.codecs import VectorCodec
from kohakutpu.lower.vector_code import L1_DESCRIPTOR

IMEM, DESC, RUN = 1, 2, 3
BASE_FIELD = 0
Dims = tuple[tuple[int, int], ...]  # (stride, bound) per dimension, fastest first


def linear(words: int) -> Dims:
    """A walk over consecutive memory words."""
    return ((WORD_BYTES, words),)


def widened(dims: Dims) -> Dims:
    """A walk over the same elements in FP32: two words for each."""
    (stride, bound), *outer = dims
    first = ((WORD_BYTES, 2 * bound),) if stride == WORD_BYTES or bound == 1 else ((WORD_BYTES, 2), (2 * stride, bound))
    return (*first, *((2 * step, count) for step, count in outer))


def wide_descriptor(sizes: Sequence[int]) -> int:
    """The descriptor through which operands of FP32 are loaded and stored, or -1 where there are none: the L1 walk
    itself where nothing is FP16, else the one behind all operands' own. sizes: words of 16 elements of each operand,
    the result's last."""
    if 2 not in sizes:
        return -1
    return L1_DESCRIPTOR if 1 not in sizes else len(sizes) + 1


def check_descriptors(machine: Machine, sizes: Sequence[int], where: str, source: SourceLine) -> None:
    """Refuse more operands than a core has descriptors: one each, one for the result, one or two to walk L1."""
    walks = len(set(sizes))
    if len(sizes) + walks > machine.params.descs:
        raise Refusal(
            "each operand, the result and the L1 walk take one descriptor"
            + (", and so does FP32 beside FP16" if walks > 1 else ""),
            where=where,
            got=f"{len(sizes) - 1} operands",
            limit=f"{machine.params.descs - 1 - walks} operands",
            hint="split the expression over two statements",
            source=source,
        )


def stored_wide(names: Sequence[str], sizes: Sequence[int]) -> list[str]:
    """A line that names what lies in memory as FP32, if anything does."""
    named = [n for n, size in zip((*names, "the result"), sizes) if size > 1]
    return [f"FP32 in memory: {', '.join(named)}"] if named else []


class VectorStream:
    """Collects one core's rows. Descriptor shapes are written only when they change."""

    def __init__(self, machine: Machine, unit: Unit, source: int) -> None:
        self._machine = machine
        self._unit = unit
        self._source = source
        self._blocks: list[NDArray[np.int64]] = []
        self._buffers: list[NDArray[np.int32]] = []
        self._passes: list[int] = [0]
        self._length = 0
        self._shapes: dict[int, Dims] = {}

    def _append(self, rows: NDArray[np.int64], buffers: NDArray[np.int32] | None = None) -> None:
        self._blocks.append(rows)
        self._buffers.append(np.full(len(rows), -1, np.int32) if buffers is None else buffers)
        self._length += len(rows)

    def l1_walks(self, sizes: Sequence[int]) -> None:
        """The descriptors through which VLD and VST reach L1: FP16 word by word, FP32 two by two."""
        vl1, wide = self._machine.params.vl1, wide_descriptor(sizes)
        for descriptor, step in ((L1_DESCRIPTOR, 1 if 1 in sizes else 2), (wide, 2)):
            if descriptor >= 0 and descriptor not in self._shapes:
                self.shape(descriptor, ((step, vl1 // step),))
                self.base(descriptor, -1, 0)

    def program(self, words: Sequence[int]) -> None:
        """Load program memory from address 0."""
        rows = np.zeros((len(words), 4), np.int64)
        rows[:, 0] = IMEM
        rows[:, 1] = np.arange(len(words))
        rows[:, 3] = words
        self._append(rows)

    def shape(self, descriptor: int, dims: Dims) -> None:
        """Set every dimension of a descriptor: what an earlier program left there never matters."""
        if self._shapes.get(descriptor) == dims:
            return
        self._shapes[descriptor] = dims
        rows = np.zeros((self._machine.params.dims, 4), np.int64)
        for d in range(len(rows)):
            stride, bound = dims[d] if d < len(dims) else (0, 1)
            rows[d] = (DESC, descriptor, 1 + d, ((stride & 0x3FFFF) << 16) | bound)
        self._append(rows)

    def base(self, descriptor: int, buffer: int, offset: int) -> None:
        """Set a descriptor's base to a byte offset in a buffer (buffer -1: an absolute value)."""
        self._append(np.array([[DESC, descriptor, BASE_FIELD, offset]], np.int64), np.array([buffer], np.int32))

    def run(self, pc: int) -> None:
        """Execute from `pc`."""
        self._append(np.array([[RUN, pc, 0, 0]], np.int64))

    def runs(self, pc: int, moves: Sequence[tuple[int, int, NDArray[np.int64]]], *more: int) -> None:
        """For every step n: move each descriptor's base to (buffer, offsets[n]) and RUN pc, then each of `more`.

        moves: (descriptor, buffer, int64[steps] byte offsets).
        """
        steps = len(moves[0][2])
        width = len(moves) + 1 + len(more)
        rows = np.zeros((steps, width, 4), np.int64)
        buffers = np.full((steps, width), -1, np.int32)
        for m, (descriptor, buffer, offsets) in enumerate(moves):
            rows[:, m, 0], rows[:, m, 1], rows[:, m, 2], rows[:, m, 3] = DESC, descriptor, BASE_FIELD, offsets
            buffers[:, m] = buffer
        rows[:, len(moves) :, 0], rows[:, len(moves) :, 1] = RUN, (pc, *more)
        self._passes.extend(range(self._length, self._length + steps * width, width))
        self._append(rows.reshape(-1, 4), buffers.reshape(-1))

    def finish(self) -> UnitProgram:
        """The unit's program."""
        rows = np.concatenate(self._blocks)
        return UnitProgram(
            self._unit,
            VectorCodec(self._machine, self._unit),
            rows,
            np.concatenate(self._buffers),
            np.full(len(rows), self._source, np.int32),
            np.unique(np.array(self._passes, np.int64)),
        )
