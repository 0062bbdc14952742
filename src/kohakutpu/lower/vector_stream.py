"""Envelope streams of a vector core: program memory, descriptors, RUNs, with addresses relative to buffers.

Rows are [op, a, b, value], exactly what the unit executes: IMEM(addr, word), DESC(descriptor, field, value), RUN(pc).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.machine import Machine, Unit
from kohakuaccel.program import UnitProgram
from kohakutpu.layouts import WORD_BYTES
from kohakutpu.lower.codecs import VectorCodec

IMEM, DESC, RUN = 1, 2, 3
BASE_FIELD = 0
Dims = tuple[tuple[int, int], ...]  # (stride, bound) per dimension, fastest first


def linear(words: int) -> Dims:
    """A walk over consecutive memory words."""
    return ((WORD_BYTES, words),)


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
