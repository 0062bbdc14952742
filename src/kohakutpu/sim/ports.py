"""Memory ports of the compiled clock: one read run at a time, and beside it one write at a time from the open ones.

It decides when entries leave a port, who waits for it, and when a write has been served. It must not know why
something is read. Source: datasheet 8.1.
"""

from __future__ import annotations

from typing import Any

from kohakuaccel.jit import leaf, separate
from kohakutpu.sim.fabric import push, send, span, text
from kohakutpu.sim.state import (
    EV_ENTRY,
    EV_FILLED,
    EV_FREED,
    EV_GRANTED,
    M_INJECTED,
    M_LINK,
    M_LOST,
    MG,
    N_UNITS,
    P_BEGAN,
    P_BUSY,
    P_FLITS,
    P_LEFT,
    P_OPEN,
    P_OPEN_BUSY,
    P_OPEN_WORDS,
    P_PERIOD,
    P_RCOUNT,
    P_READ,
    P_READ_TRACK,
    P_REST,
    P_RHEAD,
    P_ROOM,
    P_UNIT,
    P_WCOUNT,
    P_WHEAD,
    P_WORDS,
    P_WORK,
    P_WRITE_FREE,
    P_WRITE_TRACK,
    P_WRITTEN,
    SERVE,
    T_BURST_WORDS,
    T_FILL_FP16,
    T_FP16,
    T_FP16_EXTRA,
    T_L,
    T_PREQ,
    T_READ_WORD,
    T_WRITES,
    U_ARRIVED,
    U_CURRENT,
    U_KIND,
    U_LOST,
    U_LOST_LINK,
    U_RUN_END,
    U_SINCE,
    U_TRACK,
    W_LINE,
    W_N,
    W_NPEER,
    W_PEERS,
    W_PREQ,
    W_READS,
    W_SEL,
    WAIT,
    WRITE_GAP,
    WRITE_MOST,
    X_PORT_BUSY,
    X_PORT_FILL,
    X_PORT_PREQ,
    X_PORT_READ,
    X_PORT_WRITE,
)
from kohakutpu.sim.tables import port_of, reader_of, signature, unit_of, work_of, writer_of


@leaf
def port_node(s: Any, p: int) -> int:
    """The port's number among the ends of paths: units, their second ends, ports, agents."""
    return 2 * s[N_UNITS] + p


@leaf
def _rest(s: Any, p: int) -> None:
    """The last words of a core's run, fewer than a burst."""
    row = port_of(s, p)
    row[P_LEFT] = 1
    row[P_FLITS] = row[P_WORDS] = row[P_REST]
    row[P_PERIOD] = row[P_REST] * (s[T_L] + s[T_READ_WORD] - 1)
    row[P_REST] = 0


@separate(signature("void", 2))
def _serve(s: Any, now: int, p: int) -> None:
    """The oldest run that waits is served."""
    row = port_of(s, p)
    at = row[P_RHEAD]
    u, w, since = reader_of(s, p, at)[0], reader_of(s, p, at)[1], reader_of(s, p, at)[2]
    row[P_RHEAD] = (at + 1) % (s[N_UNITS] + 1)
    row[P_RCOUNT] -= 1
    work, unit = work_of(s, w), unit_of(s, u)
    row[P_BUSY] = 1
    row[P_UNIT], row[P_WORK], row[P_BEGAN] = u, w, now
    row[P_REST] = 0
    unit[U_SINCE] = now - since
    unit[U_LOST] = 0
    span(s, unit[U_TRACK], since, now, WAIT, text(X_PORT_BUSY, 0, 0, 0), row[P_READ_TRACK], work[W_LINE])
    if unit[U_KIND] == MG:
        out = s[T_PREQ] * (1 + work[W_NPEER])
        row[P_LEFT] = max(1, work[W_N])
        row[P_FLITS] = s[T_PREQ]
        if work[W_PREQ]:
            row[P_WORDS] = s[T_PREQ]
            row[P_PERIOD] = max(s[T_PREQ] + s[T_L], out)
        else:
            row[P_WORDS] = s[T_FP16]
            row[P_PERIOD] = max(s[T_FP16] + s[T_L] + s[T_FP16_EXTRA], out)
    else:
        # Single words overlap by one cycle in a queue (the measured 806 of datasheet 8.1).
        burst = s[T_BURST_WORDS]
        row[P_LEFT] = work[W_READS] // burst
        row[P_REST] = work[W_READS] % burst
        row[P_FLITS] = row[P_WORDS] = burst
        row[P_PERIOD] = burst * (s[T_L] + s[T_READ_WORD] - 1)
        if row[P_LEFT] == 0:
            _rest(s, p)
    push(s, now + row[P_PERIOD], EV_ENTRY, p, 0, 0)


@separate(signature("void", 4))
def read(s: Any, now: int, p: int, w: int, u: int) -> None:
    """A read run arrives: it is served, or waits for those before it."""
    row = port_of(s, p)
    at = (row[P_RHEAD] + row[P_RCOUNT]) % (s[N_UNITS] + 1)
    reader_of(s, p, at)[0] = u
    reader_of(s, p, at)[1] = w
    reader_of(s, p, at)[2] = now
    row[P_RCOUNT] += 1
    if not row[P_BUSY]:
        _serve(s, now, p)


@separate(signature("void", 2))
def entry(s: Any, now: int, p: int) -> None:
    """An entry, or words for a core, leave the port; after the last ones it is free for the next run."""
    row = port_of(s, p)
    u, w, words = row[P_UNIT], row[P_WORK], row[P_WORDS]
    work, unit = work_of(s, w), unit_of(s, u)
    row[P_READ] += words
    arrived = send(s, now, port_node(s, p), u, row[P_FLITS])
    held = s[M_INJECTED]
    if s[M_LOST] > unit[U_LOST]:
        unit[U_LOST], unit[U_LOST_LINK] = s[M_LOST], s[M_LINK]
    row[P_LEFT] -= 1
    last = row[P_LEFT] == 0 and row[P_REST] == 0
    peers = work[W_PEERS] if unit[U_KIND] == MG else 0
    if unit[U_KIND] == MG:
        extra = 0 if work[W_PREQ] else s[T_FILL_FP16]
        unit[U_ARRIVED] = max(unit[U_ARRIVED], arrived)
        if last:
            push(s, unit[U_ARRIVED] + extra, EV_FILLED, u, unit[U_CURRENT], 0)
        while peers:
            other = (peers & 0xFFFF) - 1
            peers >>= 16
            at = send(s, now, port_node(s, p), other, row[P_FLITS])
            held = max(held, s[M_INJECTED])
            unit_of(s, other)[U_ARRIVED] = max(unit_of(s, other)[U_ARRIVED], at)
            if last:
                push(s, unit_of(s, other)[U_ARRIVED] + extra, EV_FILLED, other, unit_of(s, other)[U_CURRENT], 0)
    elif last:
        # The run ends later by what its reads waited for; its kernel cycles hold an idle port's.
        unit[U_RUN_END] += unit[U_SINCE] + s[M_LOST]
        push(s, arrived, EV_FILLED, u, w, 0)
    if not last:
        if row[P_LEFT] == 0:
            _rest(s, p)
        push(s, max(now + row[P_PERIOD], held), EV_ENTRY, p, 0, 0)
        return
    kind = X_PORT_READ if unit[U_KIND] != MG else (X_PORT_PREQ if work[W_PREQ] else X_PORT_FILL)
    number = work[W_READS] if unit[U_KIND] != MG else max(1, work[W_N])
    span(s, row[P_READ_TRACK], row[P_BEGAN], now, SERVE, text(kind, u, work[W_SEL], number), -1, work[W_LINE])
    row[P_BUSY] = 0
    if row[P_RCOUNT]:
        _serve(s, now, p)


@leaf
def claim(s: Any, p: int) -> bool:
    """Takes one of the open writes, if one is free and nobody waits for it."""
    row = port_of(s, p)
    if row[P_WCOUNT] or row[P_ROOM] == 0:
        return False
    row[P_ROOM] -= 1
    return True


@separate(signature("void", 4))
def wait(s: Any, p: int, u: int, slot: int, core: int) -> None:
    """An open write will be claimed for this unit, and EV_GRANTED says so."""
    row = port_of(s, p)
    at = (row[P_WHEAD] + row[P_WCOUNT]) % (s[N_UNITS] + 1)
    writer_of(s, p, at)[0] = u
    writer_of(s, p, at)[1] = slot
    writer_of(s, p, at)[2] = core
    row[P_WCOUNT] += 1


@leaf
def flush_writes(s: Any, p: int) -> None:
    """The open span of a port's writes goes on the timeline: as long as they took, drawn from the first of them on."""
    row = port_of(s, p)
    words = text(X_PORT_WRITE, 0, 0, row[P_OPEN_WORDS])
    span(s, row[P_WRITE_TRACK], row[P_OPEN], row[P_OPEN] + row[P_OPEN_BUSY], SERVE, words, -1, -1)
    row[P_OPEN_BUSY] = row[P_OPEN_WORDS] = 0


@separate(signature("void", 4))
def written(s: Any, now: int, p: int, words: int, u: int) -> None:
    """A claimed burst is whole at the port."""
    row = port_of(s, p)
    row[P_WRITTEN] += words
    start = max(now, row[P_WRITE_FREE])
    if start > row[P_WRITE_FREE] + WRITE_GAP or start > row[P_OPEN] + WRITE_MOST:
        flush_writes(s, p)
    if row[P_OPEN_BUSY] == 0:
        row[P_OPEN] = start
    end = start + s[T_WRITES + words]
    row[P_WRITE_FREE] = end
    row[P_OPEN_BUSY] += end - start
    row[P_OPEN_WORDS] += words
    push(s, end, EV_FREED, p, u, 0)


@separate(signature("void", 3))
def freed(s: Any, now: int, p: int, u: int) -> None:
    """A write has been served: its acknowledgement leaves, and who waits longest gets the open write."""
    row = port_of(s, p)
    send(s, now, port_node(s, p), s[N_UNITS] + u, 1)
    if row[P_WCOUNT] == 0:
        row[P_ROOM] += 1
        return
    at = row[P_WHEAD]
    row[P_WHEAD] = (at + 1) % (s[N_UNITS] + 1)
    row[P_WCOUNT] -= 1
    push(s, now, EV_GRANTED, writer_of(s, p, at)[0], writer_of(s, p, at)[1], writer_of(s, p, at)[2])
