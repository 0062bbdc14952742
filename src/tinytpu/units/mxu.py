"""The systolic array's arithmetic, PSUM rows and requantisation, bit-exact (datasheet 7).

Decides what a dispatch leaves in accumulators and latches; it must not know instructions or time. Sums are the
array's: int32 that wraps, whatever their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kohakuaccel.jit import leaf

if TYPE_CHECKING:
    from numpy.typing import NDArray


@leaf
def stationary_weights(
    acc: NDArray[np.int32], w: NDArray[np.int8], tile: int, a: NDArray[np.int8], first: int, vectors: int, rows: int
) -> None:
    """WS: accumulator [r][c] gains (sum over the vectors of their value r) * W[r][c]."""
    cols = a.shape[1]  # the array is square
    for r in range(rows):
        total = 0
        for t in range(first, first + vectors):
            total += np.int64(a[t, r])
        for c in range(cols):
            acc[r * cols + c] += np.int32(total * np.int64(w[tile, r * cols + c]))


@leaf
def stationary_outputs(
    acc: NDArray[np.int32], w: NDArray[np.int8], tile: int, a: NDArray[np.int8], first: int, j0: int, k: int, rows: int
) -> None:
    """OS: accumulator [r][c] gains the sum over j < k of A[r][j] * W[j0+j][c], A[r][j] value r of vector first + j."""
    cols = a.shape[1]
    for r in range(rows):
        for j in range(k):
            x = np.int32(a[first + j, r])
            for c in range(cols):
                acc[r * cols + c] += x * np.int32(w[tile, (j0 + j) * cols + c])


@leaf
def latch(acc: NDArray[np.int32], matrix: NDArray[np.int32], results: NDArray[np.int32], clear: bool) -> None:
    """The drain: latch the accumulators and their column sums."""
    cols = results.size
    for c in range(cols):
        results[c] = 0
    for first in range(0, acc.size, cols):
        for c in range(cols):
            matrix[first + c] = acc[first + c]
            results[c] += acc[first + c]
    if clear:
        for i in range(acc.size):
            acc[i] = 0


@leaf
def requantised(x: int, scale: int, shift: int) -> int:
    """clamp((x * scale + half) >> shift) to int8; half up. Shift 0 adds 2^31, as the silicon does."""
    half = 1 << ((shift - 1) & 31)
    return min(max((x * scale + half) >> shift, -128), 127)
