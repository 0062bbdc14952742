"""What the compiled unit models share: memory, the outbox of CU_DATA bursts, status codes.

Plain arrays in named tuples, so that compiled loops take them and Python can look at them. Nothing here decides
anything; every unit module says in its own state tuple what it keeps.
"""

from __future__ import annotations

import mmap
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Status of one step of a unit.
RETIRED = 0  # the instruction is done; `note[1]` is its result word
FAULTED = 1  # retired with SIG_FAULT; `note[1]` is the fault code
WAITING = 2  # cannot proceed and nothing inside this unit can change that; `note[1]` is a wait reason
RAISED = 3  # the simulator stops; `note[1]` is an error code, `note[2:6]` its details

NOTE_WORDS = 8  # length of the int64 note array a step fills: [status, code, d0, d1, d2, d3, pc, NOTE_OTHERS]
NOTE_OTHERS = 7  # not 0: what other waiting clusters waited for has come

# Error codes of RAISED; text and details live in units/errors.py.
E_UNWRITTEN = 1  # a read of memory never written: d0 = mesh, d1 = byte offset
E_ADDRESS = 2  # outside DRAM, foreign mesh, reserved bit, misaligned: d0 = address
E_PAGE = 3  # an entry or burst crosses a 4 KiB page: d0 = address
E_L1_RANGE = 4  # L1 entry, granule or word out of range: d0 = first, d1 = count, d2 = capacity
E_L1_UNWRITTEN = 5  # an L1 entry or word read before anything was put there: d0 = side (or -1), d1 = index
E_LIVE_SWEEP = 6  # a FILL touches entries that a live sweep reads: d0 = side, d1 = first, d2 = count
E_TILE_RANGE = 7  # sub-tile out of range: d0 = wanted, d1 = capacity
E_TILE_UNOPENED = 8  # acc, ADD_PEER or DRAIN on a tile never opened (or opened by another shape): d0 = sub-tile
E_DRAIN_MISMATCH = 9  # a fused DRAIN that differs from its emitting GEMM: d0 = which field (column number)
E_FIELD = 10  # a field value the encoder must refuse: d0 = column, d1 = value
E_VFILL_PENDING = 11  # an L1 word read while an outstanding VFILL targets it: d0 = word
# a node drain to a coordinate without a unit, or a buffer the target does not take: d0 = mesh<<8|y<<4|x, d1 = buffer
E_NODE = 12
E_BURST = 13  # two open CU_DATA bursts at one receiver
E_OUTBOX = 15  # more CU_DATA in one instruction than the outbox holds: d0 = bursts, d1 = granules
E_SHARE = 16  # members of a shared FILL disagree: d0 = the other member's mesh<<8|y<<4|x, d1 = tag, d2 = SHARE_* column
E_WALK = 17  # a fill beyond its descriptor's walk: d0 = elements wanted, d1 = elements walked
E_FETCH = 14  # a vector program runs past its last word without VHALT: d0 = program words

# Wait reasons of WAITING.
W_DRAIN_NO_EMIT = 1  # a fused DRAIN whose sub-tiles no GEMM hands out: d0 = wanted, d1 = outstanding
W_DRAIN_QUEUE = 2  # a sweep (or what waits for it) stalled on 112 outstanding sub-tiles nobody drains
W_SHARE = 3  # a shared FILL whose other members are not there: d0 = tag, d1 = up to three {y,x} bytes of those missing

WORD = 32  # bytes in a 256-bit word
PAGE = 4096


class Memory(NamedTuple):
    """The DRAM of every mesh, one after another in one address space of the host process.

    half and wide are views of the same bytes; `written` has one byte per 32-byte word (0 = never written).
    Mesh m occupies bytes base[m] .. base[m]+size[m]-1.
    """

    byte: NDArray[np.uint8]
    half: NDArray[np.uint16]
    wide: NDArray[np.uint64]
    written: NDArray[np.uint8]
    base: NDArray[np.int64]
    size: NDArray[np.int64]


def _reserve(nbytes: int) -> NDArray[np.uint8]:
    """Address space that costs nothing until touched (no swap reserved), zero-filled."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    return np.frombuffer(mmap.mmap(-1, nbytes, flags=flags), np.uint8)


def make_memory(sizes: list[int]) -> Memory:
    """Memory for meshes whose DRAMs have `sizes` bytes (multiples of 4096)."""
    total = sum(sizes)
    byte = _reserve(total)
    base = np.cumsum([0, *sizes[:-1]]).astype(np.int64)
    return Memory(
        byte,
        byte.view(np.uint16),
        byte.view(np.uint64),
        _reserve(total // WORD),
        base,
        np.array(sizes, np.int64),
    )


class Outbox(NamedTuple):
    """CU_DATA bursts a unit sent in its current instruction, delivered by the system when it retires.

    head[i] = [mesh, x, y, buf, offset, n_granules, flags, ack_x, ack_y, first row in data]; used[0] bursts and
    used[1] data rows are used. data rows are 256-bit granules as four little-endian 64-bit words.
    Capacity: the largest DRAIN, 512 sub-tiles at FP22 = 1024 granules, 128 bursts.
    """

    head: NDArray[np.int64]
    data: NDArray[np.uint64]
    used: NDArray[np.int64]


def make_outbox() -> Outbox:
    return Outbox(np.zeros((256, 10), np.int64), np.zeros((2048, 4), np.uint64), np.zeros(2, np.int64))
