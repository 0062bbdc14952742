"""Instructions that only touch vregs, result registers, the predicate and latches (datasheet 3).

Decides what they leave in a vreg; it must not know time, except as the number READ_CYCLE reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import int32, int64

from kohakuaccel.jit import leaf, separate
from tinytpu.isa.codes import SXU
from tinytpu.units import state as s
from tinytpu.units.faults import F
from tinytpu.units.state import CODE, DST, OP, SRC, WBASE

if TYPE_CHECKING:
    from numpy.typing import NDArray


@leaf
def copy_tile(v: NDArray[np.int32], source: int, d: int) -> None:
    for i in range(v.shape[1]):
        v[d, i] = v[source, i]


@leaf
def _zero(v: NDArray[np.int32], d: int) -> None:
    for i in range(v.shape[1]):
        v[d, i] = 0


@separate(int64(int32[:, ::1], int64[::1], int64[::1], int32[::1], int32[::1], int64[::1], int64, int64, int64, int64))
def register_op(
    v: NDArray[np.int32],
    word: NDArray[np.int64],
    reg: NDArray[np.int64],
    results: NDArray[np.int32],
    matrix: NDArray[np.int32],
    stat: NDArray[np.int64],
    vpu: int,
    cols: int,
    cycle: int,
    silicon: int,
) -> int:
    """Execute one at `cycle`; vpu is the row of the VPU's result register, the XLU's follows. Returns a fault."""
    op, d, a, n = word[OP], word[DST], word[SRC], v.shape[1]
    if op == SXU.LOAD_VPU_RESULT:
        if reg[s.HAS_VPU] == 0:
            return F.NO_VPU_RESULT.value
        copy_tile(v, vpu, d)
    elif op == SXU.LOAD_XLU_RESULT:
        if reg[s.HAS_XLU] == 0:
            return F.NO_XLU_RESULT.value
        copy_tile(v, vpu + (s.R_XLU - s.R_VPU), d)
    elif op == SXU.SET_PRED_IF_ZERO:
        reg[s.PREDICATE] = v[a, 0] == 0
    elif op == SXU.SET_PRED_NE_ZERO:
        reg[s.PREDICATE] = v[a, 0] != 0
    elif op == SXU.READ_CYCLE or op == SXU.LOAD_LOOP_DEPTH:
        _zero(v, d)
        v[d, 0] = np.int32(cycle if op == SXU.READ_CYCLE else reg[s.DEPTH])
    elif op == SXU.VZERO or op == SXU.VFILL:
        value = np.int32(np.int8(word[WBASE])) if op == SXU.VFILL else np.int32(0)
        for i in range(n):
            v[d, i] = value
    elif op == SXU.VMOV:
        copy_tile(v, a, d)
    elif op == SXU.VNEG:
        for i in range(n):
            v[d, i] = -v[a, i]
    elif op == SXU.VABS:
        for i in range(n):
            v[d, i] = -v[a, i] if v[a, i] < 0 else v[a, i]
    elif op == SXU.LOAD_MXU_RESULT:
        _zero(v, d)
        for c in range(cols):
            v[d, c] = results[c]
    elif op == SXU.LOAD_MXU_MATRIX_ROW:
        _zero(v, d)
        for c in range(cols):
            v[d, c] = matrix[a * cols + c]
    elif op == SXU.LOAD_EPILOGUE_STAT:
        if reg[s.STATISTICS] == 0 and not silicon:
            return F.NO_STATISTICS.value
        _zero(v, d)
        for r in range(stat.size):
            v[d, r * cols] = np.int32(stat[r])
            v[d, r * cols + 1] = np.int32(stat[r] >> 32)
    elif op == SXU.SET_REQUANT_CONFIG:
        reg[s.SCALE], reg[s.SHIFT] = word[s.GOT], word[CODE] & 31
    return 0
