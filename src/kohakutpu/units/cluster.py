"""The matmul cluster: one decoded instruction at a time, and CU_DATA arriving from other units.

Decides the order of checks and effects of GEMM (datasheet 5) and of the receive buffers (4.2); FILL and DRAIN have
modules of their own.
It must not know queues, signals or flits; a burst for another node is left in the outbox. Conditions an
encoder refuses are checked again, because a unit may be handed any bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import int64, uint64

from kohakuaccel.jit import kernel, leaf, separate
from kohakutpu.isa.cluster import DRAIN, FAULT_CUDATA, FAULT_OPCODE, FILL, GEMM, TDESC
from kohakutpu.units.cluster_cost import charge_sweep
from kohakutpu.units.cluster_drain import drain
from kohakutpu.units.cluster_fields import (
    ANCHOR,
    BUF_L1_A,
    BUF_L1_B,
    BUF_TILE,
    BUF_TILE_1,
    C_ABANK,
    C_ACC,
    C_ANCHOR,
    C_AOFF,
    C_BBANK,
    C_BOFF,
    C_EMIT,
    C_GM,
    C_GN,
    C_NK,
    C_OP,
    C_TSEL,
    CLUSTERS,
    INTS,
    MATCHED,
    MEMORY,
    OUTBOX,
    outside,
    stalled,
    tile_of,
)
from kohakutpu.units.cluster_fill import fill, read_by_sweep, span, tdesc
from kohakutpu.units.cluster_state import (
    ACCUMULATORS,
    DESCRIPTOR_FILL,
    L1_A,
    LIVE,
    LIVE_A,
    LIVE_A_COUNT,
    LIVE_B,
    LIVE_B_COUNT,
    LIVE_TILE,
    OPEN_COUNT,
    OPEN_GM,
    OPEN_STRIDE,
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
from kohakutpu.units.memory import fail, unpack_entries
from kohakutpu.units.state import (
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


@leaf
def _all_valid(valid: NDArray[np.uint8], side: int, first: int, count: int, note: NDArray[np.int64]) -> bool:
    for e in range(first, first + count):
        if valid[e] == 0:
            fail(note, E_L1_UNWRITTEN, side, e, 0)
            return False
    return True


@kernel(inline="always")
def _hand_out(cl: Clusters, reg: NDArray[np.int64], u: int, subtiles: int, row: NDArray[np.int64]) -> None:
    """Emit sub-tiles 0.. as FP16 into the drain queue, behind what waits there, with their destination."""
    queue = cl.queue[u]
    first, held = 16 * reg[QUEUE_FIRST], 16 * reg[OUTSTANDING]
    if first > 0:
        for i in range(held):
            queue[i] = queue[first + i]
        reg[QUEUE_FIRST] = 0
    reg[SATURATED] += emit(tile_of(cl, u, row[C_TSEL]), subtiles, queue, held)
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
        or outside(row, C_TSEL, 0, cl.config[ACCUMULATORS] - 1, note)
    ):
        return RAISED
    opened = OPEN_GM + OPEN_STRIDE * row[C_TSEL]
    subtiles = gm * gn
    if subtiles > cl.config[TILES]:
        return fail(note, E_TILE_RANGE, subtiles, cl.config[TILES], 0)
    first_a = span(cl.config[L1_A], row, C_ABANK, C_AOFF, gm * nk, note)
    if first_a < 0:
        return RAISED
    first_b = span(cl.config[L1_A + 1], row, C_BBANK, C_BOFF, gn * nk, note)
    if first_b < 0:
        return RAISED
    if acc and (reg[opened] != gm or reg[opened + 1] != gn):
        return fail(note, E_TILE_UNOPENED, 0, reg[opened], reg[opened + 1])
    if stalled(reg, cl.config, note):
        return WAITING
    if not (
        _all_valid(cl.valid[u, 0], 0, first_a, gm * nk, note) and _all_valid(cl.valid[u, 1], 1, first_b, gn * nk, note)
    ):
        return RAISED
    tile = tile_of(cl, u, row[C_TSEL])
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
    reg[opened], reg[opened + 1] = gm, gn
    reg[opened + 2] = max(reg[opened + 2], subtiles)
    reg[LIVE], reg[LIVE_A], reg[LIVE_A_COUNT] = 1, first_a, gm * nk
    reg[LIVE_B], reg[LIVE_B_COUNT], reg[LIVE_TILE] = first_b, gn * nk, row[C_TSEL]
    # With acc = 0 and nk = 1 the only command is LOAD; it wins over the emission and nothing leaves.
    emits = row[C_EMIT] != 0 and (acc != 0 or nk > 1)
    charge_sweep(reg, cl.config, gm, gn, nk, row[C_TSEL], emits)
    if emits:
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
    as policy 1 would) or 0x12. RAISED changes nothing, WAITING notes at most that a shared FILL was reached;
    note[NOTE_OTHERS] says that waiting clusters may go on. Bursts for other nodes are appended to `out`.
    """
    op, reg = row[C_OP], cl.reg[u]
    if op == FILL:
        status = fill(cl, mem, reg, u, row, policy, note)
    elif op == GEMM:
        status = _gemm(cl, reg, u, row, note)
    elif op == DRAIN:
        status = drain(cl, mem, out, reg, u, row, note)
    elif op == TDESC and cl.config[DESCRIPTOR_FILL]:
        status = tdesc(cl, reg, u, row, note)
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

    Buffers 0 and 1: words of packed entries (2.3), an entry is committed by its word 3. Buffer 2 (5 with a second
    accumulator): FP22 sub-tiles added to the tile. FAULT_CUDATA (0x11): the whole burst is dropped, to be reported
    at the next retirement (no such buffer, out of range, half a sub-tile, an entry completed while earlier words of
    it never came). Otherwise an error code of state.py: E_LIVE_SWEEP, E_TILE_UNOPENED.
    """
    reg = cl.reg[u]
    if buf == BUF_TILE or (buf == BUF_TILE_1 and cl.config[ACCUMULATORS] == 2):
        accumulator = int(buf == BUF_TILE_1)
        if offset % 2 or n % 2 or offset < 0 or offset + n > 2 * cl.config[TILES]:
            return FAULT_CUDATA
        if offset + n > 2 * reg[OPEN_COUNT + OPEN_STRIDE * accumulator]:
            return E_TILE_UNOPENED
        for i in range(0, n, 2):
            add_peer(tile_of(cl, u, accumulator), (offset + i) // 2, data, i)
        return 0
    if buf != BUF_L1_A and buf != BUF_L1_B:
        return FAULT_CUDATA
    if offset < 0 or n < 1 or offset + n > 4 * cl.config[L1_A + buf]:
        return FAULT_CUDATA
    first, last = offset // 4, (offset + n - 1) // 4
    if read_by_sweep(reg, buf, first, last - first + 1):
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
