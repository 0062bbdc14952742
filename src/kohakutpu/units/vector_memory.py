"""Descriptor walks and what moves along them: L1 <-> registers, DRAM <-> L1, L1 -> other units.

Decides addresses, their checks and the marks on L1 words (datasheet 6.3); it must not know time, loops or
arithmetic. Every mover returns 0 or an error code of units/state.py with its details in note[2:6].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kohakuaccel.jit import leaf, separate
from kohakuaccel.numerics.kernels import e8m15_from_fp16, e8m15_from_fp32, fp16_from_e8m15, fp32_from_e8m15
from kohakutpu.isa.vector import DTYPE, NODE_RECORD
from kohakutpu.units.state import (
    E_ADDRESS,
    E_L1_RANGE,
    E_L1_UNWRITTEN,
    E_OUTBOX,
    E_UNWRITTEN,
    E_VFILL_PENDING,
    WORD,
)
from kohakutpu.units.vector_decode import ACK, BUF, DST_X, DST_Y, L1_WORD
from kohakutpu.units.vector_state import BASE, BOUND, L1, LANES, NEVER, PENDING, STRIDE, WALK, WRITTEN

if TYPE_CHECKING:
    from numpy.typing import NDArray

FP16, FP32 = int(DTYPE.FP16), int(DTYPE.FP32)
# Columns of the packed base record, and where they are.
GRANULE, ACK_Y, ACK_X, RECORD_MESH, FINAL_Y, FINAL_X = (
    NODE_RECORD.column(name) for name in ("granule", "ack_y", "ack_x", "mesh", "final_y", "final_x")
)
_RECORD = np.array([NODE_RECORD.position(name) for name in NODE_RECORD.names], np.int64)

_WORD_BITS = 5  # WORD = 32 bytes
_MESH_SHIFT = 36  # address bits [39:36]: aperture, reserved, mesh (3.1)


@leaf
def walk_length(descriptor: NDArray[np.int64], ad: int) -> int:
    """Steps of a descriptor's walk; WALK + 1 stands for anything longer."""
    total = 1
    for k in range(4):
        total = min(total * descriptor[ad, BOUND + k], WALK + 1)
    return total


@separate("void(int64[:,::1], int64, int64, int64, int64[::1])")
def walk(table: NDArray[np.int64], ad: int, offset: int, count: int, out: NDArray[np.int64]) -> None:
    """out[0..count-1] = the first `count` addresses of descriptor `ad`, plus offset. Dimension 0 is the
    fastest; past its end a walk keeps returning its last address."""
    descriptor = table[ad]
    base = descriptor[BASE] + offset
    n = 0
    at = base
    for i3 in range(descriptor[BOUND + 3]):
        for i2 in range(descriptor[BOUND + 2]):
            for i1 in range(descriptor[BOUND + 1]):
                outer = base + i3 * descriptor[STRIDE + 3] + i2 * descriptor[STRIDE + 2] + i1 * descriptor[STRIDE + 1]
                for i0 in range(descriptor[BOUND]):
                    at = outer + i0 * descriptor[STRIDE]
                    out[n] = at
                    n += 1
                    if n == count:
                        return
    for i in range(n, count):
        out[i] = at


@leaf
def _range_error(at: int, count: int, note: NDArray[np.int64]) -> int:
    note[2], note[3], note[4] = at, count, L1
    return E_L1_RANGE


@leaf
def _state_error(state: int, at: int, note: NDArray[np.int64]) -> int:
    """The error of using an L1 word that holds nothing, or that an outstanding VFILL is about to write."""
    if state == PENDING:
        note[2] = at
        return E_VFILL_PENDING
    note[2], note[3] = -1, at
    return E_L1_UNWRITTEN


@separate(
    "int64(uint16[::1], uint32[::1], uint8[::1], int64, int64[::1], int64, int64, uint32[:,::1], int64, int64[::1])"
)
def load_register(
    half: NDArray[np.uint16],
    single: NDArray[np.uint32],
    filled: NDArray[np.uint8],
    u: int,
    steps: NDArray[np.int64],
    chunks: int,
    dtype: int,
    bits: NDArray[np.uint32],
    row: int,
    note: NDArray[np.int64],
) -> int:
    """VLD: chunk c of the register row comes from L1 word steps[c] (FP16), or from it and the next (FP32)."""
    words = 1 if dtype == FP16 else 2
    first = u * L1
    straight = True
    for c in range(chunks):
        at = steps[c]
        if at < 0 or at + words > L1:
            return _range_error(at, words, note)
        for w in range(words):
            if filled[first + at + w] != WRITTEN:
                return _state_error(filled[first + at + w], at + w, note)
        straight &= at == steps[0] + c * words
    # Words that follow one another are converted in one sweep, others chunk by chunk.
    runs, length = (1, chunks * LANES) if straight else (chunks, LANES)
    for c in range(runs):
        base = (first + steps[c]) * LANES
        part = bits[row, c * length : (c + 1) * length]
        if dtype == FP16:
            e8m15_from_fp16(half[base : base + length], part)
        else:
            e8m15_from_fp32(single[base >> 1 : (base >> 1) + length], part)
    return 0


@separate(
    "int64(uint16[::1], uint32[::1], uint8[::1], int64, int64[::1], int64, int64, uint32[:,::1], int64, int64[::1],"
    " int64[::1])"
)
def store_register(
    half: NDArray[np.uint16],
    single: NDArray[np.uint32],
    filled: NDArray[np.uint8],
    u: int,
    steps: NDArray[np.int64],
    chunks: int,
    dtype: int,
    bits: NDArray[np.uint32],
    row: int,
    saturated: NDArray[np.int64],
    note: NDArray[np.int64],
) -> int:
    """VST: the reverse of load_register; counts what saturated. A word that an outstanding VFILL is about to
    write is refused too: which of the two stays would be a matter of time."""
    words = 1 if dtype == FP16 else 2
    first = u * L1
    straight = True
    for c in range(chunks):
        at = steps[c]
        if at < 0 or at + words > L1:
            return _range_error(at, words, note)
        for w in range(words):
            if filled[first + at + w] == PENDING:
                return _state_error(PENDING, at + w, note)
        straight &= at == steps[0] + c * words
    for c in range(chunks):
        for w in range(words):
            filled[first + steps[c] + w] = WRITTEN
    # Words that follow one another are converted in one sweep; others chunk by chunk, the last one staying.
    runs, length = (1, chunks * LANES) if straight else (chunks, LANES)
    for c in range(runs):
        base = (first + steps[c]) * LANES
        part = bits[row, c * length : (c + 1) * length]
        if dtype == FP16:
            saturated[u] += fp16_from_e8m15(part, half[base : base + length])
        else:
            fp32_from_e8m15(part, single[base >> 1 : (base >> 1) + length])
    return 0


@leaf
def _dram_word(base: int, size: int, mesh: int, address: int) -> int:
    """Index of a 32-byte DRAM word for a unit of `mesh`, whose memory is `size` bytes at host byte `base`, or
    -1: foreign mesh, special aperture, reserved bit, beyond the DRAM or not a multiple of 32."""
    offset = address & ((1 << _MESH_SHIFT) - 1)
    if address >> _MESH_SHIFT != mesh or offset + WORD > size or offset & (WORD - 1):
        return -1
    return (base + offset) >> _WORD_BITS


_TRANSFER = (
    "int64(uint64[::1], uint8[::1], uint64[::1], uint8[::1], int64, int64, int64, int64, int64[::1], int64, int64,"
    " int64[::1])"
)


@separate(_TRANSFER)
def fill(
    wide: NDArray[np.uint64],
    filled: NDArray[np.uint8],
    dram: NDArray[np.uint64],
    written: NDArray[np.uint8],
    base: int,
    size: int,
    mesh: int,
    u: int,
    steps: NDArray[np.int64],
    count: int,
    to: int,
    note: NDArray[np.int64],
) -> int:
    """VFILL: DRAM words steps[0..count-1] to L1 words to, to+1, ..., left PENDING until the fill is awaited."""
    if to < 0 or to + count > L1:
        return _range_error(to, count, note)
    for i in range(count):
        word = _dram_word(base, size, mesh, steps[i])
        if word < 0:
            note[2] = steps[i]
            return E_ADDRESS
        if written[word] == NEVER:
            note[2], note[3] = mesh, steps[i] & ((1 << _MESH_SHIFT) - 1)
            return E_UNWRITTEN
    # Nothing is touched before all of it is known to be right.
    for i in range(count):
        word = _dram_word(base, size, mesh, steps[i])
        at = u * L1 + to + i
        for q in range(4):
            wide[4 * at + q] = dram[4 * word + q]
        filled[at] = PENDING
    return 0


@leaf
def settle(filled: NDArray[np.uint8], u: int, first: int, count: int) -> None:
    """An outstanding VFILL of L1 words first..first+count-1 is complete."""
    for i in range(count):
        filled[u * L1 + first + i] = WRITTEN


@leaf
def _readable(filled: NDArray[np.uint8], u: int, first: int, count: int, note: NDArray[np.int64]) -> int:
    if first < 0 or first + count > L1:
        return _range_error(first, count, note)
    for i in range(count):
        state = filled[u * L1 + first + i]
        if state != WRITTEN:
            return _state_error(state, first + i, note)
    return 0


@separate(_TRANSFER)
def drain(
    wide: NDArray[np.uint64],
    filled: NDArray[np.uint8],
    dram: NDArray[np.uint64],
    written: NDArray[np.uint8],
    base: int,
    size: int,
    mesh: int,
    u: int,
    steps: NDArray[np.int64],
    count: int,
    first: int,
    note: NDArray[np.int64],
) -> int:
    """VDRAIN to memory: L1 words first, first+1, ... to DRAM words steps[0..count-1]."""
    code = _readable(filled, u, first, count, note)
    if code:
        return code
    for i in range(count):
        if _dram_word(base, size, mesh, steps[i]) < 0:
            note[2] = steps[i]
            return E_ADDRESS
    for i in range(count):
        word = _dram_word(base, size, mesh, steps[i])
        at = u * L1 + first + i
        for q in range(4):
            dram[4 * word + q] = wide[4 * at + q]
        written[word] = 1
    return 0


@leaf
def _record(record: int, name: int) -> int:
    """A field of the packed base of a VDRAIN to a node (6.3)."""
    return (record >> _RECORD[name, 0]) & ((1 << _RECORD[name, 1]) - 1)


@separate(
    "int64(uint64[::1], uint8[::1], int64[:,::1], uint64[:,::1], int64[::1], int64, int64, int64, int64, int64[::1],"
    " int64[::1])"
)
def send(
    wide: NDArray[np.uint64],
    filled: NDArray[np.uint8],
    heads: NDArray[np.int64],
    data: NDArray[np.uint64],
    used: NDArray[np.int64],
    mesh: int,
    u: int,
    record: int,
    count: int,
    w: NDArray[np.int64],
    note: NDArray[np.int64],
) -> int:
    """VDRAIN `w` (decoded) to a node: one CU_DATA burst of `count` granules into the outbox (heads, data, used).
    `record` is the packed base: granule, ack, mesh, and the final coordinate, nonzero when remote (6.3)."""
    first = w[L1_WORD]
    code = _readable(filled, u, first, count, note)
    if code:
        return code
    burst, row = used[0], used[1]
    if burst == heads.shape[0] or row + count > data.shape[0]:
        note[2], note[3] = burst + 1, row + count
        return E_OUTBOX
    remote = _record(record, FINAL_Y) != 0 or _record(record, FINAL_X) != 0
    head = heads[burst]
    head[0] = _record(record, RECORD_MESH) if remote else mesh
    head[1] = _record(record, FINAL_X) if remote else w[DST_X]
    head[2] = _record(record, FINAL_Y) if remote else w[DST_Y]
    head[3] = w[BUF]
    head[4] = _record(record, GRANULE)
    head[5] = count
    head[6] = w[ACK]
    head[7] = _record(record, ACK_X)
    head[8] = _record(record, ACK_Y)
    head[9] = row
    for i in range(count):
        for q in range(4):
            data[row + i, q] = wide[4 * (u * L1 + first + i) + q]
    used[0], used[1] = burst + 1, row + count
    return 0
