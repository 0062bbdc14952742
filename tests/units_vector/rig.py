"""One vector core on its own: assemble, run, look at its state. It must not know what instructions mean."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.machine import Machine
from kohakutpu import machines
from kohakutpu.isa import vector as isa
from kohakutpu.units import state
from kohakutpu.units import vector_state as vs

Codes = NDArray[np.uint32]


class Core:
    """Core `u` of a machine with 1 MiB of memory. V, S and L1 are given and shown as the datasheet's codes."""

    def __init__(self, machine: Machine | None = None, u: int = 0) -> None:
        from kohakutpu.units import vector

        self.machine = machine or machines.load("ship_3x2")
        self.unit = self.machine.units_of("VC")[u]
        self.u = u
        self.vector = vector
        self.vc = vector.make_vectors(self.machine)
        self.mem = state.make_memory([1 << 20] * len(self.machine.meshes))
        self.out = state.make_outbox()
        self.note = np.zeros(state.NOTE_WORDS, np.int64)

    def step(self, op: int, a: int = 0, b: int = 0, value: int = 0) -> int:
        self.note[:] = 0
        return int(self.vector.vector_step(self.vc, self.mem, self.out, self.u, op, a, b, value, self.note))

    def write(self, program: str | Iterable[int], at: int = 0) -> None:
        words = isa.assemble(program) if isinstance(program, str) else list(program)
        for i, word in enumerate(words):
            assert self.step(isa.ENV_IMEM, at + i, 0, word) == state.RETIRED
            assert list(self.note[:2]) == [state.RETIRED, 0]

    def run(self, program: str | Iterable[int] | None = None, at: int = 0) -> int:
        """Write the program, end it with VHALT, RUN it; returns the status."""
        if program is not None:
            words = isa.assemble(program) if isinstance(program, str) else list(program)
            self.write([*words, isa.WORDS.encode("VHALT")], at)
        return self.step(isa.ENV_RUN, at)

    def ok(self, program: str | Iterable[int], at: int = 0) -> int:
        """Run a program that retires; returns its kernel cycles."""
        status = self.run(program, at)
        assert status == state.RETIRED, self.note
        return int(self.note[1])

    def desc(self, ad: int, base: int, *dims: tuple[int, int]) -> None:
        """Write a whole descriptor; dims are (stride, bound)."""
        self.step(isa.ENV_DESC, ad, 0, base)
        for k in range(4):
            stride, bound = dims[k] if k < len(dims) else (0, 1)
            self.step(isa.ENV_DESC, ad, 1 + k, isa.dimension(stride, bound))

    def set_v(self, v: int, codes: Iterable[int] | Codes) -> None:
        row = np.asarray(list(codes) if not isinstance(codes, np.ndarray) else codes, np.uint32)
        self.vc.bits[self.u * vs.ROWS + v, : len(row)] = row << np.uint32(8)
        self.vc.odd[self.u, v] = 1

    def v(self, v: int) -> Codes:
        return self.vc.bits[self.u * vs.ROWS + v] >> np.uint32(8)

    def s(self, s: int) -> int:
        return int(self.vc.scalar[self.u, s])

    def p(self, p: int) -> NDArray[np.uint8]:
        return self.vc.predicate[4 * self.u + p]

    def halves(self, word: int, count: int = 1) -> NDArray[np.uint16]:
        """View of L1 as binary16, 16 per word."""
        first = (self.u * vs.L1 + word) * 16
        return self.vc.half[first : first + 16 * count]

    def singles(self, word: int, count: int = 1) -> NDArray[np.uint32]:
        """View of L1 as binary32, 8 per word."""
        first = (self.u * vs.L1 + word) * 8
        return self.vc.single[first : first + 8 * count]

    def marks(self, word: int, count: int = 1) -> NDArray[np.uint8]:
        first = self.u * vs.L1 + word
        return self.vc.filled[first : first + count]

    def put(self, word: int, halves: NDArray[np.uint16]) -> None:
        """Binary16 patterns into L1 from a word on."""
        self.halves(word, len(halves) // 16)[:] = halves
        self.marks(word, len(halves) // 16)[:] = vs.WRITTEN

    def put_singles(self, word: int, singles: NDArray[np.uint32]) -> None:
        self.singles(word, len(singles) // 8)[:] = singles
        self.marks(word, len(singles) // 8)[:] = vs.WRITTEN

    def dram(self, address: int, halves: NDArray[np.uint16]) -> None:
        """Binary16 patterns into this mesh's memory at a byte offset, marked written."""
        at = int(self.mem.base[self.unit.mesh]) + address
        self.mem.half[at // 2 : at // 2 + len(halves)] = halves
        self.mem.written[at // 32 : (at + 2 * len(halves)) // 32] = 1

    def apply(self, op: str, a: Codes, b: Codes | None = None, c: Codes | None = None) -> Codes:
        """An ALU operation over arrays of any length, 128 elements per RUN, FLAT."""
        self.write([isa.WORDS.encode(op, vd=3, va=0, vb=1, vc=2), isa.WORDS.encode("VHALT")])
        out = np.zeros(len(a), np.uint32)
        for i in range(0, len(a), 128):
            self.set_v(0, a[i : i + 128])
            self.set_v(1, (b if b is not None else a)[i : i + 128])
            self.set_v(2, (c if c is not None else a)[i : i + 128])
            assert self.step(isa.ENV_RUN) == state.RETIRED
            out[i : i + 128] = self.v(3)[: len(out) - i]
        return out
