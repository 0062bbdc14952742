"""The memory agent of a mesh: which addresses are lawful, what was written, what an upload quantises.

Decides address, page and written-ness checks (datasheet 3.1, 3.2) and the quantising upload. It must not know
instructions, nor who asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import int64, typeof

from kohakuaccel.diagnostics import Refusal, Unsupported
from kohakuaccel.jit import kernel, leaf, separate
from kohakuaccel.numerics.kernels import mxfp7_quantise
from kohakutpu.isa.cluster import FAULT_NONFINITE
from kohakutpu.units.entries import order_image, pack_entry, scale_bytes, unpack_word
from kohakutpu.units.state import (
    E_ADDRESS,
    E_PAGE,
    E_UNWRITTEN,
    FAULTED,
    PAGE,
    RAISED,
    RETIRED,
    WORD,
    Memory,
    make_memory,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kohakuaccel.machine import Machine

ENTRY_BYTES_FP16, ENTRY_BYTES_QUANTISED = 256, 128
POLICY_RAISE, POLICY_COUNT = 0, 1
UPLOAD_SPAN = 1 << 32  # an upload address has 32 bits of destination
_MEMORY = typeof(make_memory([PAGE]))
UPLOAD_BATCH = 64  # entries quantised at a time


@leaf
def fail(note: NDArray[np.int64], code: int, d0: int, d1: int, d2: int) -> int:
    """Write an error and its details into `note`; returns RAISED."""
    note[0] = RAISED
    note[1] = code
    note[2] = d0
    note[3] = d1
    note[4] = d2
    return RAISED


@kernel(inline="always")
def _crossing(addr: int, size: int, total: int) -> int:
    """Address of the first chunk of addr..addr+total, cut every `size` bytes, that crosses a page; or -1."""
    found = -1
    if addr % size != 0:
        at = addr
        while at < addr + total and found < 0:
            if at // PAGE != (min(at + size, addr + total) - 1) // PAGE:
                found = at
            at += size
    return found


@kernel(inline="always")
def _unwritten(written: NDArray[np.uint8], first: int, count: int) -> int:
    """Index of the first word of first..first+count that was never written; or -1."""
    there = 0
    flags = written[first : first + count]
    for w in range(flags.size):
        there += np.int64(flags[w])
    found = -1
    if there != count:
        for w in range(count):
            if flags[w] == 0 and found < 0:
                found = first + w
    return found


@separate(int64(_MEMORY, int64, int64, int64, int64, int64, int64[::1]))
def access(mem: Memory, mesh: int, addr: int, chunk: int, nbytes: int, write: int, note: NDArray[np.int64]) -> int:
    """Position in `mem.byte` of a unit's access to consecutive `chunk`-byte pieces; -1 = error in `note`.

    Lawful (3.1, 3.2, 5.6): bits 39 and 38 clear, the unit's own mesh in 37:36, a multiple of 32, `nbytes` inside
    DRAM (E_ADDRESS); no piece crosses a 4 KiB page (E_PAGE; `chunk` divides 4096). A read needs every word
    written before (E_UNWRITTEN); a write marks them, so the caller writes before anything else runs.
    """
    offset = addr & ((1 << 36) - 1)
    if (addr >> 36) != mesh or addr % WORD != 0 or offset + nbytes > mem.size[mesh]:
        fail(note, E_ADDRESS, addr, nbytes, mesh)
        return -1
    cut = _crossing(addr, chunk, nbytes)
    if cut >= 0:
        fail(note, E_PAGE, cut, chunk, 0)
        return -1
    start = mem.base[mesh] + offset
    first, count = start // WORD, nbytes // WORD
    if write:
        flags = mem.written[first : first + count]
        for w in range(flags.size):
            flags[w] = 1
        return start
    missing = _unwritten(mem.written, first, count)
    if missing >= 0:
        fail(note, E_UNWRITTEN, mesh, missing * WORD - mem.base[mesh], 0)
        return -1
    return start


@separate("void(uint64[::1], int64, int64, int64, uint64[::1], uint8[::1], int64)")
def unpack_entries(
    wide: NDArray[np.uint64],
    at: int,
    n: int,
    order: int,
    image: NDArray[np.uint64],
    scale: NDArray[np.uint8],
    first: int,
) -> None:
    """n quantised entries wide[at:at+16n] into L1 images and scales from entry `first` on (2.3)."""
    for e in range(n):
        for w in range(4):
            unpack_word(wide, at + 16 * e + 4 * w, w, order, image, 16 * (first + e))
        scale_bytes(wide[at + 16 * e], scale, 4 * (first + e))


@separate("int64(uint16[:,::1], int64, int8[:,::1], uint8[::1], int8[::1], uint8[::1], int64)")
def quantise_entries(
    half: NDArray[np.uint16],
    order: int,
    rows: NDArray[np.int8],
    row_scale: NDArray[np.uint8],
    image: NDArray[np.int8],
    scale: NDArray[np.uint8],
    first: int,
) -> int:
    """FP16 entries half[4n, 32] into L1 images and scales from entry `first` on (2.2).

    rows int8[>= 4n, 32] and row_scale uint8[>= 4n] are scratch. Returns the count of non-finite elements.
    """
    found = mxfp7_quantise(half, rows, row_scale)
    for e in range(half.shape[0] // 4):
        order_image(rows, 4 * e, order, image[128 * (first + e) : 128 * (first + e + 1)])
        for lane in range(4):
            scale[4 * (first + e) + lane] = row_scale[4 * e + lane]
    return found


@separate(
    "int64(uint16[::1], int64, int64, uint64[::1], int64, int8[:,::1], uint8[:,::1], uint64[::1], int8[::1])",
    python=True,
)
def _upload(
    half: NDArray[np.uint16],
    order: int,
    policy: int,
    wide: NDArray[np.uint64],
    at: int,
    rows: NDArray[np.int8],
    scales: NDArray[np.uint8],
    octets: NDArray[np.uint64],
    image: NDArray[np.int8],
) -> int:
    """Quantise and pack entries half[128n] into words wide[at:]; returns the count of non-finite elements.

    Under policy 0 a non-finite element leaves everything unwritten. The rest is scratch for one batch; octets
    and image are one buffer.
    """
    found = 0
    if policy == POLICY_RAISE:
        for i in range(half.size):
            found += int((half[i] & np.uint16(0x7C00)) == np.uint16(0x7C00))
        if found:
            return found
    entries = half.size // 128
    for first in range(0, entries, UPLOAD_BATCH):
        count = min(UPLOAD_BATCH, entries - first)
        lanes = half[128 * first : 128 * (first + count)].reshape(4 * count, 32)
        found += quantise_entries(lanes, order, rows, scales[0], image, scales[1], 0)
        for e in range(count):
            pack_entry(octets, 16 * e, scales[1], 4 * e, order, wide, at + 16 * (first + e))
    return found


def quantising_upload(
    mem: Memory,
    mesh: int,
    order: int,
    dst: int,
    half: NDArray[np.uint16],
    policy: int,
    note: NDArray[np.int64],
) -> int:
    """Quantise FP16 entries on their way into DRAM (3.1): entry n lands at `dst + 128n`.

    half: uint16[128 * entries] in pack order, contiguous; order: 0 = A, 1 = B; dst: byte offset in the mesh, a
    multiple of 128. Returns RETIRED with the number of non-finite elements in note[2]; FAULTED with code 0x10
    and the same count under policy 0, nothing written; or RAISED (E_ADDRESS).
    """
    nbytes = half.size // 128 * ENTRY_BYTES_QUANTISED
    if half.size % 128 or dst % ENTRY_BYTES_QUANTISED or dst < 0 or dst + nbytes > mem.size[mesh]:
        note[:5] = RAISED, E_ADDRESS, dst, nbytes, mesh
        return RAISED
    start = int(mem.base[mesh]) + dst
    rows, scales = np.empty((4 * UPLOAD_BATCH, 32), np.int8), np.empty((2, 4 * UPLOAD_BATCH), np.uint8)
    octets = np.empty(16 * UPLOAD_BATCH, np.uint64)
    image = octets.view(np.int8)
    found = int(_upload(half, order, policy, mem.wide, start // 8, rows, scales, octets, image))
    if found and policy == POLICY_RAISE:
        note[:3] = FAULTED, FAULT_NONFINITE, found
        return FAULTED
    mem.written[start // WORD : (start + nbytes) // WORD] = 1
    note[:3] = RETIRED, 0, found
    return RETIRED


def check_quantising_upload(machine: Machine, mesh: int, dst: int, nbytes: int) -> None:
    """Refuse what the upload path cannot take: `nbytes` of FP16 entries for byte offset `dst` of a mesh (3.1).

    Raises Unsupported on a machine without the path, Refusal for a bad length, alignment or range.
    """
    where = f"quantising upload to mesh {mesh} of {machine.name}"
    if not machine.features.quantising_upload:
        raise Unsupported(
            "this machine has no quantising upload path",
            where=where,
            hint="upload FP16 entries and let FILL quantise (preq = 0)",
        )
    if nbytes % ENTRY_BYTES_FP16:
        raise Refusal("whole FP16 entries of 256 bytes", where=where, got=nbytes, limit="a multiple of 256")
    if dst % ENTRY_BYTES_QUANTISED:
        raise Refusal("a quantised entry is aligned", where=where, got=hex(dst), limit="a multiple of 128")
    size = min(machine.memories[mesh].size, UPLOAD_SPAN)
    if dst < 0 or dst + nbytes // 2 > size:
        raise Refusal("inside DRAM", where=where, got=f"{dst:#x} + {nbytes // 2}", limit=size)
