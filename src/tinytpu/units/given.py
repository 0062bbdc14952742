"""What a core is loaded with: one image, or one program and many data sets (datasheet 2, 9).

Decides whether memories and outputs fit the machine; it must not know how a program runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.machine import Machine

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Items = NDArray[Any]  # int32 or int8


@dataclass(frozen=True)
class Image:
    """What a core is loaded with: a bundle's content without its text.

    instructions: int64[n, 9], columns isa.Column. vmem: address -> rows*columns int32 words (flat). wmem: address ->
    rows*columns int8. amem: address -> rows int8. vmem_outputs, amem_outputs: addresses read back after the HALT, in
    order. mxu_result: whether the column sums latched last are output too. records: records before END; None means
    one per item above. lines: the source line of each instruction.
    """

    instructions: NDArray[np.int64]
    vmem: Mapping[int, Sequence[int] | NDArray[np.int32]] = field(default_factory=dict[int, Sequence[int]])
    wmem: Mapping[int, Sequence[int] | NDArray[np.int8]] = field(default_factory=dict[int, Sequence[int]])
    amem: Mapping[int, Sequence[int] | NDArray[np.int8]] = field(default_factory=dict[int, Sequence[int]])
    vmem_outputs: Sequence[int] = ()
    amem_outputs: Sequence[int] = ()
    mxu_result: bool = False
    records: int | None = None
    lines: Sequence[SourceLine | None] = ()

    def record_count(self) -> int:
        """Records before END."""
        if self.records is not None:
            return self.records
        data = len(self.vmem) + len(self.wmem) + len(self.amem)
        outputs = len(self.vmem_outputs) + len(self.amem_outputs) + int(self.mxu_result)
        return data + len(self.instructions) + outputs


class Filling(NamedTuple):
    """What fills a memory in every data set: its slot `slots[k]` holds item `chosen[n, k]` in set n.

    slots: int64[k], each once. items: int32 or int8 [items, words of a slot]. chosen: int64[sets, k].
    """

    slots: NDArray[np.int64]
    items: Items
    chosen: NDArray[np.int64]


@dataclass(frozen=True)
class Sets:
    """One program and the data sets it runs on, each on a fresh core. Memories without a filling are empty.

    instructions, outputs, lines: as in Image.
    """

    count: int
    instructions: NDArray[np.int64]
    vmem: Filling | None = None
    wmem: Filling | None = None
    amem: Filling | None = None
    vmem_outputs: Sequence[int] = ()
    amem_outputs: Sequence[int] = ()
    mxu_result: bool = False
    lines: Sequence[SourceLine | None] = ()

    def record_count(self) -> int:
        """Records of one set before END."""
        filled = sum(len(f.slots) for f in (self.vmem, self.wmem, self.amem) if f)
        outputs = len(self.vmem_outputs) + len(self.amem_outputs) + int(self.mxu_result)
        return filled + len(self.instructions) + outputs

    def image(self, number: int) -> Image:
        """One set alone."""

        def memory(filling: Filling | None) -> dict[int, Items]:
            if filling is None:
                return {}
            return {int(slot): filling.items[at] for slot, at in zip(filling.slots, filling.chosen[number])}

        vmem, wmem, amem = memory(self.vmem), memory(self.wmem), memory(self.amem)
        outputs = self.vmem_outputs, self.amem_outputs, self.mxu_result
        return Image(self.instructions, vmem, wmem, amem, *outputs, lines=self.lines)


def filling(
    name: str, values: Mapping[int, Sequence[int] | Items], memory: Items, silicon: bool
) -> Filling:  # fmt: skip
    """The items of an image for a memory, held to its size and range."""
    size, words = memory.shape
    items = [np.asarray(item, np.int64).reshape(-1) for item in values.values()]
    for address, item in zip(values, items):
        if len(item) != words:
            raise Refusal("an item is filled whole", where=f"{name}[{address}]", got=len(item), limit=f"{words} values")
    found = np.array(items, np.int64).reshape(len(items), words)
    slots = np.fromiter(values, np.int64, len(items))
    if silicon:
        # Of items that wrap to one address the last one stays.
        slots, kept = _last_of_each(slots % size)
        found = found[kept]
    elif len(items):
        _check_slots(name, slots, size)
        info = np.iinfo(memory.dtype)
        if found.min() < info.min or found.max() > info.max:
            at = np.argmax((found < info.min) | (found > info.max))
            got = int(found.flat[at])
            raise Refusal(f"a value of {name} is {memory.dtype}", where=f"{name}[{slots[at // words]}]", got=got)
    return Filling(slots, found.astype(memory.dtype), np.arange(len(slots)).reshape(1, -1))


def _last_of_each(slots: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each slot once, and the place where it stands last."""
    found, at = np.unique(slots[::-1], return_index=True)
    return found, len(slots) - 1 - at


def _check_slots(name: str, slots: NDArray[np.int64], size: int) -> None:
    wrong = slots[(slots < 0) | (slots >= size)]
    if len(wrong):
        raise Refusal(f"{name} has {size} items", where=f"{name}[{wrong[0]}]", limit=size - 1)


def checked(name: str, filling: Filling | None, memory: Items, count: int) -> Filling:
    """A filling of sets, held to the memory: what a loop without checks may use."""
    if filling is None:
        empty = np.zeros(0, np.int64)
        return Filling(empty, np.zeros((0, memory.shape[1]), memory.dtype), empty.reshape(1, 0).repeat(count, 0))
    items = np.ascontiguousarray(filling.items)
    slots, chosen = (np.ascontiguousarray(part, np.int64) for part in (filling.slots, filling.chosen))
    if items.dtype != memory.dtype or items.ndim != 2 or items.shape[1] != memory.shape[1]:
        limit = f"{memory.dtype}[items, {memory.shape[1]}]"
        raise Refusal(
            "items are as the memory holds them", where=name, got=f"{items.dtype}{[*items.shape]}", limit=limit
        )
    if chosen.shape != (count, len(slots)):
        raise Refusal("a set chooses an item for every slot", where=name, got=chosen.shape, limit=(count, len(slots)))
    _check_slots(name, slots, len(memory))
    if len(set(slots.tolist())) < len(slots):
        raise Refusal("a slot is filled once", where=name, got=sorted(slots.tolist()))
    if chosen.size and (chosen.min() < 0 or chosen.max() >= len(items)):
        raise Refusal("a chosen item is there", where=name, got=(chosen.min(), chosen.max()), limit=len(items) - 1)
    return Filling(slots, items, chosen)


def addresses(name: str, addresses: Sequence[int], machine: Machine, size: int, silicon: bool) -> list[int]:
    """Where outputs are read, held to the memory's size."""
    most = int(machine.params.max_outputs)
    if silicon:
        # The counter of output records has just the bits for `most`.
        return [a % size for a in addresses[: len(addresses) % (most + 1)]]
    if len(addresses) > most:
        raise Refusal(f"{name} outputs of one run", got=len(addresses), limit=most, hint="split into several runs")
    for a in addresses:
        if not 0 <= a < size:
            raise Refusal(f"{name} has {size} items", where=f"output of {name}[{a}]", limit=size - 1)
    return list(addresses)
