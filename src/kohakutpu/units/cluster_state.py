"""What the matmul clusters of a machine hold (datasheet 1.3, 4.2, 5).

Plain arrays, one row per cluster in the machine's order of MG units. Nothing here executes anything; this
module is importable without compiling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kohakutpu.machines import capacity

if TYPE_CHECKING:
    from kohakuaccel.machine import Machine

BANK_ENTRIES = 256  # entries an 8-bit offset reaches; a bank bit selects the second 256
MAX_COLUMNS = 32  # widest block of the multiplier array (cluster_array.COLUMNS is 16 or 32)

REGISTERS = (
    "MESH",
    "NODE",  # y<<4|x
    "HOPS",  # routers between the cluster and its port
    "RETIRED",
    "BUSY",
    "COMPUTE",
    "FILL_WAIT",
    "SATURATED",
    "NONFINITE",
    "LIVE",  # 1 while a sweep is live; then the entries it reads of each side
    "LIVE_A",
    "LIVE_A_COUNT",
    "LIVE_B",
    "LIVE_B_COUNT",
    "LIVE_TILE",  # the accumulator it works on
    "OPEN_GM",  # per accumulator: shape that opened its tile; 0, 0 = never
    "OPEN_GN",
    "OPEN_COUNT",  # sub-tiles 0.. that hold a value
    "OPEN_GM_1",
    "OPEN_GN_1",
    "OPEN_COUNT_1",
    "PENDING",  # emitting GEMMs not drained, position of the oldest record
    "PENDING_HEAD",
    "OUTSTANDING",  # sub-tiles handed out and not drained, position of the oldest
    "QUEUE_FIRST",
    "NOW",  # unit-local time without contention; then the last sweep's start, issue cycles,
    "SWEEP_START",
    "SWEEP_ISSUE",
    "SWEEP_NEXT",  # earliest start of the next sweep,
    "FIRST_EMIT",  # arrival of the last emission's first sub-tile in the drain queue
    "IDLE",  # per accumulator: when it is idle
    "IDLE_1",
)
OPEN_STRIDE = 3  # registers per accumulator
(
    MESH,
    NODE,
    HOPS,
    RETIRED,
    BUSY,
    COMPUTE,
    FILL_WAIT,
    SATURATED,
    NONFINITE,
    LIVE,
    LIVE_A,
    LIVE_A_COUNT,
    LIVE_B,
    LIVE_B_COUNT,
    LIVE_TILE,
    OPEN_GM,
    OPEN_GN,
    OPEN_COUNT,
    OPEN_GM_1,
    OPEN_GN_1,
    OPEN_COUNT_1,
    PENDING,
    PENDING_HEAD,
    OUTSTANDING,
    QUEUE_FIRST,
    NOW,
    SWEEP_START,
    SWEEP_ISSUE,
    SWEEP_NEXT,
    FIRST_EMIT,
    IDLE,
    IDLE_1,
) = range(len(REGISTERS))

# Kinds in Clusters.node.
NODE_NONE, NODE_MG, NODE_VC, NODE_PORT = range(4)

CONFIG = (
    "L",
    "entry_preq",
    "entry_fp16",
    "entry_fp16_extra",
    "serial_entry",
    "router_latency",
    "endpoint",
    "fill_base",
    "fill_fp16",
    "sweep_tail",
    "sweep_gap",
    "accumulator_idle",
    "emit_latency",
    "drain_queue",
    "drain_short",
    "drain_long",
    "drain_word",
    "drain_burst",
    "reuse_min",
    "l1_a",
    "l1_b",
    "tiles",
    "vl1",
    "meshes",
    "accumulators",
    "multicast",
    "descriptors",
    "acc_to_vc",
)
(
    T_L,
    T_ENTRY_PREQ,
    T_ENTRY_FP16,
    T_ENTRY_FP16_EXTRA,
    T_SERIAL,
    T_ROUTER,
    T_ENDPOINT,
    T_FILL_BASE,
    T_FILL_FP16,
    T_SWEEP_TAIL,
    T_SWEEP_GAP,
    T_ACC_IDLE,
    T_EMIT,
    T_QUEUE,
    T_DRAIN_SHORT,
    T_DRAIN_LONG,
    T_DRAIN_WORD,
    T_DRAIN_BURST,
    T_REUSE,
    L1_A,
    L1_B,
    TILES,
    VL1,
    MESHES,
    ACCUMULATORS,
    MULTICAST,
    DESCRIPTOR_FILL,
    ACC_TO_VC,
) = range(len(CONFIG))

# Columns of Clusters.share: a shared FILL this cluster has reached (datasheet 10).
SHARE_STATE, SHARE_TAG, SHARE_SET, SHARE_ADDR, SHARE_N, SHARE_SEL, SHARE_PREQ, SHARE_EOFF, SHARE_FBANK = range(9)
SHARE_FOUND = 9  # non-finite elements of the entries that were delivered
SHARE_COLUMNS = 10
SHARE_NONE, SHARE_READY, SHARE_DELIVERED = 0, 1, 2

# Columns of Clusters.descriptor: base, ndim, then (count, stride, axis, astep) per dimension, (abase, extent) per axis.
D_BASE, D_NDIM, D_DIM, D_AXIS, D_COLUMNS = 0, 1, 2, 26, 30

# Sections of Clusters.panel, float32 operands of one sweep.
A_PANEL = 0
A_SCALE = A_PANEL + BANK_ENTRIES * 128
B_PANEL = A_SCALE + BANK_ENTRIES * 4
B_SCALE = B_PANEL + BANK_ENTRIES * 32 * MAX_COLUMNS
EDGE = B_SCALE + BANK_ENTRIES * MAX_COLUMNS  # the last, partly used block of sub-tiles
PANEL_SIZE = EDGE + 4 * MAX_COLUMNS


class Clusters(NamedTuple):
    """All clusters of a machine; first axis = cluster. Few arrays, because every compiled call passes all.

    reg: integer state (REGISTERS), config: the machine's values (CONFIG), node: kind of endpoint at
    256*mesh + 16*y + x. L1, per side (0 A, 1 B), entry = 256 * bank + offset: q8 and q64 are two views of the
    int8 images ([lane][k] for A, [k][lane] for B), `scale` the stored bytes, `valid` 1 where FILL or CU_DATA
    put an entry. parts: words 0..2 of entries still arriving; the place of word 3 holds the mask of those there.
    tile: FP22 values as float32, sub-tile t of accumulator c, element (i, j) at 16*(c*tiles + t) + 4i + j.
    queue: FP16 sub-tiles handed out and not drained; pending: one record (sub-tiles, then the destination
    columns) per emitting GEMM not drained, a ring. unit: cluster at 256*mesh + 16*y + x, -1 elsewhere. share: a shared
    FILL that waits for the others (SHARE_*); descriptor: D_*. The rest is scratch shared by all clusters.
    """

    reg: NDArray[np.int64]  # [u, REGISTERS]
    config: NDArray[np.int64]  # [CONFIG]
    node: NDArray[np.int64]  # [256 * meshes]
    q8: NDArray[np.int8]  # [u, side, 128 * entries]
    q64: NDArray[np.uint64]  # [u, side, 16 * entries]
    scale: NDArray[np.uint8]  # [u, side, 4 * entries]
    valid: NDArray[np.uint8]  # [u, side, entries]
    parts: NDArray[np.uint64]  # [u, side, 16 * entries]
    tile: NDArray[np.float32]  # [u, 16 * tiles * accumulators]
    queue: NDArray[np.uint16]  # [u, 16 * (112 + tiles)]
    pending: NDArray[np.int64]  # [u, records, 12]
    unit: NDArray[np.int64]  # [256 * meshes]
    share: NDArray[np.int64]  # [u, SHARE_COLUMNS]
    descriptor: NDArray[np.int64]  # [u, 4, D_COLUMNS]
    panel: NDArray[np.float32]  # [PANEL_SIZE]
    gathered: NDArray[np.uint16]  # FP16 lanes of a fill by descriptor, 32 halves each
    rows: NDArray[np.int8]  # quantiser output, 4 lanes of 32 per entry
    row_scale: NDArray[np.uint8]
    words: NDArray[np.uint16]  # FP16 sub-tiles on their way out

    @property
    def mesh(self) -> NDArray[np.int64]:
        return self.reg[:, MESH]

    @property
    def opened(self) -> NDArray[np.int64]:
        """[u, (gm, gn)] of the GEMM that opened the tile."""
        return self.reg[:, OPEN_GM : OPEN_GN + 1]

    @property
    def retired(self) -> NDArray[np.int64]:
        return self.reg[:, RETIRED]

    @property
    def busy(self) -> NDArray[np.int64]:
        return self.reg[:, BUSY]

    @property
    def compute_cycles(self) -> NDArray[np.int64]:
        return self.reg[:, COMPUTE]

    @property
    def fill_wait(self) -> NDArray[np.int64]:
        return self.reg[:, FILL_WAIT]

    @property
    def saturated(self) -> NDArray[np.int64]:
        return self.reg[:, SATURATED]

    @property
    def nonfinite(self) -> NDArray[np.int64]:
        return self.reg[:, NONFINITE]


def make_config(machine: Machine) -> NDArray[np.int64]:
    """The CONFIG values of a machine: its timing and the capacities its clusters check against."""
    named = {
        "endpoint": machine.timing.endpoint_out + machine.timing.endpoint_in,
        "meshes": len(machine.meshes),
        "accumulators": capacity(machine).accumulators,
        "multicast": int(machine.features.r2_multicast),
        "descriptors": int(machine.features.r2_desc_fill),
        "acc_to_vc": int(machine.features.r2_acc_to_vc),
    }
    for name in ("reuse_min", "l1_a", "l1_b", "tiles", "vl1"):
        named[name] = machine.params[name]
    return np.array([named[n] if n in named else machine.timing[n] for n in CONFIG], np.int64)


def _nodes(machine: Machine) -> NDArray[np.int64]:
    node = np.zeros((len(machine.meshes), 16, 16), np.int64)
    for port in machine.ports:
        node[port.mesh, port.y, port.x] = NODE_PORT
    for unit in machine.units:
        node[unit.mesh, unit.y, unit.x] = NODE_MG if unit.kind == "MG" else NODE_VC
    return node.reshape(-1)


def make_clusters(machine: Machine) -> Clusters:
    """Fresh clusters: L1 and tile never written, queues empty, counters zero."""
    units = machine.units_of("MG")
    n, tiles = len(units), machine.params.tiles
    held = tiles * capacity(machine).accumulators
    entries = max(machine.params.l1_a, machine.params.l1_b)
    config = make_config(machine)
    outstanding = int(config[T_QUEUE])
    reg = np.zeros((n, len(REGISTERS)), np.int64)
    for i, unit in enumerate(units):
        port = machine.port_of(unit)
        reg[i, MESH], reg[i, NODE] = unit.mesh, unit.y << 4 | unit.x
        reg[i, HOPS] = machine.meshes[unit.mesh].hops((unit.x, unit.y), (port.x, port.y))
    q8 = np.zeros((n, 2, 128 * entries), np.int8)
    at = np.full(256 * len(machine.meshes), -1, np.int64)
    for i, unit in enumerate(units):
        at[unit.mesh << 8 | unit.y << 4 | unit.x] = i
    descriptor = np.zeros((n, 4, D_COLUMNS), np.int64)
    return Clusters(
        reg=reg,
        config=config,
        node=_nodes(machine),
        q8=q8,
        q64=q8.view(np.uint64),
        scale=np.zeros((n, 2, 4 * entries), np.uint8),
        valid=np.zeros((n, 2, entries), np.uint8),
        parts=np.zeros((n, 2, 16 * entries), np.uint64),
        tile=np.zeros((n, 16 * held), np.float32),
        queue=np.zeros((n, 16 * (outstanding + tiles)), np.uint16),
        pending=np.zeros((n, outstanding + 2, 12), np.int64),
        unit=at,
        share=np.zeros((n, SHARE_COLUMNS), np.int64),
        descriptor=descriptor,
        panel=np.zeros(PANEL_SIZE, np.float32),
        gathered=np.zeros(4 * 32 * BANK_ENTRIES, np.uint16),
        rows=np.zeros((4 * BANK_ENTRIES, 32), np.int8),
        row_scale=np.zeros(4 * BANK_ENTRIES, np.uint8),
        words=np.zeros(16 * tiles, np.uint16),
    )


def reset_clusters(cl: Clusters) -> None:
    """After a fault: what was under way is dropped (sweeps, emissions, arriving entries, open tiles, L1 validity,
    shared fills, descriptors); counters, unit-local time and DRAM stay."""
    cl.valid[...] = 0
    cl.parts[...] = 0
    cl.share[...] = 0
    cl.descriptor[...] = 0
    cl.reg[:, LIVE : QUEUE_FIRST + 1] = 0
