"""What every part of the compiled clock does: events in order, spans, and flits on their way over links.

It decides when a burst of flits reaches its target: links carry one flit per cycle and direction, routers pass them in
the order in which they come, and a flit enters a router's FIFO when there is room. It must not know what flits carry.
Source: datasheet 1 (routing), 8.1.

A burst takes its whole path at once, when it leaves. A later burst that gets to a link earlier may use the free cycles
before what is booked there; other than that, links serve bursts whole and in the order of their leaving, where routers
take flits of several inputs in turn. Throughput is the same, single flits may come some cycles later or earlier.
"""

from __future__ import annotations

from typing import Any

from kohakuaccel.jit import leaf, separate
from kohakuaccel.sim.events import push as push_event
from kohakutpu.sim.state import (
    K_BUSY,
    K_COUNT,
    K_FREE,
    K_GAP,
    K_GAP_END,
    K_LATENCY,
    K_LEFT,
    K_RUN,
    K_RUN_BUSY,
    K_RUN_LAST,
    K_TRACK,
    K_WAITED,
    K_WORD,
    M_HEAP,
    M_INJECTED,
    M_LINK,
    M_LOST,
    M_SEQ,
    M_SPANS,
    N_DEPTH,
    O_HEAP,
    O_PATH,
    RUN_GAP,
    RUN_MOST,
    SERVE,
    T_IN,
    T_OUT,
    X_FLITS,
)
from kohakutpu.sim.tables import link_of, path_of, ring_of, signature, span_of


@leaf
def push(s: Any, time: int, kind: int, a: int, b: int, c: int) -> None:
    """An event at `time`; those of one cycle happen in the order of their pushing. a < 4096, b < 2^28, c < 2^17."""
    push_event(s, s[O_HEAP], M_HEAP, M_SEQ, time, kind | a << 6 | b << 18 | c << 46)


@leaf
def text(kind: int, a: int, b: int, c: int) -> int:
    """A span's text, packed. a, c < 2^17, b < 2^16."""
    return kind | a << 8 | b << 26 | c << 43


@separate(signature("void", 7))
def span(s: Any, track: int, start: int, end: int, kind: int, words: int, on: int, line: int) -> None:
    """Records a span that is not empty. on: the track waited for, -1 = none. line: of the user, -1 = unknown."""
    if end > start:
        n = s[M_SPANS]
        s[M_SPANS] = n + 1
        row = span_of(s, n)
        row[0] = track
        row[1] = start
        row[2] = end
        row[3] = kind
        row[4] = words
        row[5] = on
        row[6] = line


@separate(signature("void", 1))
def flush_link(s: Any, number: int) -> None:
    """The open span of a link goes on the timeline: as long as its flits, drawn from the first of them on."""
    row = link_of(s, number)
    if row[K_RUN_BUSY]:
        busy = row[K_RUN_BUSY]
        span(s, row[K_TRACK], row[K_RUN], row[K_RUN] + busy, SERVE, text(X_FLITS, busy, 0, 0), -1, -1)
        row[K_RUN_BUSY] = 0


@separate(signature("int64", 4))
def send(s: Any, now: int, source: int, target: int, flits: int) -> int:
    """A burst whose last flit leaves `source` at `now`, when nothing holds it; the cycle at which that flit arrives.

    s[M_INJECTED]: when it has really left. s[M_LOST], s[M_LINK]: cycles lost on the way, and the link
    (its track) that cost most of them.
    """
    way = path_of(s, source, target)
    n, depth = way[1], s[N_DEPTH]
    at = s[O_PATH] + way[0]
    head = now - flits + 1 + s[T_OUT]
    tail = head
    s[M_INJECTED] = now
    lost, worst, where = 0, 0, -1
    last = link_of(s, 0)  # the link before this one
    left = ring_of(s, 0)
    for j in range(n):
        number = s[at + j]
        row = link_of(s, number)
        word = row[K_WORD]
        cycles = flits * word
        start = head
        if j > 0 and last[K_LEFT] > start:
            start = last[K_LEFT]  # behind those before it in the FIFO
        low = max(start, row[K_GAP])
        if low + cycles <= row[K_GAP_END]:
            start = low
            row[K_GAP] = low + cycles
        else:
            start = max(start, row[K_FREE])
            if row[K_LEFT] > start:  # the FIFO behind the link is not empty
                ring, slot = ring_of(s, number), row[K_COUNT]
                for i in range(flits):
                    start = max(start, ring[slot] - i)
                    slot = slot + 1 if slot + 1 < depth else 0
            if start > row[K_FREE]:
                row[K_GAP] = row[K_FREE]
                row[K_GAP_END] = start
            row[K_FREE] = start + cycles
        wait = start - head
        if wait > 0:
            lost += wait
            row[K_WAITED] += wait
            if wait > worst:
                worst, where = wait, row[K_TRACK]
        if j == 0:
            s[M_INJECTED] = now + wait
        else:
            slot = last[K_COUNT]
            if wait > 0:
                for i in range(flits):
                    left[slot] = start + i * word
                    slot = slot + 1 if slot + 1 < depth else 0
            else:  # flits that left at once never hold up one that comes `depth` flits later
                slot = (slot + flits) % depth
            last[K_COUNT] = slot
            last[K_LEFT] = max(last[K_LEFT], start + cycles)
        row[K_BUSY] += cycles
        if row[K_RUN_BUSY] and (start > row[K_RUN_LAST] + RUN_GAP or start > row[K_RUN] + RUN_MOST):
            flush_link(s, number)
        if row[K_RUN_BUSY] == 0:
            row[K_RUN] = row[K_RUN_LAST] = start
        row[K_RUN] = min(row[K_RUN], start)
        row[K_RUN_BUSY] += cycles
        row[K_RUN_LAST] = max(row[K_RUN_LAST], start + cycles)
        tail = max(tail, start + cycles - 1)
        if j + 1 < n:
            head = start + row[K_LATENCY]
            tail += row[K_LATENCY]
        last, left = row, ring_of(s, number)
    s[M_LOST] = lost
    s[M_LINK] = where
    return tail + s[T_IN]
