"""A cluster's instruction fields as columns of a decoded row, and the checks every opcode shares.

Columns come from the declaration of the format, never from bit positions. What an opcode does is decided in
cluster.py and cluster_drain.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import int64, typeof

from kohakuaccel.jit import kernel, leaf
from kohakutpu import machines
from kohakutpu.isa.cluster import CLUSTER, DESTINATION
from kohakutpu.units.cluster_state import OUTSTANDING, T_QUEUE, TILES, Clusters, make_clusters
from kohakutpu.units.memory import fail
from kohakutpu.units.state import E_FIELD, W_DRAIN_QUEUE, make_memory, make_outbox

if TYPE_CHECKING:
    from numpy.typing import NDArray

C_OP, C_ADDR, C_N, C_SEL = (CLUSTER.column(c) for c in ("op", "addr", "n", "sel"))
C_ACC, C_GM, C_GN, C_NK = (CLUSTER.column(c) for c in ("acc", "gm", "gn", "nk"))
C_ANCHOR, C_NPEER, C_PREQ = (CLUSTER.column(c) for c in ("anchor", "npeer", "preq"))
C_EOFF, C_AOFF, C_BOFF = (CLUSTER.column(c) for c in ("eoff", "aoff", "boff"))
C_ABANK, C_BBANK, C_FBANK = (CLUSTER.column(c) for c in ("abank", "bbank", "fbank"))
C_EMIT, C_FUSE, C_DNODE, C_DBUF = (CLUSTER.column(c) for c in ("emit", "fuse", "dnode", "dbuf"))
C_DST_X, C_DST_Y, C_DFLAGS = (CLUSTER.column(c) for c in ("dst_x", "dst_y", "dflags"))
C_DACK_Y, C_DACK_X, C_DMESH, C_DFIN = (CLUSTER.column(c) for c in ("dack_y", "dack_x", "dmesh", "dfin"))
C_TSEL, C_DESC, C_DSEL = (CLUSTER.column(c) for c in ("tsel", "desc", "dsel"))
C_PEERS, C_TAG = (CLUSTER.column(c) for c in ("peers", "tag"))
MATCHED = np.array([CLUSTER.column(c) for c in DESTINATION], np.int64)  # GEMM and fused DRAIN agree on these

CLUSTERS = typeof(make_clusters(machines.load("mini")))
MEMORY, OUTBOX, INTS = typeof(make_memory([4096])), typeof(make_outbox()), int64[::1]

ANCHOR = 40
BUF_L1_A, BUF_L1_B, BUF_TILE, BUF_TILE_1 = 0, 1, 2, 5
VC_L1 = 0
BURST = 8  # words of one write or peer burst
OFFSET_BITS = 21  # a node drain's addr is a 16-bit granule number times 32


@leaf
def outside(row: NDArray[np.int64], column: int, low: int, high: int, note: NDArray[np.int64]) -> bool:
    """True when a field the encoder must refuse is outside low..high; E_FIELD is in `note` then."""
    if row[column] < low or row[column] > high:
        fail(note, E_FIELD, column, row[column], high)
        return True
    return False


@kernel(inline="always")
def stalled(reg: NDArray[np.int64], config: NDArray[np.int64], note: NDArray[np.int64]) -> bool:
    """Is the previous sweep stuck on a full drain queue? Nothing in this unit can empty it any more: the
    fused DRAIN that would is behind this instruction in the queue."""
    if reg[OUTSTANDING] > config[T_QUEUE]:
        note[1], note[2], note[3] = W_DRAIN_QUEUE, reg[OUTSTANDING], config[T_QUEUE]
        return True
    return False


@kernel(inline="always")
def tile_of(cl: Clusters, u: int, accumulator: int) -> NDArray[np.float32]:
    """The resident tile of one of cluster u's accumulators."""
    size = 16 * cl.config[TILES]
    return cl.tile[u][accumulator * size : (accumulator + 1) * size]
