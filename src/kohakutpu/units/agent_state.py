"""The control plane's state as plain arrays: register windows, dispatchers, instruction FIFOs, open bursts.

It decides where each value is kept. A window is kept word by word at its bus offset, and every register that
hardware changes is updated there at the moment it changes, so that a read of any register is a plain load.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.machine import Machine
from kohakutpu.isa import flit
from kohakutpu.isa.cluster import CLUSTER
from kohakutpu.isa.cluster_tdesc import extraction
from kohakutpu.machines import capacity, version
from kohakutpu.units.state import NOTE_WORDS

# Columns of Control.run, one row per mesh: dispatcher, raw flits, control engine.
R_RUNNING = 0  # the dispatcher has flits left
R_LEFT = 1
R_SLOT = 2  # next staging slot
R_INDEX = 3  # flits of this program sent so far
R_NODE = 4  # latched PROG_DST
R_CREDIT = 5
R_TX = 6  # a raw flit waits to go out
R_AGENT = 7  # the agent's own coordinate, y<<4|x
R_RX_HEAD = 8
R_RX_COUNT = 9
R_BUSY = 10  # the control engine runs
R_COLUMNS = 12

# Columns of Control.unit, one row per unit.
U_KIND = 0  # 0 MG, 1 VC
U_INDEX = 1  # within its kind
U_MESH = 2
U_NODE = 3  # y<<4|x
U_HEAD = 4  # oldest FIFO entry
U_COUNT = 5
U_BLOCKED = 6  # wait reason of the head instruction, 0 = may run
U_WAIT = 7  # two details of that reason
U_OPEN = 9  # source (y<<4|x) + 1 of the open inbound burst, 0 = none
U_BUF = 10
U_OFFSET = 11
U_LENGTH = 12
U_GOT = 13
U_FLAGS = 14
U_ACK = 15  # y<<4|x
U_PENDING = 16  # fault code of a bad inbound burst, for the next retirement
U_TAKES = 17  # bit b: the unit takes CU_DATA into buffer b
U_COLUMNS = 18

# Columns of Control.meta, one row per FIFO entry.
Q_TXN = 0
Q_LAST = 1
Q_INDEX = 2  # number of the flit in its program since the kick, -1 for a raw flit
Q_COLUMNS = 3

# Control.limits
L_FIFO = 0
L_SLOTS = 1
L_COMMANDS = 2
L_CAPS_MG = 3  # what CU_CAPS answers, MG then VC
L_CAPS_VC = 4
L_COLUMNS = 5

# Columns of Control.counts, one row per unit: what CU_CTRL answers (datasheet 4.2).
C_RETIRED, C_BUSY, C_HIGH, C_LOW, C_SATURATED, C_NONFINITE = range(6)

# Control.stop: why the machine stopped
S_KIND = 0
S_UNIT = 1  # row of Control.unit, or -1 - mesh for an agent
S_CODE = 2
S_DETAIL = 3  # four words
S_PC = 7
S_INDEX = 8
S_COLUMNS = 16
QUIET, STOP_FAULT, STOP_RAISED, STOP_HANG = 0, 1, 2, 3

# Error codes of the control plane itself, beyond those of the units in state.py.
E_NO_UNIT = 64  # a flit to a coordinate without a unit: d0 = mesh<<8|y<<4|x, d1 = flit type
E_FLIT_TYPE = 65  # a flit of a type that its target does not take: d0 = mesh<<8|y<<4|x, d1 = flit type
E_STAGE = 66  # a program beyond the staging RAM: d0 = first slot, d1 = flits, d2 = slots
E_QUEUE = 67  # a raw instruction into a full FIFO: d0 = mesh<<8|y<<4|x, d1 = depth

RX_FLITS = 64
LOG_SHIFT = 48  # Control.log
FREE_NODE = -1
AGENT_NODE = -2

KINDS = ("MG", "VC")


class Control(NamedTuple):
    """All state of the control plane. int64 windows hold the bits of 64-bit registers."""

    engine: NDArray[np.int64]  # [meshes, words] control engine window
    agent: NDArray[np.int64]  # [meshes, words] dispatch agent window
    run: NDArray[np.int64]  # [meshes, R_COLUMNS]
    rx: NDArray[np.int64]  # [meshes, RX_FLITS, 5]
    node: NDArray[np.int64]  # [meshes, 256] row of `unit`, FREE_NODE or AGENT_NODE
    unit: NDArray[np.int64]  # [units, U_COLUMNS]
    words: NDArray[np.uint64]  # [units, inst_fifo, 4] payloads
    rows: NDArray[np.int64]  # [units, inst_fifo, columns] decoded
    meta: NDArray[np.int64]  # [units, inst_fifo, Q_COLUMNS]
    counts: NDArray[np.int64]  # [units, 6]
    burst: NDArray[np.uint64]  # [units, 256, 4] data of the open inbound burst
    limits: NDArray[np.int64]  # [L_COLUMNS]
    stop: NDArray[np.int64]  # [S_COLUMNS]
    note: NDArray[np.int64]  # [NOTE_WORDS] of the last step
    log: NDArray[np.int64]  # word 0: end of the log, 0 = off; then unit row << LOG_SHIFT | kernel cycles of its RUNs
    layout: NDArray[np.int64]  # Format.extraction() of a cluster payload
    special: NDArray[np.int64]  # that of a TDESC


def blank_control() -> Control:
    """Control state of nothing: what compiled code takes its types from."""
    ranks = {"limits": 1, "stop": 1, "note": 1, "log": 1, "rx": 3, "words": 3, "rows": 3, "meta": 3, "burst": 3}
    words: list[Any] = [
        np.zeros((1,) * ranks.get(name, 2), np.uint64 if name in ("words", "burst") else np.int64)
        for name in Control._fields
    ]
    return Control(*words)


def buffers_of(machine: Machine, kind: str) -> tuple[int, ...]:
    """Buffer ids that a kind of unit takes CU_DATA into (datasheet 4.2, 10)."""
    if kind == "VC":
        return (flit.BUF_VC_L1, flit.BUF_FP22) if machine.features.r2_acc_to_vc else (flit.BUF_VC_L1,)
    tiles = (flit.BUF_MG_TILE, flit.BUF_MG_TILE_1)[: capacity(machine).accumulators]
    return (flit.BUF_MG_A, flit.BUF_MG_B, *tiles)


def make_control(machine: Machine, engine_words: int, agent_words: int) -> Control:
    """Control state of a machine out of reset."""
    meshes, units, fifo = len(machine.meshes), len(machine.units), machine.params.inst_fifo
    run = np.zeros((meshes, R_COLUMNS), np.int64)
    node = np.full((meshes, 256), FREE_NODE, np.int64)
    for mesh in machine.meshes:
        at = mesh.agent_y << 4 | mesh.agent_x
        run[mesh.index, R_AGENT] = at
        node[mesh.index, at] = AGENT_NODE
    unit = np.zeros((units, U_COLUMNS), np.int64)
    for row, u in enumerate(machine.units):
        at = u.y << 4 | u.x
        unit[row, :4] = KINDS.index(u.kind), u.index, u.mesh, at
        unit[row, U_TAKES] = sum(1 << buffer for buffer in buffers_of(machine, u.kind))
        node[u.mesh, at] = row
    p, flags, revision = machine.params, machine.features, version(machine)
    # Option flags travel in CU_CAPS[19:0] with version 5 (datasheet 10).
    options = 0
    if revision >= 5:
        from kohakutpu.machines import R2_FLAGS

        options = sum(int(flags[name]) << bit for bit, name in enumerate(R2_FLAGS))
    caps = [
        code << 48 | revision << 40 | buffers << 36 | (p.inst_fifo & 0xFFFF) << 20 | options
        for code, buffers in ((0x4D47, 3), (0x5643, 1))
    ]
    limits = np.zeros(L_COLUMNS, np.int64)
    limits[:] = (fifo, p.stage_flits, p.ncmd, *caps)
    return Control(
        engine=np.zeros((meshes, engine_words), np.int64),
        agent=np.zeros((meshes, agent_words), np.int64),
        run=run,
        rx=np.zeros((meshes, RX_FLITS, 5), np.int64),
        node=node,
        unit=unit,
        words=np.zeros((units, fifo, 4), np.uint64),
        rows=np.zeros((units, fifo, max(len(CLUSTER.fields), 4)), np.int64),
        meta=np.zeros((units, fifo, Q_COLUMNS), np.int64),
        counts=np.zeros((units, 6), np.int64),
        burst=np.zeros((units, 256, 4), np.uint64),
        limits=limits,
        stop=np.zeros(S_COLUMNS, np.int64),
        note=np.zeros(NOTE_WORDS, np.int64),
        log=np.zeros(1 + meshes * p.stage_flits, np.int64),
        layout=CLUSTER.extraction(),
        special=extraction(),
    )
