"""MXU dispatches: what they compute, when they are done, what they write at their drain (datasheet 7, 10.2).

Decides a dispatch from its EXEC on; it must not know how the sequencer got there. Values are computed at the EXEC:
nothing that a dispatch reads can change before its drain, and what it writes late is kept in `late` until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import int64, typeof

from kohakuaccel.jit import leaf, separate
from tinytpu.isa.codes import SXU, VPU, Epilogue, Psum
from tinytpu.machines import load
from tinytpu.units.faults import F
from tinytpu.units.mxu import latch, requantised, stationary_outputs, stationary_weights
from tinytpu.units.state import (
    ABASE,
    CODE,
    DISPATCHED,
    DONE,
    DST,
    LATE_AT,
    LATE_MODE,
    LATE_ROW,
    N_MACS,
    N_MXU,
    N_MXU_BUSY,
    OP,
    R_SCRATCH,
    REQUANT,
    S_COLS,
    S_ROWS,
    S_SILICON,
    S_VREGS,
    SCALE,
    SHIFT,
    SRC,
    SRC2,
    STATISTICS,
    STORED,
    TLEN,
    VMEM,
    WBASE,
    WHY_GOT,
    WRITTEN,
    Core,
    reset_core,
)
from tinytpu.units.vpu_int import integer

if TYPE_CHECKING:
    from numpy.typing import NDArray

CORE = typeof(reset_core(load(), 1))
"""numba type of a core."""

BIAS, RELU, REDUCE, SUMSQ, TO_VMEM = (int(flag) for flag in Epilogue)


@leaf
def settle(
    reg: NDArray[np.int64],
    psum: NDArray[np.int32],
    psum_written: NDArray[np.uint8],
    amem: NDArray[np.int8],
    amem_written: NDArray[np.uint8],
    late: NDArray[np.int32],
) -> None:
    """Write what the last dispatch writes at its drain."""
    mode, at, row, cols = reg[LATE_MODE], reg[LATE_AT], reg[LATE_ROW], late.size
    if mode == REQUANT:
        for c in range(cols):
            amem[at, c] = np.int8(late[c])
        amem_written[at] = 1
    elif mode:
        for c in range(cols):
            psum[at, row * cols + c] = late[c] + (psum[at, row * cols + c] if mode == Psum.ACCUMULATE else 0)
        psum_written[at, row] = 1
    reg[LATE_MODE] = 0


@leaf
def _operands_written(
    word: NDArray[np.int64], wmem: NDArray[np.uint8], amem: NDArray[np.uint8], reg: NDArray[np.int64]
) -> int:
    if wmem[word[WBASE]] == 0:
        reg[WHY_GOT] = word[WBASE]
        return F.WMEM_UNWRITTEN.value
    at = word[ABASE]
    for _ in range(word[TLEN]):
        if amem[at] == 0:
            reg[WHY_GOT] = at
            return F.AMEM_UNWRITTEN.value
        at = at + 1 if at + 1 < amem.size else 0
    return 0


@leaf
def _gain(
    word: NDArray[np.int64],
    acc: NDArray[np.int32],
    wmem: NDArray[np.int8],
    amem: NDArray[np.int8],
    rows: int,
    outputs: bool,
) -> None:
    """Add to the accumulators; vectors beyond the end of AMEM are those at its start (silicon only)."""
    first, count, depth = word[ABASE], word[TLEN], amem.shape[0]
    done = 0
    while done < count:
        part = min(count - done, depth - first)
        if outputs:
            stationary_outputs(acc, wmem, word[WBASE], amem, first, done, part, rows)
        else:
            stationary_weights(acc, wmem, word[WBASE], amem, first, part, rows)
        done += part
        first = 0


@leaf
def _epilogue(core: Core, word: NDArray[np.int64]) -> None:
    """MXU_EPILOGUE: the per-PE matrix with bias and relu, to a vreg or VMEM; row statistics."""
    rows, cols, flags, d = core.setting[S_ROWS], core.setting[S_COLS], word[CODE], word[DST]
    for r in range(rows):
        total = np.int64(0)
        for c in range(cols):
            i = r * cols + c
            x = core.matrix[i]
            if flags & BIAS:
                x = np.int32(x + core.v[word[SRC], c])
            if flags & RELU:
                x = max(x, np.int32(0))
            y = np.int64(x)
            total += y * y if flags & SUMSQ else y
            core.v[core.setting[S_VREGS] + R_SCRATCH, i] = x
        if flags & REDUCE:
            core.stat[r] = total
    _store(core, word, flags & TO_VMEM != 0, d)


@leaf
def _store(core: Core, word: NDArray[np.int64], to_vmem: bool, d: int) -> None:
    """The scratch tile to VMEM or to vreg d."""
    source = core.setting[S_VREGS] + R_SCRATCH
    for i in range(core.v.shape[1]):
        if to_vmem:
            core.vmem[word[VMEM], i] = core.v[source, i]
        else:
            core.v[d, i] = core.v[source, i]
    if to_vmem:
        core.vmem_state[word[VMEM]] |= WRITTEN | STORED
    else:
        core.known[d] = 1


@leaf
def _passes(code: int) -> bool:
    """Whether MXU_VPU_EPILOGUE hands the results on unchanged."""
    if code == VPU.ADD or code == VPU.SUB or code == VPU.MUL or code == VPU.MAX or code == VPU.MIN:
        return False
    return code != VPU.IPAIR_ROTATE


@leaf
def _vpu_epilogue(core: Core, word: NDArray[np.int64]) -> None:
    """MXU_VPU_EPILOGUE: row 0 := op(results, row 0 of a vreg), other rows 0."""
    rows, cols = core.setting[S_ROWS], core.setting[S_COLS]
    a = core.setting[S_VREGS] + R_SCRATCH + 1
    d = a - 1
    for i in range(core.v.shape[1]):
        core.v[a, i] = core.results[i] if i < cols else 0
    code = VPU.COPY.value if _passes(word[CODE]) else word[CODE]
    integer(core.v, core.vu, core.vb, code, a, word[SRC], d, rows, cols)
    for i in range(cols, core.v.shape[1]):
        core.v[d, i] = 0
    _store(core, word, word[SRC2] & 1 != 0, word[DST])


@leaf
def _late(
    word: NDArray[np.int64],
    reg: NDArray[np.int64],
    results: NDArray[np.int32],
    late: NDArray[np.int32],
    psum_written: NDArray[np.uint8],
    silicon: int,
) -> int:
    """Keep what this dispatch writes at its drain. Returns a fault."""
    cols = results.size
    if word[OP] == SXU.MXU and word[SRC2] != Psum.NONE:
        if word[SRC2] == Psum.ACCUMULATE and psum_written[word[DST], word[SRC]] == 0:
            reg[WHY_GOT] = word[DST]
            return F.PSUM_UNWRITTEN.value
        reg[LATE_MODE], reg[LATE_AT], reg[LATE_ROW] = word[SRC2], word[DST], word[SRC]
        for c in range(cols):
            late[c] = results[c]
    elif word[OP] == SXU.DISPATCH_MXU_REQUANT:
        if reg[SHIFT] == 0 and not silicon:
            reg[WHY_GOT] = 0
            return F.SHIFT.value
        reg[LATE_MODE], reg[LATE_AT], reg[LATE_ROW] = REQUANT, word[VMEM], 0
        for c in range(cols):
            late[c] = np.int32(requantised(np.int64(results[c]), reg[SCALE], reg[SHIFT]))
    return 0


@separate(int64(CORE, int64[::1], int64))
def dispatch(core: Core, word: NDArray[np.int64], cycle: int) -> int:
    """Start a dispatch whose EXEC is at `cycle`; the array is idle. Sets DONE; returns a fault."""
    reg, setting = core.reg, core.setting
    rows, cols, op, count = setting[S_ROWS], setting[S_COLS], word[OP], word[TLEN]
    if reg[LATE_MODE]:
        settle(reg, core.psum, core.psum_written, core.amem, core.amem_written, core.late)
    fault = _operands_written(word, core.wmem_written, core.amem_written, reg)
    if fault:
        return fault
    outputs = op == SXU.MXU_OS or op == SXU.MXU_OS_ACCUMULATE
    keeps = op == SXU.MXU_ACCUMULATE or op == SXU.MXU_OS_ACCUMULATE
    if not keeps:
        for i in range(core.acc.size):
            core.acc[i] = 0
    _gain(word, core.acc, core.wmem, core.amem, rows, outputs)
    latch(core.acc, core.matrix, core.results, not (keeps or outputs))
    if not outputs:
        done = cycle + count + rows + 4
    elif count:
        done = cycle + 2 * count + rows + cols + 3
    else:
        done = cycle + rows + cols + 4
    reg[DONE], reg[DISPATCHED], reg[STATISTICS] = done, 1, 0
    core.counts[N_MXU] += 1
    core.counts[N_MXU_BUSY] += done - cycle
    core.counts[N_MACS] += count * rows * cols
    if op == SXU.MXU_EPILOGUE:
        _epilogue(core, word)
        reg[STATISTICS] = word[CODE] & REDUCE
    elif op == SXU.MXU_VPU_EPILOGUE:
        _vpu_epilogue(core, word)
    return _late(word, reg, core.results, core.late, core.psum_written, setting[S_SILICON])
