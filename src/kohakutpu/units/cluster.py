"""The matmul cluster: one decoded instruction at a time, and CU_DATA arriving from other units.

Decides the order of checks and effects of FILL, GEMM and DRAIN (datasheet 5) and of the receive buffers (4.2).
It must not know queues, signals or flits; a burst for another node is left in the outbox. Conditions an
encoder refuses are checked again, because a unit may be handed any bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import int64, typeof, uint64

from kohakuaccel.jit import kernel, separate
from kohakutpu import machines
from kohakutpu.isa.cluster import (
    CLUSTER,
    DESTINATION,
    DRAIN,
    FAULT_CUDATA,
    FAULT_NONFINITE,
    FAULT_OPCODE,
    FILL,
    GEMM,
)
from kohakutpu.units.cluster_cost import charge_drain, charge_fill, charge_sweep
from kohakutpu.units.cluster_state import (
    BANK_ENTRIES,
    L1_A,
    LIVE,
    LIVE_A,
    LIVE_A_COUNT,
    LIVE_B,
    LIVE_B_COUNT,
    MESH,
    MESHES,
    NODE_MG,
    NODE_PORT,
    NODE_VC,
    NONFINITE,
    OPEN_COUNT,
    OPEN_GM,
    OPEN_GN,
    OUTSTANDING,
    PENDING,
    PENDING_HEAD,
    QUEUE_FIRST,
    SATURATED,
    T_QUEUE,
    TILES,
    VL1,
    Clusters,
    make_clusters,
    reset_clusters,
)
from kohakutpu.units.cluster_state import RETIRED as RETIRED_COUNT
from kohakutpu.units.cluster_sweep import add_peer, emit, open_or_add, pack_fp22, sweep
from kohakutpu.units.memory import POLICY_RAISE, access, fail, quantise_entries, unpack_entries
from kohakutpu.units.state import (
    E_ADDRESS,
    E_DRAIN_MISMATCH,
    E_FIELD,
    E_L1_RANGE,
    E_L1_UNWRITTEN,
    E_LIVE_SWEEP,
    E_NODE,
    E_TILE_RANGE,
    E_TILE_UNOPENED,
    FAULTED,
    RAISED,
    RETIRED,
    W_DRAIN_NO_EMIT,
    W_DRAIN_QUEUE,
    WAITING,
    Memory,
    Outbox,
    make_memory,
    make_outbox,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Clusters", "cluster_receive", "cluster_step", "make_clusters", "reset_clusters"]

C_OP, C_ADDR, C_N, C_SEL = (CLUSTER.column(c) for c in ("op", "addr", "n", "sel"))
C_ACC, C_GM, C_GN, C_NK = (CLUSTER.column(c) for c in ("acc", "gm", "gn", "nk"))
C_ANCHOR, C_NPEER, C_PREQ = (CLUSTER.column(c) for c in ("anchor", "npeer", "preq"))
C_EOFF, C_AOFF, C_BOFF = (CLUSTER.column(c) for c in ("eoff", "aoff", "boff"))
C_ABANK, C_BBANK, C_FBANK = (CLUSTER.column(c) for c in ("abank", "bbank", "fbank"))
C_EMIT, C_FUSE, C_DNODE, C_DBUF = (CLUSTER.column(c) for c in ("emit", "fuse", "dnode", "dbuf"))
C_DST_X, C_DST_Y, C_DFLAGS = (CLUSTER.column(c) for c in ("dst_x", "dst_y", "dflags"))
C_DACK_Y, C_DACK_X, C_DMESH, C_DFIN = (CLUSTER.column(c) for c in ("dack_y", "dack_x", "dmesh", "dfin"))
C_TSEL, C_DESC = (CLUSTER.column(c) for c in ("tsel", "desc"))
MATCHED = np.array([CLUSTER.column(c) for c in DESTINATION], np.int64)  # GEMM and fused DRAIN agree on these

_CLUSTERS = typeof(make_clusters(machines.load("mini")))
_MEMORY, _OUTBOX, _INTS = typeof(make_memory([4096])), typeof(make_outbox()), int64[::1]

ANCHOR = 40
BUF_L1_A, BUF_L1_B, BUF_TILE = 0, 1, 2
VC_L1 = 0
BURST = 8  # words of one write or peer burst
OFFSET_BITS = 21  # a node drain's addr is a 16-bit granule number times 32


@kernel
def _field(row: NDArray[np.int64], column: int, low: int, high: int, note: NDArray[np.int64]) -> bool:
    """True when a field the encoder must refuse is outside low..high; E_FIELD is in `note` then."""
    if row[column] < low or row[column] > high:
        fail(note, E_FIELD, column, row[column], high)
        return True
    return False


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


@separate(int64(_CLUSTERS, _MEMORY, _INTS, int64, _INTS, int64, _INTS))
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
        _field(row, C_N, 1, 255, note)
        or _field(row, C_ANCHOR, ANCHOR, ANCHOR, note)
        or _field(row, C_NPEER, 0, 0, note)
        or _field(row, C_DESC, 0, 0, note)
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
def _stalled(reg: NDArray[np.int64], config: NDArray[np.int64], note: NDArray[np.int64]) -> bool:
    """Is the previous sweep stuck on a full drain queue? Nothing in this unit can empty it any more: the
    fused DRAIN that would is behind this instruction in the queue."""
    if reg[OUTSTANDING] > config[T_QUEUE]:
        note[1], note[2], note[3] = W_DRAIN_QUEUE, reg[OUTSTANDING], config[T_QUEUE]
        return True
    return False


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


@separate(int64(_CLUSTERS, _INTS, int64, _INTS, _INTS))
def _gemm(cl: Clusters, reg: NDArray[np.int64], u: int, row: NDArray[np.int64], note: NDArray[np.int64]) -> int:
    gm, gn, nk, acc = row[C_GM], row[C_GN], row[C_NK], row[C_ACC]
    if (
        _field(row, C_GM, 1, 255, note)
        or _field(row, C_GN, 1, 255, note)
        or _field(row, C_NK, 1, 255, note)
        or _field(row, C_ANCHOR, ANCHOR, ANCHOR, note)
        or _field(row, C_TSEL, 0, 0, note)
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
    if _stalled(reg, cl.config, note):
        return WAITING
    if not (
        _all_valid(cl.valid[u, 0], 0, first_a, gm * nk, note) and _all_valid(cl.valid[u, 1], 1, first_b, gn * nk, note)
    ):
        return RAISED
    tile = cl.tile[u]
    near = open_or_add(tile, subtiles, acc, nk, cl.bound, u)
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
        near,
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


@kernel(inline="always")
def _node_target(
    config: NDArray[np.int64],
    node: NDArray[np.int64],
    mesh: int,
    row: NDArray[np.int64],
    note: NDArray[np.int64],
) -> int:
    """Kind of the unit a node drain goes to, or -1 with the error in `note` (5.4, 5.6)."""
    n, x, y = row[C_N], row[C_DST_X], row[C_DST_Y]
    addr, buf, fin = row[C_ADDR], row[C_DBUF], row[C_DFIN]
    if addr % 32 != 0 or addr >> OFFSET_BITS != 0:
        fail(note, E_ADDRESS, addr, 0, mesh)
        return -1
    if fin:
        if node[mesh << 8 | y << 4 | x] != NODE_PORT:
            fail(note, E_NODE, mesh << 8 | y << 4 | x, buf, 0)
            return -1
        if row[C_DFLAGS] & 1 and row[C_DACK_X] == 0 and row[C_DACK_Y] == 0:
            fail(note, E_FIELD, C_DACK_X, 0, 0)
            return -1
        if _field(row, C_DMESH, 0, config[MESHES] - 1, note):
            return -1
        mesh, y, x = row[C_DMESH], fin >> 4, fin & 15
    kind = node[mesh << 8 | y << 4 | x]
    wide = kind == NODE_MG and buf == BUF_TILE
    # What a sweep hands out is FP16, which no cluster buffer takes.
    if not ((kind == NODE_VC and buf == VC_L1) or (wide and not row[C_FUSE])):
        fail(note, E_NODE, mesh << 8 | y << 4 | x, buf, 0)
        return -1
    granules = 2 * n if wide else n
    capacity = 2 * config[TILES] if wide else config[VL1]
    if (addr >> 5) + granules > capacity:
        fail(note, E_L1_RANGE, addr >> 5, granules, capacity)
        return -1
    return kind


@kernel(inline="always")
def _post(mesh: int, row: NDArray[np.int64], out: Outbox, granules: int) -> None:
    """Head the granules just appended to the outbox as bursts of at most 8."""
    fin = row[C_DFIN]
    first = out.count[1]
    for done in range(0, granules, BURST):
        head = out.head[out.count[0]]
        head[0] = row[C_DMESH] if fin else mesh
        head[1] = fin & 15 if fin else row[C_DST_X]
        head[2] = fin >> 4 if fin else row[C_DST_Y]
        head[3], head[4] = row[C_DBUF], (row[C_ADDR] >> 5) + done
        head[5], head[6] = min(BURST, granules - done), row[C_DFLAGS]
        head[7], head[8], head[9] = row[C_DACK_X], row[C_DACK_Y], first + done
        out.count[0] += 1
    out.count[1] += granules


@kernel(inline="always")
def _emission(
    reg: NDArray[np.int64], pending: NDArray[np.int64], row: NDArray[np.int64], note: NDArray[np.int64]
) -> int:
    """Status of a fused DRAIN against the oldest emission not drained: RETIRED when they agree."""
    n = row[C_N]
    if reg[PENDING] == 0:
        note[1], note[2], note[3] = W_DRAIN_NO_EMIT, n, 0
        return WAITING
    record = pending[reg[PENDING_HEAD]]
    if record[0] != n:
        return fail(note, E_DRAIN_MISMATCH, C_N, n, record[0])
    for c in range(MATCHED.size):
        if record[1 + c] != row[MATCHED[c]]:
            return fail(note, E_DRAIN_MISMATCH, MATCHED[c], row[MATCHED[c]], record[1 + c])
    return RETIRED


@kernel(inline="always")
def _send(
    cl: Clusters,
    mem: Memory,
    out: Outbox,
    reg: NDArray[np.int64],
    u: int,
    row: NDArray[np.int64],
    kind: int,
    start: int,
) -> int:
    """Move the sub-tiles of a checked DRAIN to memory (kind 0) or the outbox; returns the words sent."""
    n, data, at = row[C_N], out.data, out.count[1]
    if kind == NODE_MG:
        for t in range(n):
            pack_fp22(cl.tile[u], 16 * t, data, at + 2 * t)
        return 2 * n
    words = cl.words
    if row[C_FUSE]:
        first = 16 * reg[QUEUE_FIRST]
        words = cl.queue[u][first : first + 16 * n]
    elif kind == NODE_VC:
        reg[SATURATED] += emit(cl.tile[u], n, words, 0)
    else:
        reg[SATURATED] += emit(cl.tile[u], n, mem.half, start // 2)
        return n
    if kind == NODE_VC:
        for t in range(n):
            for q in range(4):
                four = np.uint64(0)
                for i in range(4):
                    four |= np.uint64(words[16 * t + 4 * q + i]) << np.uint64(16 * i)
                data[at + t, q] = four
    else:
        target = mem.half[start // 2 : start // 2 + 16 * n]
        for i in range(target.size):
            target[i] = words[i]
    return n


@separate(int64(_CLUSTERS, _MEMORY, _OUTBOX, _INTS, int64, _INTS, _INTS))
def _drain(
    cl: Clusters,
    mem: Memory,
    out: Outbox,
    reg: NDArray[np.int64],
    u: int,
    row: NDArray[np.int64],
    note: NDArray[np.int64],
) -> int:
    n, fuse = row[C_N], row[C_FUSE]
    if (
        _field(row, C_N, 1, 65535, note)
        or _field(row, C_ANCHOR, ANCHOR, ANCHOR, note)
        or _field(row, C_TSEL, 0, 0, note)
    ):
        return RAISED
    if n > cl.config[TILES]:
        return fail(note, E_TILE_RANGE, n, cl.config[TILES], 0)
    if fuse:
        status = _emission(reg, cl.pending[u], row, note)
        if status != RETIRED:
            return status
    else:
        if n > reg[OPEN_COUNT]:
            return fail(note, E_TILE_UNOPENED, reg[OPEN_COUNT], reg[OPEN_GM], reg[OPEN_GN])
        if _stalled(reg, cl.config, note):
            return WAITING
    kind, start = 0, 0
    if row[C_DNODE]:
        kind = _node_target(cl.config, cl.node, reg[MESH], row, note)
        if kind < 0:
            return RAISED
    else:
        start = access(mem, reg[MESH], row[C_ADDR], 32 * BURST, 32 * n, 1, note)
        if start < 0:
            return RAISED
    words = _send(cl, mem, out, reg, u, row, kind, start)
    if kind:
        _post(reg[MESH], row, out, words)
    if fuse:
        reg[OUTSTANDING] -= n
        reg[QUEUE_FIRST] = reg[QUEUE_FIRST] + n if reg[OUTSTANDING] else 0
        reg[PENDING_HEAD] = (reg[PENDING_HEAD] + 1) % cl.pending.shape[1]
        reg[PENDING] -= 1
    else:
        reg[LIVE] = 0
    charge_drain(reg, cl.config, words, fuse)
    return RETIRED


@separate(int64(_CLUSTERS, _MEMORY, _OUTBOX, int64, _INTS, int64, _INTS), python=True)
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
        status = _drain(cl, mem, out, reg, u, row, note)
    else:
        note[1], note[2] = FAULT_OPCODE, op
        status = FAULTED
    note[0] = status
    if status in (RETIRED, FAULTED):
        reg[RETIRED_COUNT] += 1
    if status == RETIRED:
        note[1] = reg[RETIRED_COUNT] & 0xFFFF
    return status


@separate(int64(_CLUSTERS, int64, int64, int64, uint64[:, ::1], int64), python=True)
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
            cl.bound[u] = max(cl.bound[u], add_peer(cl.tile[u], (offset + i) // 2, data, i))
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
