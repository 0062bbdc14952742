"""Stages as a kernel of the kernel language: ports, temporaries, grids and stores with numbers for every extent.

Decides tiles (by the library's own cost) and how views become indices. What it writes prints like a kernel somebody
wrote, and everything below it is the kernel road's. It must not know byte orders or addresses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product as points

import numpy as np

from kohakuaccel.diagnostics import SourceLine
from kohakuaccel.graph import Expr, Graph, Index, Range, Read
from kohakuaccel.graph.index import Lookup, Quotient
from kohakuaccel.graph.model import Constant, Statement
from kohakuaccel.graph.run import evaluate
from kohakuaccel.lang import grid, lookup, sweep
from kohakuaccel.lang.indices import IndexExpr
from kohakuaccel.lang.trace import Trace, recording, speaking_for
from kohakuaccel.lang.values import Value
from kohakuaccel.lang.values import View as PortView
from kohakuaccel.machine import Machine
from kohakuaccel.numerics import INT32
from kohakutpu import lang as L
from kohakutpu.auto import access
from kohakutpu.auto.access import Ranges, Shape, View
from kohakutpu.auto.expressions import Accumulator, value
from kohakutpu.auto.simplify import simplified
from kohakutpu.auto.stages import Extents, PartsStage, Product, RowStage, Stage, TileStage
from kohakutpu.lang.memory import Temp
from kohakutpu.lang.ports import _Tilings
from kohakutpu.lower.tiling import Tile, choose

Position = IndexExpr | int
Places = Mapping[Range, Position]
Tiles = Mapping[Extents, Tile]
"""Tiles by the extents of the products that they are for."""


@dataclass(frozen=True)
class Operand:
    """What a port is given: a value in a shape, brought into another order first where `moved` says so."""

    value: str
    shape: Shape
    moved: tuple[Shape, tuple[int, ...]] | None = None


@dataclass(frozen=True)
class Emitted:
    """A traced kernel, what its ports are given, and the values it leaves, in port order."""

    trace: Trace
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    lines: Mapping[int, Stage]
    """The stage that each source line of the trace stands for."""


def emit(
    graph: Graph,
    machine: Machine,
    stages: Sequence[Stage],
    exported: frozenset[str],
    name: str,
    wide: frozenset[str] | None = None,
    tiles: Tiles | None = None,
) -> Emitted:
    """One kernel of several stages. exported: the values that leave it. wide: those that are stored in FP32, all others
    in FP16; None: each as its stage makes it. tiles: those of products that somebody else chose."""
    made = _Emitter(graph, machine, exported, wide, tiles or {})
    lines: dict[int, Stage] = {}
    with recording() as active:
        for number, stage in enumerate(stages, 1):
            lines[number] = stage
            with speaking_for(SourceLine("graph", number, f"{stage.root.name} = {_short(stage.root.body)}")):
                made.stage(stage)
    ports = (*made.inputs.values(), *made.outputs.values())
    trace = Trace(name, ports, {}, active.body, tuple(active.internal))
    outputs = tuple(Operand(v, tuple(int(str(a)) for a in port.axes)) for v, port in made.outputs.items())
    return Emitted(trace, tuple(made.inputs), outputs, lines)


def _short(body: Expr, most: int = 100) -> str:
    text = str(body)
    return text if len(text) <= most else f"{text[: most - 3]}..."


class _Emitter:
    def __init__(
        self, graph: Graph, machine: Machine, exported: frozenset[str], wide: frozenset[str] | None, chosen: Tiles
    ) -> None:
        self.graph, self.machine, self.exported, self.wide = graph, machine, exported, wide
        self.chosen = chosen
        self.inputs: dict[Operand, L.In] = {}
        self.outputs: dict[str, L.Out] = {}
        self.homes: dict[str, _Tilings] = {}

    # ports

    def target(self, name: str, shape: Shape) -> _Tilings:
        """The port that a value is written into."""
        if name in self.homes:
            return self.homes[name]
        stored = None if self.wide is None else "float32" if name in self.wide else "float16"
        if name in self.exported:
            made = L.Out(*shape, dtype=stored)
            self.outputs[name] = made
        else:
            made = L.temp(*shape, dtype=stored)
        made.name = name
        self.homes[name] = made
        return made

    def port(self, name: str, view: View) -> _Tilings:
        """A handle on a value in a view's shape, its last two axes exchanged where the view says so."""
        home = self.homes.get(name)
        if home is None:
            key = Operand(name, view.shape, view.moved)
            if key not in self.inputs:
                made = L.In(*view.shape)
                made.name = name if all(k.value != name for k in self.inputs) else f"{name}_{len(self.inputs)}"
                self.inputs[key] = made
            handle: _Tilings = self.inputs[key]
        elif home.axes == view.shape and home.direction != "out":
            handle = home
        else:
            handle = Temp(*view.shape)
            handle.name = name
            handle.same_as = home
        return handle.T if view.turned else handle

    # stages

    def stage(self, stage: Stage) -> None:
        if isinstance(stage, TileStage):
            self.tiles(stage)
        elif isinstance(stage, RowStage):
            self.rows(stage)
        else:
            assert isinstance(stage, PartsStage)
            self.parts(stage)

    def parts(self, stage: PartsStage) -> None:
        shape = stage.root.shape or (1,)
        target = self.target(stage.root.name, shape)
        for e in grid(target.parts()):

            def leaf(r: Expr, e: IndexExpr = e) -> Value:
                assert isinstance(r, Read)
                return self.port(r.value, View(shape, ()))[e]

            target[e] <<= value(simplified(stage.body), leaf)

    def rows(self, stage: RowStage) -> None:
        target = self.target(stage.root.name, (stage.count, stage.width) if stage.width else (stage.count,))
        for part in stage.parts:
            for found in grid(*([r.extent for r in part.rows] or [1])):
                places = self._places(part.rows, found)

                def leaf(e: Expr, places: Places = places, views: Mapping[Read, View] = part.views) -> Value:
                    assert isinstance(e, Read)
                    return self._row(e.value, views[e], places)

                target[self._index(part.place, places)] <<= value(simplified(part.body), leaf)

    def _row(self, name: str, view: View, places: Places) -> PortView:
        port = self.port(name, view)
        index: list[Position | slice] = [self._index(i, places) for i in view.index]
        if view.window:
            index.append(slice(*view.window))
        return port[tuple(index)]

    def tiles(self, stage: TileStage) -> None:
        lead = tuple(r.extent for r in stage.lead)
        high, wide = access.size(stage.rows), access.size(stage.columns)
        tile = self.tile(stage)
        target = self.target(stage.root.name, (*lead, high, wide))
        for found in grid(*lead, target.tiles(tile.gm), target.T.tiles(tile.gn)):
            *outer, i, j = found
            places = self._places(stage.lead, tuple(outer))
            held = {p.name: self._accumulate(p, places, i, j, tile) for p in stage.products}

            def leaf(
                e: Expr,
                held: dict[str, L.Tile] = held,
                outer: list[Position] = outer,
                i: Position = i,
                j: Position = j,
                places: Places = places,
            ) -> Value:
                if isinstance(e, Accumulator):
                    return held[e.name]
                assert isinstance(e, Read)
                kind, view = stage.beside[e]
                port = self.port(e.value, view)
                if kind == "whole":
                    return port[(*outer, i, j)]
                lead = tuple(self._index(x, places) for x in view.index)
                return port[(*lead, i if kind == "row" else j)]

            target[(*outer, i, j)] <<= value(simplified(stage.body), leaf)

    def tile(self, stage: TileStage) -> Tile:
        """The tile of a stage, by the library's cost of its deepest product where nobody chose one."""
        product = stage.deepest
        return self.chosen.get(product) or choose(self.machine, *product)

    def _accumulate(self, p: Product, places: Places, i: Position, j: Position, tile: Tile) -> L.Tile:
        acc = L.tile(tile.gm, tile.gn, tile.nk)
        left, right = (self.port(read.value, view) for read, view in (p.left, p.right))
        for point in points(*(range(r.extent) for r in p.outer)):
            here = {**places, **dict(zip(p.outer, point))}
            first, second = (tuple(self._index(x, here) for x in view.index) for _, view in (p.left, p.right))
            for k in sweep(left.chunks32(tile.nk)):
                acc += left[(*first, i, k)] @ right[(*second, j, k)]
        return acc

    # indices

    @staticmethod
    def _places(ranges: Ranges, found: Position | tuple[Position, ...]) -> Places:
        return dict(zip(ranges, found if isinstance(found, tuple) else (found,)))

    def _index(self, index: Index, places: Places) -> Position:
        """An index of the graph as one of the kernel language, ranges being stage axes or numbers."""
        total: Position = index.offset
        for atom, factor in index.terms:
            if isinstance(atom, Range):
                part = places[atom]
            elif isinstance(atom, Lookup):
                part = self._lookup(atom, places)
            else:
                inner = self._index(atom.index, places)
                part = inner // atom.divisor if isinstance(atom, Quotient) else inner % atom.divisor
            part = part * factor if factor != 1 else part
            total = part if isinstance(total, int) and total == 0 else part + total
        return total

    def _lookup(self, found: Lookup, places: Places) -> Position:
        """A gather by numbers known now: a table over the ranges that it follows."""
        ranges = tuple(sorted(found.value.ranges(), key=str))
        known = {v.name: v.array for v in self.graph.values if isinstance(v, Constant)}
        table = evaluate(Statement("lookup", INT32, ranges, found.value), known)
        at = self._index(access.over(ranges), places)
        numbers = np.asarray(table, np.int64).reshape(-1)
        return int(numbers[at]) if isinstance(at, int) else lookup(numbers.tolist())[at]
