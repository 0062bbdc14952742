"""A stage: statements over one output space as one or several programs, run again and again over its tiles.

Decides how lanes are laid out, how many tiles a program computes, and where a program that is too large is cut; what
lives across a cut goes through the host. It must not know how an operation is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from kohakuaccel.graph import Statement, Value
from kohakuaccel.machine import Machine
from tinytpu.isa.codes import VPU
from tinytpu.lower import bytewise
from tinytpu.lower.body import Body, Plans, across, leave, settled
from tinytpu.lower.data import Data, Layout
from tinytpu.lower.errors import NotLowered
from tinytpu.lower.numbers import Tile
from tinytpu.lower.numbers.base import check_format
from tinytpu.lower.program.allocate import Program, allocate
from tinytpu.lower.program.code import Carry, Code, Line, Result

MOST = 1 << 27
"""Lanes that the host fills or takes for one stage, of any one value."""


@dataclass(frozen=True)
class Unit:
    """Programs that compute `tiles` tiles in order; what an earlier one leaves for a later one is a Carry."""

    tiles: int
    programs: tuple[Program, ...]

    @property
    def cycles(self) -> int:
        return sum(p.cycles for p in self.programs)


@dataclass(frozen=True)
class Stage:
    """statements: over one output space, in order. outputs: which of them leave the stage, by number of the Result.
    checked: whether a last output says where a value is beyond what is right. units: the whole ones, then the rest."""

    machine: Machine
    statements: tuple[Statement, ...]
    outputs: tuple[str, ...]
    layout: Layout
    data: tuple[Data, ...]
    checked: bool
    units: tuple[Unit, ...]
    counts: tuple[int, ...]
    """How often each of `units` runs."""
    bounds: tuple[tuple[int, str], ...] = ()
    """Data plans whose values are checked for a function of the vector unit."""

    def runs(self) -> Iterator[tuple[int, Unit]]:
        """Every unit with the first tile it computes."""
        tile = 0
        for unit, count in zip(self.units, self.counts):
            for _ in range(count):
                yield tile, unit
                tile += unit.tiles

    @cached_property
    def cycles(self) -> int:
        return sum(unit.cycles * count for unit, count in zip(self.units, self.counts))

    @property
    def programs(self) -> int:
        return sum(len(unit.programs) * count for unit, count in zip(self.units, self.counts))

    def text(self) -> str:
        names = ", ".join(s.name for s in self.statements)
        size = self.layout
        lines = [
            f"{names}: {self.programs} programs, {self.cycles} cycles; {size.tiles} tiles of {size.held} elements"
            + (", bytes" if size.packed > 1 else "")
            + (f" x {size.depth} terms, {size.steps} steps" if size.folds > 1 else "")
            + (f", {size.chunks} parts" if size.chunks > 1 else "")
        ]
        for unit, count in zip(self.units, self.counts):
            lines += [
                f"  {count} x {unit.tiles} tiles: {len(program.rows)} instructions, {len(program.data)} tiles in, "
                f"{len(program.outputs)} out, {program.spills} spilled"
                for program in unit.programs
            ]
        return "\n".join(lines)


class _Builder:
    """Codes of a group of statements under a layout."""

    def __init__(
        self,
        statements: Sequence[Statement],
        outputs: Sequence[str],
        names: Mapping[str, Value],
        layout: Layout,
        unit: bool,
        exact: bool = False,
    ) -> None:
        self.statements, self.outputs, self.names, self.layout = statements, outputs, names, layout
        self.plans = Plans(layout.chunks > 1, unit)
        self.checked, self.exact = False, exact
        self.spans = dict[object, tuple[int, int]]()
        self.made, self.sizes = Code(), list[tuple[int, int]]()
        self.programs = dict[int, Program | None]()

    def code(self, tiles: int) -> Code:
        """The code of tiles from the first on; each is made once."""
        while len(self.sizes) < tiles:
            self._tile(self.made, len(self.sizes))
            self.sizes.append(self.made.size)
        return self.made.until(*self.sizes[tiles - 1])

    def allocated(self, tiles: int, machine: Machine) -> Program | None:
        """Their program, or None where it does not fit."""
        if tiles not in self.programs:
            self.programs[tiles] = allocate(self.code(tiles), machine)
        return self.programs[tiles]

    def _tile(self, code: Code, tile: int) -> None:
        if self.layout.packed > 1:
            bytewise.tile_of(code, self.plans, self.statements, self.outputs, self.names, tile)
            return
        known: dict[str, Tile] = {}
        checks: list[int] | None = None if self.exact else []
        for statement in self.statements:
            check_format(statement.dtype, f"statement {statement.name}")
            body = Body(code, self.plans, statement, self.names, known, tile, checks, self.spans)  # pyright: ignore[reportArgumentType] - spans are kept by expression
            if statement.reduction is None:
                known[statement.name] = body.value(statement.body, 0)
            else:
                total = body.folded(self.layout.steps, self.layout.full)
                if self.layout.depth > 1:
                    total = across(code, statement.reduction.op, total, self.layout.depth, self.layout.held == 1)
                known[statement.name] = settled(code, total, statement)
        for index, name in enumerate(self.outputs):
            leave(code, known[name], index, tile)
        if checks:
            found = checks[0]
            for other in checks[1:]:
                found = code.vpu(VPU.OR, found, other)
            code.store(found, Result(len(self.outputs), tile))
            self.checked = True


def cut(code: Code, machine: Machine) -> list[Program]:
    """A code as several programs, each as long as fits."""
    lines = code.live()
    assert all(line.place or line.dst is not None for line in lines), "an effect's state would be lost at a cut"
    programs: list[Program] = []
    given = dict(code.given)
    while lines:
        last = {value: n for n, line in enumerate(lines) for value in line.reads()}
        low, high, best = 1, min(len(lines), machine.params.program_words), None
        while low <= high:
            middle = (low + high) // 2
            found = allocate(_part(lines, given, middle, last), machine)
            if found is None:
                high = middle - 1
            else:
                low, best = middle + 1, (middle, found)
        if best is None:
            raise NotLowered("one instruction with its operands fits a program", where="stage", got=lines[0].form)
        at, program = best
        programs.append(program)
        made = [line.dst for line in lines[:at] if line.dst is not None]
        given |= {value: Carry(value) for value in made}
        lines = lines[at:]
    return programs


def _part(lines: Sequence[Line], given: Mapping[int, object], at: int, last: Mapping[int, int]) -> Code:
    """The first lines as a code of its own, which leaves what later lines read. last: the last line that reads each
    value."""
    first = lines[:at]
    left = [line.dst for line in first if line.dst is not None and last.get(line.dst, -1) >= at]
    stores = [Line("STORE", None, (("src", value),), (), Carry(value)) for value in left]
    return Code([*first, *stores], dict(given))  # pyright: ignore[reportArgumentType] - sources, as in the code it is a part of


def most_that_fit(
    allocated: Callable[[int], Program | None], tiles: int
) -> tuple[tuple[int, int, Program], ...] | None:
    """Programs for a number of tiles, as (tiles of each, how many, program): as many tiles a program as fit, evenly,
    and a program for what is left. None where not even one tile fits."""
    one = allocated(1)
    if one is None:
        return None
    found = {1: one}
    low, most = 1, tiles
    while low < most:
        middle = min(2 * low, (low + most + 1) // 2)  # programs of far too many tiles take long to refuse
        program = allocated(middle)
        if program is None:
            most = middle - 1
        else:
            found[middle] = program
            low = middle
    made = [(low, tiles // low, found[low])]
    rest = tiles % low
    if rest:
        program = found.get(rest) or allocated(rest)
        assert program is not None, "fewer tiles need no more room"
        made.append((rest, 1, program))
    return tuple(made)


def _units(builder: _Builder, tiles: int, machine: Machine) -> tuple[tuple[Unit, ...], tuple[int, ...]]:
    """Units for a number of tiles; a tile that is too large for a program, with loops too, is cut."""
    made = most_that_fit(lambda count: builder.allocated(count, machine), tiles)
    if made is None:
        long = allocate(builder.code(1), machine, long=True)
        programs = [long] if long is not None else cut(builder.code(1), machine)
        return (Unit(1, tuple(programs)),), (tiles,)
    return tuple(Unit(size, (program,)) for size, _, program in made), tuple(count for _, count, _ in made)


def _stage(
    statements: Sequence[Statement],
    outputs: Sequence[str],
    names: Mapping[str, Value],
    layout: Layout,
    machine: Machine,
    unit: bool,
    exact: bool = False,
) -> Stage:
    size = layout.tiles * layout.steps * layout.lanes
    if size > MOST:
        raise NotLowered(
            "a stage's values fit the host at once", where=f"statement {statements[0].name}", got=size, limit=MOST,
            hint="split the output, or the fold",
        )  # fmt: skip
    builder = _Builder(statements, outputs, names, layout, unit, exact)
    units, counts = _units(builder, layout.tiles, machine)
    return Stage(
        machine,
        tuple(statements),
        tuple(outputs),
        layout,
        tuple(builder.plans.found),
        builder.checked,
        units,
        counts,
        tuple(builder.plans.bounded),
    )


def exactly(stage: Stage, names: Mapping[str, Value]) -> Stage:
    """The same stage for arguments beyond what it is right for: nothing of it is checked."""
    return _stage(stage.statements, stage.outputs, names, stage.layout, stage.machine, unit=False, exact=True)


BYTES = 4
"""Elements of a word, where all are bytes."""


def _in_bytes(
    statements: Sequence[Statement], outputs: Sequence[str], names: Mapping[str, Value], machine: Machine
) -> Stage | None:
    """A stage without folds whose lanes hold four bytes each, or None where values are not bytes."""
    if not bytewise.may_hold(statements, names):
        return None
    lanes = machine.params.rows * machine.params.columns * BYTES
    try:
        layout = Layout(lanes, prod(statements[0].shape), 1, 1, 1, BYTES)
        return _stage(statements, outputs, names, layout, machine, unit=False)
    except bytewise.NotBytes:
        return None


def _fits(
    statements: Sequence[Statement],
    outputs: Sequence[str],
    names: Mapping[str, Value],
    layout: Layout,
    machine: Machine,
    unit: bool,
) -> int | None:
    """Cycles of a tile where it fits one program, else None."""
    if layout.steps > machine.params.program_words:
        return None
    found = allocate(_Builder(statements, outputs, names, layout, unit).code(1), machine)
    return None if found is None else found.cycles


def choose(
    statements: Sequence[Statement],
    outputs: Sequence[str],
    names: Mapping[str, Value],
    machine: Machine,
    lying: int | None = None,
    *,
    unit: bool = False,
) -> Stage | None:
    """The stage with the fewest cycles by its tiles; None where a fold does not fit one program a tile. lying: how many
    lanes hold terms of one element, where that is decided: then a tile may be cut. unit: whether functions are the
    vector unit's own.

    All statements have one output space, and all folds of them as many terms.
    """
    p = machine.params
    lanes = p.rows * p.columns
    folds = max(prod(r.extent for r in s.reduced) for s in statements)
    points = prod(statements[0].shape)
    if all(s.reduction is None for s in statements):
        words = _stage(statements, outputs, names, Layout(lanes, points, 1, 1, 1), machine, unit)
        packed = _in_bytes(statements, outputs, names, machine)
        return packed if packed is not None and packed.cycles < words.cycles else words
    best: tuple[int, Layout] | None = None
    for depth in (1, p.columns, lanes) if lying is None else (lying,):
        layout = Layout(lanes, points, folds, depth, -(-folds // depth) * depth)
        cycles = _fits(statements, outputs, names, layout, machine, unit)
        if cycles is not None and (best is None or cycles * layout.tiles < best[0]):
            best = cycles * layout.tiles, layout
    if best is None and lying is not None:
        layout = Layout(lanes, points, folds, lying, -(-folds // lying) * lying)
        code = _Builder(statements, outputs, names, layout, unit).code(1)
        if not any(line.form.startswith("PSUM") for line in code.lines):  # else a sum of integers, in parts as well
            best = 0, layout
    return None if best is None else _stage(statements, outputs, names, best[1], machine, unit)


def in_parts(statement: Statement, names: Mapping[str, Value], machine: Machine, *, unit: bool = False) -> Stage:
    """A fold too long for one program, in parts: the stage's output is the value of every part, [chunks, points]."""
    p = machine.params
    lanes = p.rows * p.columns
    folds = prod(r.extent for r in statement.reduced)
    points = prod(statement.shape)
    best: tuple[int, Layout] | None = None
    for depth in (1, p.columns, lanes):
        low, high, found = 1, min(p.vmem_tiles, -(-folds // depth)), None
        while low <= high:  # the most steps that fit
            steps = (low + high) // 2
            layout = Layout(lanes, points, folds, depth, steps * depth)
            cycles = _fits((statement,), (statement.name,), names, layout, machine, unit)
            if cycles is None:
                high = steps - 1
            else:
                low, found = steps + 1, (cycles * layout.tiles, layout)
        if found is not None and found[1].chunks < folds and (best is None or found[0] < best[0]):
            best = found
    if best is None:
        raise NotLowered(
            "a term of a fold fits one program", where=f"statement {statement.name}", got=f"{folds} terms",
            hint="compute the term as a value of its own",
        )  # fmt: skip
    return _stage((statement,), (statement.name,), names, best[1], machine, unit)
