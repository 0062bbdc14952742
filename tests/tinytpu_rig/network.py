"""A second model of cores and their network, one cycle at a time, in plain Python: slow, with no code of the first.

A script is a list of ("bundle", load, execute, output) and ("move", sends, receives), a transfer (peer, first word,
words). Memory is a dict from word to value for each core.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Transfer = tuple[int, int, int]
Step = tuple[str, Any, Any] | tuple[str, Any, Any, Any]


@dataclass
class Packet:
    sender: int
    receiver: int
    values: list[int]
    left: int = -1
    arrived: int = -1
    taken: int = -1


class Dma:
    """A queue of transfers; from the cycle after its kick on it wants to move a packet each cycle."""

    def __init__(self, transfers: Sequence[Transfer], now: int, width: int) -> None:
        self.todo = deque((peer, deque(_cut(first, words, width))) for peer, first, words in transfers)
        self.ready, self.over = now + 1, now

    def wants(self, now: int) -> int | None:
        return self.todo[0][0] if self.todo and now >= self.ready else None

    def next(self) -> range:
        return self.todo[0][1][0]

    def moved(self, now: int, pause: int) -> None:
        pieces = self.todo[0][1]
        pieces.popleft()
        if not pieces:
            self.todo.popleft()
            self.ready, self.over = now + pause + 1, now + pause


def _cut(first: int, words: int, width: int) -> Iterator[range]:
    for at in range(first, first + words, width):
        yield range(at, min(at + width, first + words))


@dataclass
class Slow:
    """numbers: packets a cycle, words a packet, depth of an inbox, links, remote and loopback delay, DMA pause."""

    scripts: list[list[Step]]
    memory: list[dict[int, int]]
    carried: int
    width: int
    depth: int
    links: int
    remote: int
    loopback: int
    pause: int
    packets: list[Packet] = field(default_factory=list[Packet])

    def run(self, limit: int) -> int:
        """The cycle in which the last core is done; -1 where they are not by `limit`."""
        n = len(self.scripts)
        scripts = [deque(script) for script in self.scripts]
        phase: list[deque[tuple[str, int]]] = [deque() for _ in range(n)]  # what is left of a bundle
        busy = [0] * n  # until when
        asked: list[int | None] = [None] * n
        dma: list[tuple[Dma, Dma] | None] = [None] * n
        free = [0] * self.links
        inbox: dict[tuple[int, int], deque[Packet]] = {(a, b): deque() for a in range(n) for b in range(n)}
        places = dict.fromkeys(inbox, self.depth)
        flying: list[tuple[int, Packet]] = []
        back: list[tuple[int, tuple[int, int]]] = []
        turn = 0

        def delay(a: int, b: int) -> int:
            return self.loopback if a == b else self.remote

        def settle(i: int, now: int) -> bool:
            """One thing that core i does without a packet; False where there is none."""
            if now < busy[i] or asked[i] is not None:
                return False
            moving = dma[i]
            if moving is not None:
                if any(d.todo or d.over > now for d in moving):
                    return False
                dma[i] = None
                return True
            if phase[i]:
                kind, cycles = phase[i][0]
                if kind == "link" and cycles:
                    asked[i] = now
                else:
                    busy[i] = now + cycles
                    phase[i].popleft()
                return True
            if not scripts[i]:
                return False
            step = scripts[i].popleft()
            if step[0] == "bundle":
                phase[i] = deque(zip(("link", "run", "link"), step[1:]))
            else:
                dma[i] = (Dma(step[1], now, self.width), Dma(step[2], now, self.width))
            return True

        for now in range(limit):
            for due, packet in [f for f in flying if f[0] == now]:
                packet.arrived = due
                inbox[packet.sender, packet.receiver].append(packet)
                assert len(inbox[packet.sender, packet.receiver]) <= self.depth
            flying = [f for f in flying if f[0] > now]
            for _, pair in [b for b in back if b[0] == now]:
                places[pair] += 1
            back = [b for b in back if b[0] > now]
            while True:
                while any(settle(i, now) for i in range(n)):
                    pass
                link = next((k for k, until in enumerate(free) if until <= now), None)
                waiting = sorted((a, i) for i, a in enumerate(asked) if a is not None)
                if link is None or not waiting:
                    break
                i = waiting[0][1]
                busy[i] = free[link] = now + phase[i].popleft()[1]
                asked[i] = None
            if not any(scripts) and not any(phase) and all(d is None for d in dma) and max(busy) <= now:
                return now
            for i in range(n):
                moving = dma[i]
                peer = moving[1].wants(now) if moving else None
                if moving and peer is not None and inbox[peer, i]:
                    packet = inbox[peer, i].popleft()
                    packet.taken = now
                    self.memory[i].update(zip(moving[1].next(), packet.values, strict=True))
                    moving[1].moved(now, self.pause)
                    back.append((now + delay(peer, i), (peer, i)))
            room = self.carried
            for i in [(turn + j) % n for j in range(n)]:
                moving = dma[i]
                peer = moving[0].wants(now) if moving else None
                if moving and peer is not None and places[i, peer] and room:
                    packet = Packet(i, peer, [self.memory[i][a] for a in moving[0].next()], now)
                    moving[0].moved(now, self.pause)
                    places[i, peer] -= 1
                    self.packets.append(packet)
                    flying.append((now + delay(i, peer), packet))
                    room -= 1
                    turn = (i + 1) % n
        return -1
