"""Scripts of cores: bundles and moves, where words of a core's memories lie, and scripts as the network reads them.

Decides what a script may say and that every transfer has two ends. When things happen is decided in `network`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.machine import Machine
from tinytpu.cores import state as s
from tinytpu.units.core import Image

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

MEMORIES = ("VMEM", "WMEM", "AMEM")
PACKED = 4
"""int8 values in a word."""


@dataclass(frozen=True, slots=True)
class Slots:
    """Neighbouring slots of a memory: "VMEM" or "WMEM" tiles, "AMEM" vectors."""

    memory: str
    first: int
    count: int

    def __str__(self) -> str:
        last = self.first + self.count - 1
        return f"{self.memory}[{self.first}]" if self.count == 1 else f"{self.memory}[{self.first}..{last}]"


@dataclass(frozen=True, slots=True)
class Send:
    """What goes to core `peer`."""

    peer: int
    slots: Slots


@dataclass(frozen=True, slots=True)
class Receive:
    """Where what comes from core `peer` goes."""

    peer: int
    slots: Slots


@dataclass(frozen=True, slots=True)
class Bundle:
    """A program with its records; without instructions, records that only fill memories.

    Its records load what the image holds; what its memories hold besides stays and costs no record.
    """

    image: Image
    name: str = "bundle"


@dataclass(frozen=True, slots=True)
class Move:
    """Transfers, those out one after the other, beside those in one after the other; done when all are."""

    sends: tuple[Send, ...] = ()
    receives: tuple[Receive, ...] = ()
    name: str = "move"


Step = Bundle | Move
Script = Sequence[Step]
Held = Mapping[Slots, "ArrayLike"]


@dataclass(frozen=True)
class Places:
    """Where the words of a core's memories lie for the DMA, one memory behind the other. int8 values are packed four
    to a word, lowest byte first; every vector begins with a word of its own."""

    machine: Machine

    @cached_property
    def _table(self) -> Mapping[str, tuple[int, int, int, int]]:
        """By memory: slots, words of each, first word, values of each."""
        p = self.machine.params
        rows, lanes = int(p.rows), int(p.rows * p.columns)
        found: dict[str, tuple[int, int, int, int]] = {}
        start = 0
        for name, slots, values in zip(MEMORIES, (p.vmem_tiles, p.wmem_tiles, p.amem_vectors), (lanes, lanes, rows)):
            words = values if name == "VMEM" else -(-values // PACKED)
            found[name] = (int(slots), words, start, values)
            start += int(slots) * words
        return found

    def size(self, memory: str) -> tuple[int, int]:
        """Slots of a memory, and words of each."""
        return self._table[memory][:2]

    @property
    def words(self) -> int:
        slots, words, start, _ = self._table[MEMORIES[-1]]
        return start + slots * words

    def of(self, slots: Slots) -> tuple[int, int]:
        """First word and number of words. Raises Refusal for slots that are not there."""
        if slots.memory not in MEMORIES:
            raise Refusal("no such memory", where=str(slots), got=slots.memory, limit=", ".join(MEMORIES))
        most, words = self.size(slots.memory)
        if slots.count < 1 or not 0 <= slots.first <= most - slots.count:
            raise Refusal(f"slots lie within {slots.memory}", where=str(slots), got=slots.count, limit=f"{most} slots")
        return self._table[slots.memory][2] + slots.first * words, slots.count * words

    def view(self, memory: NDArray[np.int32], name: str) -> NDArray[Any]:
        """A memory of a core as it is: int32[tiles, lanes], int8[tiles, lanes], int8[vectors, rows]."""
        slots, words, start, values = self._table[name]
        part = memory[start : start + slots * words].reshape(slots, words)
        return part if name == "VMEM" else part.view(np.int8)[:, :values]

    def flags(self, written: NDArray[np.uint8], name: str) -> NDArray[np.uint8]:
        """uint8[slots, words]: which words of a memory something was put into."""
        slots, words, start, _ = self._table[name]
        return written[start : start + slots * words].reshape(slots, words)

    def written(self, written: NDArray[np.uint8], name: str) -> NDArray[np.bool_]:
        """Which slots of a memory hold something, all of their words."""
        return np.asarray(self.flags(written, name).all(axis=1))


class Layout:
    """Scripts as the arrays that the network reads; both ends of every transfer are there."""

    def __init__(self, places: Places, scripts: Sequence[Script], packet: int) -> None:
        self._places, self._packet, self._cores = places, packet, len(scripts)
        steps: list[list[int]] = []
        segments: list[list[int]] = []
        first = [0]
        sent: dict[tuple[int, int], list[tuple[int, int, str]]] = {}
        taken: dict[tuple[int, int], list[tuple[int, int, str]]] = {}
        routes: list[tuple[int, int]] = []
        for core, script in enumerate(scripts):
            for number, step in enumerate(script):
                where = f"core {core}, step {number} ({step.name})"
                if isinstance(step, Bundle):
                    steps.append([s.BUNDLE, *_host_cycles(places.machine, step.image), 0, 0, 0, 0])
                    continue
                self._apart(step, where)
                bounds: list[int] = []
                for transfers in (step.sends, step.receives):
                    bounds.append(len(segments))
                    for transfer in transfers:
                        at, words = self._segment(transfer, where)
                        base = 0
                        pair = (core, transfer.peer) if isinstance(transfer, Send) else (transfer.peer, core)
                        if isinstance(transfer, Send):
                            base = len(routes)
                            routes += [pair] * -(-words // packet)
                        ends = sent if isinstance(transfer, Send) else taken
                        ends.setdefault(pair, []).append((words, len(segments), f"{where}: {transfer.slots}"))
                        segments.append([transfer.peer, at, words, base])
                    bounds.append(len(segments))
                steps.append([s.MOVE, 0, 0, 0, *bounds])
            first.append(len(steps))
        _pair(sent, taken, segments)
        self.first = np.array(first, np.int64)
        self.steps = np.array(steps, np.int64).reshape(-1, 8)
        self.segments = np.array(segments, np.int64).reshape(-1, 4)
        self.routes = np.array(routes, np.int64).reshape(-1, 2)

    def _segment(self, transfer: Send | Receive, where: str) -> tuple[int, int]:
        if not 0 <= transfer.peer < self._cores:
            raise Refusal("a transfer's other end is a core", where=where, got=transfer.peer, limit=self._cores - 1)
        try:
            return self._places.of(transfer.slots)
        except Refusal as error:
            error.where = f"{where}: {error.where}"
            raise

    def _apart(self, step: Move, where: str) -> None:
        for send in step.sends:
            for take in step.receives:
                a, b = send.slots, take.slots
                if a.memory == b.memory and a.first < b.first + b.count and b.first < a.first + a.count:
                    raise Refusal(
                        "what is sent is not overwritten meanwhile",
                        where=where,
                        got=f"send of {a}, receive into {b}",
                        hint="receive into other slots, or in another step",
                    )


def _pair(
    sent: Mapping[tuple[int, int], list[tuple[int, int, str]]],
    taken: Mapping[tuple[int, int], list[tuple[int, int, str]]],
    segments: list[list[int]],
) -> None:
    """Give every receive its send's packets. Raises Refusal where one of the two is missing or has another size."""
    for pair in sorted({*sent, *taken}):
        out, in_ = sent.get(pair, []), taken.get(pair, [])
        for k in range(max(len(out), len(in_))):
            where = (out[k] if k < len(out) else in_[k])[2]
            ends = [f"{e[k][0]} words ({e[k][2]})" if k < len(e) else "nothing" for e in (out, in_)]
            if k >= min(len(out), len(in_)) or out[k][0] != in_[k][0]:
                raise Refusal(
                    f"transfer {k} from core {pair[0]} to core {pair[1]} has two ends of one size",
                    where=where,
                    got=f"sent: {ends[0]}; received: {ends[1]}",
                )
            segments[in_[k][1]][s.BASE] = segments[out[k][1]][s.BASE]


def _host_cycles(machine: Machine, image: Image) -> tuple[int, int, int]:
    """Cycles of the link for records and for result lines; those of execution are not known yet (-1)."""
    shown = len(image.vmem_outputs) + len(image.amem_outputs) + int(image.mxu_result)
    lines = shown if len(image.instructions) else 0
    return int(machine.timing.record) * image.record_count(), -1, int(machine.timing.line) * lines
