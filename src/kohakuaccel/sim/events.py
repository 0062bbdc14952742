"""The clock's engine: calls in the order of their times, and servers that take one customer after another.

It decides order and waiting, nothing else. It must not know what is timed. All times are whole cycles.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from kohakuaccel.diagnostics import Refusal


class Events:
    """Calls by time; calls of one cycle run in the order in which they were asked for, so a run is reproducible."""

    def __init__(self) -> None:
        self.now = 0
        self.count = 0
        self.stop = False
        """A call sets this to make `run` return after it."""
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    def at(self, time: int, call: Callable[..., None], *args: Any) -> None:
        """Run `call(time, *args)` at `time`. Raises Refusal for a time that has passed."""
        if time < self.now:
            raise Refusal("an event lies in the future", where="clock", got=time, limit=f"at least {self.now}")
        self.count += 1
        heapq.heappush(self._heap, (time, self.count, call, args))

    def run(self) -> None:
        """Until nothing is left to happen, or until a call sets `stop`; `run` goes on from there."""
        heap = self._heap
        self.stop = False
        while heap and not self.stop:
            self.now, _, call, args = heapq.heappop(heap)
            call(self.now, *args)


class Resource:
    """Something that serves one customer at a time, in order of arrival.

    busy: cycles it served; waited: cycles customers queued; most: longest single wait.
    """

    __slots__ = ("arrived", "busy", "free", "most", "name", "served", "waited")

    def __init__(self, name: str) -> None:
        self.name = name
        self.arrived = self.free = self.busy = self.waited = self.most = self.served = 0

    def serve(self, arrival: int, cycles: int) -> int:
        """The cycle at which a customer that arrives at `arrival` and takes `cycles` starts to be served.

        Customers are announced in order of arrival. Raises Refusal otherwise, and for negative cycles.
        """
        if arrival < self.arrived or cycles < 0:
            raise Refusal(
                "customers come in order of arrival and take no negative time",
                where=self.name,
                got=(arrival, cycles),
                limit=(self.arrived, 0),
            )
        start = max(arrival, self.free)
        self.arrived = arrival
        self.free = start + cycles
        self.busy += cycles
        self.waited += start - arrival
        self.most = max(self.most, start - arrival)
        self.served += 1
        return start
