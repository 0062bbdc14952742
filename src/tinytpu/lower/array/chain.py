"""Layers of int8 in one program: sums are requantised at the drain into vectors that the next layer reads (op 45).

Decides which products follow each other so, and their instructions: a layer of all rows, then the next one. What the
array's requantisation does not compute (a bias, relu, a factor per channel, deeper sums than a dispatch has) is not
for it. It must not know arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kohakuaccel.graph import WORDS, Cast, Index, Read, Statement, Value
from kohakuaccel.graph.points import Array
from kohakuaccel.graph.requant import as_requantised
from kohakuaccel.graph.structure import Contraction
from kohakuaccel.machine import Machine
from tinytpu.lower.array.blocks import Matrix
from tinytpu.lower.array.cut import Cut, Key
from tinytpu.lower.array.dispatches import Dispatches, Way
from tinytpu.lower.array.finish import HIGH, LOW, Finish
from tinytpu.lower.array.product import as_product, filled, place_of
from tinytpu.lower.body import Plans
from tinytpu.lower.data import Data
from tinytpu.lower.program.allocate import Program, allocate
from tinytpu.lower.program.code import Code
from tinytpu.lower.program.fed import cycles_of


class Scale(NamedTuple):
    """What op 44 latches."""

    mul: int
    shift: int


@dataclass(frozen=True)
class Layer:
    """A product of a chain. scale: of its results; None for a last one whose sums are finished on the vector unit."""

    found: Contraction
    matrix: Matrix
    scale: Scale | None


@dataclass(frozen=True)
class Linked:
    """A program. amem: by slot, tile row and row of the first layer's vectors; wmem: by slot, layer, tile column and
    K-tile. vectors: the slots that are output, each with the tile of its block and the row."""

    program: Program
    amem: Mapping[int, tuple[int, int]]
    wmem: Mapping[int, tuple[int, int, int]]
    vectors: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Chain:
    """statements: of all layers, in order. outputs: of the last one. units: the program of a block, by its key."""

    machine: Machine
    statements: tuple[Statement, ...]
    outputs: tuple[str, ...]
    layers: tuple[Layer, ...]
    data: tuple[Data, ...]
    units: Mapping[Key, Linked]
    cycles: int
    bounds: tuple[tuple[int, str], ...]
    checked: bool = False

    @property
    def layout(self) -> Cut:
        """Of the last layer."""
        return self.layers[-1].matrix

    @property
    def programs(self) -> int:
        return sum(len(first) for first in self.layout.groups().values())

    def text(self) -> str:
        names = ", ".join(s.name for s in self.statements)
        sizes = "x".join(str(n) for n in (self.layers[0].matrix.place.shape[1], self.layers[0].matrix.depth))
        sizes += "".join(f"x{layer.matrix.place.shape[2]}" for layer in self.layers)
        lines = [f"{names}: {self.programs} programs, {self.cycles} cycles; {len(self.layers)} layers {sizes} on the "
                 f"array, requantised on the way"]  # fmt: skip
        for key, first in self.layout.groups().items():
            unit, made = self.units[key], self.units[key].program
            lines.append(
                f"  {len(first)} x {key[0]} rows: {len(made.rows)} instructions, {len(made.data)} tiles, "
                f"{len(unit.amem)} vectors, {len(unit.wmem)} weight tiles in, "
                f"{len(made.outputs) + len(unit.vectors)} out, {made.spills} spilled"
            )
        return "\n".join(lines)

    def operands(self, known: Mapping[str, Array], names: Mapping[str, Value]) -> tuple[Array, ...]:
        """The first layer's activations int64[batch, m, k], then the weights int64[batch, k, n] of each layer."""
        first = self.layers[0].found
        left = filled(first.left, (first.batch, first.m, first.k), known, names)
        rights = [(layer.found.right, layer.found) for layer in self.layers]
        return left, *(filled(expr, (f.batch, f.k, f.n), known, names) for expr, f in rights)


def _scale(group: Sequence[Statement], edge: int, found: Contraction) -> Scale | None:
    """What the array multiplies and shifts by, where a product and its requantisation are a group's statements."""
    if len(group) != 2 or np.prod([r.extent for r in found.k]) > edge or group[1].dtype != WORDS["S8"]:
        return None
    first, second = group
    body = second.body
    made = as_requantised(body.arg) if isinstance(body, Cast) else None
    own = Read(first.name, tuple(Index.of(r) for r in second.ranges))
    if made is None or made.value != own or not isinstance(made.factor, int):
        return None
    if not made.rounded or (made.low, made.high) != (LOW, HIGH) or made.shift > 31:
        return None
    return Scale(made.factor, made.shift)


def _follows(found: Contraction, before: Statement, place: Array, names: Mapping[str, Value]) -> bool:
    """Whether a product's activations are the matrices that the one before leaves, row by row."""
    if [r.value for r in found.left.reads()] != [before.name]:
        return False
    numbers = {before.name: np.arange(place.size, dtype=np.int64).reshape(before.shape)}
    wide = {before.name: Statement(before.name, WORDS["S64"], before.ranges, before.body)}
    expr = found.left
    while isinstance(expr, Cast):
        expr = expr.arg
    if not isinstance(expr, Read) or expr.guards:
        return False
    read = filled(expr, (found.batch, found.m, found.k), numbers, {**names, **wide})
    return read.shape == place.shape and bool((read == place).all())


def chain(
    groups: Sequence[Sequence[Statement]], outputs: Sequence[str], names: Mapping[str, Value], machine: Machine, *,
    unit: bool,
) -> Chain | None:  # fmt: skip
    """Groups as the layers of one chain, or None. outputs: what is wanted of all of them."""
    edge = machine.params.rows
    layers: list[tuple[Contraction, Array, Scale | None]] = []
    for n, group in enumerate(groups):
        found = as_product(group[0], names)
        last = n == len(groups) - 1
        if found is None or (last and any(s.reduction for s in group[1:])):
            return None
        scale = _scale(group, edge, found)
        if scale is None and (not last or n == 0):
            return None
        if n and not _follows(found, groups[n - 1][1], layers[-1][1], names):
            return None
        layers.append((found, place_of(group[0], found), scale))
    *before, last_group = groups
    inner = {s.name for group in before for s in group}
    reads = [r.value for group in groups for s in group for r in s.body.reads() if r.value in inner]
    if inner.intersection(outputs) or len(reads) != len(inner):
        return None  # each value of an earlier layer is read once, by what follows it
    if layers[-1][2] is not None and list(outputs) != [last_group[1].name]:
        return None
    rows = -(-layers[0][1].shape[1] // edge)
    for tall in dict.fromkeys(-(-rows // parts) for parts in range(1, rows + 1)):
        made = _made(groups, outputs, names, machine, layers, tall, unit)
        if made is not None:
            return made
    return None


def _made(
    groups: Sequence[Sequence[Statement]], outputs: Sequence[str], names: Mapping[str, Value], machine: Machine,
    found: Sequence[tuple[Contraction, Array, Scale | None]], tall: int, unit: bool,
) -> Chain | None:  # fmt: skip
    p = machine.params
    edge = p.rows
    layers: list[Layer] = []
    for contraction, place, scale in found:
        depth = int(np.prod([r.extent for r in contraction.k]))
        wide, ktiles = -(-place.shape[2] // edge), -(-depth // edge)
        layers.append(Layer(contraction, Matrix(edge, place, depth, tall, wide, ktiles, stationary=False), scale))
    plans = Plans(chunked=False, unit=unit)
    finish = Finish(groups[-1], outputs, names, plans)
    units: dict[Key, Linked] = {}
    cycles = 0
    for key, first in layers[-1].matrix.groups().items():
        made = _Dispatches(layers, key)
        code = made.all(finish)
        slots = made.slots
        if slots > p.amem_vectors or len(made.weights) > p.wmem_tiles or len(made.vectors) > p.max_outputs:
            return None
        program = allocate(code, machine)
        if program is None:
            return None
        wmem = {slot: at for at, slot in made.weights.items()}
        units[key] = Linked(program, made.inputs, wmem, tuple(made.vectors))
        out = [slot for slot, _, _ in units[key].vectors]
        cycles += len(first) * cycles_of(units[key].program, machine, units[key].amem, units[key].wmem, out)
    if finish.checked:
        return None
    statements = tuple(s for group in groups for s in group)
    data, bounds = tuple(plans.found), tuple(plans.bounded)
    return Chain(machine, statements, tuple(outputs), tuple(layers), data, units, cycles, bounds)


class _Dispatches(Dispatches):
    """A block's code. inputs, weights: what fills slots, see Linked; slots: of AMEM, how many."""

    def __init__(self, layers: Sequence[Layer], key: Key) -> None:
        matrix = layers[-1].matrix
        height, width = key
        assert isinstance(height, int)
        assert isinstance(width, int)
        super().__init__(matrix, height, width, 0, matrix.ktiles)
        self.layers = layers
        self.inputs = {n: divmod(n, self.edge) for n in range(height)}
        self.slots = height
        self.weights: dict[tuple[int, int, int], int] = {}
        self.vectors: list[tuple[int, int, int]] = []
        self.held = [[n] for n in range(height)]
        """Of every row, the slots of its vectors."""

    def weight(self, layer: int, column: int, k: int) -> int:
        return self.weights.setdefault((layer, column, k), len(self.weights))

    def all(self, finish: Finish) -> Code:
        """The whole program."""
        if self.layers[-1].scale is None:
            return self.code(finish)
        code = Code()
        self._requantised(code)
        code.effect("WAIT_MXU", {}, {}, made=False)
        for row, slots in enumerate(self.held):
            for column, slot in enumerate(slots):
                tile, r = divmod(row, self.edge)
                self.vectors.append((slot, tile * self.width + column, r))
        return code

    def _requantised(self, code: Code) -> None:
        """The layers whose results become vectors. A row's last vector takes the place of what it is made of."""
        latched: Scale | None = None
        for number, layer in enumerate(self.layers):
            if layer.scale is None:
                return
            if layer.scale != latched:
                latched = layer.scale
                code.effect("SET_REQUANT_CONFIG", {}, {"mul": latched.mul, "shift": latched.shift}, made=False)
            columns = -(-layer.matrix.place.shape[2] // self.edge)
            for row, slots in enumerate(self.held):
                (source,) = slots
                made = [*range(self.slots, self.slots + columns - 1), source]
                self.slots += columns - 1
                for column, slot in enumerate(made):
                    fields = {"wbase": self.weight(number, column, 0), "abase": source, "tlen": 1, "vmem": slot}
                    code.effect("DISPATCH_MXU_REQUANT", {}, fields, made=False)
                self.held[row] = made

    def ways(self, code: Code) -> Iterator[Way]:
        """The tiles of the last layer."""
        self._requantised(code)
        last = len(self.layers) - 1
        tile = 0
        for top in range(0, self.height, self.edge):
            rows = self.held[top : top + self.edge]
            for column in range(self.width):
                each = [
                    (r, k, self.weight(last, column, k), slots[k])
                    for k in range(self.stop)
                    for r, slots in enumerate(rows)
                ]
                yield self.gathered(code, len(rows), tile % 2, each)
                tile += 1
