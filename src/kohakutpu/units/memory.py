"""The memory agent of a mesh: which addresses are lawful, what was written, how quantised entries are packed.

Decides address, page and written-ness checks (datasheet 3.1, 3.2), the packing of an entry (2.3) and the
quantising upload. It must not know instructions, nor who asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import int64, typeof

from kohakuaccel.diagnostics import Refusal, Unsupported
from kohakuaccel.jit import kernel, separate
from kohakuaccel.numerics.kernels import mxfp7_quantise
from kohakutpu.isa.cluster import FAULT_NONFINITE
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

ORDER_A, ORDER_B = 0, 1
ENTRY_BYTES_FP16, ENTRY_BYTES_QUANTISED = 256, 128
POLICY_RAISE, POLICY_COUNT = 0, 1
UPLOAD_SPAN = 1 << 32  # an upload address has 32 bits of destination
_MEMORY = typeof(make_memory([PAGE]))
UPLOAD_BATCH = 64  # entries quantised at a time

# One 56-bit run of eight 7-bit fields <-> eight bytes, by halving: 28-, 14-, then 7-bit groups.
_G28, _G14, _G7 = np.uint64(0x0FFFFFFF), np.uint64(0x00003FFF00003FFF), np.uint64(0x007F007F007F007F)
_SIGN7, _TOP, _LOW7 = (
    np.uint64(0x4040404040404040),
    np.uint64(0x8080808080808080),
    np.uint64(0x7F7F7F7F7F7F7F7F),
)
_S7, _S8, _S14, _S16, _S28, _S32 = (np.uint64(s) for s in (7, 8, 14, 16, 28, 32))
_S24, _S40, _S48 = (np.uint64(s) for s in (24, 40, 48))


@kernel
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


@kernel
def _spread(run: np.uint64) -> np.uint64:
    """Eight int7 fields, first one on top of 56 bits, to eight int8 bytes, first one lowest."""
    # A run cut from two 64-bit words carries its neighbour's bits above the 56.
    x = np.uint64(((run >> _S28) & _G28) | ((run & _G28) << _S32))
    x = np.uint64(((x >> _S14) & _G14) | ((x & _G14) << _S16))
    x = np.uint64(((x >> _S7) & _G7) | ((x & _G7) << _S8))
    # Per byte: flip the sign bit to get q + 64, subtract 64 with a borrow guard on top, drop the guard.
    return np.uint64((((x ^ _SIGN7) | _TOP) - _SIGN7) ^ _TOP)


@kernel
def _gather(octet: np.uint64) -> np.uint64:
    """The inverse of `_spread`."""
    x = np.uint64(octet & _LOW7)
    x = np.uint64(((x & _G7) << _S7) | ((x >> _S8) & _G7))
    x = np.uint64(((x & _G14) << _S14) | ((x >> _S16) & _G14))
    return np.uint64(((x & _G28) << _S28) | ((x >> _S32) & _G28))


@kernel
def unpack_word(word: NDArray[np.uint64], at: int, w: int, order: int, image: NDArray[np.uint64], to: int) -> None:
    """Word `w` of a quantised entry, word[at:at+4], into the int8 image image[to:to+16] (eight bytes each).

    The image is [lane][k] in A order, [k][lane] in B order: bytes are the L1 image's 7-bit elements (2.3).
    """
    w0, w1, w2, w3 = word[at], word[at + 1], word[at + 2], word[at + 3]
    step = 4 if order == ORDER_A else 1
    first = to + (w if order == ORDER_A else 4 * w)
    image[first] = _spread(w3 >> _S8)
    image[first + step] = _spread(np.uint64((w3 << _S48) | (w2 >> _S16)))
    image[first + 2 * step] = _spread(np.uint64((w2 << _S40) | (w1 >> _S24)))
    image[first + 3 * step] = _spread(np.uint64((w1 << _S32) | (w0 >> _S32)))


@kernel
def pack_entry(
    image: NDArray[np.uint64], at: int, scale: NDArray[np.uint8], s: int, order: int, word: NDArray[np.uint64], to: int
) -> None:
    """The int8 image image[at:at+16] and scale[s:s+4] as four words word[to:to+16] (2.3)."""
    packed_scale = np.uint64(0)
    for lane in range(4):
        packed_scale = np.uint64((packed_scale << _S8) | np.uint64(scale[s + lane]))
    step = 4 if order == ORDER_A else 1
    for w in range(4):
        first = at + (w if order == ORDER_A else 4 * w)
        r0, r1 = _gather(image[first]), _gather(image[first + step])
        r2, r3 = _gather(image[first + 2 * step]), _gather(image[first + 3 * step])
        word[to + 4 * w + 3] = np.uint64((r0 << _S8) | (r1 >> _S48))
        word[to + 4 * w + 2] = np.uint64((r1 << _S16) | (r2 >> _S40))
        word[to + 4 * w + 1] = np.uint64((r2 << _S24) | (r3 >> _S32))
        word[to + 4 * w] = np.uint64((r3 << _S32) | packed_scale)


@kernel
def order_image(rows: NDArray[np.int8], at: int, order: int, image: NDArray[np.int8]) -> None:
    """Quantised lanes rows[at:at+4] (int8[4, 32]) into image[:128] in the side's order."""
    if order == ORDER_A:
        for lane in range(4):
            for k in range(32):
                image[32 * lane + k] = rows[at + lane, k]
        return
    for k in range(32):
        for lane in range(4):
            image[4 * k + lane] = rows[at + lane, k]


@kernel
def scale_bytes(word: np.uint64, scale: NDArray[np.uint8], at: int) -> None:
    """The four scale bytes of an entry from bits 31:0 of its word 0, lane 0 on top."""
    for lane in range(4):
        scale[at + lane] = np.uint8((word >> np.uint64(24 - 8 * lane)) & np.uint64(0xFF))


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
