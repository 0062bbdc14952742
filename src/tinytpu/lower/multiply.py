"""A product on the machine: all blocks that have the same program in one compiled call.

Decides what stands in which slot of which run, and counts it. It must not know how programs came about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kohakuaccel.graph import Value
from kohakuaccel.graph.points import Array
from kohakuaccel.machine import Machine
from tinytpu.lower.chain import Chain
from tinytpu.lower.code import Carry, Fill, Leaf, Pool, Source
from tinytpu.lower.data import Words
from tinytpu.lower.product import Fed, Product, feeds, vectors_of, weights_of
from tinytpu.lower.run import Counts, Room, data_of, executor, outputs_of
from tinytpu.recording import keep_sets
from tinytpu.units.core import execute_sets
from tinytpu.units.given import Filling, Sets


def run_product(
    stage: Product, known: Mapping[str, Array], names: Mapping[str, Value], counts: Counts,
    operands: tuple[Array, Array],
) -> dict[str, Array]:  # fmt: skip
    """The outputs of a product of operands that are int8, by name."""
    layout = stage.layout
    filled = data_of(stage, known, names)
    room = Room.of(stage, (fed.program for unit in stage.units.values() for fed in unit))
    vectors, weights = (each.reshape(-1, each.shape[-1]) for each in feeds(stage, operands))
    for key, first in layout.groups().items():
        carried: dict[int, Words] = {}
        for fed in stage.units[key]:
            amem = _filling(fed.amem, vectors, layout.vectors(key, list(fed.amem.values())))
            wmem = _filling(fed.wmem, weights, layout.weights(key, list(fed.wmem.values())))
            _run(stage, fed, first, filled, room, carried, counts, amem, wmem)
    return outputs_of(stage, room)


def _filling(slots: Mapping[int, tuple[int, int]], items: Array, chosen: Array) -> Filling:
    return Filling(np.array(list(slots), np.int64), items, np.ascontiguousarray(chosen))


def _tiles(
    data: Sequence[tuple[int, Source]], first: Array, filled: Sequence[Words], carried: Mapping[int, Words], lanes: int
) -> Filling:
    """What fills VMEM in the run of each block. first: int64[blocks], the tile that is the block's first."""
    items: list[Words] = []
    chosen = np.zeros((len(first), len(data)), np.int64)
    begins: dict[int, int] = {}
    count = 0

    def add(tiles: Words) -> int:
        nonlocal count
        items.append(tiles.reshape(-1, lanes))
        count += len(items[-1])
        return count - len(items[-1])

    for n, (_, source) in enumerate(data):
        match source:
            case Leaf(data=number, tile=tile):
                if number not in begins:
                    begins[number] = add(filled[number])
                own = len(filled[number]) > 1 and tile is not None
                chosen[:, n] = begins[number] + (first + (tile or 0) if own else 0)
            case Fill(bits=bits):
                chosen[:, n] = add(np.full((1, lanes), bits - (1 << 32) if bits >> 31 else bits, np.int32))
            case Pool(words=words):
                chosen[:, n] = add(np.resize(np.array(words, np.uint32), (1, lanes)).view(np.int32))
            case Carry(value=value):
                chosen[:, n] = add(carried[value]) + np.arange(len(first))
    every = np.concatenate(items) if items else np.zeros((0, lanes), np.int32)
    return Filling(np.array([slot for slot, _ in data], np.int64), every, chosen)


def run_chain(
    step: Chain, known: Mapping[str, Array], names: Mapping[str, Value], counts: Counts, operands: tuple[Array, ...]
) -> dict[str, Array]:
    """The outputs of a chain of layers whose operands are int8, by name."""
    layout, edge = step.layout, step.layout.edge
    filled = data_of(step, known, names)
    room = Room.of(step, (unit.program for unit in step.units.values()))
    left, *rights = operands
    cuts = [layer.matrix for layer in step.layers]
    vectors = vectors_of(cuts[0], left).reshape(-1, edge)
    weights = [weights_of(cut, right).reshape(-1, edge * edge) for cut, right in zip(cuts, rights)]
    begins = np.cumsum([0, *(len(each) for each in weights)])
    for key, first in layout.groups().items():
        unit = step.units[key]
        keys = [(key[0], cut.wide) for cut in cuts]
        amem = _filling(unit.amem, vectors, cuts[0].vectors(keys[0], list(unit.amem.values())))
        chosen = [begins[n] + cuts[n].weights(keys[n], [(c, k)]) for n, c, k in unit.wmem.values()]
        wmem = Filling(np.array(list(unit.wmem), np.int64), np.concatenate(weights), np.concatenate(chosen, 1))
        slots = [slot for slot, _, _ in unit.vectors]
        done = _run(step, Fed(unit.program, {}, {}), first, filled, room, {}, counts, amem, wmem, slots)
        for n, (_, tile, row) in enumerate(unit.vectors):
            room.results[0][first + tile, 0, row * edge : (row + 1) * edge] = done.amem[:, n]
    return outputs_of(step, room)


class _Done(NamedTuple):
    """What a batch gave, see units.core.Batch."""

    vmem: Words
    amem: Array
    mxu_results: Words
    cycles: int
    instructions: int


def _executed(name: str, machine: Machine, sets: Sets) -> _Done:
    other = executor()
    if other is None:
        done = execute_sets(machine, sets)
        keep_sets(name, machine, sets, done)
        steps = int(done.counters["instructions"].sum())
        return _Done(done.vmem, done.amem, done.mxu_results, int(done.cycles.sum()), steps)
    runs = [other(machine, sets.image(n)) for n in range(sets.count)]
    lanes = machine.params.rows * machine.params.columns
    vmem = np.array([[tile.reshape(-1) for tile in run.vmem] for run in runs], np.int32).reshape(sets.count, -1, lanes)
    sums = np.array([run.mxu_result if sets.mxu_result else [] for run in runs], np.int32)
    amem = np.array([run.amem for run in runs], np.int8).reshape(sets.count, -1, machine.params.rows)
    return _Done(vmem, amem, sums, sum(r.cycles for r in runs), sum(r.counters["instructions"] for r in runs))


def _run(
    stage: Product | Chain, fed: Fed, first: Array, filled: Sequence[Words], room: Room, carried: dict[int, Words],
    counts: Counts, amem: Filling, wmem: Filling, vectors: Sequence[int] = (),
) -> _Done:  # fmt: skip
    program, count = fed.program, len(first)
    vmem = _tiles(program.data, first, filled, carried, stage.layout.lanes)
    outputs = [slot for slot, _ in program.outputs]
    sets = Sets(count, program.rows, vmem, wmem, amem, outputs, vectors, fed.mxu_result)
    done = _executed(", ".join(s.name for s in stage.statements), stage.machine, sets)
    counts.carried += count * sum(isinstance(source, Carry) for _, source in program.data)
    for n, (_, place) in enumerate(program.outputs):
        if isinstance(place, Carry):
            carried[place.value] = done.vmem[:, n]
        else:
            room.results[place.number][first + place.tile, place.step] = done.vmem[:, n]
    if fed.mxu_result:
        room.results[0][first, 0, : done.mxu_results.shape[1]] = done.mxu_results
    own = sum(f.items.itemsize * f.items.shape[1] * len(f.slots) for f in (vmem, wmem, amem))
    moved = own + done.vmem[0].nbytes + done.amem[0].nbytes + done.mxu_results[0].nbytes
    taken = len(outputs) + len(vectors) + fed.mxu_result
    slots = sum(len(f.slots) for f in (vmem, wmem, amem))
    records = count * sets.record_count()
    counts.add(Counts(count, done.cycles, done.instructions, records, count * slots, count * taken, 0, count * moved))
    return done
