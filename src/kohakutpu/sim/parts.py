"""What the parts of a mesh share on the clock: costs by name, distances, memory ports, the unit's instruction queue.

It decides how a port serves and how a unit takes instructions. It must not know what an instruction does.
Source: datasheet 8.1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from kohakuaccel.machine import Machine, Mesh, Unit
from kohakuaccel.sim import SERVE, Events, Resource, Span, Timeline

COMPUTE, WAIT, FILLING, DRAINING, CONTROL = "compute", "wait", "filling", "draining", "control"
KINDS = (COMPUTE, WAIT, FILLING, DRAINING, CONTROL, SERVE)
WORK = (COMPUTE, CONTROL, SERVE)
Place = tuple[int, int]


class Work(NamedTuple):
    """One dispatched instruction: its decoded fields, whether it is its program's last, and the acknowledgements
    it causes as (receiver, number)."""

    row: list[int]
    last: bool
    acks: tuple[tuple[Unit, int], ...]


class Clock:
    """What every part holds: the machine, its events, the timeline they write to, and distances."""

    def __init__(self, machine: Machine, timeline: Timeline) -> None:
        self.machine = machine
        self.timing = machine.timing
        self.timeline = timeline
        self.events = Events()
        self.signal: Callable[[Unit, int, bool], None] = _nobody
        """Called as (unit, cycle at which a signal leaves it, whether it returns a credit)."""
        self.round_over: Callable[[], None] = _nothing
        """Called when an engine has executed its DONE."""

    def way(self, mesh: int, a: Place, b: Place) -> int:
        """Cycles of a flit between two endpoints, unloaded: 4h + 3 over h routers."""
        t = self.timing
        hops = self.machine.meshes[mesh].hops(a, b)
        return t.router_latency * hops + t.endpoint_out + t.endpoint_in

    def agent(self, unit: Unit) -> tuple[Mesh, Place]:
        mesh = self.machine.meshes[unit.mesh]
        return mesh, (mesh.agent_x, mesh.agent_y)

    def span(self, track: int, start: int, end: int, kind: str, text: str, on: str = "") -> None:
        if end > start:
            self.timeline.spans.append(Span(track, start, end, kind, text, on))


def _nobody(unit: Unit, at: int, credit: bool) -> None:
    raise AssertionError("no agent listens")


def _nothing() -> None:
    pass


class Port:
    """A memory port: one read run at a time, and beside it one write burst at a time from `wr_slots` open ones."""

    def __init__(self, clock: Clock, name: str) -> None:
        self.clock = clock
        self.read = Resource(f"{name} read")
        self.write = Resource(f"{name} write")
        self.read_track = clock.timeline.track(self.read.name)
        self.write_track = clock.timeline.track(self.write.name)
        t = clock.timing
        burst = clock.machine.params.drain_burst
        # A burst of 8 takes 11, a single word 4 (8.1); what lies between is taken as a straight line.
        slope = (t.write_burst - t.write_single) / 7
        self._cycles = [t.write_single + round(slope * (words - 1)) for words in range(burst + 1)]
        self._room = clock.machine.params.wr_slots
        self._served: deque[int] = deque()  # when writes that have arrived are done
        self._waiting: deque[Callable[[int], None]] = deque()
        self._waking = False
        self.words_read = self.words_written = 0
        self._open = (0, 0, "")  # writes of one sender without a gap, not on the timeline yet

    def fetch(self, now: int, cycles: int, words: int, text: str) -> int:
        """A read run of `words` words arrives now; the cycle at which its service starts."""
        self.words_read += words
        start = self.read.serve(now, cycles)
        self.clock.span(self.read_track, start, start + cycles, SERVE, text)
        return start

    def claim(self, now: int) -> bool:
        """Take one of the open writes for a burst, if one is free."""
        self._expire(now)
        if self._waiting or not self._room:
            return False
        self._room -= 1
        return True

    def wait(self, now: int, call: Callable[[int], None]) -> None:
        """Run `call(cycle)` once an open write has been claimed for it."""
        self._waiting.append(call)
        self._wake(now)

    def burst(self, now: int, words: int, text: str) -> None:
        """A claimed burst is whole at the port."""
        self.words_written += words
        cycles = self._cycles[words]
        start = self.write.serve(now, cycles)
        self._note(start, start + cycles, text)
        self._served.append(start + cycles)
        if self._waiting:
            self._wake(now)

    def store(self, now: int, words: int, text: str) -> None:
        """`words` arrive in bursts, without an open write of their own."""
        self.words_written += words
        whole, rest = divmod(words, len(self._cycles) - 1)
        cycles = whole * self._cycles[-1] + (self._cycles[rest] if rest else 0)
        start = self.write.serve(now, cycles)
        self._note(start, start + cycles, text)

    def flush(self) -> None:
        """What is noted goes on the timeline."""
        start, end, text = self._open
        self.clock.span(self.write_track, start, end, SERVE, text)
        self._open = (end, end, "")

    def _note(self, start: int, end: int, text: str) -> None:
        first, last, before = self._open
        if last != start or before != text:
            self.flush()
            first = start
        self._open = (first, end, text)

    def _expire(self, now: int) -> None:
        served = self._served
        while served and served[0] <= now:
            served.popleft()
            self._room += 1

    def _wake(self, now: int) -> None:
        if not self._waking and self._served:
            self._waking = True
            self.clock.events.at(max(now, self._served[0]), self._release)

    def _release(self, now: int) -> None:
        self._waking = False
        self._expire(now)
        while self._room and self._waiting:
            self._room -= 1
            self._waiting.popleft()(now)
        if self._waiting:
            self._wake(now)


class Station:
    """A unit's front: instructions are taken in order, one at a time, 2 cycles after the one before retired."""

    def __init__(self, clock: Clock, unit: Unit, port: Port) -> None:
        self.clock, self.unit, self.port = clock, unit, port
        self.track = clock.timeline.track(unit.name)
        mesh, agent = clock.agent(unit)
        self.agent_way = clock.way(mesh.index, (unit.x, unit.y), agent)
        place = clock.machine.port_of(unit)
        self.port_way = clock.way(mesh.index, (unit.x, unit.y), (place.x, place.y))
        self.write_way = clock.way(mesh.index, (unit.write_x, unit.write_y), (place.x, place.y))
        self._queue: deque[tuple[int, bool, Work]] = deque()
        self._busy = False
        self._ready = 0
        self._gap, self._pace = clock.timing.retire_to_accept, clock.timing.flit_interval

    def arrive(self, at: int, work: Work, first: bool) -> None:
        """An instruction enters the unit's FIFO at `at`, after those before it. first: of its program."""
        self._queue.append((at, first, work))
        if not self._busy:
            self._busy = True
            self.clock.events.at(self._next_accept(), self._accept)

    def _next_accept(self) -> int:
        """When the oldest waiting instruction is accepted, the one before it being done.

        Waiting for the dispatcher is shown where it is more than the pace of a running program.
        """
        arrival, first, _ = self._queue[0]
        if arrival <= self._ready:
            return self._ready
        if not first and arrival - self._ready > self._pace:
            self.clock.span(self.track, self._ready, arrival, WAIT, "no instruction", "dispatcher")
        return arrival

    def _accept(self, now: int) -> None:
        self.begin(now, self._queue.popleft()[2])

    def begin(self, now: int, work: Work) -> None:
        """Start an instruction; it calls `retire` when it is done."""
        raise AssertionError(work)

    def retire(self, now: int, work: Work) -> None:
        """The instruction is done: signals leave, the next one may come."""
        clock = self.clock
        clock.signal(self.unit, now + self.agent_way, not work.last)
        for receiver, number in work.acks:
            mesh, agent = clock.agent(receiver)
            place = (receiver.x, receiver.y)
            way = clock.way(mesh.index, place, agent)
            if receiver.mesh == self.unit.mesh:
                way += clock.way(mesh.index, (self.unit.x, self.unit.y), place)
            else:
                way += clock.timing.link_latency * abs(receiver.mesh - self.unit.mesh) + self.port_way
            for _ in range(number):
                clock.signal(receiver, now + way, False)
        self._ready = now + self._gap
        self._busy = bool(self._queue)
        if self._busy:
            clock.events.at(self._next_accept(), self._accept)
