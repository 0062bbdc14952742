"""The matmul cluster: one decoded instruction at a time, and CU_DATA arriving from other units.

Decides the order of checks and effects of FILL and GEMM (datasheet 5) and of the receive buffers (4.2).
It must not know queues, signals or flits; a burst for another node is left in the outbox. Conditions an
encoder refuses are checked again, because a unit may be handed any bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import int64, uint64

from kohakuaccel.jit import kernel, separate
from kohakutpu.isa.cluster import DRAIN, FAULT_CUDATA, FAULT_NONFINITE, FAULT_OPCODE, FILL, GEMM
from kohakutpu.units.cluster_cost import charge_fill, charge_sweep
from kohakutpu.units.cluster_drain import drain
from kohakutpu.units.cluster_fields import (
    ANCHOR,
    BUF_L1_A,
    BUF_L1_B,
    BUF_TILE,
    C_ABANK,
    C_ACC,
    C_ADDR,
    C_ANCHOR,
    C_AOFF,
    C_BBANK,
    C_BOFF,
    C_DESC,
    C_EMIT,
    C_EOFF,
    C_FBANK,
    C_GM,
    C_GN,
    C_N,
    C_NK,
    C_NPEER,
    C_OP,
    C_PREQ,
    C_SEL,
    C_TSEL,
    CLUSTERS,
    INTS,
    MATCHED,
    MEMORY,
    OUTBOX,
    outside,
    stalled,
)
from kohakutpu.units.cluster_state import (
    BANK_ENTRIES,
    L1_A,
    LIVE,
    LIVE_A,
    LIVE_A_COUNT,
    LIVE_B,
    LIVE_B_COUNT,
    MESH,
    NONFINITE,
    OPEN_COUNT,
    OPEN_GM,
    OPEN_GN,
    OUTSTANDING,
    PENDING,
    PENDING_HEAD,
    QUEUE_FIRST,
    SATURATED,
    TILES,
    Clusters,
    make_clusters,
    reset_clusters,
)
from kohakutpu.units.cluster_state import RETIRED as RETIRED_COUNT
from kohakutpu.units.cluster_sweep import add_peer, emit, sweep
from kohakutpu.units.memory import POLICY_RAISE, access, fail, quantise_entries, unpack_entries
from kohakutpu.units.state import (
    E_FIELD,
    E_L1_RANGE,
    E_L1_UNWRITTEN,
    E_LIVE_SWEEP,
    E_TILE_RANGE,
    E_TILE_UNOPENED,
    FAULTED,
    RAISED,
    RETIRED,
    WAITING,
    Memory,
    Outbox,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Clusters", "cluster_receive", "cluster_step", "make_clusters", "reset_clusters"]


@kernel
def _span(capacity: int, row: NDArray[np.int64], bank: int, offset: int, count: int, note: NDArray[np.int64]) -> int:
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
def _read_by_sweep(reg: NDArray[np.int64], side: int, first: int, count: int) -> bool:
    """Does the live sweep of this cluster read any of these entries?"""
    if reg[LIVE] == 0:
        return False
    begin = reg[LIVE_A] if side == 0 else reg[LIVE_B]
    length = reg[LIVE_A_COUNT] if side == 0 else reg[LIVE_B_COUNT]
    return first < begin + length and begin < first + count


@kernel
def _all_valid(valid: NDArray[np.uint8], side: int, first: int, count: int, note: NDArray[np.int64]) -> bool:
    for e in range(first, first + count):
        if valid[e] == 0:
            fail(note, E_L1_UNWRITTEN, side, e, 0)
            return False
    return True


@separate(int64(CLUSTERS, MEMORY, INTS, int64, INTS, int64, INTS))
def _fill(
    cl: Clusters,
    mem: Memory,
    reg: NDArray[np.int64],
    u: int,
    row: NDArray[np.int64],
    policy: int,
    note: NDArray[np.int64],
) -> int:
    n, side, preq = row[C_N], row[C_SEL], row[C_PREQ]
    if (
        outside(row, C_N, 1, 255, note)
        or outside(row, C_ANCHOR, ANCHOR, ANCHOR, note)
        or outside(row, C_NPEER, 0, 0, note)
        or outside(row, C_DESC, 0, 0, note)
    ):
        return RAISED
    first = _span(cl.config[L1_A + side], row, C_FBANK, C_EOFF, n, note)
    if first < 0:
        return RAISED
    if _read_by_sweep(reg, side, first, n):
        return fail(note, E_LIVE_SWEEP, side, first, n)
    size = 128 if preq else 256
    start = access(mem, reg[MESH], row[C_ADDR], size, size * n, 0, note)
    if start < 0:
        return RAISED
    found = 0
    if preq:
        unpack_entries(mem.wide, start // 8, n, side, cl.q64[u, side], cl.scale[u, side], first)
    else:
        half = mem.half[start // 2 : start // 2 + 128 * n].reshape(4 * n, 32)
        found = quantise_entries(half, side, cl.rows, cl.row_scale, cl.q8[u, side], cl.scale[u, side], first)
        reg[NONFINITE] += found
    valid = cl.valid[u, side]
    for e in range(first, first + n):
        valid[e] = 1
    charge_fill(reg, cl.config, n, preq)
    if found and policy == POLICY_RAISE:
        note[1], note[2] = FAULT_NONFINITE, found
        return FAULTED
    return RETIRED


@kernel(inline="always")
def _hand_out(cl: Clusters, reg: NDArray[np.int64], u: int, subtiles: int, row: NDArray[np.int64]) -> None:
    """Emit sub-tiles 0.. as FP16 into the drain queue, behind what waits there, with their destination."""
    queue = cl.queue[u]
    first, held = 16 * reg[QUEUE_FIRST], 16 * reg[OUTSTANDING]
    if first > 0:
        for i in range(held):
            queue[i] = queue[first + i]
        reg[QUEUE_FIRST] = 0
    reg[SATURATED] += emit(cl.tile[u], subtiles, queue, held)
    reg[OUTSTANDING] += subtiles
    record = cl.pending[u, (reg[PENDING_HEAD] + reg[PENDING]) % cl.pending.shape[1]]
    record[0] = subtiles
    for c in range(MATCHED.size):
        record[1 + c] = row[MATCHED[c]]
    reg[PENDING] += 1


@separate(int64(CLUSTERS, INTS, int64, INTS, INTS))
def _gemm(cl: Clusters, reg: NDArray[np.int64], u: int, row: NDArray[np.int64], note: NDArray[np.int64]) -> int:
    gm, gn, nk, acc = row[C_GM], row[C_GN], row[C_NK], row[C_ACC]
    if (
        outside(row, C_GM, 1, 255, note)
        or outside(row, C_GN, 1, 255, note)
        or outside(row, C_NK, 1, 255, note)
        or outside(row, C_ANCHOR, ANCHOR, ANCHOR, note)
        or outside(row, C_TSEL, 0, 0, note)
    ):
        return RAISED
    subtiles = gm * gn
    if subtiles > cl.config[TILES]:
        return fail(note, E_TILE_RANGE, subtiles, cl.config[TILES], 0)
    first_a = _span(cl.config[L1_A], row, C_ABANK, C_AOFF, gm * nk, note)
    if first_a < 0:
        return RAISED
    first_b = _span(cl.config[L1_A + 1], row, C_BBANK, C_BOFF, gn * nk, note)
    if first_b < 0:
        return RAISED
    if acc and (reg[OPEN_GM] != gm or reg[OPEN_GN] != gn):
        return fail(note, E_TILE_UNOPENED, 0, reg[OPEN_GM], reg[OPEN_GN])
    if stalled(reg, cl.config, note):
        return WAITING
    if not (
        _all_valid(cl.valid[u, 0], 0, first_a, gm * nk, note) and _all_valid(cl.valid[u, 1], 1, first_b, gn * nk, note)
    ):
        return RAISED
    tile = cl.tile[u]
    if acc == 0:
        for i in range(16 * subtiles):
            tile[i] = np.float32(0)  # 0 + p is p: LOAD and ADD are one path
    sweep(
        cl.q8[u, 0],
        cl.scale[u, 0],
        cl.q8[u, 1],
        cl.scale[u, 1],
        cl.panel,
        tile,
        gm,
        gn,
        nk,
        first_a,
        first_b,
    )
    reg[OPEN_GM], reg[OPEN_GN] = gm, gn
    reg[OPEN_COUNT] = max(reg[OPEN_COUNT], subtiles)
    reg[LIVE], reg[LIVE_A], reg[LIVE_A_COUNT] = 1, first_a, gm * nk
    reg[LIVE_B], reg[LIVE_B_COUNT] = first_b, gn * nk
    charge_sweep(reg, cl.config, gm, gn, nk)
    # With acc = 0 and nk = 1 the only command is LOAD; it wins over the emission and nothing leaves.
    if row[C_EMIT] and (acc or nk > 1):
        _hand_out(cl, reg, u, subtiles, row)
    return RETIRED


@separate(int64(CLUSTERS, MEMORY, OUTBOX, int64, INTS, int64, INTS), python=True)
def cluster_step(
    cl: Clusters,
    mem: Memory,
    out: Outbox,
    u: int,
    row: NDArray[np.int64],
    policy: int,
    note: NDArray[np.int64],
) -> int:
    """Execute one decoded instruction of cluster `u`; returns a status of state.py and fills `note`.

    row: int64[fields of CLUSTER]; policy: 0 faults on a non-finite operand, 1 counts it. RETIRED: note[1] =
    instructions retired so far mod 65536, this one included. FAULTED: 0x10 (note[2] = elements; the FILL is done
    as policy 1 would) or 0x12. WAITING and RAISED change nothing. Bursts for other nodes are appended to `out`.
    """
    op, reg = row[C_OP], cl.reg[u]
    if op == FILL:
        status = _fill(cl, mem, reg, u, row, policy, note)
    elif op == GEMM:
        status = _gemm(cl, reg, u, row, note)
    elif op == DRAIN:
        status = drain(cl, mem, out, reg, u, row, note)
    else:
        note[1], note[2] = FAULT_OPCODE, op
        status = FAULTED
    note[0] = status
    if status in (RETIRED, FAULTED):
        reg[RETIRED_COUNT] += 1
    if status == RETIRED:
        note[1] = reg[RETIRED_COUNT] & 0xFFFF
    return status


@separate(int64(CLUSTERS, int64, int64, int64, uint64[:, ::1], int64), python=True)
def cluster_receive(cl: Clusters, u: int, buf: int, offset: int, data: NDArray[np.uint64], n: int) -> int:
    """Accept a CU_DATA burst of `n` granules data[:n] (4.2): 0 when it was taken.

    Buffers 0 and 1: words of packed entries (2.3), an entry is committed by its word 3. Buffer 2: FP22
    sub-tiles added to the tile. FAULT_CUDATA (0x11): the whole burst is dropped, to be reported at the next
    retirement (no such buffer, out of range, half a sub-tile, an entry completed while earlier words of it
    never came). Otherwise an error code of state.py: E_LIVE_SWEEP, E_TILE_UNOPENED.
    """
    reg = cl.reg[u]
    if buf == BUF_TILE:
        if offset % 2 or n % 2 or offset < 0 or offset + n > 2 * cl.config[TILES]:
            return FAULT_CUDATA
        if offset + n > 2 * reg[OPEN_COUNT]:
            return E_TILE_UNOPENED
        for i in range(0, n, 2):
            add_peer(cl.tile[u], (offset + i) // 2, data, i)
        return 0
    if buf != BUF_L1_A and buf != BUF_L1_B:
        return FAULT_CUDATA
    if offset < 0 or n < 1 or offset + n > 4 * cl.config[L1_A + buf]:
        return FAULT_CUDATA
    first, last = offset // 4, (offset + n - 1) // 4
    if _read_by_sweep(reg, buf, first, last - first + 1):
        return E_LIVE_SWEEP
    valid, words = cl.valid[u, buf], cl.parts[u, buf]
    before = np.uint64((1 << (offset % 4)) - 1)  # words of the first entry that earlier bursts brought
    if offset % 4 + n >= 4 and words[16 * first + 12] & before != before:
        return FAULT_CUDATA
    for i in range(n):
        entry, w = (offset + i) // 4, (offset + i) % 4
        for q in range(4):
            words[4 * (offset + i) + q] = data[i, q]
        if w < 3:
            words[16 * entry + 12] |= np.uint64(1 << w)
            continue
        unpack_entries(words, 16 * entry, 1, buf, cl.q64[u, buf], cl.scale[u, buf], entry)
        valid[entry] = 1
        words[16 * entry + 12] = np.uint64(0)
    return 0
