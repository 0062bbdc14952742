"""What leaves a cluster's accumulators on the compiled clock: sub-tiles handed out, drained in bursts, and who waits.

It decides when a burst leaves and when a sweep stalls on what has not left. It must not know data.
Source: datasheet 8.2; 5.4 for where bursts go.
"""

from __future__ import annotations

from typing import Any

from kohakuaccel.jit import leaf, separate
from kohakutpu.sim.fabric import push, send, span, text
from kohakutpu.sim.ports import claim, port_node, wait
from kohakutpu.sim.state import (
    COMPUTE,
    DRAINING,
    E_ACKS,
    E_BEGAN,
    E_DONE,
    E_DST,
    E_END,
    E_FIRST,
    E_ISSUED,
    E_LEFT,
    E_N,
    E_SINCE,
    E_STEP,
    E_SWEEP,
    E_USED,
    E_WAITER,
    E_WORDS,
    E_WORK,
    EV_ACK,
    EV_AFTER,
    EV_BURST,
    EV_DRAINED,
    EV_WRITTEN,
    M_INJECTED,
    M_LINK,
    M_STATUS,
    M_WHERE,
    MANY_EMISSIONS,
    N_UNITS,
    NO_EMISSION,
    P_WRITE_TRACK,
    SLOTS,
    T_BURST,
    T_BURST_WORDS,
    T_EMIT,
    T_GAP,
    T_IDLE,
    T_LONG,
    T_MG_SLOT,
    T_QUEUE,
    T_REUSE,
    T_SHORT,
    T_SWEEP_GAP,
    T_TAIL,
    T_WORD,
    U_ACCEPTED,
    U_ARRAY,
    U_EMISSIONS,
    U_IDLE,
    U_OUT,
    U_OUT_FREE,
    U_PORT,
    U_SENDING,
    U_SWEEP_END,
    U_SWEEP_NEXT,
    U_SWEEPING,
    U_TRACK,
    U_WAITING,
    W_ACKS,
    W_DST,
    W_FUSE,
    W_GM,
    W_GN,
    W_LINE,
    W_N,
    W_NK,
    W_TSEL,
    W_WORDS,
    WAIT,
    X_DRAIN,
    X_DRAIN_FUSED,
    X_EMISSION,
    X_GEMM,
    X_LINK_BUSY,
    X_PORT_BUSY,
    X_QUEUE_FULL,
)
from kohakutpu.sim.station import retire
from kohakutpu.sim.tables import emit_of, issued_of, left_of, port_of, signature, unit_of, work_of


@separate(signature("int64", 4))
def new_emission(s: Any, u: int, w: int, n: int, step: int) -> int:
    """A free slot for the sub-tiles of instruction w, filled in; -1 and a status when there is none."""
    work = work_of(s, w)
    for slot in range(SLOTS):
        one = emit_of(s, u, slot)
        if one[E_USED] == 0:
            unit_of(s, u)[U_EMISSIONS] += 1
            one[:] = 0
            one[E_USED] = unit_of(s, u)[U_EMISSIONS]
            one[E_N], one[E_STEP], one[E_WORK] = n, step, w
            one[E_WORDS], one[E_DST], one[E_ACKS] = work[W_WORDS], work[W_DST], work[W_ACKS]
            one[E_DONE] = one[E_WAITER] = -1
            return slot
    s[M_STATUS] = MANY_EMISSIONS
    s[M_WHERE] = u
    return -1


@separate(signature("void", 7))
def swept(s: Any, now: int, u: int, w: int, start: int, end: int, tiles: int, stalled: int) -> None:
    """The sweep's issue is known to end at `end`; whoever waited for that goes on. stalled: its lost cycles."""
    row, work = unit_of(s, u), work_of(s, w)
    words = text(X_GEMM, max(1, work[W_GM]), max(1, work[W_GN]), max(1, work[W_NK]))
    busy = end + s[T_TAIL]
    row[U_SWEEP_END] = busy
    span(s, row[U_ARRAY], start, end - stalled, COMPUTE, words, -1, work[W_LINE])
    span(s, row[U_ARRAY], end - stalled, end, WAIT, text(X_QUEUE_FULL, 0, 0, 0), row[U_OUT], work[W_LINE])
    span(s, row[U_ARRAY], end, busy, COMPUTE, words, -1, work[W_LINE])
    row[U_SWEEP_NEXT] = busy + s[T_SWEEP_GAP] if tiles >= s[T_REUSE] else end + s[T_IDLE]
    row[U_IDLE + work[W_TSEL]] = end + s[T_IDLE]
    row[U_SWEEPING] = 0
    if row[U_WAITING] >= 0:
        push(s, now, EV_AFTER, u, row[U_WAITING], 0)
        row[U_WAITING] = -1


@separate(signature("void", 3))
def hand_out(s: Any, now: int, u: int, slot: int) -> None:
    """Issue cycles of an emitting sweep's sub-tiles, as far as what has left decides them: it stalls while too many
    are on their way."""
    one = emit_of(s, u, slot)
    n, step, room = one[E_N], one[E_STEP], s[T_QUEUE]
    known = one[E_ISSUED]
    if known == n:
        return
    issued, left = issued_of(s, u, slot), left_of(s, u, slot)
    if known == 0:
        known = min(n, room)
        for i in range(known):
            issued[i] = one[E_FIRST] + i * step
    at = issued[known - 1]
    while known < n and known - room < one[E_LEFT]:
        at = max(at + step, left[known - room])
        issued[known] = at
        known += 1
    one[E_ISSUED] = known
    if known == n:
        stalled = issued[n - 1] - one[E_FIRST] - (n - 1) * step
        swept(s, now, u, one[E_WORK], one[E_SWEEP], issued[n - 1] + 1, n, stalled)


@leaf
def _oldest(s: Any, u: int, unsent: bool) -> int:
    """The slot of the oldest emission, or of the oldest that has not left; -1 = none."""
    found, order = -1, 0
    for slot in range(SLOTS):
        one = emit_of(s, u, slot)
        if one[E_USED] and (not unsent or one[E_DONE] < 0) and (found < 0 or one[E_USED] < order):
            found, order = slot, one[E_USED]
    return found


@separate(signature("void", 3))
def drain_fused(s: Any, now: int, u: int, w: int) -> None:
    """Waits until what the preceding emitting GEMM hands out has left."""
    slot = _oldest(s, u, False)
    if slot < 0:
        s[M_STATUS] = NO_EMISSION
        s[M_WHERE] = u
        return
    one = emit_of(s, u, slot)
    if one[E_DONE] < 0:
        one[E_WAITER] = w
    else:
        one[E_USED] = 0
        push(s, max(now + s[T_MG_SLOT] - s[T_GAP], one[E_DONE]), EV_DRAINED, u, w, 0)


@leaf
def _start(s: Any) -> int:
    """From a full burst in the queue to its first cycle: what 256 sub-tiles of 16x16x2 leave over (8.2)."""
    return s[T_LONG] - s[T_BURST] - (s[T_BURST_WORDS] - 1)


@separate(signature("void", 4))
def _next_burst(s: Any, now: int, u: int, slot: int, start: int) -> None:
    """The next burst leaves when its last sub-tile has come out of the array, and the engine is free."""
    one, issued = emit_of(s, u, slot), issued_of(s, u, slot)
    sent, burst = one[E_LEFT], s[T_BURST_WORDS]
    last = min(sent + burst // one[E_WORDS], one[E_N]) - 1
    first = issued[last]
    if sent == 0:
        first = max(first, issued[0] + burst - 1)
    one[E_END] = last + 1
    push(s, max(now, first + s[T_EMIT] + start, unit_of(s, u)[U_OUT_FREE]), EV_BURST, u, slot, 0)


@separate(signature("void", 2))
def send_next(s: Any, now: int, u: int) -> None:
    """The drain engine takes the oldest emission that is not out."""
    row = unit_of(s, u)
    if not row[U_SENDING]:
        slot = _oldest(s, u, True)
        if slot >= 0:
            row[U_SENDING] = 1
            _next_burst(s, now, u, slot, _start(s))


@separate(signature("void", 3))
def drain_plain(s: Any, now: int, u: int, w: int) -> None:
    """Emits sub-tiles once their accumulator is idle."""
    row, work = unit_of(s, u), work_of(s, w)
    n, burst = max(1, work[W_N]), s[T_BURST_WORDS]
    slot = new_emission(s, u, w, n, 1)
    if slot < 0:
        return
    one = emit_of(s, u, slot)
    lead = s[T_SHORT] if n * work[W_WORDS] < burst else s[T_LONG]
    # The first burst starts when the drain's start is over; the emission's latencies are part of that.
    at = max(now, row[U_IDLE + work[W_TSEL]]) + lead - s[T_EMIT] - _start(s)
    issued_of(s, u, slot)[:n] = at - burst + 1
    one[E_ISSUED] = n
    one[E_SWEEP] = one[E_FIRST] = at
    one[E_WAITER] = w
    send_next(s, now, u)


@separate(signature("void", 3))
def _burst_starts(s: Any, now: int, u: int, slot: int) -> None:
    row, one = unit_of(s, u), emit_of(s, u, slot)
    sent, end, n = one[E_LEFT], one[E_END], one[E_N]
    line = work_of(s, one[E_WORK])[W_LINE]
    words = (end - sent) * one[E_WORDS]
    burst = s[T_BURST_WORDS]
    if words == burst:
        cycles = s[T_BURST]
    elif n * one[E_WORDS] < burst:
        cycles = s[T_WORD] * words
    else:
        cycles = words + s[T_WORD]
    over = now + cycles
    if sent == 0:
        one[E_BEGAN] = now
    target = one[E_DST]
    source = s[N_UNITS] + u  # its write flits leave from there
    if target < 0:
        arrived = send(s, over, source, port_node(s, row[U_PORT]), words + 1)
        push(s, arrived, EV_WRITTEN, row[U_PORT], words, u)
    else:
        arrived = send(s, over, source, target, words + 1)
        if one[E_ACKS]:
            push(s, arrived, EV_ACK, target, 1, 0)
    if s[M_INJECTED] > over:
        span(s, row[U_OUT], over, s[M_INJECTED], WAIT, text(X_LINK_BUSY, 0, 0, 0), s[M_LINK], line)
        over = s[M_INJECTED]
    row[U_OUT_FREE] = over
    left = left_of(s, u, slot)
    for i in range(sent, end):
        left[i] = over
    one[E_LEFT] = end
    if end < n:
        hand_out(s, now, u, slot)
        _next_burst(s, over, u, slot, 0)
        return
    span(s, row[U_OUT], one[E_BEGAN], over, DRAINING, text(X_EMISSION, 0, 0, n), -1, line)
    one[E_DONE] = over
    row[U_SENDING] = 0
    hand_out(s, now, u, slot)
    if one[E_WAITER] >= 0:
        one[E_USED] = 0
        push(s, max(over, row[U_ACCEPTED] + s[T_MG_SLOT] - s[T_GAP]), EV_DRAINED, u, one[E_WAITER], 0)
    send_next(s, over, u)


@separate(signature("void", 3))
def burst_ready(s: Any, now: int, u: int, slot: int) -> None:
    """A burst leaves once the port has an open write for it; a node takes what comes."""
    one, row = emit_of(s, u, slot), unit_of(s, u)
    if one[E_DST] < 0 and not claim(s, row[U_PORT]):
        one[E_SINCE] = now
        wait(s, row[U_PORT], u, slot, 0)
    else:
        _burst_starts(s, now, u, slot)


@separate(signature("void", 3))
def burst_granted(s: Any, now: int, u: int, slot: int) -> None:
    """The port has an open write for a burst that waited."""
    one, row = emit_of(s, u, slot), unit_of(s, u)
    on = port_of(s, row[U_PORT])[P_WRITE_TRACK]
    words = text(X_PORT_BUSY, 0, 0, 0)
    span(s, row[U_OUT], one[E_SINCE], now, WAIT, words, on, work_of(s, one[E_WORK])[W_LINE])
    _burst_starts(s, now, u, slot)


@separate(signature("void", 3))
def drained(s: Any, now: int, u: int, w: int) -> None:
    """A DRAIN is done."""
    work, row = work_of(s, w), unit_of(s, u)
    words = text(X_DRAIN_FUSED if work[W_FUSE] else X_DRAIN, 0, 0, work[W_N])
    span(s, row[U_TRACK], row[U_ACCEPTED], now, DRAINING, words, -1, work[W_LINE])
    retire(s, now, u, w)
