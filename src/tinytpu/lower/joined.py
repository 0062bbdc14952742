"""Several stages in one program: rows whose values stay in registers, from a product's tiles on where there is one.

Decides how points and terms lie in lanes, how many tiles of points a program computes, and which way takes the fewest
cycles. Terms lie as a fold wants them: a fold leaves its result in every lane of its point, and a single term reaches
all of them by one move (datasheet 3, XLU). It must not know how an operation is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np

from kohakuaccel.graph import Expr, Read, Statement, Value
from kohakuaccel.graph.points import Array
from kohakuaccel.machine import Machine
from tinytpu.lower.array.blocks import Matrix
from tinytpu.lower.array.dispatches import Dispatches
from tinytpu.lower.array.product import Product, as_product, place_of
from tinytpu.lower.body import Body, Plans, across, fold, settled
from tinytpu.lower.data import Data, Layout, Words
from tinytpu.lower.errors import NotLowered
from tinytpu.lower.numbers import Tile, halves
from tinytpu.lower.program.allocate import Program, allocate, least
from tinytpu.lower.program.code import Code, Result
from tinytpu.lower.program.fed import Fed
from tinytpu.lower.program.order import fastest
from tinytpu.lower.rows import Apart, Row, Rows, as_rows, source
from tinytpu.lower.stage import cut, most_that_fit


@dataclass(frozen=True)
class Part:
    """Programs for `tiles` tiles of points from `first` on, one after the other; what an earlier one leaves for a later
    one is a Carry. operands: of the product's program."""

    first: int
    tiles: int
    programs: tuple[Program, ...]
    operands: Fed | None = None


@dataclass(frozen=True)
class Joined:
    """statements: over one space of points, in order. outputs: which of them leave, by number of the Result. product:
    the first one, where it is computed on the array. parts: the programs, in order; cycles: of all of them."""

    machine: Machine
    statements: tuple[Statement, ...]
    outputs: tuple[str, ...]
    rows: Rows
    depth: int
    data: tuple[Data, ...]
    parts: tuple[Part, ...]
    cycles: int
    product: Product | None = None
    bounds: tuple[tuple[int, str], ...] = ()
    """Data plans whose values are checked for a function of the vector unit."""

    @property
    def depths(self) -> dict[str, int]:
        """By statement that folds: how many lanes hold terms of one element."""
        return _lying(self.rows, self.depth)

    @property
    def programs(self) -> int:
        return sum(len(part.programs) for part in self.parts)

    def layout(self, terms: int) -> Layout:
        """How rows of so many terms lie."""
        return layout_of(self.machine, self.rows, self.depth, terms)

    def empty(self) -> list[Words]:
        """A place for every output: int32[tiles, steps, lanes]."""
        sizes = [self.layout(prod(row.vector)) for row in self._left]
        return [np.zeros((size.tiles, size.steps, size.lanes), np.int32) for size in sizes]

    def gathered(self, tiles: Sequence[Words]) -> Iterator[tuple[Statement, Words]]:
        """The outputs' words in their own shapes."""
        points = tuple(r.extent for r in self.rows.points)
        for row, held in zip(self._left, tiles):
            size = self.layout(prod(row.vector))
            flat = held.reshape(size.tiles, size.steps, size.held, self.depth).transpose(0, 2, 1, 3)
            flat = flat.reshape(size.tiles * size.held, -1)[: size.points, : size.folds]
            order = (*row.lead, *row.rest)
            shape = row.statement.shape
            units = [a for a in range(len(shape)) if a not in order]
            whole = flat.reshape((*points, *row.vector, *(1 for _ in units)))
            yield row.statement, whole.transpose(np.argsort([*order, *units]))

    @cached_property
    def _left(self) -> list[Row]:
        by_name = {row.statement.name: row for row in self.rows}
        return [by_name[name] for name in self.outputs]

    def operands(self, known: Mapping[str, Array], names: Mapping[str, Value]) -> tuple[Array, Array]:
        """What the product multiplies, see Product."""
        assert self.product is not None
        return self.product.operands(known, names)

    def text(self) -> str:
        names = ", ".join(s.name for s in self.statements)
        held = self.machine.params.rows * self.machine.params.columns // self.depth
        first = "" if self.product is None else "a product on the array, "
        lines = [f"{names}: {self.programs} programs, {self.cycles} cycles; joined, {first}{held} points a tile"]
        kinds: dict[tuple[int, int], list[Part]] = {}
        for part in self.parts:
            kinds.setdefault((part.tiles, id(part.programs)), []).append(part)
        for (tiles, _), alike in kinds.items():
            lines += [
                f"  {len(alike)} x {tiles} tiles: {len(program.rows)} instructions, {len(program.data)} tiles in, "
                f"{len(program.outputs)} out, {program.spills} spilled"
                for program in alike[0].programs
            ]
        return "\n".join(lines)


def layout_of(machine: Machine, rows: Rows, depth: int, terms: int) -> Layout:
    """How rows of so many terms lie in lanes."""
    lanes = machine.params.rows * machine.params.columns
    return Layout(lanes, rows.count, terms, depth, -(-terms // depth) * depth)


@dataclass
class _RowBody(Body):
    """A row's body for one tile. made: the tiles of rows before it, one a step."""

    rows: Rows = field(kw_only=True)
    row: Row = field(kw_only=True)
    depth: int = field(kw_only=True)
    lanes: int = field(kw_only=True)
    made: Mapping[str, tuple[Row, list[Tile]]] = field(kw_only=True)

    def _read(self, read: Read, step: int, pad: Tile | None) -> Tile:
        if read.value not in self.made:
            return super()._read(read, step, pad)
        row, tiles = self.made[read.value]
        term = source(read, row, self.rows.points, self.row.terms)
        if term is None:
            return tiles[step if row.vector else 0]
        tile = tiles[term // self.depth]
        if self.depth == 1:
            return tile
        # A point is a row of the tile, or all of it.
        form = "BROADCAST_COL" if self.depth < self.lanes else "BROADCAST_SCALAR"
        return tile._replace(value=self.code.emit(form, {"src": tile.value}, {"src2": term % self.depth}))


@dataclass
class _Builder:
    """Codes of rows at a depth."""

    machine: Machine
    rows: Rows
    outputs: Sequence[str]
    names: Mapping[str, Value]
    depth: int
    plans: Plans
    spans: dict[Expr, tuple[int, int]] = field(default_factory=dict[Expr, tuple[int, int]])

    def code(self, tiles: int) -> Code:
        code = Code()
        for tile in range(tiles):
            self.tile(code, tile, {})
        return code

    def tile(self, code: Code, tile: int, made: dict[str, tuple[Row, list[Tile]]]) -> None:
        """The rows of a tile of points. made: those that are known before."""
        checks: list[int] = []
        for row in self.rows:
            name = row.statement.name
            if name not in made:
                bodies = [self._body(code, tile, row, expr, made, checks) for expr in row.bodies]
                made[name] = row, list(self._row(code, row, bodies, checks))
                if halves.is_half(row.statement.dtype) or any(t.top is not None for t in made[name][1]):
                    raise Apart("pairs of words, and reals of 16 bits, are a stage of their own")
        if checks:
            raise Apart("a function that checks its argument is a stage of its own")
        for index, name in enumerate(self.outputs):
            for step, value in enumerate(made[name][1]):
                code.store(value.value, Result(index, tile, step))

    def _body(
        self, code: Code, tile: int, row: Row, expr: Expr, made: Mapping[str, tuple[Row, list[Tile]]], checks: list[int]
    ) -> _RowBody:
        statement = row.canonical(self.rows.points, expr)
        lanes = self.machine.params.rows * self.machine.params.columns
        return _RowBody(
            code, self.plans, statement, self.names, {}, tile, checks, self.spans,
            rows=self.rows, row=row, depth=self.depth, made=made, lanes=lanes,
        )  # fmt: skip

    def _row(self, code: Code, row: Row, bodies: Sequence[_RowBody], checks: list[int]) -> Iterator[Tile]:
        size = layout_of(self.machine, self.rows, self.depth, prod(row.terms))
        if row.folded:
            (body,) = bodies
            total = body.folded(size.steps, size.full)
            if self.depth > 1:
                total = across(code, body.statement.reduction.op, total, self.depth, size.held == 1)  # pyright: ignore[reportOptionalMemberAccess] - a row's body has one
            yield settled(code, total, row.statement)
            return
        for step in range(size.steps):
            total: Tile | None = None
            for body in bodies:
                term = body.value(body.statement.body, step)
                op = body.statement.reduction.op  # pyright: ignore[reportOptionalMemberAccess] - a row's body has one
                total = term if total is None else fold(code, op, total, term, checks)
            assert total is not None
            yield settled(code, total, row.statement) if row.statement.reduction else total


def join(
    statements: Sequence[Statement],
    outputs: Sequence[str],
    names: Mapping[str, Value],
    machine: Machine,
    budget: int,
    *,
    product: bool = False,
    unit: bool = False,
) -> Joined | None:
    """The statements in the fewest cycles as programs that hold all of them; None where they are no rows of one space,
    do not fit, or take `budget` cycles or more. product: whether the first is one for the array. unit: whether
    functions are the vector unit's own."""
    p = machine.params
    best: Joined | None = None
    try:
        rows = as_rows(statements)
        if product:
            found = _multiplied(rows, outputs, names, machine, unit)
            best = min(found, key=lambda f: f.cycles, default=None)
            return best if best is not None and best.cycles < budget else None
        for depth in (p.rows * p.columns, p.columns, 1):
            plain = _plain(rows, outputs, names, machine, depth, unit, budget)
            if plain is not None and plain.cycles < budget:
                best, budget = plain, plain.cycles
    except Apart:
        return None
    return best


def _plain(
    rows: Rows, outputs: Sequence[str], names: Mapping[str, Value], machine: Machine, depth: int, unit: bool,
    budget: int,
) -> Joined | None:  # fmt: skip
    """The rows without a product; None where that is known to take `budget` cycles or more."""
    widest = max(layout_of(machine, rows, depth, prod(row.terms)).steps for row in rows)
    if widest > machine.params.program_words:
        return None
    builder = _Builder(machine, rows, outputs, names, depth, Plans(chunked=False, unit=unit))
    tiles = layout_of(machine, rows, depth, 1).tiles
    one = builder.code(1)
    if least(one, machine, tiles) >= budget:
        return None
    made = most_that_fit(lambda count: allocate(one if count == 1 else builder.code(count), machine), tiles)
    if made is None:
        programs = _cut(one, machine)
        fitting = () if programs is None else ((1, tiles, programs),)
    else:
        fitting = tuple((size, count, (program,)) for size, count, program in made)
    parts: list[Part] = []
    first = 0
    for size, count, programs in fitting:
        for _ in range(count):
            parts.append(Part(first, size, programs))
            first += size
    if not parts:
        return None
    cycles = sum(program.cycles for part in parts for program in part.programs)
    statements = tuple(row.statement for row in rows)
    data = tuple(builder.plans.found)
    return Joined(
        machine, statements, tuple(outputs), rows, depth, data, tuple(parts), cycles, None, tuple(builder.plans.bounded)
    )


def _lying(rows: Rows, depth: int) -> dict[str, int]:
    """By statement that folds: how many lanes hold terms of one element."""
    return {row.statement.name: depth if row.folded else 1 for row in rows if row.statement.reduction}


def _cut(code: Code, machine: Machine) -> tuple[Program, ...] | None:
    """A tile as several programs; None where a sum is in a bucket, which no program leaves to the next."""
    lines = code.live()
    if len(lines) > MOST * machine.params.program_words or any(line.form.startswith("PSUM") for line in lines):
        return None
    try:
        return tuple(cut(code, machine))
    except NotLowered:
        return None


MOST = 8
"""Programs, by their words, that one tile may be cut into."""


def _multiplied(
    rows: Rows, outputs: Sequence[str], names: Mapping[str, Value], machine: Machine, unit: bool
) -> list[Joined]:
    """The rows from a product on: a tile row of it are points, a tile's columns are terms."""
    p = machine.params
    first = next(iter(rows))
    found = as_product(first.statement, names)
    ranges = first.statement.ranges
    if found is None or found.batch or found.m != tuple(ranges[a] for a in first.lead):
        return []
    if found.n != tuple(ranges[a] for a in first.rest):
        return []
    place = place_of(first.statement, found)
    depth = prod(r.extent for r in found.k)
    _, m, n = place.shape
    ktiles, wide, tall = (-(-size // p.rows) for size in (depth, n, m))
    made: list[Joined] = []
    for stationary in (False, True):
        if not stationary and p.psum_buckets < 2:
            continue
        for height in (1, 2, 4):
            vectors = (min(p.rows, depth) if stationary else min(p.rows, m)) * ktiles * height
            if vectors > p.amem_vectors or wide * ktiles > p.wmem_tiles or height > tall:
                break
            matrix = Matrix(p.rows, place, depth, height, wide, ktiles, stationary)
            product = Product(machine, (first.statement,), (), found, matrix, (), False, {}, 0)
            joined = _blocks(rows, outputs, names, machine, product, unit)
            if joined is None:
                break
            made.append(joined)
    return made


def _blocks(
    rows: Rows, outputs: Sequence[str], names: Mapping[str, Value], machine: Machine, product: Product, unit: bool
) -> Joined | None:
    matrix = product.layout
    assert isinstance(matrix, Matrix)
    first = next(iter(rows))
    low, high = int(first.statement.dtype.lowest), int(first.statement.dtype.max)
    builder = _Builder(machine, rows, outputs, names, matrix.edge, Plans(chunked=False, unit=unit))

    def program(height: int, width: int) -> tuple[Fed, int] | None:
        dispatches = Dispatches(matrix, height, width, 0, matrix.ktiles)
        tiles: list[Tile] = []

        def finish(code: Code, value: int, tile: int) -> None:
            if not first.vector:  # a column of numbers is wanted in every lane of its row
                value = code.emit("BROADCAST_COL", {"src": value}, {"src2": 0})
            tiles.append(Tile(value, first.statement.dtype, low, high))
            if len(tiles) % width == 0:
                row = tile // width
                builder.tile(code, row, {first.statement.name: (first, tiles[row * width :])})

        code = dispatches.code(finish)
        amem, wmem = ({slot: at for at, slot in slots.items()} for slots in (dispatches.amem, dispatches.wmem))
        return fastest(code, amem, wmem, machine)

    fed: dict[tuple[int, int], tuple[Fed, tuple[Program, ...]]] = {}
    cycles = 0
    for shape, count in matrix.shapes().items():
        made = program(*shape)
        if made is None:
            return None
        fed[shape] = made[0], (made[0].program,)
        cycles += count * made[1]
    parts: list[Part] = []
    for block in matrix.blocks:
        operands, programs = fed[block.height, block.width]
        parts.append(Part(block.top, -(-block.height // matrix.edge), programs, operands))
    statements = tuple(row.statement for row in rows)
    data = tuple(builder.plans.found)
    return Joined(
        machine,
        statements,
        tuple(outputs),
        rows,
        matrix.edge,
        data,
        tuple(parts),
        cycles,
        product,
        tuple(builder.plans.bounded),
    )
