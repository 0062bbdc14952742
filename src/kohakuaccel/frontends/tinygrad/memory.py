"""Buffers as tinygrad sees them: raw bytes at any offset; behind them, what a machine keeps of their values.

Decides when bytes and a machine's own forms of them agree: a value that a kernel left on the machine is brought home
when somebody asks for its bytes, and what the machine keeps is dropped when the bytes change. It must not know
machines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tinygrad.device import Allocator, BufferSpec, Compiled

Bytes = NDArray[np.uint8]


@dataclass(eq=False)
class Kept:
    """A machine's form of some bytes. form: which one; fetch: its bytes; ahead: the bytes at home are older."""

    offset: int
    nbytes: int
    form: str
    value: Any
    fetch: Callable[[], Bytes]
    ahead: bool


class Memory:
    """`nbytes` bytes, and what is kept of them elsewhere."""

    def __init__(self, nbytes: int) -> None:
        self.data: Bytes = np.zeros(nbytes, np.uint8)
        self.kept: list[Kept] = []

    def settle(self, offset: int, nbytes: int) -> None:
        """Bring home every value that overlaps these bytes."""
        for one in self.kept:
            if one.ahead and one.offset < offset + nbytes and offset < one.offset + one.nbytes:
                self.data[one.offset : one.offset + one.nbytes] = one.fetch()
                one.ahead = False

    def drop(self, offset: int, nbytes: int) -> None:
        """Forget what overlaps bytes that are about to be written; what is only partly overwritten comes home first."""
        left: list[Kept] = []
        for one in self.kept:
            if one.offset >= offset + nbytes or offset >= one.offset + one.nbytes:
                left.append(one)
            elif one.ahead and not (offset <= one.offset and one.offset + one.nbytes <= offset + nbytes):
                self.settle(one.offset, one.nbytes)
        self.kept = left


@dataclass(frozen=True)
class View:
    """Some bytes of a memory: what an allocator hands out."""

    memory: Memory
    offset: int
    nbytes: int

    def read(self) -> Bytes:
        """The bytes, as a view that is not written to."""
        if self.memory.kept:
            self.memory.settle(self.offset, self.nbytes)
        return self.memory.data[self.offset : self.offset + self.nbytes]

    def write(self) -> Bytes:
        """The bytes, to be written to by the caller at once; not necessarily all of them."""
        if self.memory.kept:
            self.memory.settle(self.offset, self.nbytes)
            self.memory.drop(self.offset, self.nbytes)
        return self.memory.data[self.offset : self.offset + self.nbytes]

    def overlaps(self, other: View) -> bool:
        """Whether they share bytes."""
        apart = self.offset + self.nbytes <= other.offset or other.offset + other.nbytes <= self.offset
        return self.memory is other.memory and not apart

    def drop(self) -> None:
        """Forget what the machine keeps of bytes that are about to be replaced, all of them."""
        if self.memory.kept:
            self.memory.drop(self.offset, self.nbytes)

    def kept(self, form: str) -> Any:
        """The machine's form of exactly these bytes, or None."""
        for one in self.memory.kept:
            if (one.offset, one.nbytes, one.form) == (self.offset, self.nbytes, form):
                return one.value
        return None

    def keep(self, form: str, value: Any, fetch: Callable[[], Bytes], *, ahead: bool) -> None:
        """Remember a machine's form. ahead: it is newer than the bytes, which it replaces."""
        if ahead:
            self.memory.drop(self.offset, self.nbytes)
        self.memory.kept.append(Kept(self.offset, self.nbytes, form, value, fetch, ahead))


class GraphAllocator(Allocator[Compiled]):
    """Memory of our devices. Transfers between devices of one name go through `_transfer`."""

    def _alloc(self, size: int, options: BufferSpec) -> View:
        return View(Memory(size), 0, size)

    def _offset(self, buf: View, size: int, offset: int) -> View:
        return View(buf.memory, buf.offset + offset, size)

    def _copyin(self, dest: View, src: memoryview) -> None:
        dest.write()[:] = np.frombuffer(src, np.uint8)

    def _copyout(self, dest: memoryview, src: View) -> None:
        np.frombuffer(dest, np.uint8)[:] = src.read()

    def _transfer(self, dest: View, src: View, sz: int, src_dev: Compiled, dest_dev: Compiled) -> None:
        dest.write()[:sz] = src.read()[:sz]
