"""What may stop a run and what may be remarked about it, as numbers for compiled loops (datasheet 9).

Decides nothing but the numbering; `errors` has the texts.
"""

from enum import IntEnum


class F(IntEnum):
    """Why a run stopped. `got` and `limit` stand beside it."""

    NONE = 0
    OPCODE = 1
    VPU_CODE = 2
    VREG = 3
    VMEM_ADDRESS = 4
    WMEM_ADDRESS = 5
    AMEM_ADDRESS = 6
    AMEM_RANGE = 7
    BUCKET = 8
    ROW = 9
    LANE = 10
    TILES = 11
    K = 12
    PSUM_MODE = 13
    LOOP_COUNT = 14
    SHIFT = 15
    FIELD = 16
    END_OF_PROGRAM = 20
    TIMEOUT = 21
    VMEM_UNWRITTEN = 22
    WMEM_UNWRITTEN = 23
    AMEM_UNWRITTEN = 24
    PSUM_UNWRITTEN = 25
    NO_VPU_RESULT = 26
    NO_XLU_RESULT = 27
    LOOPS_FULL = 28
    NO_LOOP = 29
    NOTHING_DISPATCHED = 30
    NO_STATISTICS = 31
    PSUM_HAZARD = 32
    BACKGROUND_READ = 33
    BACKGROUND_WRITE = 34
    REQUANT_IN_FLIGHT = 35


class Lint(IntEnum):
    """What a run may remark."""

    VREG_UNWRITTEN = 1
    STORE_UNUSED = 2
    LOOPS_OPEN = 3
    WRITE_PENDING = 4
    WAIT_UNNEEDED = 5
