"""FILL: operand entries from memory into a cluster's L1 (datasheet 5.2), alone, by descriptor, or shared (10).

It decides which L1 entries a fill may touch, where each lane is read, and when the members of a shared fill have met.
It must not know sweeps beyond the entries they read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import int64

from kohakuaccel.jit import kernel, leaf, separate
from kohakutpu.isa.cluster import FAULT_NONFINITE
from kohakutpu.isa.cluster_tdesc import COLUMNS, FIELD_AXES, FIELD_BASE
from kohakutpu.isa.walks import DIMENSIONS
from kohakutpu.units.cluster_cost import charge_fill
from kohakutpu.units.cluster_fields import (
    ANCHOR,
    C_ADDR,
    C_ANCHOR,
    C_DESC,
    C_DSEL,
    C_EOFF,
    C_FBANK,
    C_N,
    C_NPEER,
    C_PEERS,
    C_PREQ,
    C_SEL,
    C_TAG,
    CLUSTERS,
    INTS,
    MEMORY,
    outside,
)
from kohakutpu.units.cluster_state import (
    BANK_ENTRIES,
    D_AXIS,
    D_BASE,
    D_DIM,
    D_NDIM,
    DESCRIPTOR_FILL,
    L1_A,
    LIVE,
    LIVE_A,
    LIVE_A_COUNT,
    LIVE_B,
    LIVE_B_COUNT,
    MESH,
    MULTICAST,
    NODE,
    NONFINITE,
    SHARE_ADDR,
    SHARE_DELIVERED,
    SHARE_EOFF,
    SHARE_FBANK,
    SHARE_FOUND,
    SHARE_N,
    SHARE_NONE,
    SHARE_PREQ,
    SHARE_READY,
    SHARE_SEL,
    SHARE_SET,
    SHARE_STATE,
    SHARE_TAG,
    Clusters,
)
from kohakutpu.units.memory import POLICY_RAISE, access, fail, quantise_entries, unpack_entries
from kohakutpu.units.state import (
    E_ADDRESS,
    E_FIELD,
    E_L1_RANGE,
    E_LIVE_SWEEP,
    E_NODE,
    E_SHARE,
    E_WALK,
    FAULTED,
    NOTE_OTHERS,
    RAISED,
    RETIRED,
    W_SHARE,
    WAITING,
    Memory,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

LANE_BYTES, LANE = 64, 32  # what an element of a descriptor's walk reads
MOST_PEERS = 3
ADDRESS_MASK = (1 << 40) - 1
T_BASE, T_INDEX, T_FIELD, T_NDIM = (COLUMNS.index(c) for c in ("base", "index", "field", "ndim"))
T_COUNT, T_AXIS, T_ABASE = (COLUMNS.index(c) for c in ("count", "axis", "abase0"))


@leaf
def span(capacity: int, row: NDArray[np.int64], bank: int, offset: int, count: int, note: NDArray[np.int64]) -> int:
    """First L1 entry of a run inside one bank of a side, or -1 with the error in `note`.

    bank and offset are columns of `row`. A side of at most 256 entries has no second bank (5.6).
    """
    if row[bank] and capacity <= BANK_ENTRIES:
        fail(note, E_FIELD, bank, row[bank], 0)
        return -1
    limit = min(BANK_ENTRIES, capacity - BANK_ENTRIES * row[bank])
    if row[offset] + count > limit:
        fail(note, E_L1_RANGE, row[offset], count, limit)
        return -1
    return BANK_ENTRIES * row[bank] + row[offset]


@kernel(inline="always")
def read_by_sweep(reg: NDArray[np.int64], side: int, first: int, count: int) -> bool:
    """Does the live sweep of this cluster read any of these entries?"""
    if reg[LIVE] == 0:
        return False
    begin = reg[LIVE_A] if side == 0 else reg[LIVE_B]
    length = reg[LIVE_A_COUNT] if side == 0 else reg[LIVE_B_COUNT]
    return first < begin + length and begin < first + count


@leaf
def _take(cl: Clusters, mem: Memory, u: int, side: int, first: int, n: int, preq: int, start: int) -> int:
    """n entries from byte `start` of memory into L1; returns the count of non-finite elements."""
    found = 0
    if preq:
        unpack_entries(mem.wide, start // 8, n, side, cl.q64[u, side], cl.scale[u, side], first)
    else:
        half = mem.half[start // 2 : start // 2 + 128 * n].reshape(4 * n, 32)
        found = quantise_entries(half, side, cl.rows, cl.row_scale, cl.q8[u, side], cl.scale[u, side], first)
    return found


@kernel(inline="always")
def _finish(cl: Clusters, reg: NDArray[np.int64], u: int, side: int, first: int, n: int, found: int) -> None:
    """The entries are there, whatever was found in them."""
    valid = cl.valid[u, side]
    for e in range(first, first + n):
        valid[e] = 1
    reg[NONFINITE] += found


@kernel(inline="always")
def _verdict(found: int, policy: int, note: NDArray[np.int64]) -> int:
    if found and policy == POLICY_RAISE:
        note[1], note[2] = FAULT_NONFINITE, found
        return FAULTED
    return RETIRED


# shared


@leaf
def _meet(cl: Clusters, reg: NDArray[np.int64], u: int, row: NDArray[np.int64], note: NDArray[np.int64]) -> int:
    """This cluster is at a shared FILL: RETIRED when all members are, with one tag; WAITING for those missing.

    Members with one tag that name another set or other entries are an error: what they would get is undefined.
    """
    mesh, tag, count = reg[MESH] << 8, row[C_TAG], 1 + row[C_NPEER]
    named = row[C_PEERS] << 8 | reg[NODE]
    members, last = 0, -1
    for _ in range(count):  # ascending {y,x}, so that every member writes one set the same way
        least = 256
        for i in range(count):
            node = (named >> 8 * i) & 255
            if last < node < least:
                least = node
        if least == 256:
            return fail(note, E_FIELD, C_PEERS, row[C_PEERS], 0)
        if cl.unit[mesh | least] < 0:
            return fail(note, E_NODE, mesh | least, 0, 0)
        members, last = members << 8 | least, least
    mine = cl.share[u]
    mine[SHARE_STATE], mine[SHARE_TAG], mine[SHARE_SET] = SHARE_READY, tag, members
    mine[SHARE_ADDR], mine[SHARE_N], mine[SHARE_SEL] = row[C_ADDR], row[C_N], row[C_SEL]
    mine[SHARE_PREQ], mine[SHARE_EOFF], mine[SHARE_FBANK] = row[C_PREQ], row[C_EOFF], row[C_FBANK]
    missing = 0
    for i in range(count):
        node = (members >> 8 * i) & 255
        other = cl.share[cl.unit[mesh | node]]
        if other[SHARE_STATE] != SHARE_READY or other[SHARE_TAG] != tag:
            missing = missing << 8 | node
            continue
        for c in range(SHARE_SET, SHARE_FBANK + 1):
            if other[c] != mine[c]:
                return fail(note, E_SHARE, mesh | node, tag, c)
    if missing:
        note[1], note[2], note[3] = W_SHARE, tag, missing
        return WAITING
    return RETIRED


@leaf
def _deliver(
    cl: Clusters,
    mem: Memory,
    reg: NDArray[np.int64],
    u: int,
    side: int,
    first: int,
    n: int,
    preq: int,
    start: int,
    found: int,
) -> None:
    """The other members receive the entries that this one has read."""
    mesh, members = reg[MESH] << 8, cl.share[u, SHARE_SET]
    cl.share[u, SHARE_STATE] = SHARE_NONE
    while members:
        other = cl.unit[mesh | (members & 255)]
        members >>= 8
        if other != u:
            _take(cl, mem, other, side, first, n, preq, start)
            _finish(cl, cl.reg[other], other, side, first, n, found)
            cl.share[other, SHARE_STATE], cl.share[other, SHARE_FOUND] = SHARE_DELIVERED, found


# by descriptor


@leaf
def _gather(
    cl: Clusters, mem: Memory, reg: NDArray[np.int64], u: int, row: NDArray[np.int64], note: NDArray[np.int64]
) -> bool:
    """The lanes that a descriptor's walk names into cl.gathered: element 4*entry + lane, zeros where it does not
    exist (datasheet 3.4, 10). False with the error in `note`."""
    d, wanted = cl.descriptor[u, row[C_DSEL]], 4 * row[C_N]
    total = 1
    for i in range(d[D_NDIM]):
        total *= max(d[D_DIM + 4 * i], 1)
    if total < wanted:
        fail(note, E_WALK, wanted, total, 0)
        return False
    for element in range(wanted):
        address, one, two, rest = d[D_BASE], d[D_AXIS], d[D_AXIS + 2], element
        for k in range(d[D_NDIM]):
            at = D_DIM + 4 * (d[D_NDIM] - 1 - k)
            count = max(d[at], 1)
            index = rest % count
            rest //= count
            address += index * d[at + 1]
            if d[at + 2] == 1:
                one += index * d[at + 3]
            elif d[at + 2] == 2:
                two += index * d[at + 3]
        lane = cl.gathered[LANE * element : LANE * element + LANE]
        exists = (d[D_AXIS + 1] == 0 or 0 <= one < d[D_AXIS + 1]) and (d[D_AXIS + 3] == 0 or 0 <= two < d[D_AXIS + 3])
        if not exists:
            lane[:] = 0
            continue
        address &= ADDRESS_MASK  # an element that exists may lie behind one that would lie before address 0
        if address % LANE_BYTES != 0:
            fail(note, E_ADDRESS, address, LANE_BYTES, reg[MESH])
            return False
        start = access(mem, reg[MESH], address, LANE_BYTES, LANE_BYTES, 0, note)
        if start < 0:
            return False
        for i in range(LANE):
            lane[i] = mem.half[start // 2 + i]
    return True


@separate(int64(CLUSTERS, MEMORY, INTS, int64, INTS, int64, INTS))
def fill(
    cl: Clusters,
    mem: Memory,
    reg: NDArray[np.int64],
    u: int,
    row: NDArray[np.int64],
    policy: int,
    note: NDArray[np.int64],
) -> int:
    """Execute one FILL; returns a status and fills `note`."""
    n, side, preq, peers = row[C_N], row[C_SEL], row[C_PREQ], row[C_NPEER]
    if (
        outside(row, C_N, 1, 255, note)
        or outside(row, C_ANCHOR, ANCHOR, ANCHOR, note)
        or outside(row, C_NPEER, 0, MOST_PEERS * cl.config[MULTICAST], note)
        or outside(row, C_DESC, 0, cl.config[DESCRIPTOR_FILL] if peers == 0 else 0, note)
    ):
        return RAISED
    first = span(cl.config[L1_A + side], row, C_FBANK, C_EOFF, n, note)
    if first < 0:
        return RAISED
    if peers and cl.share[u, SHARE_STATE] == SHARE_DELIVERED:
        found = cl.share[u, SHARE_FOUND]
        cl.share[u, SHARE_STATE] = SHARE_NONE
        charge_fill(reg, cl.config, n, preq, peers)
        return _verdict(found, policy, note)
    if read_by_sweep(reg, side, first, n):
        return fail(note, E_LIVE_SWEEP, side, first, n)
    if row[C_DESC]:
        if outside(row, C_PREQ, 0, 0, note) or not _gather(cl, mem, reg, u, row, note):
            return RAISED
        half = cl.gathered[: 128 * n].reshape(4 * n, LANE)
        found = quantise_entries(half, side, cl.rows, cl.row_scale, cl.q8[u, side], cl.scale[u, side], first)
    else:
        if peers:
            status = _meet(cl, reg, u, row, note)
            if status != RETIRED:
                return status
        size = 128 if preq else 256
        start = access(mem, reg[MESH], row[C_ADDR], size, size * n, 0, note)
        if start < 0:
            return RAISED
        found = _take(cl, mem, u, side, first, n, preq, start)
        if peers:
            _deliver(cl, mem, reg, u, side, first, n, preq, start, found)
            note[NOTE_OTHERS] = 1
    _finish(cl, reg, u, side, first, n, found)
    charge_fill(reg, cl.config, n, preq, peers)
    return _verdict(found, policy, note)


@separate(int64(CLUSTERS, INTS, int64, INTS, INTS))
def tdesc(cl: Clusters, reg: NDArray[np.int64], u: int, row: NDArray[np.int64], note: NDArray[np.int64]) -> int:
    """Execute one TDESC: a field of a descriptor."""
    d, field = cl.descriptor[u, row[T_INDEX]], row[T_FIELD]
    if field == FIELD_BASE:
        if outside(row, T_NDIM, 0, DIMENSIONS, note):
            return RAISED
        d[D_BASE], d[D_NDIM] = row[T_BASE], row[T_NDIM]
    elif field == FIELD_AXES:
        for i in range(4):
            d[D_AXIS + i] = row[T_ABASE + i]
    else:
        if outside(row, T_AXIS, 0, 2, note):
            return RAISED
        for i in range(4):
            d[D_DIM + 4 * (field - 1) + i] = row[T_COUNT + i]
    return RETIRED
