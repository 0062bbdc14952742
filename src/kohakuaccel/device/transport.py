"""How a host reaches a machine: writes and reads at bus addresses, whatever answers behind them.

It decides the interface and one implementation of it, the recording. It must not know any register.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Runs = tuple[int, int, int]


class Transport(Protocol):
    """One machine on a bus. Writes take effect before they return, in order.

    `runs` = (words, pitch, count) may go with a read of memory: only these words of 32 bytes (count runs of `words`,
    each `pitch` words after the last) matter to the reader; a model that knows which words were never written
    refuses those and reads the others as zero.
    """

    def write(self, bus: int, data: NDArray[Any]) -> None: ...

    def read(self, bus: int, nbytes: int, runs: Runs | None = None) -> Bytes: ...


class Recording:
    """Captures every write exactly, in order, and passes it on to `inner`.

    Without an inner machine reads give zeros, which is what a machine fresh from reset would answer to the
    reads a loader makes before its first run.
    """

    def __init__(self, inner: Transport | None = None) -> None:
        self.inner = inner
        self.writes: list[tuple[int, bytes]] = []

    def write(self, bus: int, data: NDArray[Any]) -> None:
        self.writes.append((bus, np.ascontiguousarray(data).tobytes()))
        if self.inner is not None:
            self.inner.write(bus, data)

    def read(self, bus: int, nbytes: int, runs: Runs | None = None) -> Bytes:
        if self.inner is not None:
            return self.inner.read(bus, nbytes, runs)
        return np.zeros(nbytes, np.uint8)

    @property
    def nbytes(self) -> int:
        """Bytes captured."""
        return sum(len(data) for _, data in self.writes)


def replay(writes: Iterable[tuple[int, bytes]], target: Transport) -> None:
    """Write captured writes into another machine, in order."""
    for bus, data in writes:
        target.write(bus, np.frombuffer(data, np.uint8))
