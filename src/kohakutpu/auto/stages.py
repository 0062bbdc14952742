"""Stages: what one pass of the machine computes, and the search for the most that one can hold.

A statement becomes the root of a stage and takes in the statements that only it needs: a contraction with what is
computed from its accumulators (`TileStage`), rows with their reductions (`RowStage`), or elements in any order
(`PartsStage`). Decides form and fusion; it must not know the kernel language, tiles' sizes or buffers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from kohakuaccel.diagnostics import Unsupported
from kohakuaccel.graph import Constant, Expr, Graph, Index, Input, Range, Read, Statement, kind_of
from kohakuaccel.graph.structure import Contraction, as_contraction
from kohakutpu.auto import access
from kohakutpu.auto.access import Ranges, View, long
from kohakutpu.auto.expressions import Accumulator, expanded, reads, why_not


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One pass: `root` is the value it stores, `members` the statements it computes, `body` the expression."""

    root: Statement
    members: tuple[str, ...]
    body: Expr
    why: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        """Values it takes from memory."""
        return tuple(dict.fromkeys(r.value for r in reads(self.body)))


@dataclass(frozen=True, kw_only=True)
class PartsStage(Stage):
    """Elements one by one, in whatever byte order the operands share."""


@dataclass(frozen=True, kw_only=True)
class RowStage(Stage):
    """Whole rows along `columns`, for every point of `rows`; `number`: one result a row."""

    rows: Ranges
    columns: Ranges
    number: bool


@dataclass(frozen=True, kw_only=True)
class Product:
    """One accumulator: operand views over (rows, inner) and (columns, inner), once for every point of `outer`."""

    name: str
    left: tuple[Read, View]
    right: tuple[Read, View]
    inner: Ranges
    outer: Ranges


@dataclass(frozen=True, kw_only=True)
class TileStage(Stage):
    """Matrices `rows` x `columns` for every point of `lead`."""

    lead: Ranges
    rows: Ranges
    columns: Ranges
    products: tuple[Product, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        used = [r.value for p in self.products for r in (p.left[0], p.right[0])]
        return tuple(dict.fromkeys([*used, *(r.value for r in reads(self.body))]))


MOST_SWEEPS = 64  # sweeps that one accumulator is fed by


@dataclass
class Fusion:
    """The search over one graph. single: statements that stay alone; why they do is the value."""

    graph: Graph
    single: Mapping[str, str] = field(default_factory=dict[str, str])

    @cached_property
    def readers(self) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {v.name: set() for v in self.graph.values}
        for s in self.graph.statements:
            for r in s.body.reads():
                found[r.value].add(s.name)
        return {name: frozenset(names) for name, names in found.items()}

    @cached_property
    def outputs(self) -> frozenset[str]:
        return frozenset(name for _, name in self.graph.outputs)

    @cached_property
    def contractions(self) -> dict[str, Contraction]:
        """Statements that are products of matrices: each side has long ranges of its own."""
        found = {s.name: as_contraction(s) for s in self.graph.statements}
        return {name: c for name, c in found.items() if c and long(c.m) and long(c.n) and long(c.k)}

    def known(self, name: str) -> bool:
        """Whether a value is there before anything runs."""
        return isinstance(self.graph[name], Input | Constant)

    def flat(self, read: Read) -> Index:
        """The place a read names in its value."""
        shape = self.graph[read.value].shape
        return access.flat(read, shape, tuple(range(len(shape))))

    def total(self, read: Read) -> int:
        return prod(self.graph[read.value].shape)

    def stage(self, root: Statement) -> Stage:
        """The largest stage that ends in `root`. Raises Unsupported where none does."""
        self._check(root)
        alone = root.name in self.single
        for attempt in (self._tile, self._rows_with_folds, self._parts, self._rows):
            found = attempt(root, alone)
            if found is not None:
                return found
        raise Unsupported(self._problem(root), where=f"statement {root.name}")

    # what can be computed at all

    def _check(self, root: Statement) -> None:
        if kind_of(root.dtype) == "int":
            raise Unsupported("the machine's units compute no whole numbers", where=f"statement {root.name}")
        for read in root.body.reads():
            if kind_of(self.graph[read.value].dtype) == "int":
                raise Unsupported("the machine's units read no whole numbers", where=f"{read}")
        problem = why_not(root.body)
        if problem:
            raise Unsupported(problem, where=f"statement {root.name}")

    def _lawful(self, s: Statement) -> bool:
        try:
            self._check(s)
        except Unsupported:
            return False
        return True

    def _problem(self, root: Statement) -> str:
        for read in dict.fromkeys(root.body.reads()):
            if not any(self._view(read, c) for c in self._columns(root)):
                return f"{read} is neither rows nor numbers of rows"
        return "no way through memory suits all operands"

    def _view(self, read: Read, columns: Ranges) -> View | None:
        return access.row(self.flat(read), self.total(read), columns)

    # growing a stage

    def _candidates(self, body: Expr, members: Mapping[str, Statement]) -> Iterator[Statement]:
        """Statements read by `body` that nobody else needs."""
        for name in dict.fromkeys(r.value for r in reads(body)):
            value = self.graph[name]
            if not isinstance(value, Statement) or name in self.outputs or name in self.single:
                continue
            if self.readers[name] <= members.keys() and self._lawful(value):
                yield value

    def _parts(self, root: Statement, alone: bool) -> PartsStage | None:
        """Everything lies where the result does."""
        if root.reduction:
            return None
        here = access.over(root.ranges)
        members = {root.name: root}
        body = root.body
        grown = not alone
        while grown:
            grown = False
            for value in self._candidates(body, members):
                if value.reduction or value.name in self.contractions:
                    continue
                trial = {**members, value.name: value}
                larger = expanded(root.body, trial, ())
                if all(self.flat(r) == here for r in reads(larger) if r.value in set(self._sources(value))):
                    members, body, grown = trial, larger, True
                    break
        if all(self.flat(r) == here and self.total(r) == prod(root.shape) for r in reads(body)):
            return PartsStage(root=root, members=tuple(members), body=body, why="every operand lies as the result does")
        return None

    def _sources(self, value: Statement) -> list[str]:
        return [r.value for r in value.body.reads()]

    # rows

    def _columns(self, root: Statement) -> list[Ranges]:
        """Ranges that could run along rows: what is folded, or the last ranges of the result, the most first."""
        if root.reduction:
            return [long(root.reduced)]
        ranges = long(root.ranges)
        return [ranges[n:] for n in range(len(ranges))] or [()]

    def _rows_with_folds(self, root: Statement, alone: bool) -> RowStage | None:
        """Rows that hold a reduction."""
        if alone and not root.reduction:
            return None
        if root.reduction:
            return self._row_stage(root, long(root.reduced), alone)
        found = [self._row_stage(root, c, alone) for c in self._fold_columns(root)]
        best = max((s for s in found if s), key=lambda s: len(s.members), default=None)
        if best is None or not any(self.graph.statement(m).reduction for m in best.members):
            return None
        return best

    def _fold_columns(self, root: Statement) -> list[Ranges]:
        """Columns over which some producer folds: the ranges of the result that its read leaves out."""
        found: list[Ranges] = []
        seen: set[str] = set()
        stack: list[Expr] = [root.body]
        while stack:
            body = stack.pop()
            for read in reads(body):
                value = self.graph[read.value]
                if not isinstance(value, Statement) or read.value in self.contractions:
                    continue
                followed = read.ranges()
                left = tuple(r for r in long(root.ranges) if r not in followed)
                if value.reduction and [r.extent for r in left] == [r.extent for r in long(value.reduced)]:
                    found.append(left)
                if value.reduction is None and value.name not in seen:
                    seen.add(value.name)
                    stack.append(value.body.substitute(dict(zip(value.ranges, read.indices))))
        return list(dict.fromkeys(found))

    def _rows(self, root: Statement, alone: bool) -> RowStage | None:
        """Rows without reductions: the longest columns that every operand allows."""
        for columns in self._columns(root):
            found = self._row_stage(root, columns, alone)
            if found:
                return found
        return None

    def _row_stage(self, root: Statement, columns: Ranges, alone: bool) -> RowStage | None:
        ranges = long(root.ranges)
        if not root.reduction and columns != ranges[len(ranges) - len(columns) :]:
            return None  # the result's rows are its last axes
        rows = tuple(r for r in ranges if r not in columns)
        whole = {root.name: root}
        start: Expr = Read(root.name, tuple(Index.of(r if r.extent > 1 else 0) for r in root.ranges))
        body = expanded(start, whole, columns)
        members = whole
        grown = not alone
        refused: set[str] = set()
        while grown:
            grown = False
            for value in self._candidates(body, members):
                if value.name in refused or not self._joins(value, body, columns):
                    continue
                trial = {**members, value.name: value}
                larger = expanded(start, trial, columns)
                if self._reachable(larger, columns, trial):
                    members, body, grown = trial, larger, True
                    break
                refused.add(value.name)
        if not all(self._view(r, columns) for r in reads(body)):
            if alone or len(members) == 1:
                return None
            return self._row_stage(root, columns, True)
        return RowStage(
            root=root,
            members=tuple(members),
            body=body,
            rows=rows,
            columns=columns,
            number=root.reduction is not None,
            why=f"{access.size(rows)} rows of {access.size(columns)}",
        )

    def _joins(self, value: Statement, body: Expr, columns: Ranges) -> bool:
        """Whether a statement may be computed inside rows along `columns`."""
        if value.name in self.contractions:
            return False
        if value.reduction is None:
            return True
        if [r.extent for r in long(value.reduced)] != [r.extent for r in columns]:
            return False
        own = [r for r in reads(body) if r.value == value.name]
        return not any(r.ranges() & set(columns) for r in own)

    def _reachable(self, body: Expr, columns: Ranges, members: Mapping[str, Statement]) -> bool:
        """Whether every operand can be read, or may still be taken in."""
        for read in reads(body):
            if self._view(read, columns):
                continue
            value = self.graph[read.value]
            if self.known(read.value) or not isinstance(value, Statement) or read.value in self.outputs:
                return False
            if not self.readers[read.value] <= members.keys() or not self._joins(value, body, columns):
                return False
        return True

    # tiles

    def _tile(self, root: Statement, alone: bool) -> TileStage | None:
        start: Expr = Read(root.name, tuple(Index.of(r if r.extent > 1 else 0) for r in root.ranges))
        if root.name in self.contractions:
            return self._tiled(root, {root.name: root}, start)
        if root.reduction or alone:
            return None
        members = {root.name: root}
        inner = frozenset[str]()
        grown = True
        while grown:
            grown = False
            body = expanded(start, members, (), inner)
            for value in self._candidates(body, members):
                product = value.name in self.contractions
                if value.reduction and not product:
                    continue
                if product and not all(self._in_place(r, root) for r in reads(body) if r.value == value.name):
                    continue
                members = {**members, value.name: value}
                inner = inner | {value.name} if product else inner
                grown = True
                break
        return self._tiled(root, members, start) if inner else None

    @staticmethod
    def _in_place(read: Read, root: Statement) -> bool:
        """Whether a read names every point of the result once."""
        found = [i.range for i in read.indices if i.constant is None]
        return not read.guards and set(found) == set(long(root.ranges)) and len(found) == len(set(found))

    def _tiled(self, root: Statement, members: dict[str, Statement], start: Expr) -> TileStage | None:
        inner = frozenset(name for name in members if name in self.contractions)
        body = expanded(start, members, (), inner)
        accumulators = _accumulators(body)
        for lead, rows, columns in self._splits(root, accumulators[0]):
            products = [self._product(a, rows, columns) for a in accumulators]
            here = access.over((*lead, *rows, *columns))
            if all(products) and all(self._beside(r, here, lead, rows, columns) for r in reads(body)):
                made = tuple(p for p in products if p)
                return TileStage(
                    root=root,
                    members=tuple(members),
                    body=body,
                    lead=lead,
                    rows=rows,
                    columns=columns,
                    products=made,
                    why=self._tile_why(members, made),
                )
        if not root.reduction:
            return None
        raise Unsupported(self._operand_problem(root), where=f"statement {root.name}")

    def _tile_why(self, members: Mapping[str, Statement], products: tuple[Product, ...]) -> str:
        extra = len(members) - len(products)
        return f"{len(products)} product{'s' * (len(products) > 1)}, {extra} elementwise statements on the accumulators"

    def _operand_problem(self, root: Statement) -> str:
        found = self.contractions[root.name]
        for e in (found.left, found.right):
            if not isinstance(e, Read) or e.guards:
                return f"an operand of a product is read as it lies, not {e}"
        return "an operand of a product is no whole matrix in memory"

    def _splits(self, root: Statement, first: Accumulator) -> Iterator[tuple[Ranges, Ranges, Ranges]]:
        """(lead, rows, columns) of the result in its own order, the largest matrices first."""
        found = self._sides(first)
        ranges = long(root.ranges)
        if found is None or not ranges:
            return
        left, right = found
        own = [r in left for r in ranges], [r in right for r in ranges]
        only_right = [b and not a for a, b in zip(*own)]
        only_left = [a and not b for a, b in zip(*own)]
        across, down = (only_right, only_left) if only_right[-1] else (only_left, only_right)
        last = next((n for n in reversed(range(len(ranges))) if not across[n]), -1)
        for begin in range(last + 1, len(ranges)):
            above = next((n for n in reversed(range(begin)) if not down[n]), -1)
            for top in range(above + 1, begin):
                yield ranges[:top], ranges[top:begin], ranges[begin:]

    def _sides(self, a: Accumulator) -> tuple[frozenset[Range], frozenset[Range]] | None:
        """The result's ranges that each operand follows."""
        found = self.contractions[a.name]
        new = dict(zip(self.graph.statement(a.name).ranges, a.indices))
        left, right = found.left.substitute(new), found.right.substitute(new)
        return left.ranges(), right.ranges()

    def _product(self, a: Accumulator, rows: Ranges, columns: Ranges) -> Product | None:
        """One accumulator's operands as matrices, the first over `rows`."""
        statement, found = self.graph.statement(a.name), self.contractions[a.name]
        fold = {r: Range(f"{a.name}_{r.name}", r.extent) for r in statement.reduced}
        new = dict(zip(statement.ranges, a.indices)) | {old: Index.of(r) for old, r in fold.items()}
        first, second = found.left.substitute(new), found.right.substitute(new)
        if not isinstance(first, Read) or not isinstance(second, Read) or first.guards or second.guards:
            return None
        if set(columns) & first.ranges():
            first, second = second, first
        if set(columns) & first.ranges() or set(rows) & second.ranges():
            return None
        place, other = self.flat(first), self.flat(second)
        inner = tuple(sorted(long(fold.values()), key=place.coefficient, reverse=True))
        for cut in range(len(inner)):
            outer, deep = inner[:cut], inner[cut:]
            if access.size(outer) > MOST_SWEEPS:
                return None
            left = self._matrix(first, place, rows, deep)
            right = self._matrix(second, other, columns, deep)
            if left and right:
                return Product(name=a.name, left=(first, left), right=(second, right), inner=deep, outer=outer)
        return None

    def _matrix(self, read: Read, place: Index, rows: Ranges, columns: Ranges) -> View | None:
        """An operand as it lies, or brought into order before the call where it is known then."""
        found = access.matrix(place, self.total(read), rows, columns)
        if found is None and self.known(read.value):
            lead = sorted(read.ranges() - {*rows, *columns}, key=place.coefficient, reverse=True)
            return access.moved(place, self.total(read), tuple(lead), rows, columns)
        return found

    def _beside(self, read: Read, here: Index, lead: Ranges, rows: Ranges, columns: Ranges) -> bool:
        """Whether an operand can meet an accumulator: of the result's shape, or one value a row or column."""
        index, total = self.flat(read), self.total(read)
        if index == here and total == access.size((*lead, *rows, *columns)):
            return True
        return self.known(read.value) and any(
            index == access.over(group) and total == access.size(group) for group in (rows, columns)
        )


def _accumulators(body: Expr) -> list[Accumulator]:
    from kohakutpu.auto.expressions import nodes

    return list(dict.fromkeys(n for n in nodes(body) if isinstance(n, Accumulator)))
