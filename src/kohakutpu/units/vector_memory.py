"""Descriptor walks and what moves along them: L1 <-> registers, DRAM <-> L1, L1 -> other units.

Decides addresses, their checks and the marks on L1 words (datasheet 6.3); it must not know time, loops or
arithmetic. Every mover returns 0 or an error code of units/state.py with its details in note[2:6].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kohakuaccel.jit import kernel
from kohakuaccel.numerics.kernels import e8m15_from_fp16, e8m15_from_fp32, fp16_from_e8m15, fp32_from_e8m15
from kohakutpu.units.errors import E_OUTBOX
from kohakutpu.units.state import (
    E_ADDRESS,
    E_L1_RANGE,
    E_L1_UNWRITTEN,
    E_UNWRITTEN,
    E_VFILL_PENDING,
    WORD,
    Memory,
    Outbox,
)
from kohakutpu.units.vector_state import BASE, BOUND, L1, LANES, NEVER, PENDING, STRIDE, VLMAX, WRITTEN

if TYPE_CHECKING:
    from numpy.typing import NDArray

FP16, FP32 = 1, 2
_WORD_BITS = 5  # WORD = 32 bytes
_MESH_SHIFT = 36  # address bits [39:36]: aperture, reserved, mesh (3.1)


@kernel
def walk(descriptor: NDArray[np.int64], offset: int, count: int, out: NDArray[np.int64]) -> None:
    """out[0..count-1] = the first `count` addresses of int64[9] `descriptor`, plus offset. Dimension 0 is
    the fastest; past its end a walk keeps returning its last address."""
    base = descriptor[BASE] + offset
    n = 0
    at = base
    for i3 in range(descriptor[BOUND + 3]):
        for i2 in range(descriptor[BOUND + 2]):
            for i1 in range(descriptor[BOUND + 1]):
                outer = (
                    base
                    + i3 * descriptor[STRIDE + 3]
                    + i2 * descriptor[STRIDE + 2]
                    + i1 * descriptor[STRIDE + 1]
                )
                for i0 in range(descriptor[BOUND]):
                    at = outer + i0 * descriptor[STRIDE]
                    out[n] = at
                    n += 1
                    if n == count:
                        return
    for i in range(n, count):
        out[i] = at


@kernel
def _range_error(at: int, count: int, note: NDArray[np.int64]) -> int:
    note[2], note[3], note[4] = at, count, L1
    return E_L1_RANGE


@kernel
def _state_error(state: int, at: int, note: NDArray[np.int64]) -> int:
    """The error of using an L1 word that holds nothing, or that an outstanding VFILL is about to write."""
    if state == PENDING:
        note[2] = at
        return E_VFILL_PENDING
    note[2], note[3] = -1, at
    return E_L1_UNWRITTEN


@kernel
def load_register(
    half: NDArray[np.uint16],
    single: NDArray[np.uint32],
    filled: NDArray[np.uint8],
    u: int,
    steps: NDArray[np.int64],
    chunks: int,
    dtype: int,
    row: NDArray[np.uint32],
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
    if straight:
        base = (first + steps[0]) * LANES
        if dtype == FP16:
            e8m15_from_fp16(half[base : base + chunks * LANES], row[: chunks * LANES])
        else:
            base >>= 1
            e8m15_from_fp32(single[base : base + chunks * LANES], row[: chunks * LANES])
        return 0
    for c in range(chunks):
        base = (first + steps[c]) * LANES
        if dtype == FP16:
            e8m15_from_fp16(half[base : base + LANES], row[c * LANES : (c + 1) * LANES])
        else:
            base >>= 1
            e8m15_from_fp32(single[base : base + LANES], row[c * LANES : (c + 1) * LANES])
    return 0


@kernel
def store_register(
    half: NDArray[np.uint16],
    single: NDArray[np.uint32],
    filled: NDArray[np.uint8],
    u: int,
    steps: NDArray[np.int64],
    chunks: int,
    dtype: int,
    row: NDArray[np.uint32],
    saturated: NDArray[np.int64],
    note: NDArray[np.int64],
) -> int:
    """VST: the reverse of load_register; counts what saturated. A word that an outstanding VFILL is about to
    write is refused too: which of the two stays would be a matter of time."""
    words = 1 if dtype == FP16 else 2
    first = u * L1
    for c in range(chunks):
        at = steps[c]
        if at < 0 or at + words > L1:
            return _range_error(at, words, note)
        for w in range(words):
            if filled[first + at + w] == PENDING:
                return _state_error(PENDING, at + w, note)
    for c in range(chunks):
        base = (first + steps[c]) * LANES
        if dtype == FP16:
            saturated[u] += fp16_from_e8m15(row[c * LANES : (c + 1) * LANES], half[base : base + LANES])
        else:
            base >>= 1
            fp32_from_e8m15(row[c * LANES : (c + 1) * LANES], single[base : base + LANES])
        for w in range(words):
            filled[first + steps[c] + w] = WRITTEN
    return 0


@kernel
def through_half(source: NDArray[np.uint32], target: NDArray[np.uint32], n: int) -> int:
    """VCVT FP16: the first n words of a register row through binary16 and back; returns what saturated."""
    half = np.empty(VLMAX, np.uint16)
    saturated = fp16_from_e8m15(source[:n], half[:n])
    e8m15_from_fp16(half[:n], target[:n])
    return saturated


@kernel
def _dram_word(mem: Memory, mesh: int, address: int) -> int:
    """Index of a 32-byte word of `mem` for a unit of `mesh`, or -1: foreign mesh, special aperture, reserved
    bit, beyond the DRAM or not a multiple of 32."""
    offset = address & ((1 << _MESH_SHIFT) - 1)
    if address >> _MESH_SHIFT != mesh or offset + WORD > mem.size[mesh] or offset & (WORD - 1):
        return -1
    return (mem.base[mesh] + offset) >> _WORD_BITS


@kernel
def fill(
    wide: NDArray[np.uint64],
    filled: NDArray[np.uint8],
    mem: Memory,
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
        word = _dram_word(mem, mesh, steps[i])
        if word < 0:
            note[2] = steps[i]
            return E_ADDRESS
        if mem.written[word] == NEVER:
            note[2], note[3] = mesh, steps[i] & ((1 << _MESH_SHIFT) - 1)
            return E_UNWRITTEN
        at = u * L1 + to + i
        for q in range(4):
            wide[4 * at + q] = mem.wide[4 * word + q]
        filled[at] = PENDING
    return 0


@kernel
def settle(filled: NDArray[np.uint8], u: int, first: int, count: int) -> None:
    """An outstanding VFILL of L1 words first..first+count-1 is complete."""
    for i in range(count):
        filled[u * L1 + first + i] = WRITTEN


@kernel
def _readable(filled: NDArray[np.uint8], u: int, first: int, count: int, note: NDArray[np.int64]) -> int:
    if first < 0 or first + count > L1:
        return _range_error(first, count, note)
    for i in range(count):
        state = filled[u * L1 + first + i]
        if state != WRITTEN:
            return _state_error(state, first + i, note)
    return 0


@kernel
def drain(
    wide: NDArray[np.uint64],
    filled: NDArray[np.uint8],
    mem: Memory,
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
        word = _dram_word(mem, mesh, steps[i])
        if word < 0:
            note[2] = steps[i]
            return E_ADDRESS
        at = u * L1 + first + i
        for q in range(4):
            mem.wide[4 * word + q] = wide[4 * at + q]
        mem.written[word] = 1
    return 0


@kernel
def send(
    wide: NDArray[np.uint64],
    filled: NDArray[np.uint8],
    out: Outbox,
    mesh: int,
    u: int,
    record: int,
    count: int,
    first: int,
    x: int,
    y: int,
    buf: int,
    acknowledge: int,
    note: NDArray[np.int64],
) -> int:
    """VDRAIN to a node: one CU_DATA burst of `count` granules into the outbox. `record` is the packed base:
    [15:0] granule, [23:16] {ack_y,ack_x}, [25:24] mesh, [33:26] final {y,x}, nonzero when remote."""
    code = _readable(filled, u, first, count, note)
    if code:
        return code
    burst, row = out.count[0], out.count[1]
    if burst == out.head.shape[0] or row + count > out.data.shape[0]:
        note[2], note[3] = burst + 1, row + count
        return E_OUTBOX
    final = (record >> 26) & 255
    head = out.head[burst]
    head[0] = (record >> 24) & 3 if final else mesh
    head[1] = final & 15 if final else x
    head[2] = final >> 4 if final else y
    head[3] = buf
    head[4] = record & 0xFFFF
    head[5] = count
    head[6] = acknowledge
    head[7] = (record >> 16) & 15
    head[8] = (record >> 20) & 15
    head[9] = row
    for i in range(count):
        for q in range(4):
            out.data[row + i, q] = wide[4 * (u * L1 + first + i) + q]
    out.count[0], out.count[1] = burst + 1, row + count
    return 0
