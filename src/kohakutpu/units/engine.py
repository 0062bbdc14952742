"""Control engines and dispatchers, compiled: how far the agents of a mesh go in one turn, and what a host writes there.

It decides what an engine's command does and when a dispatcher rests. It must not know units: whoever runs them
(control.py) delivers what the agents leave in the outbox. Sources: datasheet 7.1, 7.2.
"""

from __future__ import annotations

from typing import Any

from numba import int64, typeof

from kohakuaccel.jit import leaf, separate
from kohakutpu.isa import control as reg
from kohakutpu.units.agent import W, agent_write
from kohakutpu.units.agent_state import R_BUSY, R_RUNNING, R_TX, blank_control
from kohakutpu.units.fabric import send
from kohakutpu.units.state import make_outbox

COMMANDS = reg.COMMANDS // W
COMMAND = reg.COMMAND_BYTES // W
PC, DONE_CODE, POLLS = reg.PC // W, reg.DONE_CODE // W, reg.POLLS // W
DONE_BIT, ERROR_BIT = 2, 4
WINDOW_MASK = (1 << reg.MESH_SHIFT) - 1

CONTROL, OUTBOX = typeof(blank_control()), typeof(make_outbox())

BLOCKED, MOVED = 0, 1


@leaf
def command(run: Any, engine: Any, agent: Any, rx: Any, m: int) -> int:
    """One command of mesh m's engine. An engine reaches every agent window, by the host's bus addresses."""
    pc = engine[m, PC]
    at = COMMANDS + COMMAND * pc
    ends = ERROR_BIT
    if at + COMMAND <= engine.shape[1]:
        op, address, data, mask = engine[m, at] & 15, engine[m, at + 1], engine[m, at + 2], engine[m, at + 3]
        target = address >> reg.MESH_SHIFT
        offset = (address & WINDOW_MASK) - reg.AGENT_BASE
        inside = 0 <= target < agent.shape[0] and 0 <= offset < W * agent.shape[1] and offset % W == 0
        if op == reg.DONE:
            engine[m, DONE_CODE] = data
            ends = DONE_BIT
        elif op == reg.WRITE and inside:
            ends = ERROR_BIT if agent_write(run, agent, rx, target, offset, data) != 0 else 0
        elif op == reg.POLL and inside:
            engine[m, POLLS] += 1
            if (agent[target, offset // W] & mask) != data:
                return BLOCKED
            ends = 0
    if ends:
        run[m, R_BUSY] = 0
        engine[m, 0] = ends
    else:
        engine[m, PC] = pc + 1
    return MOVED


@separate(int64(CONTROL, OUTBOX, int64))
def agents(ctl: Any, out: Any, m: int) -> int:
    """Mesh m's engine, raw flit and dispatcher go as far as they can, or until a burst is whole in `out`.

    Returns 0 when nothing moved, 1 when something did, 2 to stop.
    """
    run = ctl.run
    moved = 0
    while run[m, R_BUSY] != 0 and run[m, R_TX] == 0:
        if command(run, ctl.engine, ctl.agent, ctl.rx, m) == BLOCKED:
            break
        moved = 1
    while run[m, R_TX] != 0 or run[m, R_RUNNING] != 0:
        again = run[m, R_TX] != 0  # an engine that waited for the raw flit to leave goes on next turn
        code = send(ctl, out, m)
        if code == 2:
            return 2
        if code == 1:
            break
        moved = 1
        if code == 3 or again:
            break
    return moved


@leaf(python=True)
def write_registers(run: Any, agent: Any, rx: Any, m: int, offset: int, values: Any) -> int:
    """Host writes of consecutive 64-bit registers of an agent, from byte `offset`, up to the first one that
    sets something going. Returns how many were taken; -1 - i when register i cannot be written."""
    for i in range(values.shape[0]):
        if agent_write(run, agent, rx, m, offset + W * i, values[i]) != 0:
            return -1 - i
        if run[m, R_TX] != 0 or run[m, R_RUNNING] != 0:
            return i + 1
    return values.shape[0]
