"""What happens to whole register rows besides arithmetic: copies, predicates, scalars, shuffles, conversion.

Decides which elements of a row are written (datasheet 6.3, "Lengths"); it must not know instructions or time.
Rows are rows of `bits` uint32[rows, 128], E8M15 in register form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kohakuaccel.jit import leaf, separate
from kohakuaccel.numerics.kernels import e8m15_from_fp16, fp16_from_e8m15
from kohakutpu.units.vector_alu import INF, SIGN
from kohakutpu.units.vector_state import LANES, ROW_S, ROWS, VLMAX

if TYPE_CHECKING:
    from numpy.typing import NDArray


@separate("void(uint32[:,::1], int64, int64)")
def clean_row(bits: NDArray[np.uint32], source: int, target: int) -> None:
    """Row target = row source with every word of exponent 0 as signed zero, as operations read it (2.6)."""
    for i in range(VLMAX):
        word = bits[source, i]
        bits[target, i] = word if (word & INF) != 0 else word & SIGN


@leaf
def copy_row(bits: NDArray[np.uint32], source: int, target: int, n: int) -> None:
    """Elements 0..n-1, all bits as they are."""
    for i in range(n):
        bits[target, i] = bits[source, i]


@separate("void(uint32[:,::1], int64, int64, uint8[:,::1], int64, int64, int64)")
def select_row(
    bits: NDArray[np.uint32], source: int, target: int, predicate: NDArray[np.uint8], p: int, pm: int, n: int
) -> None:
    """Elements 0..n-1 where predicate row p is set (pm 1) or clear (pm 2)."""
    want = np.uint8(pm == 1)
    for i in range(n):
        bits[target, i] = bits[source, i] if predicate[p, i] == want else bits[target, i]


@separate("void(uint32[:,::1], int64, uint8[:,::1], int64, int64, int64)")
def set_predicate(bits: NDArray[np.uint32], source: int, predicate: NDArray[np.uint8], p: int, pm: int, n: int) -> None:
    """Predicate row p = a comparison's 1.0 or +0, elements 0..n-1 that pm selects. A compare is selected by
    the predicate it writes, so pm 1 ands into it and pm 2 ors."""
    want = np.uint8(pm == 1)
    for i in range(n):
        old = predicate[p, i]
        new = np.uint8(bits[source, i] != 0)
        predicate[p, i] = new if (pm == 0) | (old == want) else old


@leaf
def count_predicate(predicate: NDArray[np.uint8], p: int, n: int) -> int:
    """How many of elements 0..n-1 are set."""
    hits = 0
    for i in range(n):
        hits += int(predicate[p, i])
    return hits


@separate("void(uint32[:,::1], int64[:,::1], int64, int64, int64)")
def set_scalar(bits: NDArray[np.uint32], scalar: NDArray[np.int64], u: int, s: int, code: int) -> None:
    """S[s] of core u = a 24-bit code, and its row 128 copies of the value it has as an operand. s from 16 on
    names the rows of the K registers, which follow those of S and have no entry in `scalar`."""
    if s < ROW_S:
        scalar[u, s] = code
    word = np.uint32(code << 8)
    if word & INF == 0:
        word &= SIGN
    row = u * ROWS + ROW_S + s
    for i in range(VLMAX):
        bits[row, i] = word


@separate("uint8(uint32[:,::1], int64, int64, int64)")
def spread_row(bits: NDArray[np.uint32], target: int, code: int, chunks: int) -> np.uint8:
    """VBCAST: whole chunks of a row = a 24-bit code. A move keeps all its bits, so an integer may travel
    through V; returns 1 when the words have exponent 0 and a mantissa."""
    word = np.uint32(code << 8)
    for i in range(chunks * LANES):
        bits[target, i] = word
    return np.uint8((word & INF) == 0 and (word & ~SIGN) != 0)


@separate("void(uint32[:,::1], int64, int64, int64, int64, int64)")
def shuffle_row(bits: NDArray[np.uint32], source: int, target: int, scratch: int, by: int, chunks: int) -> None:
    """VSHUF: in each chunk, element i = source element (i + by) mod 16."""
    for i in range(chunks * LANES):
        bits[scratch, i] = bits[source, (i & ~(LANES - 1)) + ((i + by) & (LANES - 1))]
    copy_row(bits, scratch, target, chunks * LANES)


@separate("int64(uint32[:,::1], uint16[::1], int64, int64, int64)")
def convert_row(bits: NDArray[np.uint32], half: NDArray[np.uint16], source: int, target: int, chunks: int) -> int:
    """VCVT FP16: whole chunks through binary16 (`half`, scratch) and back (2.8); returns how many saturated."""
    n = chunks * LANES
    saturated = fp16_from_e8m15(bits[source, :n], half[:n])
    e8m15_from_fp16(half[:n], bits[target, :n])
    return saturated
