"""The control plane of a mesh on the compiled clock: the engine's command list, the dispatcher and its credits.

It decides when an instruction leaves for its unit and when a round is over. It must not know what instructions do.
Source: datasheet 7.1, 7.2, 8.3.
"""

from __future__ import annotations

from typing import Any

from kohakuaccel.jit import leaf, separate
from kohakutpu.sim.fabric import push, send, span, text
from kohakutpu.sim.state import (
    A_CREDIT,
    A_KICKED,
    A_NEXT,
    A_OVER,
    A_PC,
    A_POLL,
    A_SENT,
    A_STALLED,
    A_TARGET,
    A_TRACK,
    A_WINDOW,
    C_CREDIT,
    C_IDLE,
    C_KICK,
    C_NODE,
    C_WRITE,
    CONTROL,
    EV_ADVANCE,
    EV_FLIT,
    EV_OVER,
    EV_STEP,
    EV_WRITE,
    ON_CREDITS,
    T_CTL_POLL,
    T_CTL_RETRY,
    T_CTL_WRITE,
    T_FLIT,
    T_KICK,
    WAIT,
    X_DISPATCH,
    X_NO_CREDIT,
)
from kohakutpu.sim.station import agent_node, arrive
from kohakutpu.sim.tables import agent_of, command_of, counts_of, signature, window_of


@leaf
def _satisfied(s: Any, mesh: int) -> bool:
    row = agent_of(s, mesh)
    pc = row[A_PC]
    if command_of(s, pc)[0] == C_NODE:
        return counts_of(s, mesh)[command_of(s, pc)[1]] == command_of(s, pc)[3]
    return row[A_TARGET] < 0


@separate(signature("void", 2))
def step(s: Any, now: int, mesh: int) -> None:
    """The engine looks at its command."""
    row = agent_of(s, mesh)
    kind = command_of(s, row[A_PC])[0]
    if kind in (C_IDLE, C_NODE):
        if _satisfied(s, mesh):
            push(s, now + s[T_CTL_POLL], EV_ADVANCE, mesh, 0, 0)
        else:
            row[A_POLL] = now
    elif kind in (C_WRITE, C_CREDIT, C_KICK):
        push(s, now + s[T_CTL_WRITE], EV_WRITE, mesh, 0, 0)
    else:
        push(s, now + s[T_CTL_WRITE], EV_OVER, mesh, 0, 0)


@separate(signature("void", 4))
def start(s: Any, now: int, mesh: int, command: int, window: int) -> None:
    """GO: the engine executes a round's command list from `command` on."""
    row = agent_of(s, mesh)
    row[A_OVER] = row[A_POLL] = row[A_STALLED] = row[A_TARGET] = -1
    row[A_PC], row[A_NEXT] = command, window
    at = command
    while command_of(s, at)[0] <= C_NODE:
        if command_of(s, at)[0] == C_NODE:
            command_of(s, at)[3] = counts_of(s, mesh)[command_of(s, at)[1]] + command_of(s, at)[2]
        at += 1
    step(s, now, mesh)


@leaf
def advance(s: Any, now: int, mesh: int) -> None:
    """The next command."""
    agent_of(s, mesh)[A_PC] += 1
    step(s, now, mesh)


@separate(signature("void", 2))
def write(s: Any, now: int, mesh: int) -> None:
    """A WRITE takes effect."""
    row = agent_of(s, mesh)
    kind = command_of(s, row[A_PC])[0]
    if kind == C_CREDIT:
        row[A_CREDIT] = command_of(s, row[A_PC])[1]
    elif kind == C_KICK:
        row[A_WINDOW] = row[A_NEXT]
        row[A_NEXT] += 1
        row[A_TARGET] = window_of(s, row[A_WINDOW])[0]
        row[A_SENT], row[A_KICKED] = 0, now
        push(s, now + s[T_KICK], EV_FLIT, mesh, 0, 0)
    advance(s, now, mesh)


@separate(signature("void", 2))
def _retry(s: Any, now: int, mesh: int) -> None:
    """What a failed POLL looks at has changed: it sees that at its next try."""
    row = agent_of(s, mesh)
    if row[A_POLL] >= 0 and _satisfied(s, mesh):
        wait = s[T_CTL_RETRY]
        tries = max(1, (now - row[A_POLL] + wait - 1) // wait)
        at = max(now, row[A_POLL] + wait * tries)
        row[A_POLL] = -1
        push(s, at, EV_STEP, mesh, 0, 0)


@separate(signature("void", 2))
def flit(s: Any, now: int, mesh: int) -> None:
    """The dispatcher sends its next flit, or stalls without credit."""
    row = agent_of(s, mesh)
    if row[A_CREDIT] == 0:
        row[A_STALLED] = now
        return
    row[A_CREDIT] -= 1
    u, first, count = window_of(s, row[A_WINDOW])[0], window_of(s, row[A_WINDOW])[1], window_of(s, row[A_WINDOW])[2]
    arrive(s, send(s, now, agent_node(s, mesh), u, 1), u, first + row[A_SENT])
    row[A_SENT] += 1
    if row[A_SENT] < count:
        push(s, now + s[T_FLIT], EV_FLIT, mesh, 0, 0)
    else:
        span(s, row[A_TRACK], row[A_KICKED], now, CONTROL, text(X_DISPATCH, u, 0, 0), -1, -1)
        row[A_TARGET] = -1
        _retry(s, now, mesh)


@separate(signature("void", 4))
def signalled(s: Any, now: int, mesh: int, node: int, credit: int) -> None:
    """A completion or acknowledgement of `node` arrives."""
    row = agent_of(s, mesh)
    counts_of(s, mesh)[node] += 1
    if credit:
        row[A_CREDIT] += 1
        if row[A_STALLED] >= 0:
            span(s, row[A_TRACK], row[A_STALLED], now, WAIT, text(X_NO_CREDIT, 0, 0, 0), ON_CREDITS, -1)
            row[A_STALLED] = -1
            flit(s, now, mesh)
    _retry(s, now, mesh)
