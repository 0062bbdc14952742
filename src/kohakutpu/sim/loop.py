"""The compiled clock itself: takes events in order and hands each to the part it belongs to.

It decides nothing but that order, when the next group of rounds starts, and when a table has to grow.
"""

from __future__ import annotations

from typing import Any

from kohakuaccel.jit import separate
from kohakuaccel.sim.events import pop
from kohakutpu.sim import clusters, control, cores
from kohakutpu.sim.emission import burst_granted, burst_ready, drained
from kohakutpu.sim.fabric import flush_link, push
from kohakutpu.sim.ports import entry, flush_writes, freed, read, written
from kohakutpu.sim.state import (
    A_OVER,
    DONE,
    EV_ACCEPT,
    EV_ACK,
    EV_ADVANCE,
    EV_AFTER,
    EV_BURST,
    EV_DRAINED,
    EV_ENTRY,
    EV_FILLED,
    EV_FLIT,
    EV_FREED,
    EV_GRANTED,
    EV_OVER,
    EV_READ,
    EV_READY,
    EV_REQUEST,
    EV_SERIAL,
    EV_SIGNAL,
    EV_STEP,
    EV_STORE,
    EV_SWEEP,
    EV_WRITE,
    EV_WRITTEN,
    FULL,
    HANG,
    M_FLOWS,
    M_GROUP,
    M_HEAP,
    M_LEFT,
    M_NOW,
    M_SPANS,
    M_START,
    M_STATUS,
    MG,
    N_FLOWS,
    N_GROUPS,
    N_HEAP,
    N_LINKS,
    N_PORTS,
    N_SPANS,
    N_UNITS,
    O_HEAP,
    RUNNING,
    U_CURRENT,
    U_KIND,
    U_PORT,
    W_LEADER,
    W_TAG,
)
from kohakutpu.sim.station import retire, signal, take
from kohakutpu.sim.tables import agent_of, group_of, ready_of, round_of, signature, unit_of, work_of

SPARE = 64
"""Rows of a table that one event may fill, at most."""

_accept_cluster, _accept_core = clusters.begin, cores.begin
_request, _shared, _serial, _filled = clusters.request, clusters.shared, clusters.serial, clusters.filled
_sweep, _after_sweep = clusters.sweep, clusters.after_sweep
_computed, _store, _store_granted, _ended, _flush_core = (
    cores.computed,
    cores.store,
    cores.store_granted,
    cores.ended,
    cores.flush_core,
)
_start, _step, _write, _advance, _flit, _signalled = (
    control.start,
    control.step,
    control.write,
    control.advance,
    control.flit,
    control.signalled,
)


@separate(signature("void", 0))
def next_group(s: Any) -> None:
    """The rounds that start together after those that are over, one per mesh."""
    g = s[M_GROUP]
    first, number = group_of(s, g)[0], group_of(s, g)[1]
    s[M_LEFT] = number
    for r in range(first, first + number):
        mesh, command, window = round_of(s, r)[0], round_of(s, r)[1], round_of(s, r)[2]
        agent_of(s, mesh)[A_OVER] = -1
        _start(s, s[M_START], mesh, command, window)


@separate(signature("void", 5))
def unit_event(s: Any, now: int, kind: int, a: int, b: int, c: int) -> None:
    """An event of a unit or a port."""
    if kind == EV_ENTRY:
        entry(s, now, a)
    elif kind == EV_WRITTEN:
        written(s, now, a, b, c)
    elif kind == EV_FREED:
        freed(s, now, a, b)
    elif kind == EV_BURST:
        burst_ready(s, now, a, b)
    elif kind == EV_GRANTED:
        if c:
            _store_granted(s, now, a, unit_of(s, a)[U_CURRENT])
        else:
            burst_granted(s, now, a, b)
    elif kind == EV_STORE:
        _store(s, now, a, b)
    elif kind == EV_REQUEST:
        push(s, _request(s, now, a, b), EV_READ, unit_of(s, a)[U_PORT], b, a)
    elif kind == EV_READ:
        read(s, now, a, b, c)
    elif kind == EV_FILLED:
        if unit_of(s, a)[U_KIND] == MG:
            _filled(s, now, a, b)
        else:
            _computed(s, now, a, b)
    elif kind == EV_SERIAL:
        _serial(s, now, a, b, c)
    elif kind == EV_AFTER:
        _after_sweep(s, now, a, b)
    elif kind == EV_SWEEP:
        _sweep(s, now, a, b)
    elif kind == EV_DRAINED:
        drained(s, now, a, b)
    elif kind == EV_ACK:
        signal(s, now, a, 0)
        if b > 1:
            push(s, now + 1, EV_ACK, a, b - 1, 0)
    elif kind == EV_READY:
        ready_of(s, a)[work_of(s, b)[W_TAG]] += 1
        current = unit_of(s, a)[U_CURRENT]
        if current >= 0 and work_of(s, current)[W_LEADER] == a:
            _shared(s, now, a)
    elif unit_of(s, a)[U_KIND] == MG:
        retire(s, now, a, b)
    else:
        _ended(s, now, a, b)


@separate(signature("void", 0), python=True)
def play(s: Any) -> None:
    """Plays until every round is over and nothing is left to happen, or until M_STATUS says otherwise."""
    groups, spans, heap, flows = s[N_GROUPS], s[N_SPANS], s[N_HEAP], s[N_FLOWS]
    spans -= SPARE + s[N_LINKS] + s[N_UNITS] + s[N_PORTS]  # what is still open at the end goes there too
    s[M_STATUS] = RUNNING
    if s[M_GROUP] < 0:
        s[M_GROUP] = 0
        next_group(s)
    while True:
        if s[M_SPANS] > spans or s[M_HEAP] + SPARE > heap or s[M_FLOWS] + SPARE > flows:
            s[M_STATUS] = FULL
            return
        if s[M_HEAP] == 0:
            s[M_STATUS] = DONE if s[M_GROUP] == groups else HANG
            break
        packed = pop(s, s[O_HEAP], M_HEAP, M_NOW)
        now = s[M_NOW]
        kind, a, b, c = packed & 63, packed >> 6 & 4095, packed >> 18 & 0xFFFFFFF, packed >> 46
        if kind == EV_SIGNAL:
            _signalled(s, now, a, b, c)
        elif kind == EV_FLIT:
            _flit(s, now, a)
        elif kind == EV_ACCEPT:
            w = take(s, a)
            if unit_of(s, a)[U_KIND] == MG:
                _accept_cluster(s, now, a, w)
            else:
                _accept_core(s, now, a, w)
        elif kind == EV_STEP:
            _step(s, now, a)
        elif kind == EV_WRITE:
            _write(s, now, a)
        elif kind == EV_ADVANCE:
            _advance(s, now, a)
        elif kind == EV_OVER:
            agent_of(s, a)[A_OVER] = now
            s[M_LEFT] -= 1
            if s[M_LEFT] == 0:
                # What still goes on (a sweep whose GEMM has retired, a write at a port) overlaps the next round.
                group_of(s, s[M_GROUP])[2] = now
                s[M_START] = now
                s[M_GROUP] += 1
                if s[M_GROUP] < groups:
                    next_group(s)
        else:
            unit_event(s, now, kind, a, b, c)
        if s[M_STATUS] > FULL:
            return
    for p in range(s[N_PORTS]):
        flush_writes(s, p)
    for u in range(s[N_UNITS]):
        if unit_of(s, u)[U_KIND] != MG:
            _flush_core(s, u)
    for number in range(s[N_LINKS]):
        flush_link(s, number)
