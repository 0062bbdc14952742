"""A joined program: as one kernel where the machine can, else its parts one after the other.

Decides the form of its bytes, and that nothing is lost by joining: the parts run as they would have. It must not know
machines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kohakuaccel.diagnostics import DefinitionError, Refusal
from kohakuaccel.frontends.tinygrad.joined.graph import joined
from kohakuaccel.frontends.tinygrad.kernel import MARK, VERSION, Kernel, decode
from kohakuaccel.frontends.tinygrad.memory import Memory, View
from kohakuaccel.graph import Read

if TYPE_CHECKING:
    from kohakuaccel.frontends.tinygrad.program import Engine, Prepared


@dataclass(frozen=True)
class Group:
    """whole: over the buffers of the launch. parts: over these and, behind them, `hidden` buffers of so many bytes."""

    name: str
    whole: Kernel
    parts: tuple[Kernel, ...]
    hidden: tuple[int, ...]

    def encode(self) -> bytes:
        """The group as bytes: UTF-8 JSON."""
        record: dict[str, Any] = {
            MARK: VERSION,
            "name": self.name,
            "whole": json.loads(self.whole.encode()),
            "parts": [json.loads(part.encode()) for part in self.parts],
            "hidden": list(self.hidden),
        }
        return json.dumps(record).encode()


def decode_group(record: dict[str, Any]) -> Group:
    """The group of a decoded JSON record."""
    parts = tuple(decode(one) for one in record["parts"])
    return Group(record["name"], decode(record["whole"]), parts, tuple(int(n) for n in record["hidden"]))


class Apart(Exception):
    """Why a machine does not run a group as one kernel. lasting: whatever the values, so that smaller groups may do."""

    def __init__(self, reason: str, lasting: bool = False) -> None:
        super().__init__(reason)
        self.lasting = lasting


class GroupRun:
    """One group on one device. prepare: makes a kernel ready for buffers in slots of an order."""

    def __init__(
        self, group: Group, order: Sequence[int], prepare: Callable[[Kernel, Sequence[int]], Prepared]
    ) -> None:
        self.name, self.outer = group.name, len(order)
        self.order = (*order, *range(len(order), len(order) + len(group.hidden)))
        self.kernels, self.prepare = group.parts, prepare
        self.whole = prepare(group.whole, order)
        self.parts = [self._part(part) for part in group.parts]
        self.hidden = [View(Memory(n), 0, n) for n in group.hidden]
        self.pieces: list[tuple[Prepared, range]] | None = None
        """Smaller groups, each over some of the parts, where the machine never takes the whole."""

    def __call__(self, engine: Engine, buffers: Sequence[View]) -> float | None:
        """Run it; the device's seconds, where it knows them."""
        if self.pieces is None:
            try:
                return engine.run_whole(self.whole, buffers)
            except Apart as why:
                engine.apart(self.name, len(self.parts), str(why))
                if not why.lasting:
                    return self._one_by_one(engine, range(len(self.parts)), (*buffers, *self.hidden))
                self.pieces = self._smaller(engine)
        total: float | None = None
        for piece, parts in self.pieces:
            try:
                if len(parts) == 1:
                    seconds = engine.run(piece, (*buffers, *self.hidden))
                else:
                    seconds = engine.run_whole(piece, (*buffers, *self.hidden))
            except Apart as why:
                engine.apart(piece.kernel.name, len(parts), str(why))
                seconds = self._one_by_one(engine, parts, (*buffers, *self.hidden))
            total = total if seconds is None else (total or 0.0) + seconds
        return total

    def _part(self, kernel: Kernel) -> Prepared:
        """A kernel of the group. tinygrad writes `w = w - f(x)` as two where f folds: a value, and its copy to w."""
        found = self.prepare(kernel, self.order)
        copies = [
            k for k in self.kernels if all(isinstance(s.body, Read) and not s.reduced for s in k.graph.statements)
        ]
        reached: set[int] = set()
        left = [s.slot for s in kernel.stores]
        while left:
            slot = left.pop()
            if slot not in reached:
                reached.add(slot)
                left += [s.slot for k in copies if slot >= self.outer and slot in k.reads for s in k.stores]
        found.updates = bool(reached.intersection(kernel.reads))
        return found

    def _one_by_one(self, engine: Engine, parts: range, buffers: Sequence[View]) -> float | None:
        total: float | None = None
        for n in parts:
            seconds = engine.run(self.parts[n], buffers)
            total = total if seconds is None else (total or 0.0) + seconds
        return total

    def _smaller(self, engine: Engine) -> list[tuple[Prepared, range]]:
        """From the front, as many parts at a time as the machine takes."""
        found: list[tuple[Prepared, range]] = []
        start, end = 0, len(self.parts)
        while start < end:
            best, low, high = (
                (self.parts[start], range(start, start + 1)),
                start + 2,
                min(end, start + len(self.parts) - 1),
            )
            while low <= high:
                middle = (low + high + 1) // 2
                piece = self._piece(range(start, middle))
                if piece is not None and engine.takes(piece):
                    best, low = (piece, range(start, middle)), middle + 1
                else:
                    high = middle - 1
            found.append(best)
            start = best[1].stop
        return found

    def _piece(self, parts: range) -> Prepared | None:
        """Some of the parts as one kernel; what others read of it is stored."""
        others = {slot for n, k in enumerate(self.kernels) if n not in parts for slot in k.reads}
        kept = frozenset(range(self.outer)) | others
        name = f"j{len(parts)}_{self.kernels[parts[-1]].name}"
        try:
            return self._part(joined(name, [self.kernels[n] for n in parts], kept))
        except (Refusal, DefinitionError):
            return None
