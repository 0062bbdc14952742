"""A joined program: as one kernel where the machine can, else its parts one after the other.

Decides the form of its bytes, and that nothing is lost by joining: the parts run as they would have. It must not know
machines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kohakuaccel.frontends.tinygrad.kernel import MARK, VERSION, Kernel, decode
from kohakuaccel.frontends.tinygrad.memory import Memory, View

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
    """Why a machine does not run a group as one kernel now."""


class GroupRun:
    """One group on one device. prepare: makes a kernel ready for buffers in slots of an order."""

    def __init__(
        self, group: Group, order: Sequence[int], prepare: Callable[[Kernel, Sequence[int]], Prepared]
    ) -> None:
        behind = range(len(order), len(order) + len(group.hidden))
        self.name = group.name
        self.whole = prepare(group.whole, order)
        self.parts = [prepare(part, (*order, *behind)) for part in group.parts]
        self.hidden = [View(Memory(n), 0, n) for n in group.hidden]

    def __call__(self, engine: Engine, buffers: Sequence[View]) -> float | None:
        """Run it; the device's seconds, where it knows them."""
        try:
            return engine.run_whole(self.whole, buffers)
        except Apart as why:
            engine.apart(self.name, len(self.parts), str(why))
        total: float | None = None
        for part in self.parts:
            seconds = engine.run(part, (*buffers, *self.hidden))
            total = total if seconds is None else (total or 0.0) + seconds
        return total
