"""The six-dimensional walk of datasheet 3.4: addresses of its elements, and which of them exist.

Shared by the checks of a descriptor fill and by the memory mover. It must not know what an element is (a mover's word,
a fill's 64 bytes) nor who walks. The cluster's compiled loop has a walker of its own, held against this one by tests.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
DIMENSIONS = 6
AXES = 2


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension: count (0 reads as 1), byte stride, the axis it is bound to (0 none, 1, 2) and its step there."""

    count: int = 1
    stride: int = 0
    axis: int = 0
    astep: int = 0


@dataclass(frozen=True, slots=True)
class Walk:
    """base: byte address; dims: those 0..ndim-1 count, the highest of them is the innermost; axes: (first position,
    extent) of axes 1 and 2, an extent of 0 leaves an axis unbounded."""

    base: int = 0
    dims: tuple[Dimension, ...] = ()
    axes: tuple[tuple[int, int], ...] = ((0, 0), (0, 0))
    ndim: int = 0

    @property
    def total(self) -> int:
        """Elements."""
        total = 1
        for d in self.dims[: self.ndim]:
            total *= max(d.count, 1)
        return total

    def elements(self, n: int | None = None) -> tuple[Ints, NDArray[np.bool_]]:
        """(byte addresses int64[n], whether each element exists) of the first n elements, of all when n is None."""
        step = np.arange(self.total if n is None else n, dtype=np.int64)
        address = np.full(step.shape, self.base, np.int64)
        position = [np.full(step.shape, first, np.int64) for first, _ in self.axes]
        for d in reversed(self.dims[: self.ndim]):
            step, index = np.divmod(step, max(d.count, 1))
            address += index * d.stride
            if d.axis:
                position[d.axis - 1] += index * d.astep
        valid = np.ones(address.shape, np.bool_)
        for at, (_, extent) in zip(position, self.axes):
            if extent:
                valid &= (at >= 0) & (at < extent)
        return address, valid
