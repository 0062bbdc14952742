"""A stage on the machine: its arrays as tiles, every program run for all its places, outputs as arrays.

Decides which runs are of one program and what of the operands each takes. It must not know how programs came about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from kohakuaccel.graph import DType, Value
from kohakuaccel.graph.points import Array
from tinytpu.lower.array.chain import Chain
from tinytpu.lower.array.product import Product, feeds
from tinytpu.lower.data import Words, in_bytes, numbers
from tinytpu.lower.feed import Counts, Places, Slots, Work, executing, executor, run_programs
from tinytpu.lower.joined import Joined, Part
from tinytpu.lower.numbers.functions import SINE_LIMIT
from tinytpu.lower.numbers.serial import check
from tinytpu.lower.packed import Packed, Whole
from tinytpu.lower.program.allocate import Program
from tinytpu.lower.program.code import Result
from tinytpu.lower.stage import Stage

__all__ = ["Beyond", "Counts", "executing", "executor", "run_joined", "run_packed", "run_stage"]


def run_stage(stage: Stage, known: Mapping[str, Array], names: Mapping[str, Value], counts: Counts) -> dict[str, Array]:
    """The stage's outputs, by name: [chunks, points] where a fold was cut in parts, else of the statement's shape.
    Raises Beyond."""
    filled = data_of(stage, known, names)
    room = Room.of(stage, (p for unit in stage.units for p in unit.programs))
    work = Work(title(stage), stage.machine, filled, room.results, counts, stage.layout.chunks)
    first = 0
    for unit, count in zip(stage.units, stage.counts):
        run_programs(work, unit.programs, first + np.arange(count) * unit.tiles)
        first += count * unit.tiles
    if stage.checked:
        _check(stage, room.results[len(stage.outputs)][:, 0])
    return outputs_of(stage, room)


def data_of(step: Whole, known: Mapping[str, Array], names: Mapping[str, Value]) -> list[Words]:
    """What fills the tiles of every data plan. Raises Refusal for what a function of the vector unit is wrong for."""
    for number, name in step.bounds:
        data = step.data[number]
        check(name, numbers(data.values(known, names), data.dtype), f"statement {step.statements[-1].name}")
    if isinstance(step, Joined):
        return [data.fill(step.layout(prod(r.extent for r in data.folded)), known, names) for data in step.data]
    filled = [data.fill(step.layout, known, names) for data in step.data]
    if isinstance(step, Stage) and step.layout.packed > 1:
        return [in_bytes(tiles, data.dtype) for tiles, data in zip(filled, step.data)]
    return filled


def outputs_of(step: Whole, room: Room) -> dict[str, Array]:
    """The outputs, by name."""
    if isinstance(step, Joined):
        return {s.name: numbers(words, s.dtype).reshape(s.shape) for s, words in step.gathered(room.results)}
    by_name = {s.name: s for s in step.statements}
    found: dict[str, Array] = {}
    for number, name in enumerate(step.outputs):
        flat = room.taken(step, number, by_name[name].dtype)
        found[name] = flat if step.layout.chunks > 1 else flat.reshape(by_name[name].shape)
    return found


@dataclass
class Room:
    """What programs leave. results: int32[tiles, 1, words] each: the outputs, what is checked, high words from the
    end. pairs: outputs that have high words."""

    results: Sequence[Words]
    pairs: frozenset[int]

    @staticmethod
    def of(stage: Whole, programs: Iterable[Program]) -> Room:
        if isinstance(stage, Joined):
            return Room(stage.empty(), frozenset())
        places = {place.number for p in programs for _, place in p.outputs if isinstance(place, Result)}
        pairs = frozenset(~number for number in places if number < 0)
        rows = len(stage.outputs) * (2 if pairs else 1) + stage.checked
        words = stage.layout.words if isinstance(stage, Stage) else stage.layout.lanes
        return Room(list(np.zeros((rows, stage.layout.tiles, 1, words), np.int32)), pairs)

    def taken(self, stage: Stage | Product | Chain, number: int, dtype: DType) -> Array:
        """Output `number`: [chunks, points]."""
        gathered = stage.layout.gathered
        top = gathered(self.results[~number][:, 0]) if number in self.pairs else None
        return numbers(gathered(self.results[number][:, 0]), dtype, top)


def run_joined(
    step: Joined, known: Mapping[str, Array], names: Mapping[str, Value], counts: Counts,
    operands: tuple[Array, Array] | None = None,
) -> dict[str, Array]:  # fmt: skip
    """The outputs of joined stages, by name. operands: of the product among them, which are int8."""
    filled = data_of(step, known, names)
    room = Room.of(step, ())
    fed = feeds(step.product, operands) if step.product is not None and operands is not None else None
    work = Work(title(step), step.machine, filled, room.results, counts)
    alike: dict[int, list[Part]] = {}
    for part in step.parts:
        alike.setdefault(id(part.programs), []).append(part)
    for parts in alike.values():
        first = np.array([part.first for part in parts], np.int64)
        one, zero = parts[0].operands, np.zeros(len(parts), np.int64)
        wmem = [_fed(fed[1], zero, zero, one.wmem)] if fed is not None and one is not None else []
        amem = [_fed(fed[0], zero, first, one.amem)] if fed is not None and one is not None else []
        run_programs(work, parts[0].programs, first, wmem=wmem, amem=amem)
    return outputs_of(step, room)


def run_packed(
    step: Packed, known: Mapping[str, Array], names: Mapping[str, Value], counts: Counts,
    operands: tuple[Array, Array] | None = None,
) -> dict[str, Array]:  # fmt: skip
    """The outputs of steps that share a program, by name. operands: of the product among them, which are int8."""
    filled = [words for own in step.steps for words in data_of(own, known, names)]
    rooms = [Room.of(own, ()) for own in step.steps]
    wmem: list[Slots] = []
    amem: list[Slots] = []
    first = np.zeros(1, np.int64)
    product = step.product.product if isinstance(step.product, Joined) else step.product
    if product is not None and operands is not None:
        vectors, weights = feeds(product, operands)
        wmem = [_fed(weights, first, first, step.fed.wmem)]
        amem = [_fed(vectors, first, first, step.fed.amem)]
    results = [words for room in rooms for words in room.results]
    work = Work(", ".join(map(title, step.steps)), step.machine, filled, results, counts)
    run_programs(work, [step.fed.program], first, wmem=wmem, amem=amem)
    return {name: array for own, room in zip(step.steps, rooms) for name, array in outputs_of(own, room).items()}


def _fed(items: Array, batch: Places, first: Places, slots: Mapping[int, tuple[int, int]]) -> Slots:
    """What every run takes of `items`, int8[batch, tiles, each, words]: those of `slots`, from its first tile on."""
    _, tiles, each, _ = items.shape
    return Slots(items, {slot: ((batch * tiles) + first + tile) * each + at for slot, (tile, at) in slots.items()})


def title(step: Whole) -> str:
    """Its statements' names."""
    return ", ".join(s.name for s in step.statements)


class Beyond(Exception):
    """A stage has seen an argument beyond what it is right for."""


def _check(stage: Stage, beyond: Words) -> None:
    if stage.layout.gathered(beyond).any():
        raise Beyond(f"a sine of more than {SINE_LIMIT:g}")
