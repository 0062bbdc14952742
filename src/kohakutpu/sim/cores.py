"""A vector core on the clock. A RUN takes the cycles that the unit model counted for it, and longer where its port is
held by others.

It decides waiting only: the words that a RUN reads queue at the port as one customer when the RUN starts, the words
that it writes occupy the port when it ends. Source: datasheet 8.1, 8.3.
"""

from __future__ import annotations

from collections.abc import Iterator

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.machine import Unit
from kohakutpu.isa import vector
from kohakutpu.sim.parts import COMPUTE, CONTROL, WAIT, Clock, Port, Station, Work
from kohakutpu.sim.programs import Programs


class Core(Station):
    """One vector core. kernels: kernel cycles of its RUNs, in order."""

    def __init__(self, clock: Clock, unit: Unit, port: Port, kernels: Iterator[int]) -> None:
        super().__init__(clock, unit, port)
        self._kernels = kernels
        self._programs = Programs()
        self._slot = clock.timing.vc_slot - clock.timing.retire_to_accept

    def begin(self, now: int, work: Work) -> None:
        t = self.clock.timing
        op, a, b, value = work.row
        began, ended, count = now, now, 0
        # Writes of state concern nobody else: those that wait are done in one go.
        while op != vector.ENV_RUN:
            if op == vector.ENV_IMEM:
                self._programs.store(a, value)
            elif op == vector.ENV_DESC:
                self._programs.describe(a, b, value)
            ended, count = now + self._slot, count + 1
            self.clock.signal(self.unit, ended + self.agent_way, not work.last)
            self._ready = ended + self._gap
            if not self._queue:
                self._busy = False
                self.clock.span(self.track, began, ended, CONTROL, f"{count} DESC, IMEM")
                return
            now = self._next_accept()
            if now - self._ready > self._pace:
                self.clock.span(self.track, began, ended, CONTROL, f"{count} DESC, IMEM")
                began, count = now, 0
            work = self._queue.popleft()[2]
            op, a, b, value = work.row
        if count:
            self.clock.span(self.track, began, ended, CONTROL, f"{count} DESC, IMEM")
        cycles = next(self._kernels, None)
        if cycles is None:
            raise Refusal(
                "every RUN has the kernel cycles of a functional run",
                where=self.unit.name,
                hint="time the image that was run, or leave kernel_cycles out",
            )
        reads, writes = self._programs.traffic(a)
        start = now + t.run_fetch
        if reads:
            arrival = start + t.vfill_base + self.port_way
            self.clock.events.at(arrival, self._read, work, now, start + cycles, reads, writes)
        else:
            self._ends(now, work, now, start + cycles, writes)

    def _read(self, now: int, work: Work, began: int, end: int, reads: int, writes: int) -> None:
        t = self.clock.timing
        # Single words overlap by one cycle in a queue (the measured 806 of datasheet 8.1).
        cycles = reads * (t.L + t.read_word - 1)
        start = self.port.fetch(now, cycles, reads, f"{self.unit.name} VFILL {reads}")
        self.clock.span(self.track, now, start, WAIT, "port busy", self.port.read.name)
        self._ends(now, work, began, end + start - now, writes)

    def _ends(self, now: int, work: Work, began: int, end: int, writes: int) -> None:
        self.clock.span(self.track, began, end, COMPUTE, f"RUN {work.row[1]}")
        if writes and not work.acks:
            self.clock.events.at(max(now, end + self.write_way), self._write, writes)
        self.clock.events.at(end, self.retire, work)

    def _write(self, now: int, words: int) -> None:
        self.port.store(now, words, f"{self.unit.name} VDRAIN {words}")
