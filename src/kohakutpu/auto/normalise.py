"""A graph made ready for the scheduler: tidied, operands of products apart, positions as tables, ranges cut where read
so.

Decides the form in which statements reach the search for stages; every rule keeps the meaning. It must not know stages.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from kohakuaccel.graph import BOOL, Cast, Const, Constant, Expr, Graph, Index, Iota, Op, Range, Read, Statement, kind_of
from kohakuaccel.graph.expr import rebuild
from kohakuaccel.graph.index import Quotient, Remainder
from kohakuaccel.graph.model import Reduction, Value
from kohakuaccel.graph.rewrite import TIDY, CommonSubexpressions, DeadCode, Rewrite, Rewrites, ShiftedLogSumExp
from kohakuaccel.graph.rewrite.base import with_body
from kohakuaccel.graph.run import evaluate
from kohakuaccel.graph.structure import Contraction, as_contraction
from kohakuaccel.graph.verify import kind
from kohakuaccel.numerics import FP32
from kohakutpu.auto.boxes import boxes
from kohakutpu.auto.windows import Windows

EXACT = 2048
"""Whole numbers up to here are halves."""
CODES = 31743
"""Positive finite halves: so many positions can be told apart by the order of their codes alone."""


@dataclass(frozen=True, kw_only=True)
class Tabulate(Rewrite):
    """What depends on positions alone becomes a constant: a mask's comparison of rows with columns, a ramp.

    before  y[i<4, j<4] = where(iota(i) < iota(j), 0.0, x[i, j])
    after   row = [0, 1, 2, 3];  column = [0, 1, 2, 3];  y[i, j] = where(row[i] < column[j], 0.0, x[i, j])

    A comparison keeps one table a side where each follows ranges of its own; whole numbers that no half holds are
    replaced, on both sides, by numbers in the same order.
    """

    limit: int = 1 << 16

    def rewrite(self, graph: Graph) -> Graph:
        values: dict[str, Value] = {}
        for value in graph.values:
            if isinstance(value, Statement) and kind_of(value.dtype) != "int" and not _pieces(value):
                value = with_body(value, _Tables(values, graph, self.limit).visit(value.body))
            values[value.name] = value
        return graph.with_values(values.values())


def _pieces(statement: Statement) -> bool:
    """Whether positions only say which source a place has."""
    return any(r.guards for r in statement.body.reads()) and boxes(statement) is not None


class _Tables:
    def __init__(self, values: dict[str, Value], graph: Graph, limit: int) -> None:
        self.values, self.graph, self.limit = values, graph, limit

    def visit(self, expr: Expr) -> Expr:
        if not any(isinstance(e, Iota) or self._whole(e) for e in expr.walk()):
            return expr
        if isinstance(expr, Op) and expr.name in ("less", "equal") and self._fixed(expr):
            made = self._comparison(expr)
            if made is not None:
                return made
        if self._fixed(expr) and kind(expr, self.graph.by_name) != "int" and self._points(expr) <= self.limit:
            return self._table(expr, self._numbers(expr).astype(np.float64), kind(expr, self.graph.by_name) == "bool")
        return expr.with_children(tuple(self.visit(c) for c in expr.children))

    def _whole(self, e: Expr) -> bool:
        return isinstance(e, Read) and kind_of(self.graph[e.value].dtype) == "int"

    def _fixed(self, expr: Expr) -> bool:
        return all(isinstance(self.graph[r.value], Constant) for r in expr.reads())

    def _points(self, expr: Expr) -> int:
        return prod(r.extent for r in expr.ranges())

    def _ranges(self, expr: Expr) -> tuple[Range, ...]:
        return tuple(sorted(expr.ranges(), key=lambda r: (len(r.name), r.name)))

    def _numbers(self, expr: Expr) -> np.ndarray:
        known = {r.value: v.array for r in expr.reads() if isinstance(v := self.graph[r.value], Constant)}
        what = BOOL if kind(expr, self.graph.by_name) == "bool" else FP32
        body = Cast(expr, FP32) if kind(expr, self.graph.by_name) == "int" else expr
        return evaluate(Statement("table", what, self._ranges(expr), body), known)

    def _comparison(self, expr: Op) -> Expr | None:
        """Both sides as tables of their own, where that is less than one table of all."""
        sides = expr.args
        if kind(sides[0], self.graph.by_name) != "int" or any(self._points(s) > self.limit for s in sides):
            return None
        if max(self._points(s) for s in sides) == self._points(expr) and self._points(expr) <= self.limit:
            return None
        numbers = [self._numbers(s) for s in sides]
        low = min(float(n.min()) for n in numbers)
        high = max(float(n.max()) for n in numbers)
        if max(abs(low), abs(high)) > EXACT:
            if high - low >= CODES:
                return None
            numbers = [(n - low + 1).astype(np.uint16).view(np.float16).astype(np.float64) for n in numbers]
        return Op(expr.name, tuple(self._table(s, n, False) for s, n in zip(sides, numbers)))

    def _table(self, expr: Expr, numbers: np.ndarray, truth: bool) -> Expr:
        if numbers.ndim == 0:
            return Const(bool(numbers) if truth else float(numbers))
        stem, n = "table", 0
        made = Constant.of(stem, numbers, BOOL if truth else FP32)
        while made.name in self.values or made.name in self.graph.by_name:
            found = self.values.get(made.name)
            if isinstance(found, Constant) and (found.data, found.shape, found.dtype) == (
                made.data,
                made.shape,
                made.dtype,
            ):
                break
            n += 1
            made = Constant(f"{stem}_{n}", made.shape, made.dtype, made.data)
        self.values[made.name] = made
        return Read(made.name, tuple(Index.of(r) for r in self._ranges(expr)))


@dataclass(frozen=True, kw_only=True)
class OperandsApart(Rewrite):
    """An operand of a product of matrices that is computed, or read through guards, is a value of its own.

    before  o[i, j] = sum[k] (e[i, k] * 0.5) * v[k, j]
    after   operand[i, k] = e[i, k] * 0.5;  o[i, j] = sum[k] operand[i, k] * v[k, j]
    """

    def rewrite(self, graph: Graph) -> Graph:
        values: dict[str, Value] = {v.name: v for v in graph.values}
        made: list[Value] = []
        for value in graph.values:
            found = as_contraction(value) if isinstance(value, Statement) else None
            if not isinstance(value, Statement) or found is None or not ((found.m and found.n) or _one_row(found)):
                made.append(value)
                continue
            sides: list[Expr] = []
            for side in (found.left, found.right):
                if isinstance(side, Read) and not side.guards:
                    sides.append(side)
                    continue
                ranges = tuple(r for r in (*value.ranges, *value.reduced) if r in side.ranges())
                new = {r: Range(f"i{n}", r.extent) for n, r in enumerate(ranges)}
                name = _fresh("operand", values)
                body = side.substitute({old: Index.of(r) for old, r in new.items()})
                apart = Statement(name, value.dtype, tuple(new.values()), body)
                values[name] = apart
                made.append(apart)
                sides.append(Read(name, tuple(Index.of(r) for r in ranges)))
            made.append(with_body(value, Op("mul", tuple(sides))))
        return graph.with_values(made)


def _one_row(found: Contraction) -> bool:
    """Whether a product is a vector times a matrix that is read as it lies."""
    matrix = found.left if found.m else found.right
    return bool(found.m or found.n) and isinstance(matrix, Read) and not matrix.guards


@dataclass(frozen=True, kw_only=True)
class CutRanges(Rewrite):
    """A folded range that is read by quotient and remainder becomes two: the heads of a merged axis.

    before  y[i] = sum[k<64] o[k // 16, i, k % 16] * w[k]
    after   y[i] = sum[k0<4, k1<16] o[k0, i, k1] * w[16 * k0 + k1]
    """

    def rewrite(self, graph: Graph) -> Graph:
        return graph.with_values(_cut(v) if isinstance(v, Statement) else v for v in graph.values)


def _cut(statement: Statement) -> Statement:
    for r in statement.reduced:
        divisors = {
            atom.divisor
            for read in statement.body.reads()
            for index in read.indices
            for atom, _ in index.terms
            if isinstance(atom, Quotient | Remainder) and r in atom.index.ranges()
        }
        for divisor in sorted(divisors):
            if r.extent % divisor or divisor in (1, r.extent):
                continue
            taken = {x.name for x in (*statement.ranges, *statement.reduced)}
            names = [n for n in (f"k{m}" for m in range(len(taken) + 2)) if n not in taken][:2]
            high, low = Range(names[0], r.extent // divisor), Range(names[1], divisor)
            body = statement.body.substitute({r: high * divisor + low})
            fold = tuple(x for old in statement.reduced for x in ((high, low) if old == r else (old,)))
            assert statement.reduction is not None
            made = Statement(
                statement.name, statement.dtype, statement.ranges, body, Reduction(statement.reduction.op, fold)
            )
            return _cut(made)
    return statement


def _fresh(stem: str, taken: dict[str, Value]) -> str:
    name, n = stem, 0
    while name in taken:
        n += 1
        name = f"{stem}_{n}"
    return name


READY = TIDY + ShiftedLogSumExp()
"""What changes the graph before the machine is thought of."""


def normalised(graph: Graph, rewrites: Rewrites | None) -> Graph:
    """The graph in the form that stages are searched in."""
    tidy = (READY if rewrites is None else rewrites).apply(graph)
    shaped = (CutRanges() + Windows() + Tabulate() + OperandsApart()).apply(tidy)
    return (CommonSubexpressions() + DeadCode()).apply(shaped)


__all__ = ["CutRanges", "OperandsApart", "Tabulate", "normalised", "rebuild"]
