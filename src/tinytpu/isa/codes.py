"""The numbers of the instruction set: opcodes, fields, record kinds, flags (datasheet 2, 3, 4).

Plain numbers only, for compiled unit models as much as for the assembler. What an opcode's fields mean stands in
`opcodes` and `vpu`; nothing here is likely to change when those do.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag


class Column(IntEnum):
    """Columns of a decoded instruction, int64[n, 9]: the order of the fields in a bundle's record 2."""

    OP = 0
    VMEM = 1
    DST = 2
    SRC = 3
    VPU = 4
    SRC2 = 5
    WBASE = 6
    ABASE = 7
    TLEN = 8


FIELDS = tuple(column.name.lower() for column in Column)
"""Field names in column order: op, vmem, dst, src, vpu, src2, wbase, abase, tlen."""


class Record(IntEnum):
    """Record kinds of a bundle (datasheet 2)."""

    WMEM = 0
    AMEM = 1
    INSTRUCTION = 2
    MXU_RESULT = 3
    END = 4
    VMEM = 5
    OUTPUT_VMEM = 6
    OUTPUT_AMEM = 7


class Psum(IntEnum):
    """What an MXU dispatch does with its PSUM bucket row at the drain: field src2 of opcode 4."""

    NONE = 0
    WRITE = 1
    ACCUMULATE = 2


class Epilogue(IntFlag):
    """Bits of field vpu of opcode 42; bits 5 and 6 are unused."""

    BIAS = 1
    RELU = 2
    REDUCE = 4
    SUMSQ = 8
    TO_VMEM = 16


class SXU(IntEnum):
    """Opcodes of the sequencer (datasheet 3)."""

    LOAD = 0
    STORE = 1
    VPU = 2
    BROADCAST = 3
    MXU = 4
    WAIT_MXU = 5
    LOAD_MXU_RESULT = 6
    HALT = 7
    SELECT = 8
    BROADCAST_SCALAR = 9
    BROADCAST_ROW = 10
    BROADCAST_COL = 11
    TRANSPOSE = 12
    LOAD_VPU_RESULT = 13
    LOAD_XLU_RESULT = 14
    PSUM_WRITE = 15
    PSUM_ACCUMULATE = 16
    PSUM_READ = 17
    PSUM_READ_ROW = 18
    PSUM_CLEAR = 19
    SET_PRED_IF_ZERO = 20
    SKIP_IF_PRED = 21
    PSUM_ACCUMULATE_ROW = 22
    MXU_ACCUMULATE = 23
    MXU_CLEAR = 24
    MXU_OS = 25
    LOAD_MXU_MATRIX_ROW = 26
    READ_CYCLE = 27
    LOOP_BEGIN = 28
    LOOP_END = 29
    VZERO = 30
    VFILL = 31
    VMOV = 32
    MXU_OS_ACCUMULATE = 33
    VNEG = 34
    VABS = 35
    LOAD_LOOP_DEPTH = 36
    ROTATE = 37
    PSUM_CLEAR_ALL = 38
    SET_PRED_NE_ZERO = 39
    SKIP_IF_NOT_PRED = 40
    VPU_BG = 41
    MXU_EPILOGUE = 42
    LOAD_EPILOGUE_STAT = 43
    SET_REQUANT_CONFIG = 44
    DISPATCH_MXU_REQUANT = 45
    MXU_VPU_EPILOGUE = 46


class VPU(IntEnum):
    """Opcodes of the vector unit, field vpu (datasheet 4)."""

    ADD = 0
    MUL = 1
    RELU = 2
    MAX = 3
    SUM_REDUCE = 4
    CMPLT = 5
    CMPNE = 6
    SUB = 7
    CMPEQ = 8
    MAX_REDUCE = 9
    SHL = 10
    SHR = 11
    MIN = 12
    MIN_REDUCE = 13
    DIV = 14
    AND = 15
    OR = 16
    XOR = 17
    FADD = 18
    FMUL = 19
    FSUB = 20
    FMAX = 21
    FCMPLT = 22
    FRECIP = 23
    I2F = 24
    F2I = 25
    NOT = 26
    SELECT = 27
    COPY = 28
    SUM_REDUCE_COL = 29
    MAX_REDUCE_COL = 30
    MIN_REDUCE_COL = 31
    SUM_REDUCE_TILE = 32
    MAX_REDUCE_TILE = 33
    MIN_REDUCE_TILE = 34
    MUL_REDUCE = 35
    MUL_REDUCE_COL = 36
    MUL_REDUCE_TILE = 37
    FSUM_REDUCE_TILE = 38
    FMAX_REDUCE_TILE = 39
    FMIN_REDUCE_TILE = 40
    FMIN = 41
    FSUM_REDUCE = 42
    FMAX_REDUCE = 43
    FMIN_REDUCE = 44
    FSUM_REDUCE_COL = 45
    FMAX_REDUCE_COL = 46
    FMIN_REDUCE_COL = 47
    FPROD_REDUCE_TILE = 48
    FPROD_REDUCE = 49
    FPROD_REDUCE_COL = 50
    EXP2 = 51
    LOG2 = 52
    SIN = 53
    COS = 54
    PACKED_I8_ADD = 55
    PACKED_I8_SUB = 56
    PACKED_I8_MAX = 57
    PACKED_I8_MIN = 58
    PACKED_I8_NEG = 59
    PACKED_I8_RELU = 60
    PACKED_I8_CMPLT = 61
    PACKED_I8_CMPEQ = 62
    PACKED_I8_MUL_LOW = 63
    PACKED_I8_MUL_HIGH = 64
    PACKED_I8_ABS = 65
    SIGN = 66
    PACKED_I8_SIGN = 67
    FSIGN = 68
    ARGMIN = 69
    ARGMAX = 70
    CLZ = 71
    POPCOUNT = 72
    CTZ = 73
    BYTE_REVERSE = 74
    SAT_ADD_I32 = 75
    SAT_SUB_I32 = 76
    ABS_DIFF_I32 = 77
    PACKED_I8_ABS_DIFF = 78
    FABS = 79
    ROTL = 80
    ROTR = 81
    MIN_U32 = 82
    MAX_U32 = 83
    PAIR_ROTATE = 84
    IPAIR_ROTATE = 85
