"""Instructions on PSUM buckets, and the hazards with a dispatch in flight (datasheet 3, 7, 9.1, 9.5).

Decides what a bucket holds; it must not know time beyond when the dispatch in flight is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import int32, int64, uint8

from kohakuaccel.jit import leaf, separate
from tinytpu.isa.codes import SXU
from tinytpu.units import state as s
from tinytpu.units.faults import F
from tinytpu.units.state import DST, NONE, OP, REQUANT, SRC, VMEM

if TYPE_CHECKING:
    from numpy.typing import NDArray


@leaf
def _unwritten(written: NDArray[np.uint8], reg: NDArray[np.int64], bucket: int, first: int, rows: int) -> int:
    for r in range(first, first + rows):
        if written[bucket, r] == 0:
            reg[s.WHY_GOT], reg[s.WHY_LIMIT] = bucket, r
            return F.PSUM_UNWRITTEN.value
    return 0


@leaf
def _fill(psum: NDArray[np.int32], written: NDArray[np.uint8], b: int, v: NDArray[np.int32], source: int) -> None:
    """Bucket b := a vreg, or 0."""
    for i in range(psum.shape[1]):
        psum[b, i] = v[source, i] if source != NONE else 0
    for r in range(written.shape[1]):
        written[b, r] = 1


@separate(int64(int32[:, ::1], int32[:, ::1], uint8[:, ::1], int64[::1], int64[::1], int64, int64, int64))
def psum_op(
    v: NDArray[np.int32],
    psum: NDArray[np.int32],
    written: NDArray[np.uint8],
    word: NDArray[np.int64],
    reg: NDArray[np.int64],
    cols: int,
    cycle: int,
    silicon: int,
) -> int:
    """A PSUM instruction at its first EXEC, in `cycle`; returns a fault."""
    op, b, n = word[OP], word[VMEM], v.shape[1]
    mode, every = reg[s.LATE_MODE], op == SXU.PSUM_CLEAR_ALL
    if mode != 0 and mode != REQUANT and (every or b == reg[s.LATE_AT]) and reg[s.DONE] > cycle and not silicon:
        reg[s.WHY_GOT], reg[s.WHY_LIMIT] = reg[s.LATE_AT], reg[s.DONE]
        return F.PSUM_HAZARD.value
    if every:
        for k in range(psum.shape[0]):
            _fill(psum, written, k, v, NONE)
        return 0
    if op == SXU.PSUM_WRITE or op == SXU.PSUM_CLEAR:
        _fill(psum, written, b, v, word[SRC] if op == SXU.PSUM_WRITE else NONE)
        return 0
    row = word[DST] if op == SXU.PSUM_ACCUMULATE_ROW else word[SRC]
    whole = op == SXU.PSUM_ACCUMULATE or op == SXU.PSUM_READ
    fault = _unwritten(written, reg, b, 0 if whole else row, written.shape[1] if whole else 1)
    if fault:
        return fault
    if op == SXU.PSUM_ACCUMULATE:
        for i in range(n):
            psum[b, i] += v[word[SRC], i]
    elif op == SXU.PSUM_READ:
        for i in range(n):
            v[word[DST], i] = psum[b, i]
    elif op == SXU.PSUM_ACCUMULATE_ROW:
        for c in range(cols):
            psum[b, row * cols + c] += v[word[SRC], c]
    else:
        for i in range(n):
            v[word[DST], i] = psum[b, row * cols + i] if i < cols else 0
    return 0
