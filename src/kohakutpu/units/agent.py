"""The dispatch agent's registers, compiled: what a write does, what a signal leaves, why a run stopped.

It decides what the registers show at every moment. It must not know what a flit carries nor what an
instruction does. Source: datasheet 7.1.
"""

from __future__ import annotations

from typing import Any

from kohakuaccel.jit import leaf
from kohakutpu.isa import control as reg
from kohakutpu.isa import flit
from kohakutpu.units.agent_state import (
    R_CREDIT,
    R_INDEX,
    R_LEFT,
    R_NODE,
    R_RUNNING,
    R_RX_COUNT,
    R_RX_HEAD,
    R_SLOT,
    R_TX,
    RX_FLITS,
    S_CODE,
    S_DETAIL,
    S_INDEX,
    S_KIND,
    S_PC,
    S_UNIT,
    STOP_RAISED,
)

PROG_LEFT, PROG_CREDIT = (reg.PROGRAM_STATUS.position(name)[0] for name in ("left", "credit"))
N_CODE, N_ARG, N_COUNT = (reg.NODE.position(name)[0] for name in ("code", "arg", "count"))

W = 8  # bytes in a register
RX_EMPTY, RX_OVERFLOW = 1 << 16, 1 << 17
NODES = reg.NODE_STATUS // W
STAGE = reg.STAGE // W
SLOT = reg.STAGE_BYTES // W


@leaf
def halt(stop: Any, unit: int, code: int, d0: int, d1: int, d2: int) -> int:
    """Note why the simulator stops; returns 2."""
    stop[S_KIND] = STOP_RAISED
    stop[S_UNIT] = unit
    stop[S_CODE] = code
    stop[S_DETAIL] = d0
    stop[S_DETAIL + 1] = d1
    stop[S_DETAIL + 2] = d2
    stop[S_DETAIL + 3] = 0
    stop[S_PC] = -1
    stop[S_INDEX] = -1
    return 2


@leaf
def publish(run: Any, agent: Any, m: int) -> None:
    """PROG_STAT, PROG_CRED and STATUS follow the dispatcher."""
    credit = run[m, R_CREDIT] & 0xFFFF
    agent[m, reg.PROG_STAT // W] = run[m, R_RUNNING] | run[m, R_LEFT] << PROG_LEFT | credit << PROG_CREDIT
    agent[m, reg.PROG_CRED // W] = credit
    agent[m, reg.STATUS // W] = run[m, R_RUNNING] | 4


@leaf
def publish_rx(run: Any, agent: Any, rx: Any, m: int) -> None:
    """RX_FLIT shows the oldest reply, RX_STATUS whether there is one."""
    count, status = run[m, R_RX_COUNT], reg.RX_STATUS // W
    agent[m, status] = (agent[m, status] & RX_OVERFLOW) | (RX_EMPTY if count == 0 else 0)
    for w in range(5):
        agent[m, reg.RX_FLIT // W + w] = rx[m, run[m, R_RX_HEAD], w] if count else 0


@leaf
def agent_write(run: Any, agent: Any, rx: Any, m: int, offset: int, value: int) -> int:
    """One 64-bit register write, staging RAM included. Returns 0, or 1 where nothing can be written."""
    word = offset // W
    if offset == reg.PROG_KICK:
        if run[m, R_RUNNING] == 0 and agent[m, reg.PROG_LEN // W] > 0:
            run[m, R_RUNNING] = 1
            run[m, R_LEFT] = agent[m, reg.PROG_LEN // W]
            run[m, R_SLOT] = agent[m, reg.PROG_BASE // W]
            run[m, R_NODE] = agent[m, reg.PROG_DST // W] & 0xFF
            run[m, R_INDEX] = 0
            publish(run, agent, m)
    elif offset == reg.PROG_CRED:
        run[m, R_CREDIT] = value & 0xFFFF
        publish(run, agent, m)
    elif offset == reg.PROG_DST or offset == reg.PROG_LEN or offset == reg.PROG_BASE:
        agent[m, word] = value & 0xFFFF
    elif offset == reg.SIG_DONE:
        agent[m, word] = 0
    elif offset == reg.TX_KICK:
        if run[m, R_RUNNING] == 0:
            run[m, R_TX] = 1
    elif offset == reg.RX_POP:
        if run[m, R_RX_COUNT] > 0:
            run[m, R_RX_COUNT] -= 1
            run[m, R_RX_HEAD] = (run[m, R_RX_HEAD] + 1) % RX_FLITS
            publish_rx(run, agent, rx, m)
    elif (reg.TX_FLIT <= offset < reg.TX_FLIT + 5 * W) or (STAGE <= word < agent.shape[1]):
        agent[m, word] = value
    else:
        return 1
    return 0


@leaf
def signal(run: Any, agent: Any, m: int, node: int, code: int, arg: int) -> None:
    """A CU_SIGNAL of `node` arrives at mesh m's agent (datasheet 7.1): summarised, never queued."""
    at, done = NODES + node, reg.SIG_DONE // W
    count = ((agent[m, at] >> N_COUNT) + 1) & 0xFFFF
    agent[m, at] = (code & 0xFF) << N_CODE | (arg & 0xFFFFFFFF) << N_ARG | count << N_COUNT | 1
    agent[m, done] = (agent[m, done] + 1) & 0xFFFF
    if code == flit.INST_COMPLETE:
        run[m, R_CREDIT] = (run[m, R_CREDIT] + 1) & 0xFFFF
        publish(run, agent, m)
