"""A program's words made ready for the interpreter: ranges, stalls, registers (datasheet 2, 3, 9).

Decides which fields of an instruction are wrong on this machine, which vregs it reads and writes and what it waits
for; it must not know what an instruction computes. A wrong word is no error until it is executed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import int64, void

from kohakuaccel.jit import leaf, separate
from tinytpu.isa.codes import SXU, VPU, Column, Epilogue, Psum
from tinytpu.units.faults import F
from tinytpu.units.state import (
    FAULT,
    GOT,
    K_CONTROL,
    K_DISPATCH,
    K_FLOAT,
    K_INTEGER,
    K_MEMORY,
    K_MOVE,
    K_PSUM,
    K_REGISTER,
    KIND,
    LATENCY,
    LIMIT,
    MXU_DONE,
    MXU_IDLE,
    PENDING_WRITE,
    READ_A,
    READ_B,
    READ_C,
    S_AMEM,
    S_COLS,
    S_PSUM,
    S_ROWS,
    S_SILICON,
    S_TILES,
    S_VMEM,
    S_VREGS,
    S_WMEM,
    STALL,
    WRITES,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

OP, VMEM, DST, SRC, CODE, SRC2, WBASE, ABASE, TLEN = (int(c) for c in Column)
LAST_OPCODE, LAST_CODE = max(SXU), max(VPU)
BIAS, RELU, REDUCE, SUMSQ, TO_VMEM = (int(flag) for flag in Epilogue)

_WIDTHS = (6, 8, 4, 4, 7, 4, 8, 8, 8)
"""Bits of the fields in silicon (datasheet 2)."""


@leaf
def unary(code: int) -> bool:
    """Whether a VPU operation ignores its second operand."""
    if code == VPU.RELU or code == VPU.SUM_REDUCE or code == VPU.MAX_REDUCE or code == VPU.MIN_REDUCE:
        return True
    if VPU.FRECIP <= code <= VPU.F2I or code == VPU.NOT or VPU.COPY <= code <= VPU.FMIN_REDUCE_TILE:
        return True
    if VPU.FSUM_REDUCE <= code <= VPU.COS or code == VPU.PACKED_I8_NEG or code == VPU.PACKED_I8_RELU:
        return True
    return VPU.PACKED_I8_ABS <= code <= VPU.BYTE_REVERSE or code == VPU.FABS


@leaf
def latency(code: int, n: int) -> int:
    """Cycles from a VPU operation's EXEC to its result, for tiles of n words (datasheet 4, 6)."""
    if VPU.FSUM_REDUCE_TILE <= code <= VPU.FMIN_REDUCE_TILE or code == VPU.FPROD_REDUCE_TILE:
        return n + 1
    if code == VPU.EXP2:
        return 7 * n + 2
    if code == VPU.LOG2:
        return 6 * n + 2
    if code == VPU.SIN:
        return 11 * n + 2
    if code == VPU.COS:
        return 5 * n + 2
    return 1


@leaf
def stall(op: int) -> int:
    """What an opcode waits for; LOAD's wait comes at its second EXEC cycle."""
    if op == SXU.WAIT_MXU or op == SXU.LOAD_MXU_RESULT or op == SXU.LOAD_MXU_MATRIX_ROW:
        return MXU_DONE
    if op == SXU.LOAD_EPILOGUE_STAT:
        return MXU_DONE
    if op == SXU.MXU or SXU.MXU_ACCUMULATE <= op <= SXU.MXU_OS or op == SXU.MXU_OS_ACCUMULATE:
        return MXU_IDLE
    if op == SXU.MXU_EPILOGUE or SXU.SET_REQUANT_CONFIG <= op <= SXU.MXU_VPU_EPILOGUE:
        return MXU_IDLE
    if op <= SXU.BROADCAST or SXU.SELECT <= op <= SXU.LOAD_VPU_RESULT:
        return PENDING_WRITE
    if op == SXU.PSUM_WRITE or op == SXU.PSUM_ACCUMULATE or op == SXU.PSUM_ACCUMULATE_ROW:
        return PENDING_WRITE
    if op == SXU.SET_PRED_IF_ZERO or op == SXU.SET_PRED_NE_ZERO or op == SXU.VPU_BG or op == SXU.ROTATE:
        return PENDING_WRITE
    if op == SXU.VMOV or op == SXU.VNEG or op == SXU.VABS:
        return PENDING_WRITE
    return 0


@leaf
def floats(code: int) -> bool:
    """Whether a VPU operation is one of vpu_float's."""
    if code == VPU.SELECT or code == VPU.NOT:
        return False
    if VPU.FADD <= code <= VPU.F2I or VPU.FSUM_REDUCE_TILE <= code <= VPU.COS:
        return True
    return code == VPU.FSIGN or code == VPU.PAIR_ROTATE


@leaf
def kind(op: int, code: int) -> int:
    """Who executes an instruction."""
    if op == SXU.VPU or op == SXU.VPU_BG:
        return K_FLOAT if floats(code) else K_INTEGER
    if op == SXU.LOAD or op == SXU.STORE:
        return K_MEMORY
    if op == SXU.PSUM_CLEAR_ALL or SXU.PSUM_WRITE <= op <= SXU.PSUM_CLEAR or op == SXU.PSUM_ACCUMULATE_ROW:
        return K_PSUM
    if stall(op) == MXU_IDLE and op != SXU.MXU_CLEAR and op != SXU.SET_REQUANT_CONFIG:
        return K_DISPATCH
    if op == SXU.BROADCAST or SXU.BROADCAST_SCALAR <= op <= SXU.TRANSPOSE or op == SXU.ROTATE:
        return K_MOVE
    if op == SXU.LOOP_BEGIN or op == SXU.LOOP_END or op == SXU.SKIP_IF_PRED or op == SXU.SKIP_IF_NOT_PRED:
        return K_CONTROL
    return K_REGISTER


@leaf
def _below(word: NDArray[np.int64], column: int, limit: int, fault: int, silicon: int) -> None:
    """Hold a field below `limit`: the first one that is not becomes the word's fault; silicon wraps it instead."""
    value = word[column]
    if 0 <= value < limit:
        return
    if silicon:
        word[column] = value % limit
    elif word[FAULT] == F.NONE:
        word[FAULT], word[GOT], word[LIMIT] = fault, value, limit - 1


@leaf
def _refuse(word: NDArray[np.int64], fault: int, got: int, limit: int) -> None:
    if word[FAULT] == F.NONE:
        word[FAULT], word[GOT], word[LIMIT] = fault, got, limit


@leaf
def _dispatch(word: NDArray[np.int64], setting: NDArray[np.int64]) -> None:
    """The operands of an MXU dispatch."""
    silicon, op, count = setting[S_SILICON], word[OP], word[TLEN]
    _below(word, WBASE, setting[S_WMEM], F.WMEM_ADDRESS.value, silicon)
    _below(word, ABASE, setting[S_AMEM], F.AMEM_ADDRESS.value, silicon)
    if op == SXU.MXU_OS or op == SXU.MXU_OS_ACCUMULATE:
        # What a larger K leaves in silicon is not known, so it is refused there too.
        if count > setting[S_ROWS] or (count < 1 and not silicon):
            _refuse(word, F.K.value, count, setting[S_ROWS])
    elif not silicon and not 1 <= count <= setting[S_TILES]:
        _refuse(word, F.TILES.value, count, setting[S_TILES])
    if not silicon and word[ABASE] + count > setting[S_AMEM]:
        _refuse(word, F.AMEM_RANGE.value, word[ABASE] + count, setting[S_AMEM])
    if op == SXU.MXU:
        if word[SRC2] > Psum.ACCUMULATE:
            _refuse(word, F.PSUM_MODE.value, word[SRC2], Psum.ACCUMULATE.value)
        if word[SRC2] != Psum.NONE:
            _below(word, DST, setting[S_PSUM], F.BUCKET.value, silicon)
            _below(word, SRC, setting[S_ROWS], F.ROW.value, silicon)
    elif op == SXU.DISPATCH_MXU_REQUANT:
        _below(word, VMEM, setting[S_AMEM], F.AMEM_ADDRESS.value, silicon)
    elif op == SXU.MXU_EPILOGUE or op == SXU.MXU_VPU_EPILOGUE:
        if op == SXU.MXU_VPU_EPILOGUE:
            if word[CODE] > LAST_CODE:
                _refuse(word, F.VPU_CODE.value, word[CODE], LAST_CODE)
            stores, reads = word[SRC2] & 1, True
        else:
            stores, reads = word[CODE] & TO_VMEM, word[CODE] & BIAS != 0
        if reads:
            _below(word, SRC, setting[S_VREGS], F.VREG.value, silicon)
            word[READ_A] = word[SRC]
        if stores:
            _below(word, VMEM, setting[S_VMEM], F.VMEM_ADDRESS.value, silicon)
        else:
            _below(word, DST, setting[S_VREGS], F.VREG.value, silicon)
            word[WRITES] = word[DST]


@leaf
def _registers(op: int) -> int:
    """Which of SRC (1), SRC2 (2), DST (4) are vregs, for opcodes outside the MXU's dispatches."""
    if op == SXU.STORE or op == SXU.PSUM_WRITE or op == SXU.PSUM_ACCUMULATE or op == SXU.PSUM_ACCUMULATE_ROW:
        return 1
    if op == SXU.SET_PRED_IF_ZERO or op == SXU.SET_PRED_NE_ZERO:
        return 1
    if op == SXU.VPU or op == SXU.VPU_BG or op == SXU.SELECT:
        return 7
    if op == SXU.BROADCAST or SXU.BROADCAST_SCALAR <= op <= SXU.TRANSPOSE or op == SXU.ROTATE:
        return 5
    if op == SXU.VMOV or op == SXU.VNEG or op == SXU.VABS:
        return 5
    if op == SXU.LOAD or op == SXU.LOAD_MXU_RESULT or op == SXU.LOAD_VPU_RESULT or op == SXU.LOAD_XLU_RESULT:
        return 4
    if op == SXU.PSUM_READ or op == SXU.PSUM_READ_ROW or op == SXU.LOAD_MXU_MATRIX_ROW or op == SXU.READ_CYCLE:
        return 4
    if op == SXU.VZERO or op == SXU.VFILL or op == SXU.LOAD_LOOP_DEPTH or op == SXU.LOAD_EPILOGUE_STAT:
        return 4
    return 0


@leaf
def _picks(op: int, rows: int, cols: int) -> int:
    """How many values SRC2 of a move across lanes may take; 0 for other opcodes."""
    if op == SXU.BROADCAST_SCALAR:
        return rows * cols
    if op == SXU.BROADCAST_ROW:
        return rows
    if op == SXU.BROADCAST or op == SXU.BROADCAST_COL or op == SXU.ROTATE:
        return cols
    return 0


@leaf
def _operands(word: NDArray[np.int64], setting: NDArray[np.int64]) -> None:
    """The operands of everything but the MXU's dispatches."""
    silicon, op, rows = setting[S_SILICON], word[OP], setting[S_ROWS]
    which, vreg = _registers(op), F.VREG.value
    if op == SXU.VPU or op == SXU.VPU_BG:
        if word[CODE] > LAST_CODE:
            _refuse(word, F.VPU_CODE.value, word[CODE], LAST_CODE)
        if unary(word[CODE]):
            word[SRC2], which = word[SRC], 5
    if which & 1:
        _below(word, SRC, setting[S_VREGS], vreg, silicon)
        word[READ_A] = word[SRC]
    if which == 7:
        _below(word, SRC2, setting[S_VREGS], vreg, silicon)
        word[READ_B] = word[SRC2]
    if which & 4:
        _below(word, DST, setting[S_VREGS], vreg, silicon)
        word[WRITES] = word[DST]
    picks = _picks(op, rows, setting[S_COLS])
    if picks:
        _below(word, SRC2, picks, F.LANE.value, silicon)
    if op == SXU.SELECT:
        _below(word, WBASE, setting[S_VREGS], vreg, silicon)
        word[READ_C] = word[WBASE]
    elif op == SXU.LOAD or op == SXU.STORE:
        _below(word, VMEM, setting[S_VMEM], F.VMEM_ADDRESS.value, silicon)
    elif SXU.PSUM_WRITE <= op <= SXU.PSUM_CLEAR or op == SXU.PSUM_ACCUMULATE_ROW:
        _below(word, VMEM, setting[S_PSUM], F.BUCKET.value, silicon)
        if op == SXU.PSUM_READ_ROW:
            _below(word, SRC, rows, F.ROW.value, silicon)
        elif op == SXU.PSUM_ACCUMULATE_ROW:
            _below(word, DST, rows, F.ROW.value, silicon)
    elif op == SXU.LOAD_MXU_MATRIX_ROW:
        _below(word, SRC, rows, F.ROW.value, silicon)
    elif op == SXU.LOOP_BEGIN and word[TLEN] < 1:
        _refuse(word, F.LOOP_COUNT.value, word[TLEN], 1)
    elif op == SXU.SET_REQUANT_CONFIG:
        if word[CODE] & 31 == 0 and not silicon:
            _refuse(word, F.SHIFT.value, 0, 1)
        pattern = word[WBASE] | word[ABASE] << 8 | word[TLEN] << 16 | word[VMEM] << 24
        word[GOT] = pattern if word[FAULT] else np.int64(np.int32(pattern))


@separate(void(int64[:, ::1], int64[:, ::1], int64[::1]), python=True)
def decode(fields: NDArray[np.int64], program: NDArray[np.int64], setting: NDArray[np.int64]) -> None:
    """Fill program, int64[words, COLUMNS], from fields, int64[words, 9].

    A word's first wrong field stands in FAULT, GOT and LIMIT. GOT of a right SET_REQUANT_CONFIG is its multiplier.
    """
    for i in range(fields.shape[0]):
        word = program[i]
        for c in range(9):
            value = fields[i, c]
            # A wider machine has wider fields; the silicon's widths hold where they are asked for.
            word[c] = value & ((1 << _WIDTHS[c]) - 1) if setting[S_SILICON] else value
            if value < 0 and not setting[S_SILICON]:
                _refuse(word, F.FIELD.value, value, 0)
        word[READ_A], word[READ_B], word[READ_C], word[WRITES] = -1, -1, -1, -1
        op = word[OP]
        if not 0 <= op <= LAST_OPCODE:
            _refuse(word, F.OPCODE.value, op, LAST_OPCODE)
            continue
        word[STALL], word[KIND] = stall(op), kind(op, word[CODE])
        word[LATENCY] = latency(word[CODE], setting[S_ROWS] * setting[S_COLS])
        if word[KIND] == K_DISPATCH:
            _dispatch(word, setting)
        else:
            _operands(word, setting)
