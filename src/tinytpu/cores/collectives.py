"""Collectives over arrays: what every core holds before and after, and the algorithm with the fewest cycles.

Decides how arrays become tiles of VMEM and back. Who sends what is decided in `algorithms`, when, in `network`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.machine import Machine
from tinytpu.cores.algorithms import ALGORITHMS, Writer
from tinytpu.cores.reduction import check_operation
from tinytpu.cores.scripts import Held, Slots
from tinytpu.cores.system import Ran, System
from tinytpu.machines.choice import chosen

FORMATS = ("int32", "float32", "int8")
_COMBINING = ("reduce", "reduce_scatter", "all_reduce")
_SHARES = ("scatter", "gather", "all_gather")


@dataclass(frozen=True)
class Collected:
    """What a collective gave.

    values: per core its array, None where it has none; of reduce_scatter a flat part, which side by side are the
    whole. cycles: of the algorithm taken; tried: of all that fit, by name. padded: elements beside the arrays' own in
    the last tile of what a core holds, or of a share.
    """

    kind: str
    algorithm: str
    values: list[NDArray[Any] | None]
    cycles: int
    tried: dict[str, int]
    padded: int
    ran: Ran

    def text(self) -> str:
        """A line on what was done, one on each algorithm."""
        tiles = f"{len(self.ran.scripts)} cores, {len(self.ran.packets)} packets, {self.padded} elements of padding"
        lines = [f"{self.kind}: {self.algorithm}, {self.cycles} cycles; {tiles}"]
        lines += [f"  {name} {cycles} cycles" for name, cycles in sorted(self.tried.items(), key=lambda item: item[1])]
        return "\n".join(lines)


def collective(
    kind: str, data: ArrayLike, machine: Machine | None = None, *, cores: int = 0, op: str = "add", root: int = 0,
    algorithm: str = "",
) -> Collected:  # fmt: skip
    """Run a collective on a system of cores whose memories hold the data already.

    kind: "broadcast" (data: the root's array; `cores` says how many there are), "scatter" (data[c] goes to core c),
    "gather", "all_gather", "reduce", "all_reduce", "reduce_scatter" (data[c] is core c's array). dtype int32, float32
    or int8 (four to a word; sums wrap as numpy's do). op: "add", "max" or "min". algorithm: by name, else the one with
    the fewest cycles. float32 is summed in the order that the algorithm's description states.
    Raises Refusal for what is none of this, and for arrays that VMEM does not hold.
    """
    machine = machine or chosen()
    values = np.asarray(data)
    name = values.dtype.name
    if kind not in ALGORITHMS:
        raise Refusal("no such collective", where="collective", got=kind, limit=", ".join(ALGORITHMS))
    if algorithm and algorithm not in ALGORITHMS[kind]:
        raise Refusal("no such algorithm", where=kind, got=algorithm, limit=", ".join(ALGORITHMS[kind]))
    if name not in FORMATS:
        raise Refusal("a tile holds numbers of the machine", where=f"{kind}: data", got=name, limit=", ".join(FORMATS))
    if kind in _COMBINING:
        check_operation(name, op)
    count = cores if kind == "broadcast" else len(values) if values.ndim else 0
    system = System(machine, count)
    if not 0 <= root < count:
        raise Refusal("the root is a core", where=f"{kind}: root", got=root, limit=count - 1)
    if not values.size:
        raise Refusal("there is something to move", where=f"{kind}: data", got=values.shape)
    arrays = [values] if kind == "broadcast" else list(values)
    tiles = [_tiles(array, machine) for array in arrays]
    share = len(tiles[0])
    total = share * count if kind in _SHARES else share
    if total > machine.params.vmem_tiles:
        raise Refusal(
            "VMEM holds all tiles", where=f"{kind}: data", got=total, limit=machine.params.vmem_tiles,
            hint="move them in parts",
        )  # fmt: skip
    held = _held(kind, tiles, count, root)
    tried: dict[str, Ran] = {}
    refused: Refusal | None = None
    for each in [algorithm] if algorithm else ALGORITHMS[kind]:
        w = Writer(machine, count, total, root, name, op)
        try:
            ALGORITHMS[kind][each](w)
        except Refusal as error:
            refused = error
            continue
        tried[each] = system.run(w.scripts, held)
    if not tried:
        assert refused is not None
        raise refused
    best = min(tried, key=lambda each: tried[each].cycles)
    w = Writer(machine, count, total, root)
    found = _results(kind, tried[best], w, arrays[0])
    padded = share * tiles[0].shape[1] * 4 // values.itemsize - arrays[0].size
    cycles = {each: ran.cycles for each, ran in tried.items()}
    return Collected(kind, best, found, cycles[best], cycles, padded, tried[best])


def _tiles(array: NDArray[Any], machine: Machine) -> NDArray[np.int32]:
    """int32[tiles, lanes]: the array's bytes as words, zeros behind them."""
    lanes = int(machine.params.rows * machine.params.columns)
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    padded = np.zeros(-(-len(flat) // (4 * lanes)) * 4 * lanes, np.uint8)
    padded[: len(flat)] = flat
    return padded.view(np.int32).reshape(-1, lanes)


def _held(kind: str, tiles: list[NDArray[np.int32]], count: int, root: int) -> list[Held]:
    share = len(tiles[0])
    if kind == "broadcast":
        return [{Slots("VMEM", 0, share): tiles[0]} if core == root else {} for core in range(count)]
    if kind == "scatter":
        whole = np.concatenate(tiles)
        return [{Slots("VMEM", 0, len(whole)): whole} if core == root else {} for core in range(count)]
    place = share if kind in _SHARES else 0
    return [{Slots("VMEM", place * core, share): tiles[core]} for core in range(count)]


def _results(kind: str, ran: Ran, w: Writer, like: NDArray[Any]) -> list[NDArray[Any] | None]:
    """What each core has at the end, as arrays."""

    def read(core: int, slots: range) -> NDArray[Any]:
        tiles = ran.held(core, Slots("VMEM", slots.start, len(slots)))
        return cast("NDArray[Any]", tiles.reshape(-1).view(like.dtype))

    def shaped(flat: NDArray[Any]) -> NDArray[Any]:
        return flat[: like.size].reshape(like.shape)

    found: list[NDArray[Any] | None] = []
    for core in range(w.cores):
        if kind in ("gather", "reduce") and core != w.root:
            found.append(None)
        elif kind in ("gather", "all_gather"):
            found.append(np.stack([shaped(read(core, w.chunk(c))) for c in range(w.cores)]))
        elif kind == "scatter":
            found.append(shaped(read(core, w.chunk(core))))
        elif kind == "reduce_scatter":
            part = w.chunk(core)
            each = ran.state.memory.itemsize * w.machine.params.rows * w.machine.params.columns // like.itemsize
            left = max(0, like.size - part.start * each)
            found.append(read(core, part)[:left] if part else np.zeros(0, like.dtype))
        else:
            found.append(shaped(read(core, w.whole)))
    return found
