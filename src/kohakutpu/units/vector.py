"""The vector core's front door: envelopes in, bursts in (datasheet 4.2, 6.1).

Decides what an envelope writes and how a bad burst is reported; it must not know what program words do
(vector_run), how instructions arrive, who receives what a core sends, or what anybody does about a fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import int64, uint64

from kohakuaccel.jit import leaf, separate
from kohakutpu.isa.flit import BUF_FP22
from kohakutpu.units import vector_codes as codes
from kohakutpu.units.state import E_NODE, FAULTED, RAISED, RETIRED, Memory, Outbox
from kohakutpu.units.vector_decode import decode
from kohakutpu.units.vector_run import NOTE, STATE, run
from kohakutpu.units.vector_state import (
    BAD_BURST,
    BASE,
    BOUND,
    C_SLOT,
    DESCRIPTORS,
    IMEM,
    L1,
    STRIDE,
    WIDE_INBOX,
    WRITTEN,
    Vectors,
    make_vectors,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Vectors", "make_vectors", "vector_receive", "vector_step"]


@separate(int64(*STATE, int64, int64, int64, int64, int64, NOTE), python=True)
def vector_step(
    vc: Vectors,
    mem: Memory,
    out: Outbox,
    u: int,
    op: int,
    a: int,
    b: int,
    value: int,
    note: NDArray[np.int64],
) -> int:
    """Execute one envelope of vector core u (6.1) and return its status (units/state.py).

    op 1 IMEM: a = address, value = 32-bit word. op 2 DESC: a = descriptor, b = field, value = 40 bits (a
    dimension uses the low 34). op 3 RUN: a = pc; runs to VHALT or a fault. All int64. CU_DATA bursts sent by the
    RUN are in `out` when it returns.

    note, int64[8]: [0] status; [1] result word (RUN: kernel cycles, else 0), fault code or error code; [2:6]
    details of an error; [6] program address of the word that ended a RUN. A bad inbound burst is
    reported here, as F_CUDATA, before a RUN's first word.
    """
    note[1], note[6] = 0, a if op == codes.RUN else -1
    status = RETIRED
    if op == codes.IMEM_WRITE:
        vc.word[u * IMEM + a] = value
        decode(value, vc.imem[u * IMEM + a])
        vc.busy[u] += vc.cost[C_SLOT]
    elif op == codes.DESC_WRITE:
        ad = u * DESCRIPTORS + a
        if b == 0:
            vc.descriptor[ad, BASE] = value
        elif b <= 4:
            stride = (value >> 16) & 0x3FFFF
            vc.descriptor[ad, STRIDE + b - 1] = stride - ((stride & 0x20000) << 1)
            vc.descriptor[ad, BOUND + b - 1] = max(1, value & 0xFFFF)
        vc.busy[u] += vc.cost[C_SLOT]
    elif op == codes.RUN:
        if vc.core[u, BAD_BURST] == 0:
            status = run(vc, mem, out, u, a, note)
    else:
        status, note[1] = FAULTED, codes.F_OPCODE
    if vc.core[u, BAD_BURST]:
        vc.core[u, BAD_BURST] = 0
        status, note[1] = FAULTED, codes.F_CUDATA
    if status != RAISED:
        vc.retired[u] += 1
    note[0] = status
    return status


@leaf
def widen(data: NDArray[np.uint64], row: int, single: NDArray[np.uint32], at: int) -> None:
    """The FP22 sub-tile of granules data[row:row+2] (5.4) as 16 binary32 at single[at:], exactly (section 10)."""
    for e in range(16):
        word, shift = (22 * e) // 64, (22 * e) % 64
        code = data[row + word // 4, word % 4] >> np.uint64(shift)
        if shift > 42:
            word += 1
            code |= data[row + word // 4, word % 4] << np.uint64(64 - shift)
        exponent = (code >> np.uint64(14)) & np.uint64(0x7F)
        value = np.uint64(0)
        if exponent != 0:
            sign = (code >> np.uint64(21)) & np.uint64(1)
            mantissa = code & np.uint64(0x3FFF)
            value = sign << np.uint64(31) | (exponent + np.uint64(64)) << np.uint64(23) | mantissa << np.uint64(9)
        single[at + e] = np.uint32(value)


@separate(int64(STATE[0], int64, int64, int64, uint64[:, ::1], int64), python=True)
def vector_receive(vc: Vectors, u: int, buf: int, offset: int, data: NDArray[np.uint64], n: int) -> int:
    """Accept a CU_DATA burst of n granules, uint64[n, 4], into L1 words offset.. of core u (4.2).

    Buffer 0 takes words as they are. Buffer 2 (r2_acc_to_vc) takes FP22 sub-tiles and holds them as FP32, two words
    each. Returns 0, or E_NODE for a buffer a vector core does not have. A burst that leaves L1, or that does not hold
    whole sub-tiles, is dropped whole and becomes the fault F_CUDATA at the core's next instruction; it is still 0
    here, and acknowledged if asked.
    """
    wide = buf == BUF_FP22 and vc.option[WIDE_INBOX] != 0
    if buf != 0 and not wide:
        return E_NODE
    if offset < 0 or offset + n > L1 or (wide and (offset % 2 != 0 or n % 2 != 0)):
        vc.core[u, BAD_BURST] = 1
        return 0
    if wide:
        for i in range(0, n, 2):
            widen(data, i, vc.single, 8 * (u * L1 + offset + i))
            vc.filled[u * L1 + offset + i] = WRITTEN
            vc.filled[u * L1 + offset + i + 1] = WRITTEN
        return 0
    for i in range(n):
        for q in range(4):
            vc.wide[4 * (u * L1 + offset + i) + q] = data[i, q]
        vc.filled[u * L1 + offset + i] = WRITTEN
    return 0
