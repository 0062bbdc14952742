"""DRAIN: which sub-tiles leave a cluster, in which format, and where to (datasheet 5.4).

It must not know how they came about; bursts for other nodes are left in the outbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import int64

from kohakuaccel.jit import kernel, separate
from kohakutpu.units.cluster_cost import charge_drain
from kohakutpu.units.cluster_fields import (
    ANCHOR,
    BUF_TILE,
    BUF_TILE_1,
    BURST,
    C_ADDR,
    C_ANCHOR,
    C_DACK_X,
    C_DACK_Y,
    C_DBUF,
    C_DFIN,
    C_DFLAGS,
    C_DMESH,
    C_DNODE,
    C_DST_X,
    C_DST_Y,
    C_FUSE,
    C_N,
    C_TSEL,
    CLUSTERS,
    INTS,
    MATCHED,
    MEMORY,
    OFFSET_BITS,
    OUTBOX,
    VC_L1,
    outside,
    stalled,
    tile_of,
)
from kohakutpu.units.cluster_state import (
    ACC_TO_VC,
    ACCUMULATORS,
    LIVE,
    LIVE_TILE,
    MESH,
    MESHES,
    NODE_MG,
    NODE_PORT,
    NODE_VC,
    OPEN_GM,
    OPEN_STRIDE,
    OUTSTANDING,
    PENDING,
    PENDING_HEAD,
    QUEUE_FIRST,
    SATURATED,
    TILES,
    VL1,
    Clusters,
)
from kohakutpu.units.cluster_sweep import emit, pack_fp22
from kohakutpu.units.memory import access, fail
from kohakutpu.units.state import (
    E_ADDRESS,
    E_DRAIN_MISMATCH,
    E_FIELD,
    E_L1_RANGE,
    E_NODE,
    E_TILE_RANGE,
    E_TILE_UNOPENED,
    RAISED,
    RETIRED,
    W_DRAIN_NO_EMIT,
    WAITING,
    Memory,
    Outbox,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
        if outside(row, C_DMESH, 0, config[MESHES] - 1, note):
            return -1
        mesh, y, x = row[C_DMESH], fin >> 4, fin & 15
    kind = node[mesh << 8 | y << 4 | x]
    to_tile = buf == BUF_TILE or (buf == BUF_TILE_1 and config[ACCUMULATORS] == 2)
    wide = (kind == NODE_MG and to_tile) or (kind == NODE_VC and buf == BUF_TILE and config[ACC_TO_VC] == 1)
    # What a sweep hands out is FP16, which no FP22 buffer takes.
    if not ((kind == NODE_VC and buf == VC_L1) or (wide and not row[C_FUSE])):
        fail(note, E_NODE, mesh << 8 | y << 4 | x, buf, 0)
        return -1
    granules = 2 * n if wide else n
    capacity = 2 * config[TILES] if kind == NODE_MG else config[VL1]
    if (addr >> 5) + granules > capacity:
        fail(note, E_L1_RANGE, addr >> 5, granules, capacity)
        return -1
    return int(kind)


@kernel(inline="always")
def _post(mesh: int, row: NDArray[np.int64], out: Outbox, granules: int) -> None:
    """Head the granules just appended to the outbox as bursts of at most 8."""
    fin = row[C_DFIN]
    first = out.used[1]
    for done in range(0, granules, BURST):
        head = out.head[out.used[0]]
        head[0] = row[C_DMESH] if fin else mesh
        head[1] = fin & 15 if fin else row[C_DST_X]
        head[2] = fin >> 4 if fin else row[C_DST_Y]
        head[3], head[4] = row[C_DBUF], (row[C_ADDR] >> 5) + done
        head[5], head[6] = min(BURST, granules - done), row[C_DFLAGS]
        head[7], head[8], head[9] = row[C_DACK_X], row[C_DACK_Y], first + done
        out.used[0] += 1
    out.used[1] += granules


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
    n, data, at = row[C_N], out.data, out.used[1]
    tile = tile_of(cl, u, row[C_TSEL])
    if kind and row[C_DBUF] != VC_L1:
        for t in range(n):
            pack_fp22(tile, 16 * t, data, at + 2 * t)
        return 2 * n
    words = cl.words
    if row[C_FUSE]:
        first = 16 * reg[QUEUE_FIRST]
        words = cl.queue[u][first : first + 16 * n]
    elif kind == NODE_VC:
        reg[SATURATED] += emit(tile, n, words, 0)
    else:
        reg[SATURATED] += emit(tile, n, mem.half, start // 2)
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


@separate(int64(CLUSTERS, MEMORY, OUTBOX, INTS, int64, INTS, INTS))
def drain(
    cl: Clusters,
    mem: Memory,
    out: Outbox,
    reg: NDArray[np.int64],
    u: int,
    row: NDArray[np.int64],
    note: NDArray[np.int64],
) -> int:
    """Execute one DRAIN; returns a status and fills `note`. Nothing changes unless it retires."""
    n, fuse = row[C_N], row[C_FUSE]
    if (
        outside(row, C_N, 1, 65535, note)
        or outside(row, C_ANCHOR, ANCHOR, ANCHOR, note)
        or outside(row, C_TSEL, 0, cl.config[ACCUMULATORS] - 1, note)
    ):
        return RAISED
    opened = OPEN_GM + OPEN_STRIDE * row[C_TSEL]
    if n > cl.config[TILES]:
        return fail(note, E_TILE_RANGE, n, cl.config[TILES], 0)
    if fuse:
        status = _emission(reg, cl.pending[u], row, note)
        if status != RETIRED:
            return status
    else:
        if n > reg[opened + 2]:
            return fail(note, E_TILE_UNOPENED, reg[opened + 2], reg[opened], reg[opened + 1])
        if stalled(reg, cl.config, note):
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
    elif row[C_TSEL] == reg[LIVE_TILE]:
        reg[LIVE] = 0  # a sweep on the other accumulator goes on beside this drain
    charge_drain(reg, cl.config, words, fuse, row[C_TSEL])
    return RETIRED
