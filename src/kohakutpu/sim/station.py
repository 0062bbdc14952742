"""A unit's front on the compiled clock: its instruction FIFO, retirement, and the signals that leave it.

It decides when an instruction is accepted and what tells the dispatcher that it is done. It must not know what an
instruction does. Source: datasheet 7.1, 8.1.
"""

from __future__ import annotations

from typing import Any

from kohakuaccel.jit import leaf, separate
from kohakutpu.sim.fabric import push, send, span, text
from kohakutpu.sim.state import (
    A_TRACK,
    EV_ACCEPT,
    EV_SIGNAL,
    N_PORTS,
    N_UNITS,
    T_FLIT,
    T_GAP,
    U_BUSY,
    U_CURRENT,
    U_HEAD,
    U_LAST,
    U_MESH,
    U_NODE,
    U_READY,
    U_TRACK,
    W_ARRIVED,
    W_FIRST,
    W_LAST,
    W_LINE,
    W_NEXT,
    WAIT,
    X_NO_INSTRUCTION,
)
from kohakutpu.sim.tables import agent_of, signature, unit_of, work_of


@leaf
def agent_node(s: Any, mesh: int) -> int:
    """A mesh's dispatch agent among the ends of paths."""
    return 2 * s[N_UNITS] + s[N_PORTS] + mesh


@separate(signature("void", 3))
def signal(s: Any, now: int, u: int, credit: int) -> None:
    """A signal of unit u leaves for its agent. credit: 1 when it returns one."""
    mesh = unit_of(s, u)[U_MESH]
    at = send(s, now, u, agent_node(s, mesh), 1)
    push(s, at, EV_SIGNAL, mesh, unit_of(s, u)[U_NODE], credit)


@separate(signature("void", 3))
def arrive(s: Any, at: int, u: int, w: int) -> None:
    """Instruction w enters the FIFO of unit u at `at`, after those before it."""
    row = unit_of(s, u)
    work_of(s, w)[W_ARRIVED] = at
    work_of(s, w)[W_NEXT] = -1
    if row[U_HEAD] < 0:
        row[U_HEAD] = w
    else:
        work_of(s, row[U_LAST])[W_NEXT] = w
    row[U_LAST] = w
    if not row[U_BUSY]:
        row[U_BUSY] = 1
        push(s, max(row[U_READY], at), EV_ACCEPT, u, 0, 0)


@separate(signature("int64", 1))
def take(s: Any, u: int) -> int:
    """The oldest instruction leaves the FIFO. A wait for the dispatcher is shown where it is more than the pace of a
    running program."""
    row = unit_of(s, u)
    w = row[U_HEAD]
    work = work_of(s, w)
    row[U_HEAD] = work[W_NEXT]
    row[U_CURRENT] = w
    since = row[U_READY]
    if not work[W_FIRST] and work[W_ARRIVED] - since > s[T_FLIT]:
        on = agent_of(s, row[U_MESH])[A_TRACK]
        words = text(X_NO_INSTRUCTION, 0, 0, 0)
        span(s, row[U_TRACK], since, work[W_ARRIVED], WAIT, words, on, work[W_LINE])
    return w


@separate(signature("void", 3))
def retire(s: Any, now: int, u: int, w: int) -> None:
    """Instruction w is done: its signal leaves, the next one may come."""
    row = unit_of(s, u)
    signal(s, now, u, 0 if work_of(s, w)[W_LAST] else 1)
    row[U_READY] = now + s[T_GAP]
    if row[U_HEAD] < 0:
        row[U_BUSY] = 0
    else:
        push(s, max(row[U_READY], work_of(s, row[U_HEAD])[W_ARRIVED]), EV_ACCEPT, u, 0, 0)
