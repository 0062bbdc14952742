"""A kernel as it is kept in a compiled program: a graph, which buffers it reads, and where its results go.

Decides the form of a program's bytes, which hold nothing but a JSON text. It must not know tinygrad.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from kohakuaccel.graph import Graph, from_json, to_json

MARK = "kohakuaccel.tinygrad.kernel"
VERSION = 1


@dataclass(frozen=True)
class Store:
    """Where an output of the graph goes: all of the buffer in slot `slot`, or elements of it.

    value, place, gate: labels of outputs. Without `place` the value is the buffer's content from its first element on;
    with it, element n of the value goes to element place[n], where gate[n] holds (or everywhere, without a gate).
    """

    slot: int
    value: str
    place: str | None = None
    gate: str | None = None


@dataclass(frozen=True)
class Kernel:
    """name: as shown; graph: inputs are buffers, called `b<slot>` flat and `a<slot>` in a shape.

    stores: in order, all after every read.
    """

    name: str
    graph: Graph
    stores: tuple[Store, ...]

    @property
    def reads(self) -> tuple[int, ...]:
        """Slots it reads."""
        return tuple(int(v.name[1:]) for v in self.graph.inputs)

    @property
    def updates(self) -> bool:
        """Whether it writes a buffer that it also reads."""
        return any(s.slot in self.reads for s in self.stores)

    def encode(self) -> bytes:
        """The kernel as bytes: UTF-8 JSON."""
        record: dict[str, Any] = {
            MARK: VERSION,
            "name": self.name,
            "stores": [[s.slot, s.value, s.place, s.gate] for s in self.stores],
            "graph": json.loads(to_json(self.graph)),
        }
        return json.dumps(record).encode()


def decode(record: dict[str, Any]) -> Kernel:
    """The kernel of a decoded JSON record."""
    stores = tuple(Store(*fields) for fields in record["stores"])
    return Kernel(record["name"], from_json(json.dumps(record["graph"])), stores)
