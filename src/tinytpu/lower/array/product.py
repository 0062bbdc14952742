"""A product of int8 matrices as a stage: what is multiplied, how it is cut, what follows on every tile.

Decides whether a statement is a product that the array can compute, and the cut with the fewest cycles, which the
machine model counts. Whether operands are int8 is known when there are numbers, unless their format says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph import BOOL, WORDS, Cast, Expr, Range, Read, Statement, Value
from kohakuaccel.graph.native import Box
from kohakuaccel.graph.points import Array
from kohakuaccel.graph.structure import Contraction, as_contraction
from kohakuaccel.graph.verify import format_of
from kohakuaccel.machine import Machine
from kohakuaccel.numerics import INT32
from tinytpu.lower.array.candidates import cuts
from tinytpu.lower.array.cut import Cut, Key
from tinytpu.lower.array.epilogue import fuse
from tinytpu.lower.array.finish import HIGH, LOW, Finish
from tinytpu.lower.body import Plans
from tinytpu.lower.data import Data
from tinytpu.lower.program.allocate import allocate
from tinytpu.lower.program.fed import Fed
from tinytpu.lower.reach import Reach


@dataclass(frozen=True)
class Product:
    """statements: the product, then what follows it at each element. units: the programs of a block, by its key; a
    later one adds what the earlier left."""

    machine: Machine
    statements: tuple[Statement, ...]
    outputs: tuple[str, ...]
    found: Contraction
    layout: Cut
    data: tuple[Data, ...]
    checked: bool
    units: Mapping[Key, tuple[Fed, ...]]
    cycles: int
    bounds: tuple[tuple[int, str], ...] = ()
    """Data plans whose values are checked for a function of the vector unit."""

    @property
    def programs(self) -> int:
        return sum(len(first) * len(self.units[key]) for key, first in self.layout.groups().items())

    def text(self) -> str:
        names = ", ".join(s.name for s in self.statements)
        m = self.layout
        batch, rows, columns = m.place.shape
        lines = [
            f"{names}: {self.programs} programs, {self.cycles} cycles; product {batch} x {rows}x{m.depth}x{columns} on "
            f"the array, {m.text()}, {m.terms} of {m.ktiles} K-tiles a program"
        ]
        for key, first in m.groups().items():
            lines += [
                f"  {len(first)} x {m.size(key)}: {len(fed.program.rows)} instructions, "
                f"{len(fed.program.data)} tiles, {len(fed.amem)} vectors, {len(fed.wmem)} weight tiles in, "
                f"{len(fed.program.outputs) + fed.mxu_result} out, {fed.program.spills} spilled"
                for fed in self.units[key]
            ]
        return "\n".join(lines)

    def operands(self, known: Mapping[str, Array], names: Mapping[str, Value]) -> tuple[Array, Array]:
        """int64[batch, m, k] and int64[batch, k, n]."""
        f = self.found
        left = filled(f.left, (f.batch, f.m, f.k), known, names)
        return left, filled(f.right, (f.batch, f.k, f.n), known, names)


def filled(
    expr: Expr, groups: Sequence[tuple[Range, ...]], known: Mapping[str, Array], names: Mapping[str, Value]
) -> Array:
    """An expression's integers over groups of ranges, an axis each: int64."""
    ranges = tuple(r for group in groups for r in group)
    values = np.asarray(Box(ranges, known, names).value(expr)).astype(np.int64)
    whole = np.broadcast_to(values, tuple(r.extent for r in ranges))
    return whole.reshape([prod(r.extent for r in group) for group in groups])


def beyond(operands: tuple[Array, ...], where: str) -> Refusal | None:
    """Why operands (activations, then weights) cannot be multiplied on the array, or None."""
    for number, values in enumerate(operands):
        name = "weight" if number else "activation"
        low, high = int(values.min()), int(values.max())
        if low < LOW or high > HIGH:
            return Refusal(
                f"an {name} of the array is an int8" if name == "activation" else f"a {name} of the array is an int8",
                where=where,
                got=low if low < LOW else high,
                limit=f"{LOW}..{HIGH}",
                hint="scale it down, or leave the product to the vector unit",
            )
    return None


_SUMS = (WORDS["S32"], WORDS["U32"], INT32)


def is_read(expr: Expr, names: Mapping[str, Value]) -> bool:
    """Whether an operand is read as it is: through casts that change no value of 32 bits."""
    if isinstance(expr, Read):
        dtype = names[expr.value].dtype
        return dtype == BOOL or (getattr(dtype, "bits", 64) <= 32 and dtype.name[0] in "SUI")
    if isinstance(expr, Cast):
        inner = format_of(expr.arg, names)
        return inner is not None and expr.dtype.is_exact_from(inner) and is_read(expr.arg, names)
    return False


def as_product(statement: Statement, names: Mapping[str, Value]) -> Contraction | None:
    """The statement as a product for the array, or None: integers read as they are, summed in 32 bits."""
    found = as_contraction(statement)
    if found is None or found.broadcast or statement.dtype not in _SUMS or not (found.m or found.n):
        return None
    if not (is_read(found.left, names) and is_read(found.right, names)):
        return None
    depth = prod(r.extent for r in found.k)
    return found if depth * LOW * LOW < 1 << 31 else None


def certain(found: Contraction, names: Mapping[str, Value]) -> bool:
    """Whether the operands cannot be anything but int8."""
    reach = Reach(names)
    spans = [reach.of(expr) for expr in (found.left, found.right)]
    return all(low >= LOW and high <= HIGH for low, high in spans)


def place_of(statement: Statement, found: Contraction) -> Array:
    order = (*found.batch, *found.m, *found.n)
    flat = np.arange(prod(statement.shape), dtype=np.int64).reshape(statement.shape)
    groups = (found.batch, found.m, found.n)
    return flat.transpose([statement.ranges.index(r) for r in order]).reshape(
        [prod(r.extent for r in group) for group in groups]
    )


def choose_product(
    statements: Sequence[Statement], outputs: Sequence[str], names: Mapping[str, Value], machine: Machine, *,
    unit: bool = False,
) -> Product | None:  # fmt: skip
    """The cut with the fewest cycles; None where the first statement is no product or what follows does not fit. unit:
    whether functions are the vector unit's own."""
    found = as_product(statements[0], names)
    if found is None or any(s.reduction for s in statements[1:]):
        return None
    place = place_of(statements[0], found)
    depth = prod(r.extent for r in found.k)
    added = Finish(statements, outputs, names, Plans(chunked=False)).added is not None
    best: Product | None = None
    for layout in cuts(place, depth, machine, added=added, plain=len(statements) == 1):
        made = _made(statements, outputs, names, machine, found, layout, unit)
        if made is not None and (best is None or made.cycles < best.cycles):
            best = made
    return best


def _made(
    statements: Sequence[Statement], outputs: Sequence[str], names: Mapping[str, Value], machine: Machine,
    found: Contraction, layout: Cut, unit: bool,
) -> Product | None:  # fmt: skip
    plans = Plans(chunked=False, unit=unit)
    finish = Finish(statements, outputs, names, plans)
    begin = finish.begin if layout.preload and finish.added is not None and layout.terms == layout.ktiles else None
    units: dict[Key, tuple[Fed, ...]] = {}
    cycles = 0
    for key, first in layout.groups().items():
        programs: list[Fed] = []
        for start, stop in layout.chunk():
            made = layout.dispatches(key, start, stop)
            code = made.code(finish, begin)
            fuse(code, lambda value, code=code: finish.by_column(code, value, found.n))
            if made.mxu_result:
                code.lines[:] = [line for line in code.lines if line.form not in ("STORE", "LOAD_MXU_RESULT")]
            program = allocate(code, machine)
            if program is None:
                return None
            amem, wmem = ({slot: at for at, slot in slots.items()} for slots in (made.amem, made.wmem))
            fed = Fed(program, amem, wmem, made.mxu_result)
            programs.append(fed)
            cycles += len(first) * fed.cycles(machine)
        units[key] = tuple(programs)
    if finish.checked:
        return None  # a function that checks its argument is a stage of its own
    return Product(
        machine, tuple(statements), tuple(outputs), found, layout, tuple(plans.found), False, units, cycles,
        tuple(plans.bounded),
    )  # fmt: skip


def feeds(stage: Product, operands: tuple[Array, Array]) -> tuple[Array, Array]:
    """Every vector and weight tile that a program may be filled with, see `vectors_of` and `weights_of`."""
    return vectors_of(stage.layout, operands[0]), weights_of(stage.layout, operands[1])


def vectors_of(m: Cut, left: Array) -> Array:
    """int8[batch, tile row, vector, edge] of activations [batch, m, k]; zeros where matrices end."""
    edge = m.edge
    batch, rows, depth = left.shape
    tall, deep = -(-rows // edge), m.ktiles
    a = np.zeros((batch, tall * edge, deep * edge), np.int8)
    a[:, :rows, :depth] = left
    tiles = a.reshape(batch, tall, edge, deep, edge)
    order = (0, 1, 3, 4, 2) if m.stationary else (0, 1, 3, 2, 4)
    return np.ascontiguousarray(tiles.transpose(order)).reshape(batch, tall, deep * edge, edge)


def weights_of(m: Cut, right: Array) -> Array:
    """int8[batch, tile column, K-tile, edge * edge] of weights [batch, k, n]; zeros where matrices end."""
    edge = m.edge
    batch, depth, columns = right.shape
    wide, deep = -(-columns // edge), m.ktiles
    w = np.zeros((batch, deep * edge, wide * edge), np.int8)
    w[:, :depth, :columns] = right
    if m.outer:
        w[:, 1:] = w[:, :1]  # every row of the array multiplies with the same weights
    weights = w.reshape(batch, deep, edge, wide, edge).transpose(0, 3, 1, 2, 4)
    return np.ascontiguousarray(weights).reshape(batch, wide, deep, edge * edge)
