"""Where a TinyTPU core keeps what it holds: one named tuple of arrays, reset for every run (datasheet 1, 2).

Decides the shapes and the reset values; it must not know what instructions do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kohakuaccel.machine import Machine
from tinytpu.isa.codes import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Rows of the tiles behind the vregs: result registers and scratch.
R_VPU, R_XLU, R_SCRATCH = range(3)
EXTRA_ROWS = 4  # R_SCRATCH is two rows

# Columns of a decoded instruction: the nine fields, and what the decoder adds.
OP, VMEM, DST, SRC, CODE, SRC2, WBASE, ABASE, TLEN = (int(column) for column in Column)
# KIND: who executes it. LATENCY: cycles of a VPU operation.
FAULT, GOT, LIMIT, STALL, READ_A, READ_B, READ_C, WRITES, KIND, LATENCY = range(9, 19)
COLUMNS = 19

K_INTEGER, K_FLOAT, K_MEMORY, K_DISPATCH, K_PSUM, K_MOVE, K_CONTROL, K_REGISTER = range(8)

# Bits of STALL: what an instruction waits for before its EXEC (datasheet 3).
PENDING_WRITE, MXU_IDLE, MXU_DONE = 1, 2, 4

# States of a VMEM tile, bits.
WRITTEN, STORED, REMARKED = 1, 2, 4  # STORED: by an instruction, and not read since; REMARKED: that it was lost

# Entries of `setting`.
S_ROWS, S_COLS, S_VREGS, S_AMEM, S_LIMIT, S_SILICON, S_FETCH = range(7)

# Entries of `counts`: what a run counts. Busy: cycles. A P, C or D stall is a cycle that an EXEC waited.
COUNTED = (
    "instructions", "stall_p", "stall_c", "stall_d", "vpu_ops", "vpu_busy", "xlu_ops", "mxu_dispatches", "mxu_busy",
    "psum_ops", "macs", "lints",
)  # fmt: skip
(N_INSTRUCTIONS, N_STALL_P, N_STALL_C, N_STALL_D, N_VPU, N_VPU_BUSY, N_XLU, N_MXU, N_MXU_BUSY, N_PSUM, N_MACS,
 N_LINTS) = range(len(COUNTED))  # fmt: skip

# Entries of `reg`: the sequencer's and controllers' registers, and where a run has come to.
(PC, TIME, PREDICATE, DEPTH, BG_READY, BG_DST, BG_LOG, DONE, DISPATCHED, STATISTICS, LATE_MODE, LATE_AT, LATE_ROW,
 SCALE, SHIFT, HAS_VPU, HAS_XLU, WHY, WHY_GOT, WHY_LIMIT, WHEN) = range(21)  # fmt: skip
REGISTERS = 21

# Columns of a logged instruction: program address, cycles of its FETCH, of its EXEC, of its last cycle; ENDED: when
# an MXU dispatch is done or a background result is written, else 0.
LOG_PC, LOG_FETCH, LOG_EXEC, LOG_LAST, LOG_ENDED = range(5)
LOG_COLUMNS = 5
LINTS = 64

NONE = -1
"""No vreg."""
REQUANT = 3
"""LATE_MODE of a requantising dispatch; 1 and 2 are Psum.WRITE and Psum.ACCUMULATE."""


class Core(NamedTuple):
    """The state of one core. n = rows * columns words a tile.

    Everything is as after reset; a run works on the state it is given, and what it leaves can be looked at.
    """

    v: NDArray[np.int32]  # [vregs + EXTRA_ROWS, n] vregs, then the VPU's and XLU's result registers and scratch
    vf: NDArray[np.float32]  # the same memory as values
    vu: NDArray[np.uint32]  # ... as unsigned words
    vb: NDArray[np.int8]  # ... as bytes, byte 0 lowest
    vmem: NDArray[np.int32]  # [vmem_tiles, n]
    vmem_state: NDArray[np.uint8]  # [vmem_tiles] WRITTEN | STORED
    stored_by: NDArray[np.int64]  # [vmem_tiles] program address of the last STORE
    wmem: NDArray[np.int8]  # [wmem_tiles, n] W[k][n]
    wmem_written: NDArray[np.uint8]
    amem: NDArray[np.int8]  # [amem_vectors, rows]
    amem_written: NDArray[np.uint8]
    psum: NDArray[np.int32]  # [psum_buckets, n]
    psum_written: NDArray[np.uint8]  # [psum_buckets, rows]
    acc: NDArray[np.int32]  # [n] accumulators of the array
    matrix: NDArray[np.int32]  # [n] latched at the last drain
    results: NDArray[np.int32]  # [columns] column sums latched at the last drain
    stat: NDArray[np.int64]  # [rows] statistics of the last MXU_EPILOGUE with a reduction
    late: NDArray[np.int32]  # [columns] the PSUM row or requantised vector that a dispatch in flight will write
    known: NDArray[np.uint8]  # [vregs] written by the program
    loop: NDArray[np.int64]  # [loop_depth, 2] repetitions left, program address of the body
    program: NDArray[np.int64]  # [words, COLUMNS] decoded instructions
    hits: NDArray[np.int64]  # [words] executions of each word
    spent: NDArray[np.int64]  # [words] cycles of each word, stalls included
    setting: NDArray[np.int64]  # [7]
    reg: NDArray[np.int64]  # [REGISTERS]
    counts: NDArray[np.int64]  # [COUNTED]
    log: NDArray[np.int64]  # [logged, LOG_COLUMNS] executed instructions; those beyond it are counted only
    lint: NDArray[np.int64]  # [LINTS, 3] what, program address, detail


def reset_core(machine: Machine, words: int, *, silicon: bool = False, log: int = 0) -> Core:
    """A core after reset, with room for a program of `words` instructions and a log of `log` executed ones."""
    p = machine.params
    rows, cols = int(p.rows), int(p.columns)
    n = rows * cols
    v = np.zeros((int(p.vregs) + EXTRA_ROWS, n), np.int32)
    setting = (rows, cols, p.vregs, p.amem_vectors, p.cycle_limit, silicon, machine.timing.fetch)
    return Core(
        v=v,
        vf=v.view(np.float32),
        vu=v.view(np.uint32),
        vb=v.view(np.int8),
        vmem=np.zeros((int(p.vmem_tiles), n), np.int32),
        vmem_state=np.zeros(int(p.vmem_tiles), np.uint8),
        stored_by=np.zeros(int(p.vmem_tiles), np.int64),
        wmem=np.zeros((int(p.wmem_tiles), n), np.int8),
        wmem_written=np.zeros(int(p.wmem_tiles), np.uint8),
        amem=np.zeros((int(p.amem_vectors), rows), np.int8),
        amem_written=np.zeros(int(p.amem_vectors), np.uint8),
        psum=np.zeros((int(p.psum_buckets), n), np.int32),
        psum_written=np.zeros((int(p.psum_buckets), rows), np.uint8),
        acc=np.zeros(n, np.int32),
        matrix=np.zeros(n, np.int32),
        results=np.zeros(cols, np.int32),
        stat=np.zeros(rows, np.int64),
        late=np.zeros(cols, np.int32),
        known=np.zeros(int(p.vregs), np.uint8),
        loop=np.zeros((int(p.loop_depth), 2), np.int64),
        program=np.zeros((words, COLUMNS), np.int64),
        hits=np.zeros(words, np.int64),
        spent=np.zeros(words, np.int64),
        setting=np.array([int(x) for x in setting], np.int64),
        reg=np.zeros(REGISTERS, np.int64),
        counts=np.zeros(len(COUNTED), np.int64),
        log=np.zeros((log, LOG_COLUMNS), np.int64),
        lint=np.zeros((LINTS, 3), np.int64),
    )
