"""The control plane of a mesh on the clock: the engine's command list, the dispatcher and its credits.

It decides when an instruction leaves for its unit and when a round is over. It must not know what instructions do.
Source: datasheet 7.1, 7.2, 8.3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from kohakuaccel.machine import Mesh
from kohakutpu.dispatch import Round
from kohakutpu.isa import control as reg
from kohakutpu.sim.parts import CONTROL, WAIT, Clock, Station, Work

Program = tuple[Station, Sequence[Work]]


class Agent:
    """Control engine and dispatcher of one mesh."""

    def __init__(self, clock: Clock, mesh: Mesh, name: str) -> None:
        self.clock, self.mesh = clock, mesh
        self.name = name
        self.track = clock.timeline.track(name)
        self.over = -1
        """The cycle of this round's DONE; -1 while it runs."""
        self._count: dict[int, int] = {}
        self._credit = 0
        self._stalled = -1
        self._sending: deque[Work] = deque()
        self._target: Station | None = None
        self._kicked = 0
        self._first = False

    def start(self, now: int, r: Round, programs: Sequence[Program]) -> None:
        """GO: the engine executes the round's command list."""
        self.over = -1
        self._programs = iter(programs)
        self._commands = r.commands.tolist()
        known = self._count
        self._wanted: Mapping[int, tuple[int, int]] = {
            row: (node, known.get(node, 0) + expected)
            for row, node, expected in zip(r.polls.tolist(), r.nodes.tolist(), r.expected.tolist(), strict=True)
        }
        self._pc = 0
        self._poll = -1
        self._step(now)

    def waits_for(self) -> str:
        """What a command list that does not end waits for."""
        wanted = self._wanted.get(self._pc)
        if wanted is None:
            return f"{self.name}, command {self._pc}: the dispatcher, credit {self._credit}"
        node, count = wanted
        return f"{self.name}: signal {count} of node {node:#04x}, which has sent {self._count.get(node, 0)}"

    def signal(self, now: int, node: int, credit: bool) -> None:
        """A completion or acknowledgement of `node` arrives."""
        self._count[node] = self._count.get(node, 0) + 1
        if credit:
            self._credit += 1
            if self._stalled >= 0:
                self.clock.span(self.track, self._stalled, now, WAIT, "no credit", "credits")
                self._stalled = -1
                self._flit(now)
        self._retry(now)

    # the engine

    def _step(self, now: int) -> None:
        op, address, data, _ = self._commands[self._pc]
        t = self.clock.timing
        if op == reg.WRITE:
            self.clock.events.at(now + t.ctl_write, self._write, address & 0xFFFF_FFFF, data)
        elif op == reg.POLL:
            if self._satisfied():
                self.clock.events.at(now + t.ctl_poll, self._advance)
            else:
                self._poll = now
        else:
            self.clock.events.at(now + t.ctl_write, self._done)

    def _done(self, now: int) -> None:
        self.over = now
        self.clock.round_over()

    def _satisfied(self) -> bool:
        wanted = self._wanted.get(self._pc)
        return self._target is None if wanted is None else self._count.get(wanted[0], 0) == wanted[1]

    def _retry(self, now: int) -> None:
        """What a failed POLL looks at has changed: it sees that at its next try."""
        if self._poll >= 0 and self._satisfied():
            wait = self.clock.timing.ctl_poll_retry
            tries = max(1, -((self._poll - now) // wait))
            at = self._poll + wait * tries
            self._poll = -1
            self.clock.events.at(max(now, at), self._step)

    def _advance(self, now: int) -> None:
        self._pc += 1
        self._step(now)

    def _write(self, now: int, address: int, data: int) -> None:
        offset = address - reg.AGENT_BASE
        if offset == reg.PROG_CRED:
            self._credit = data
        elif offset == reg.PROG_KICK:
            self._target, works = next(self._programs)
            self._sending.extend(works)
            self._kicked, self._first = now, True
            self.clock.events.at(now + self.clock.timing.kick_to_flit, self._flit)
        self._advance(now)

    # the dispatcher

    def _flit(self, now: int) -> None:
        if self._credit == 0:
            self._stalled = now
            return
        # As many flits as there are credits go at known times; credits that return meanwhile serve those after them.
        target, count = self._target, min(self._credit, len(self._sending))
        assert target is not None
        self._credit -= count
        at, interval = now, self.clock.timing.flit_interval
        for _ in range(count):
            target.arrive(at + target.agent_way, self._sending.popleft(), self._first)
            self._first = False
            at += interval
        if self._sending:
            self.clock.events.at(at, self._flit)
        else:
            self.clock.events.at(at - interval, self._sent, target)

    def _sent(self, now: int, target: Station) -> None:
        """The last flit of a program has left."""
        self.clock.span(self.track, self._kicked, now, CONTROL, f"dispatch to {target.unit.name}")
        self._target = None
        self._retry(now)
