"""A matmul cluster on the compiled clock: fills through its port, sweeps, sub-tiles handed out, drains.

It decides when an instruction retires, from shapes and costs; the costs of single events are those of the unit model.
It must not know data. Source: datasheet 8.1, 8.2; 10 for the second accumulator and the shared fetch.
"""

from __future__ import annotations

from typing import Any

from kohakuaccel.jit import leaf, separate
from kohakutpu.isa import cluster as isa
from kohakutpu.sim.emission import drain_fused, drain_plain, hand_out, new_emission, send_next, swept
from kohakutpu.sim.fabric import push, send, span, text
from kohakutpu.sim.ports import port_node
from kohakutpu.sim.state import (
    E_FIRST,
    E_SWEEP,
    EV_FILLED,
    EV_READY,
    EV_REQUEST,
    EV_RETIRE,
    EV_SERIAL,
    EV_SWEEP,
    FILLING,
    FILLS,
    M_FLOWS,
    P_READ,
    P_SERIAL_FREE,
    T_FILL_BASE,
    T_FP16,
    T_GAP,
    T_MG_SLOT,
    T_REUSE,
    T_SERIAL,
    T_SERIAL_SHARED,
    U_ACCEPTED,
    U_ARRAY,
    U_ARRIVED,
    U_BESIDE,
    U_CURRENT,
    U_FILL,
    U_LOST,
    U_LOST_LINK,
    U_PORT,
    U_SENT,
    U_SWEEP_END,
    U_SWEEP_NEXT,
    U_SWEEPING,
    U_TRACK,
    U_WAITING,
    W_ABANK,
    W_AOFF,
    W_BBANK,
    W_BOFF,
    W_EMIT,
    W_EOFF,
    W_FBANK,
    W_FUSE,
    W_GM,
    W_GN,
    W_LEADER,
    W_LINE,
    W_N,
    W_NK,
    W_NPEER,
    W_OP,
    W_PREQ,
    W_SEL,
    W_TAG,
    W_TSEL,
    WAIT,
    X_FILL,
    X_FILL_PREQ,
    X_GEMM,
    X_LINK_BUSY,
    X_PEERS,
)
from kohakutpu.sim.station import retire
from kohakutpu.sim.tables import emit_of, fill_of, flow_of, port_of, ready_of, signature, unit_of, work_of

FILL, GEMM, DRAIN = isa.FILL, isa.GEMM, isa.DRAIN


@separate(signature("void", 3))
def after_sweep(s: Any, now: int, u: int, w: int) -> None:
    """An instruction that had to know when the last sweep ends."""
    row, work = unit_of(s, u), work_of(s, w)
    op = work[W_OP]
    if op == GEMM:
        row[U_SWEEPING] = 1 + work[W_TSEL]
        push(s, max(now + s[T_MG_SLOT] - s[T_GAP], row[U_SWEEP_NEXT]), EV_SWEEP, u, w, 0)
    elif op == FILL:
        at = send(s, max(now, row[U_SWEEP_END]) + s[T_FILL_BASE], u, port_node(s, row[U_PORT]), 1)
        push(s, at, EV_SERIAL, u, w, max(1, work[W_N]))
    else:
        drain_plain(s, now, u, w)


@separate(signature("void", 2))
def shared(s: Any, now: int, u: int) -> None:
    """The leader of a shared fetch asks once all its followers are ready (datasheet 10, r2_multicast)."""
    row = unit_of(s, u)
    w = row[U_CURRENT]
    work = work_of(s, w)
    tag = work[W_TAG]
    if not row[U_SENT] and ready_of(s, u)[tag] >= work[W_NPEER]:
        ready_of(s, u)[tag] -= work[W_NPEER]
        row[U_SENT] = 1
        since = row[U_ACCEPTED]
        span(s, row[U_TRACK], since, now, WAIT, text(X_PEERS, 0, 0, 0), row[U_TRACK], work[W_LINE])
        push(s, max(now, since + s[T_FILL_BASE]), EV_REQUEST, u, w, 0)


@separate(signature("void", 3))
def begin(s: Any, now: int, u: int, w: int) -> None:
    """The cluster accepts instruction w."""
    row, work = unit_of(s, u), work_of(s, w)
    row[U_ACCEPTED] = now
    op = work[W_OP]
    decode = s[T_MG_SLOT] - s[T_GAP]
    if op == GEMM or (op == DRAIN and not work[W_FUSE]) or (op == FILL and s[T_SERIAL]):
        # A DRAIN waits for sweeps of its own accumulator only.
        if row[U_SWEEPING] and (op != DRAIN or row[U_SWEEPING] == 1 + work[W_TSEL]):
            row[U_WAITING] = w
        else:
            after_sweep(s, now, u, w)
    elif op == FILL:
        row[U_ARRIVED] = 0
        leader = work[W_LEADER]
        if leader < 0:
            push(s, now + s[T_FILL_BASE], EV_REQUEST, u, w, 0)
        elif leader == u:
            row[U_SENT] = 0
            shared(s, now, u)
        else:
            push(s, send(s, now + decode, u, leader, 1), EV_READY, leader, w, 0)
    elif op == DRAIN:
        drain_fused(s, now, u, w)
    else:
        push(s, now + decode, EV_RETIRE, u, w, 0)


@leaf
def request(s: Any, now: int, u: int, w: int) -> int:
    """A read request leaves for the port; the cycle at which it arrives."""
    return send(s, now, u, port_node(s, unit_of(s, u)[U_PORT]), 1)


@separate(signature("void", 4))
def serial(s: Any, now: int, u: int, w: int, left: int) -> None:
    """The old requester (profile `baseline`), entry by entry: the port holds each for half of what two clusters take
    for one each, and the next request leaves a whole period later, or later by what this one waited."""
    row = unit_of(s, u)
    port = port_of(s, row[U_PORT])
    start = now
    if row[U_BESIDE] > 1:
        start = max(now, port[P_SERIAL_FREE])
        port[P_SERIAL_FREE] = start + s[T_SERIAL_SHARED] // 2
    port[P_READ] += s[T_FP16]
    arrived = send(s, start + s[T_SERIAL], port_node(s, row[U_PORT]), u, 4)
    if left > 1:
        push(s, start + s[T_SERIAL], EV_SERIAL, u, w, left - 1)
    else:
        row[U_LOST] = 0
        push(s, arrived, EV_FILLED, u, w, 0)


@separate(signature("void", 3))
def filled(s: Any, now: int, u: int, w: int) -> None:
    """The last entry of a FILL is in L1."""
    row, work = unit_of(s, u), work_of(s, w)
    n = max(1, work[W_N])
    words = text(X_FILL_PREQ if work[W_PREQ] else X_FILL, work[W_SEL], 0, n)
    if row[U_LOST] > 0:
        span(s, row[U_TRACK], now - row[U_LOST], now, WAIT, text(X_LINK_BUSY, 0, 0, 0), row[U_LOST_LINK], work[W_LINE])
        row[U_LOST] = 0
    span(s, row[U_TRACK], row[U_ACCEPTED], now, FILLING, words, -1, work[W_LINE])
    known = fill_of(s, u, row[U_FILL] % FILLS)
    row[U_FILL] += 1
    known[0] = work[W_SEL] << 1 | work[W_FBANK]
    known[1] = work[W_EOFF]
    known[2] = work[W_EOFF] + n
    known[3] = now
    retire(s, now, u, w)


@separate(signature("void", 5))
def _flow(s: Any, now: int, u: int, side: int, first: int, end: int) -> None:
    """From the latest fill of entries first .. end - 1 of a side's bank to the sweep that begins now."""
    row = unit_of(s, u)
    newest = row[U_FILL]
    for back in range(min(newest, FILLS)):
        known = fill_of(s, u, (newest - 1 - back) % FILLS)
        if known[0] == side and known[1] < end and first < known[2]:
            n = s[M_FLOWS]
            s[M_FLOWS] = n + 1
            flow = flow_of(s, n)
            flow[0] = side >> 1
            flow[1] = row[U_TRACK]
            flow[2] = known[3]
            flow[3] = row[U_ARRAY]
            flow[4] = now
            return


@separate(signature("void", 3))
def sweep(s: Any, now: int, u: int, w: int) -> None:
    """A sweep starts, and its GEMM retires."""
    row, work = unit_of(s, u), work_of(s, w)
    gm, gn, nk = max(1, work[W_GM]), max(1, work[W_GN]), max(1, work[W_NK])
    tiles = gm * gn
    step = 1 if nk == 1 else (s[T_REUSE] + tiles - 1) // tiles
    words = text(X_GEMM, gm, gn, nk)
    decided = row[U_ACCEPTED] + s[T_MG_SLOT] - s[T_GAP]
    span(s, row[U_TRACK], decided, now, WAIT, words, row[U_ARRAY], work[W_LINE])
    _flow(s, now, u, work[W_ABANK], work[W_AOFF], work[W_AOFF] + gm * nk)
    _flow(s, now, u, 2 | work[W_BBANK], work[W_BOFF], work[W_BOFF] + gn * nk)
    if work[W_EMIT]:
        slot = new_emission(s, u, w, tiles, step)
        if slot < 0:
            return
        one = emit_of(s, u, slot)
        one[E_SWEEP] = now
        one[E_FIRST] = now + tiles * (nk - 1) * step
        hand_out(s, now, u, slot)
        send_next(s, now, u)
    else:
        swept(s, now, u, w, now, now + tiles * nk + (step - 1) * (tiles * nk - 1), tiles, 0)
    retire(s, now, u, w)
