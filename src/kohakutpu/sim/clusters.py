"""A matmul cluster on the clock: fills through its port, sweeps, sub-tiles handed out, drains.

It decides when an instruction retires, from shapes and costs (datasheet 8.1, 8.2); the costs of single events are
those of the unit model. It must not know data.
"""

from __future__ import annotations

from collections import deque

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.machine import Unit
from kohakutpu.isa import cluster as isa
from kohakutpu.isa import flit
from kohakutpu.sim.parts import COMPUTE, DRAINING, FILLING, WAIT, Clock, Port, Station, Work

FIELDS = ("op", "n", "sel", "gm", "gn", "nk", "preq", "emit", "fuse", "dnode", "dbuf", "npeer")
"""The fields that decide time, in the order of a cluster's `Work.row`."""
_OP, _N, _SEL, _GM, _GN, _NK, _PREQ, _EMIT, _FUSE, _DNODE, _DBUF, _NPEER = range(len(FIELDS))
_SIDE = "AB"


class Emission:
    """Sub-tiles on their way out of the accumulator, in bursts.

    issued: the cycle at which each sub-tile is handed out, as far as known; left: when it has left the unit.
    step: cycles between two of them. A sweep stalls while `queue` of them are on their way.
    """

    __slots__ = ("began", "done", "first", "issued", "left", "memory", "n", "step", "sweep", "waiter", "words")

    def __init__(self, n: int, words: int, step: int, memory: bool) -> None:
        self.n, self.words, self.step, self.memory = n, words, step, memory
        self.issued: list[int] = []
        self.left: list[int] = []
        self.first = self.began = 0
        self.sweep = 0
        self.done = -1
        self.waiter: Work | None = None


class Cluster(Station):
    """One cluster."""

    def __init__(self, clock: Clock, unit: Unit, port: Port) -> None:
        super().__init__(clock, unit, port)
        self.array = clock.timeline.track(f"{unit.name} array", unit.name)
        self.out = clock.timeline.track(f"{unit.name} drain", unit.name)
        t, p = clock.timing, clock.machine.params
        self._reuse, self._burst, self._queue_limit = p.reuse_min, p.drain_burst, t.drain_queue
        self._emit_latency, self._burst_cycles, self._drain_word = t.emit_latency, t.drain_burst, t.drain_word
        # From a full burst in the queue to its first cycle: what 256 sub-tiles of 16x16x2 leave over (8.2).
        self._start = t.drain_long - t.drain_burst - (p.drain_burst - 1)
        self._writes = f"{unit.name} writes"
        beside = sum(1 for u in clock.machine.units_of("MG", unit.mesh) if u.port == unit.port)
        self._serial = (
            t.serial_entry_shared if beside > 1 else t.serial_entry
        )  # cycles per entry; 0 = no such requester
        self._decode = t.mg_slot - t.retire_to_accept
        self._sweep_end = 0  # the array is busy up to here
        self._sweep_next = 0  # first cycle at which a next sweep may start
        self._idle = 0  # first cycle at which a non-fused DRAIN may start
        self._sweeping = False  # a sweep runs whose end is not known yet
        self._accepted = 0
        self._waiting: Work | None = None  # a GEMM or a DRAIN that waits for that end
        self._emissions: deque[Emission] = deque()  # not drained yet
        self._sending = False
        self._out_free = 0

    def begin(self, now: int, work: Work) -> None:
        self._accepted = now
        op = work.row[_OP]
        if op == isa.FILL and self._serial:
            if self._sweeping:
                self._waiting = work
            else:
                self._after_sweep(now, work)
        elif op == isa.FILL:
            self.clock.events.at(now + self.clock.timing.fill_base + self.port_way, self._request, work)
        elif op == isa.GEMM or (op == isa.DRAIN and not work.row[_FUSE]):
            if self._sweeping:
                self._waiting = work
            else:
                self._after_sweep(now, work)
        elif op == isa.DRAIN:
            self._drain_fused(now, work)
        else:
            self.clock.events.at(now + self._decode, self.retire, work)

    # fills

    def _period(self, preq: int, peers: int) -> int:
        t = self.clock.timing
        out = t.entry_preq * (1 + peers)
        if preq:
            return max(t.entry_preq + t.L, out)
        return max(t.entry_fp16 + t.L + t.entry_fp16_extra, out)

    def _request(self, now: int, work: Work) -> None:
        row, t = work.row, self.clock.timing
        n, preq = row[_N] or 1, row[_PREQ]
        cycles = n * self._period(preq, row[_NPEER])
        text = f"FILL {_SIDE[row[_SEL]]} {n}{' preq' if preq else ''}"
        start = self.port.fetch(now, cycles, n * (t.entry_preq if preq else t.entry_fp16), f"{self.unit.name} {text}")
        self.clock.span(self.track, now, start, WAIT, "port busy", self.port.read.name)
        end = start + cycles + self.port_way + (0 if preq else t.fill_fp16)
        self.clock.span(self.track, self._accepted, end, FILLING, text)
        self.clock.events.at(end, self.retire, work)

    def _fill_serial(self, now: int, work: Work) -> None:
        """The old requester (profile `baseline`): entry by entry, beside those of its port's other clusters, and not
        beside a sweep."""
        row = work.row
        n = row[_N] or 1
        end = now + self.clock.timing.fill_base + 2 * self.port_way + n * self._serial
        self.port.words_read += n * self.clock.timing.entry_fp16
        self.clock.span(self.track, now, end, FILLING, f"FILL {_SIDE[row[_SEL]]} {n}")
        self.clock.events.at(end, self.retire, work)

    # sweeps

    def _after_sweep(self, now: int, work: Work) -> None:
        if work.row[_OP] == isa.GEMM:
            start = max(now + self._decode, self._sweep_next)
            self._sweeping = True
            self.clock.events.at(start, self._sweep, work)
        elif work.row[_OP] == isa.FILL:
            self._fill_serial(max(now, self._sweep_end), work)
        else:
            self._drain_plain(now, work)

    def _sweep(self, now: int, work: Work) -> None:
        """A sweep starts, and its GEMM retires."""
        row = work.row
        gm, gn, nk = row[_GM] or 1, row[_GN] or 1, row[_NK] or 1
        tiles = gm * gn
        step = 1 if nk == 1 else (self._reuse + tiles - 1) // tiles
        text = f"GEMM {gm}x{gn}x{nk}"
        self.clock.span(self.track, self._accepted + self._decode, now, WAIT, text, f"{self.unit.name} array")
        if row[_EMIT]:
            one = Emission(tiles, _words(row), step, not row[_DNODE])
            one.sweep, one.first = now, now + tiles * (nk - 1) * step
            self._emissions.append(one)
            self._hand_out(one, now, text)
            self._send(now)
        else:
            self._swept(now, now, now + tiles * nk + (step - 1) * (tiles * nk - 1), tiles, text)
        self.retire(now, work)

    def _swept(self, now: int, start: int, end: int, tiles: int, text: str, stalled: int = 0) -> None:
        """The sweep's issue is known to end at `end`; whoever waited for that goes on. stalled: its lost cycles."""
        t = self.clock.timing
        busy = self._sweep_end = end + t.sweep_tail
        self.clock.span(self.array, start, end - stalled, COMPUTE, text)
        self.clock.span(self.array, end - stalled, end, WAIT, "drain queue full", f"{self.unit.name} drain")
        self.clock.span(self.array, end, busy, COMPUTE, text)
        self._sweep_next = busy + t.sweep_gap if tiles >= self._reuse else end + t.accumulator_idle
        self._idle = end + t.accumulator_idle
        self._sweeping = False
        if self._waiting is not None:
            work, self._waiting = self._waiting, None
            self._after_sweep(now, work)

    def _hand_out(self, one: Emission, now: int, text: str = "") -> None:
        """Issue cycles of an emitting sweep's sub-tiles, as far as what has left decides them."""
        issued, left, step = one.issued, one.left, one.step
        before, room = len(issued), self._queue_limit
        if before == one.n:
            return
        if before == 0:
            issued += range(one.first, one.first + step * min(one.n, room), step)
        at = issued[-1]
        for gone in left[len(issued) - room : one.n - room] if one.n > len(issued) else ():
            at += step
            if at < gone:
                at = gone
            issued.append(at)
        if one.n == len(issued):
            stalled = issued[-1] - one.first - (one.n - 1) * one.step
            self._swept(now, one.sweep, issued[-1] + 1, one.n, text or "GEMM, emitting", stalled)

    # drains

    def _drain_fused(self, now: int, work: Work) -> None:
        if not self._emissions:
            raise Refusal("a fused DRAIN follows an emitting GEMM", where=self.unit.name)
        one = self._emissions[0]
        if one.done < 0:
            one.waiter = work
        else:
            self._emissions.popleft()
            self.clock.events.at(max(now + self._decode, one.done), self._drained, work, self._accepted)

    def _drain_plain(self, now: int, work: Work) -> None:
        row, t = work.row, self.clock.timing
        n = row[_N] or 1
        words = n * _words(row)
        start = max(now, self._idle)
        lead = t.drain_short if words < self._burst else t.drain_long
        one = Emission(n, _words(row), 1, not row[_DNODE])
        # The first burst starts when the drain's start is over; the emission's latencies are part of that.
        at = start + lead - t.emit_latency - self._start
        one.issued = [at - self._burst + 1] * n
        one.sweep = one.first = at
        one.waiter = work
        self._emissions.append(one)
        self._send(now)

    def _send(self, now: int) -> None:
        """The drain engine takes the oldest emission that is not out."""
        if self._sending:
            return
        one = next((e for e in self._emissions if e.done < 0), None)
        if one is None:
            return
        self._sending = True
        self._next_burst(now, one, 0, self._start)

    def _next_burst(self, now: int, one: Emission, sent: int, start: int) -> None:
        last = min(sent + self._burst // one.words, one.n) - 1
        first = one.issued[last]
        if sent == 0:
            first = max(first, one.issued[0] + self._burst - 1)
        at = max(now, first + self._emit_latency + start, self._out_free)
        self.clock.events.at(at, self._burst_ready, one, sent, last + 1)

    def _burst_ready(self, now: int, one: Emission, sent: int, end: int) -> None:
        if one.memory and not self.port.claim(now):
            self.port.wait(now, lambda at: self._burst_waited(at, now, one, sent, end))
        else:
            self._burst_starts(now, one, sent, end)

    def _burst_waited(self, now: int, since: int, one: Emission, sent: int, end: int) -> None:
        self.clock.span(self.out, since, now, WAIT, "port busy", self.port.write.name)
        self._burst_starts(now, one, sent, end)

    def _burst_starts(self, now: int, one: Emission, sent: int, end: int) -> None:
        words = (end - sent) * one.words
        if words == self._burst:
            cycles = self._burst_cycles
        elif one.n * one.words < self._burst:
            cycles = self._drain_word * words
        else:
            cycles = words + self._drain_word
        over = self._out_free = now + cycles
        if sent == 0:
            one.began = now
        if one.memory:
            self.clock.events.at(over + self.write_way, self.port.burst, words, self._writes)
        one.left += [over] * (end - sent)
        if end < one.n:
            if self._sweeping:
                self._hand_out(one, now)
            self._next_burst(over, one, end, 0)
        else:
            self.clock.span(self.out, one.began, over, DRAINING, f"drain of {one.n}")
            one.done = over
            self._sending = False
            self._hand_out(one, now)
            if one.waiter is not None:
                self._emissions.remove(one)
                work, one.waiter = one.waiter, None
                at = max(over, self._accepted + self._decode)
                self.clock.events.at(at, self._drained, work, self._accepted)
            self._send(over)

    def _drained(self, now: int, work: Work, accepted: int) -> None:
        self.clock.span(self.track, accepted, now, DRAINING, f"DRAIN {work.row[_N]}{' fused' * work.row[_FUSE]}")
        self.retire(now, work)


def _words(row: list[int]) -> int:
    """Words of one sub-tile: two for the FP22 transfer to another cluster, else one."""
    return 2 if row[_DNODE] and row[_DBUF] == flit.BUF_MG_TILE else 1


__all__ = ["FIELDS", "Cluster", "Emission"]
