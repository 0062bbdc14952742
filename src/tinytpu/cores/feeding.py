"""How a program's vectors and weights reach the cores that run it: by records, or packed and moved by DMA.

A record fills a tile of VMEM in the same two cycles as a vector of AMEM or a tile of WMEM, and holds the bytes of many
of those: packed, they go into free tiles of VMEM, and a core's DMA moves them to where the program reads them, over the
loopback or, for weights that several cores use, from one core to all. Decides steps; it must not know products.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.machine import Machine
from tinytpu.cores.scripts import PACKED, Bundle, Move, Places, Receive, Send, Slots, Step
from tinytpu.isa.codes import Column
from tinytpu.units.core import Image

Feed = Callable[[Machine, Sequence[Image | None], str], list[list[Step]]]
"""Steps for each core from its program with what fills it (None: it has nothing to do) and the program's name."""


def by_records(_machine: Machine, images: Sequence[Image | None], name: str) -> list[list[Step]]:
    """Every core's program with all its records."""
    return [[] if image is None else [Bundle(image, name)] for image in images]


def packed(machine: Machine, images: Sequence[Image | None], name: str) -> list[list[Step]]:
    """Vectors and weights packed in VMEM, unpacked over the loopback."""
    found: list[list[Step]] = []
    for core, image in enumerate(images):
        if image is None:
            found.append([])
            continue
        staged = _Staged(machine, image)
        own = [staged.add("AMEM", image.amem), staged.add("WMEM", image.wmem)]
        moved = [pair for pair in own if pair is not None]
        move = Move(tuple(Send(core, a) for a, _ in moved), tuple(Receive(core, b) for _, b in moved), f"unpack {name}")
        found.append([*staged.fill(name), *([move] if moved else []), Bundle(staged.rest(), name)])
    return found


def broadcast(machine: Machine, images: Sequence[Image | None], name: str) -> list[list[Step]]:
    """As `packed`, but the first core's weights go from it to all whose program takes the same ones."""
    first = next((core for core, image in enumerate(images) if image is not None), None)
    if first is None:
        return [[] for _ in images]
    source = images[first]
    assert source is not None
    same = [core for core, image in enumerate(images) if image is not None and _equal(image.wmem, source.wmem)]
    found = packed(machine, images, name)
    where: tuple[Slots, Slots] | None = None
    for core in same:
        image = images[core]
        assert image is not None
        staged = _Staged(machine, image)
        own = staged.add("AMEM", image.amem)
        if core == first:
            where = staged.add("WMEM", image.wmem)
        if where is None:
            return found  # nothing to send, or it does not fit: as packed
        staged.sent("WMEM")
        sends = [Send(core, own[0])] if own else []
        takes = [Receive(core, own[1])] if own else []
        takes.append(Receive(first, where[1]))
        if core == first:
            sends += [Send(other, where[0]) for other in same]
        move = Move(tuple(sends), tuple(takes), f"unpack {name}")
        found[core] = [*staged.fill(name), move, Bundle(staged.rest(), name)]
    return found


def _equal(one: Mapping[int, Any], other: Mapping[int, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(values, other[slot]) for slot, values in one.items())


class _Staged:
    """Bytes of a program's memories in tiles of VMEM that its records do not fill."""

    def __init__(self, machine: Machine, image: Image) -> None:
        self._places, self._image = Places(machine), image
        self._tiles: dict[int, NDArray[np.int32]] = {}
        self._gone: set[str] = set()

    def add(self, memory: str, items: Mapping[int, Any]) -> tuple[Slots, Slots] | None:
        """Pack slots of a memory: where they lie in VMEM, and where they go. None where there are none, where they do
        not begin at slot 0 or are not all there, and where VMEM has no room; they stay records then."""
        if not items or sorted(items) != list(range(len(items))):
            return None
        most, words = self._places.size(memory)
        tiles, lanes = self._places.size("VMEM")
        count = -(-len(items) * words // lanes)
        slots = count * lanes // words
        taken = {*self._image.vmem, *self._tiles}
        start = next((s for s in range(tiles - count + 1) if taken.isdisjoint(range(s, s + count))), None)
        if start is None or slots > most or slots * words != count * lanes:
            return None
        # Slots behind the last one, up to a whole tile, become zeros.
        room = np.zeros((slots, words * PACKED), np.int8)
        for slot, values in items.items():
            flat = np.asarray(values).reshape(-1)
            room[slot, : flat.size] = flat
        packed_tiles = room.reshape(-1).view(np.int32).reshape(count, lanes)
        self._tiles |= {start + k: tile for k, tile in enumerate(packed_tiles)}
        self._gone.add(memory)
        return Slots("VMEM", start, count), Slots(memory, 0, slots)

    def sent(self, memory: str) -> None:
        """Another core sends what a memory holds."""
        self._gone.add(memory)

    def fill(self, name: str) -> list[Step]:
        """The records of the packed tiles."""
        empty = np.zeros((0, len(Column)), np.int64)
        return [Bundle(Image(empty, vmem=self._tiles), f"packed {name}")] if self._tiles else []

    def rest(self) -> Image:
        """The program with the records that are left."""
        image = self._image
        return replace(
            image,
            amem={} if "AMEM" in self._gone else image.amem,
            wmem={} if "WMEM" in self._gone else image.wmem,
        )


FEEDS: Mapping[str, Feed] = {"records": by_records, "packed": packed, "broadcast": broadcast}
"""By name."""
