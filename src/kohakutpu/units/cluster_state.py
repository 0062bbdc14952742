"""What the matmul clusters of a machine hold (datasheet 1.3, 4.2, 5).

Plain arrays, one row per cluster in the machine's order of MG units. Nothing here executes anything; this
module is importable without compiling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from kohakuaccel.machine import Machine

BANK_ENTRIES = 256  # entries an 8-bit offset reaches; a bank bit selects the second 256
MAX_COLUMNS = 32  # widest block of the multiplier array (cluster_array.COLUMNS is 16 or 32)

REGISTERS = (
    "MESH",
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
    "OPEN_GM",  # shape that opened the tile; 0, 0 = never
    "OPEN_GN",
    "OPEN_COUNT",  # sub-tiles 0.. that hold a value
    "PENDING",  # emitting GEMMs not drained, position of the oldest record
    "PENDING_HEAD",
    "OUTSTANDING",  # sub-tiles handed out and not drained, position of the oldest
    "QUEUE_FIRST",
    "NOW",  # unit-local time without contention; then the last sweep's start, issue cycles,
    "SWEEP_START",
    "SWEEP_ISSUE",
    "SWEEP_NEXT",  # earliest start of the next sweep,
    "FIRST_EMIT",  # arrival of its first sub-tile in the drain queue
)
(
    MESH,
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
    OPEN_GM,
    OPEN_GN,
    OPEN_COUNT,
    PENDING,
    PENDING_HEAD,
    OUTSTANDING,
    QUEUE_FIRST,
    NOW,
    SWEEP_START,
    SWEEP_ISSUE,
    SWEEP_NEXT,
    FIRST_EMIT,
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
    ACC_TO_VC,
) = range(len(CONFIG))

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
    tile: FP22 values as float32, sub-tile t, element (i, j) at 16t + 4i + j.
    queue: FP16 sub-tiles handed out and not drained; pending: one record (sub-tiles, then the destination
    columns) per emitting GEMM not drained, a ring. The rest is scratch shared by all clusters.
    """

    reg: NDArray[np.int64]  # [u, REGISTERS]
    config: NDArray[np.int64]  # [CONFIG]
    node: NDArray[np.int64]  # [256 * meshes]
    q8: NDArray[np.int8]  # [u, side, 128 * entries]
    q64: NDArray[np.uint64]  # [u, side, 16 * entries]
    scale: NDArray[np.uint8]  # [u, side, 4 * entries]
    valid: NDArray[np.uint8]  # [u, side, entries]
    parts: NDArray[np.uint64]  # [u, side, 16 * entries]
    tile: NDArray[np.float32]  # [u, 16 * tiles]
    queue: NDArray[np.uint16]  # [u, 16 * (112 + tiles)]
    pending: NDArray[np.int64]  # [u, records, 11]
    panel: NDArray[np.float32]  # [PANEL_SIZE]
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
    entries = max(machine.params.l1_a, machine.params.l1_b)
    config = make_config(machine)
    outstanding = int(config[T_QUEUE])
    reg = np.zeros((n, len(REGISTERS)), np.int64)
    for i, unit in enumerate(units):
        port = machine.port_of(unit)
        reg[i, MESH] = unit.mesh
        reg[i, HOPS] = machine.meshes[unit.mesh].hops((unit.x, unit.y), (port.x, port.y))
    q8 = np.zeros((n, 2, 128 * entries), np.int8)
    return Clusters(
        reg=reg,
        config=config,
        node=_nodes(machine),
        q8=q8,
        q64=q8.view(np.uint64),
        scale=np.zeros((n, 2, 4 * entries), np.uint8),
        valid=np.zeros((n, 2, entries), np.uint8),
        parts=np.zeros((n, 2, 16 * entries), np.uint64),
        tile=np.zeros((n, 16 * tiles), np.float32),
        queue=np.zeros((n, 16 * (outstanding + tiles)), np.uint16),
        pending=np.zeros((n, outstanding + 2, 11), np.int64),
        panel=np.zeros(PANEL_SIZE, np.float32),
        rows=np.zeros((4 * BANK_ENTRIES, 32), np.int8),
        row_scale=np.zeros(4 * BANK_ENTRIES, np.uint8),
        words=np.zeros(16 * tiles, np.uint16),
    )


def reset_clusters(cl: Clusters) -> None:
    """After a fault: what was under way is dropped (sweeps, emissions, arriving entries, the open tile, L1
    validity); counters, unit-local time and DRAM stay."""
    cl.valid[...] = 0
    cl.parts[...] = 0
    cl.reg[:, LIVE : QUEUE_FIRST + 1] = 0
