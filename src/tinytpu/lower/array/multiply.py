"""A product on the machine: all blocks that have the same program in one compiled call.

Decides what of its operands stands in which slot of which run. It must not know how programs came about.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kohakuaccel.graph import Value
from kohakuaccel.graph.points import Array
from tinytpu.lower.array.chain import Chain
from tinytpu.lower.array.product import Product, feeds, vectors_of, weights_of
from tinytpu.lower.data import Words
from tinytpu.lower.feed import Counts, Work, run_program
from tinytpu.lower.run import Room, data_of, outputs_of, title
from tinytpu.units.given import Filling


def run_product(
    stage: Product, known: Mapping[str, Array], names: Mapping[str, Value], counts: Counts,
    operands: tuple[Array, Array],
) -> dict[str, Array]:  # fmt: skip
    """The outputs of a product of operands that are int8, by name."""
    layout = stage.layout
    room = Room.of(stage, (fed.program for unit in stage.units.values() for fed in unit))
    work = Work(title(stage), stage.machine, data_of(stage, known, names), room.results, counts)
    vectors, weights = (each.reshape(-1, each.shape[-1]) for each in feeds(stage, operands))
    for key, first in layout.groups().items():
        carried: dict[int, Words] = {}
        for fed in stage.units[key]:
            amem = _filling(fed.amem, vectors, layout.vectors(key, list(fed.amem.values())))
            wmem = _filling(fed.wmem, weights, layout.weights(key, list(fed.wmem.values())))
            done = run_program(work, fed.program, first, carried, wmem, amem, mxu_result=fed.mxu_result)
            if fed.mxu_result:
                room.results[0][first, 0, : done.mxu_results.shape[1]] = done.mxu_results
    return outputs_of(stage, room)


def _filling(slots: Mapping[int, tuple[int, int]], items: Array, chosen: Array) -> Filling:
    return Filling(np.array(list(slots), np.int64), items, np.ascontiguousarray(chosen))


def run_chain(
    step: Chain, known: Mapping[str, Array], names: Mapping[str, Value], counts: Counts, operands: tuple[Array, ...]
) -> dict[str, Array]:
    """The outputs of a chain of layers whose operands are int8, by name."""
    layout, edge = step.layout, step.layout.edge
    room = Room.of(step, (unit.program for unit in step.units.values()))
    work = Work(title(step), step.machine, data_of(step, known, names), room.results, counts)
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
        done = run_program(work, unit.program, first, {}, wmem, amem, vectors=slots)
        for n, (_, tile, row) in enumerate(unit.vectors):
            room.results[0][first + tile, 0, row * edge : (row + 1) * edge] = done.amem[:, n]
    return outputs_of(step, room)
