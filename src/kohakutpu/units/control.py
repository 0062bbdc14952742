"""The whole machine in one compiled loop: control engines, dispatchers and units, until nothing can move.

It decides the order: engines, then agents, then every unit with work executes one instruction, over and over.
The order is fixed, so a run is reproducible. It must not know formats or addresses of operands.
Sources: datasheet 7.1, 7.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kohakuaccel.jit import leaf
from kohakutpu.isa import flit, vector
from kohakutpu.units import cluster_state
from kohakutpu.units.agent import halt, signal
from kohakutpu.units.agent_state import (
    C_BUSY,
    C_HIGH,
    C_LOW,
    C_NONFINITE,
    C_RETIRED,
    C_SATURATED,
    LOG_SHIFT,
    Q_INDEX,
    Q_LAST,
    Q_TXN,
    QUIET,
    R_BUSY,
    S_CODE,
    S_DETAIL,
    S_INDEX,
    S_KIND,
    S_PC,
    S_UNIT,
    STOP_FAULT,
    STOP_HANG,
    STOP_RAISED,
    U_BLOCKED,
    U_COUNT,
    U_HEAD,
    U_INDEX,
    U_KIND,
    U_MESH,
    U_NODE,
    U_PENDING,
    U_WAIT,
)
from kohakutpu.units.cluster import cluster_receive, cluster_step
from kohakutpu.units.engine import agents
from kohakutpu.units.fabric import address, received
from kohakutpu.units.state import E_OUTBOX, FAULTED, NOTE_OTHERS, RAISED, W_SHARE, WAITING
from kohakutpu.units.vector import vector_receive, vector_step


@leaf
def note_stop(stop: Any, note: Any, meta: Any, u: int, kind: int, at: int) -> None:
    """The last step's note and the FIFO entry `at` become the reason why the machine stopped."""
    stop[S_KIND] = kind
    stop[S_UNIT] = u
    stop[S_CODE] = note[1]
    for i in range(4):
        stop[S_DETAIL + i] = note[2 + i]
    stop[S_PC] = note[6]
    stop[S_INDEX] = meta[u, at, Q_INDEX]


@leaf
def retire(ctl: Any, note: Any, u: int, status: int, stop_on_fault: int) -> int:
    """The oldest instruction of unit u is done: it leaves the FIFO and signals. Returns 0 or 2 to stop."""
    unit = ctl.unit
    at = unit[u, U_HEAD]
    mesh, node = unit[u, U_MESH], unit[u, U_NODE]
    if unit[u, U_PENDING] != 0:
        if status != FAULTED:
            note[1] = unit[u, U_PENDING]
        unit[u, U_PENDING] = 0
        status = FAULTED
    if status == FAULTED:
        signal(ctl.run, ctl.agent, mesh, node, flit.FAULT, note[1])
        if stop_on_fault:
            note_stop(ctl.stop, note, ctl.meta, u, STOP_FAULT, at)
            return 2
    elif ctl.meta[u, at, Q_LAST] != 0:
        signal(ctl.run, ctl.agent, mesh, node, flit.BATCH_COMPLETE, ctl.meta[u, at, Q_TXN])
    else:
        signal(ctl.run, ctl.agent, mesh, node, flit.INST_COMPLETE, note[1])
    unit[u, U_HEAD] = (at + 1) % ctl.meta.shape[1]
    unit[u, U_COUNT] -= 1
    return 0


@leaf(python=True)
def advance(ctl: Any, cl: Any, vc: Any, mem: Any, out: Any, policy: int, stop_on_fault: int) -> int:
    """Runs until nothing can move. Returns QUIET, STOP_FAULT or STOP_RAISED (`stop` says why), or STOP_HANG
    when an engine still waits.

    One function, because clusters and vector cores are large tuples whose passing is what takes long to
    compile: turn t is the agents of mesh t, then the units, one instruction each.
    """
    run, unit, note = ctl.run, ctl.unit, ctl.note
    meshes, units = run.shape[0], unit.shape[0]
    ctl.stop[S_KIND] = QUIET
    out.used[0] = 0
    turn, moved, status = 0, False, 0
    while True:
        if turn == meshes + units:
            if not moved:
                break
            turn, moved = 0, False
        sender = np.int64(-1 - turn)
        if turn < meshes:
            code = agents(ctl, out, turn)
            if code == 2:
                return STOP_RAISED
            if code == 1:
                moved = True
        else:
            u = np.int64(turn - meshes)
            sender = u
            if unit[u, U_COUNT] > 0 and unit[u, U_BLOCKED] == 0:
                row, i = ctl.rows[u, unit[u, U_HEAD]], unit[u, U_INDEX]
                out.used[1] = 0
                note[:] = 0
                note[6] = -1
                if unit[u, U_KIND] == 0:
                    status = cluster_step(cl, mem, out, i, row, policy, note)
                    ctl.counts[u, C_RETIRED] = cl.reg[i, cluster_state.RETIRED]
                    ctl.counts[u, C_BUSY] = cl.reg[i, cluster_state.BUSY]
                    ctl.counts[u, C_HIGH] = cl.reg[i, cluster_state.COMPUTE]
                    ctl.counts[u, C_LOW] = cl.reg[i, cluster_state.FILL_WAIT]
                    ctl.counts[u, C_SATURATED] = cl.reg[i, cluster_state.SATURATED]
                    ctl.counts[u, C_NONFINITE] = cl.reg[i, cluster_state.NONFINITE]
                    if note[NOTE_OTHERS] != 0:
                        for other in range(units):
                            if unit[other, U_BLOCKED] == W_SHARE:
                                unit[other, U_BLOCKED] = 0
                else:
                    status = vector_step(vc, mem, out, i, row[0], row[1], row[2], row[3], note)
                    ctl.counts[u, C_RETIRED] = vc.retired[i]
                    ctl.counts[u, C_BUSY] = vc.busy[i]
                    ctl.counts[u, C_LOW] = vc.kernel[i]
                    ctl.counts[u, C_SATURATED] = vc.saturated[i]
                    ctl.counts[u, C_NONFINITE] = vc.nonfinite[i]
                    if 0 < ctl.log[0] < ctl.log.shape[0] and row[0] == vector.ENV_RUN:
                        ctl.log[ctl.log[0]] = u << LOG_SHIFT | vc.kernel[i]
                        ctl.log[0] += 1
                if status == WAITING:
                    unit[u, U_BLOCKED] = note[1]
                    unit[u, U_WAIT] = note[2]
                    unit[u, U_WAIT + 1] = note[3]
                elif status == RAISED:
                    note_stop(ctl.stop, note, ctl.meta, u, STOP_RAISED, unit[u, U_HEAD])
                    return STOP_RAISED
                else:
                    moved = True
            else:
                status = WAITING
        if out.used[0] > out.head.shape[0] or out.used[1] > out.data.shape[0]:
            halt(ctl.stop, sender, E_OUTBOX, out.used[0], out.used[1], 0)
            return STOP_RAISED
        for b in range(out.used[0]):
            target = address(ctl.node, unit, ctl.stop, out.head[b], sender)
            if target < 0:
                code = 2
            else:
                i, first = unit[target, U_INDEX], out.head[b, 9]
                data = out.data[first : first + out.head[b, 5]]
                if unit[target, U_KIND] == 0:
                    code = cluster_receive(cl, i, out.head[b, 3], out.head[b, 4], data, out.head[b, 5])
                else:
                    code = vector_receive(vc, i, out.head[b, 3], out.head[b, 4], data, out.head[b, 5])
                code = received(ctl, out.head[b], sender, target, code)
            if code != 0:
                if sender >= 0:
                    ctl.stop[S_INDEX] = ctl.meta[sender, unit[sender, U_HEAD], Q_INDEX]
                return STOP_RAISED
        out.used[0] = 0
        if turn >= meshes and status != WAITING and retire(ctl, note, turn - meshes, status, stop_on_fault) != 0:
            return STOP_FAULT
        turn += 1
    for m in range(meshes):
        if run[m, R_BUSY] != 0:
            return STOP_HANG
    return QUIET


__all__ = ["advance"]
