"""A vector core on the compiled clock. A RUN takes the cycles that the unit model counted for it, and longer where
its port or a link is held by others.

It decides waiting only: the words that a RUN reads queue at the port as one customer when the RUN starts, the words
that it writes leave burst by burst so that the last one is out when the RUN ends. Source: datasheet 8.1, 8.3.
"""

from __future__ import annotations

from typing import Any

from kohakuaccel.jit import separate
from kohakutpu.isa import vector
from kohakutpu.sim.fabric import push, send, span, text
from kohakutpu.sim.ports import claim, port_node, wait
from kohakutpu.sim.state import (
    COMPUTE,
    CONTROL,
    EV_ACK,
    EV_REQUEST,
    EV_RETIRE,
    EV_STORE,
    EV_WRITTEN,
    M_INJECTED,
    N_UNITS,
    P_WRITE_TRACK,
    T_BURST_WORDS,
    T_FETCH,
    T_FLIT,
    T_GAP,
    T_VC_SLOT,
    T_VFILL,
    U_ACCEPTED,
    U_BEGAN,
    U_COUNT,
    U_ENDED,
    U_LEFT,
    U_PORT,
    U_RUN_END,
    U_SENT,
    U_SINCE,
    U_TRACK,
    W_ACKS,
    W_CYCLES,
    W_DST,
    W_FLITS,
    W_LINE,
    W_N,
    W_OP,
    W_PACE,
    W_READS,
    W_WRITES,
    WAIT,
    X_PORT_BUSY,
    X_RUN,
    X_STATE,
)
from kohakutpu.sim.station import retire
from kohakutpu.sim.tables import port_of, signature, unit_of, work_of

ENV_RUN = vector.ENV_RUN


@separate(signature("void", 1))
def flush_core(s: Any, u: int) -> None:
    """Writes of state that followed each other go on the timeline as one span."""
    row = unit_of(s, u)
    if row[U_COUNT]:
        span(s, row[U_TRACK], row[U_BEGAN], row[U_ENDED], CONTROL, text(X_STATE, row[U_COUNT], 0, 0), -1, -1)
        row[U_COUNT] = 0


@separate(signature("void", 3))
def computed(s: Any, now: int, u: int, w: int) -> None:
    """The end of a RUN is known: what it writes leaves before that."""
    row, work = unit_of(s, u), work_of(s, w)
    words = max(work[W_WRITES], work[W_FLITS])
    row[U_LEFT], row[U_SENT] = words, 0
    if words:
        push(s, max(now, row[U_RUN_END] - work[W_PACE] * words), EV_STORE, u, w, 0)
    else:
        push(s, max(now, row[U_RUN_END]), EV_RETIRE, u, w, 0)


@separate(signature("void", 3))
def begin(s: Any, now: int, u: int, w: int) -> None:
    """The core accepts envelope w."""
    row, work = unit_of(s, u), work_of(s, w)
    row[U_ACCEPTED] = now
    if work[W_OP] != ENV_RUN:
        if row[U_COUNT] and now - row[U_ENDED] - s[T_GAP] > s[T_FLIT]:
            flush_core(s, u)
        if row[U_COUNT] == 0:
            row[U_BEGAN] = now
        row[U_COUNT] += 1
        row[U_ENDED] = now + s[T_VC_SLOT] - s[T_GAP]
        push(s, row[U_ENDED], EV_RETIRE, u, w, 0)
        return
    flush_core(s, u)
    row[U_RUN_END] = now + s[T_FETCH] + work[W_CYCLES]
    if work[W_READS]:
        push(s, now + s[T_FETCH] + s[T_VFILL], EV_REQUEST, u, w, 0)
    else:
        computed(s, now, u, w)


@separate(signature("void", 3))
def _burst(s: Any, over: int, u: int, w: int) -> None:
    row, work = unit_of(s, u), work_of(s, w)
    words = min(s[T_BURST_WORDS], row[U_LEFT])
    row[U_LEFT] -= words
    source = s[N_UNITS] + u
    if work[W_WRITES]:
        arrived = send(s, over, source, port_node(s, row[U_PORT]), words + 1)
        push(s, arrived, EV_WRITTEN, row[U_PORT], words, u)
    else:
        # One descriptor covers all that goes to a node.
        arrived = send(s, over, source, work[W_DST], words + (0 if row[U_SENT] else 1))
        if row[U_LEFT] == 0 and work[W_ACKS]:
            push(s, arrived, EV_ACK, work[W_DST], work[W_ACKS], 0)
    row[U_SENT] = 1
    over = max(over, s[M_INJECTED])
    if row[U_LEFT]:
        push(s, over, EV_STORE, u, w, 0)
    else:
        push(s, max(over, row[U_RUN_END]), EV_RETIRE, u, w, 0)


@separate(signature("void", 3))
def store(s: Any, now: int, u: int, w: int) -> None:
    """The core starts to hand a burst out; it leaves once the port has an open write for it."""
    row = unit_of(s, u)
    if work_of(s, w)[W_WRITES] and not claim(s, row[U_PORT]):
        row[U_SINCE] = now
        wait(s, row[U_PORT], u, 0, 1)
        return
    _burst(s, now + work_of(s, w)[W_PACE] * min(s[T_BURST_WORDS], row[U_LEFT]), u, w)


@separate(signature("void", 3))
def store_granted(s: Any, now: int, u: int, w: int) -> None:
    """The port has an open write for a burst that waited."""
    row = unit_of(s, u)
    on = port_of(s, row[U_PORT])[P_WRITE_TRACK]
    span(s, row[U_TRACK], row[U_SINCE], now, WAIT, text(X_PORT_BUSY, 0, 0, 0), on, work_of(s, w)[W_LINE])
    _burst(s, now + work_of(s, w)[W_PACE] * min(s[T_BURST_WORDS], row[U_LEFT]), u, w)


@separate(signature("void", 3))
def ended(s: Any, now: int, u: int, w: int) -> None:
    """A RUN, or a write of state, is done."""
    row, work = unit_of(s, u), work_of(s, w)
    if work[W_OP] == ENV_RUN:
        span(s, row[U_TRACK], row[U_ACCEPTED], now, COMPUTE, text(X_RUN, work[W_N], 0, 0), -1, work[W_LINE])
    retire(s, now, u, w)
