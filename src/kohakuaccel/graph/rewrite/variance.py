"""Other forms of a two-pass variance: one pass by distances from the first element, or blocks merged by Chan's formula.

Decides when a sum of squares is one of distances from the mean of the same row. Each rule states its proof obligation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kohakuaccel.graph.blocks import count_of, inside, may_end, new_ranges
from kohakuaccel.graph.expr import Const, Expr, Iota, Op, Read, op
from kohakuaccel.graph.index import Index, Range
from kohakuaccel.graph.model import Graph, Reduction, Statement, Value
from kohakuaccel.graph.rewrite.base import Rewrite, alike, looked_through, replaced, same_row


@dataclass(frozen=True, kw_only=True)
class ShiftedVariance(Rewrite):
    """A sum of squared distances from the mean in one pass over the row, by distances from its first element.

    before  u[i] = sum[k] x[i, k];  m[i] = u[i] * (1 / n);  v[i] = sum[k] (x[i, k] - m[i]) * (x[i, k] - m[i])
    after   d(i, k) = x[i, k] - x[i, 0]
            a[i] = sum[k] d(i, k);  b[i] = sum[k] d(i, k) * d(i, k);  v[i] = max(b[i] - a[i] * a[i] / n, 0)

    Holds where m is seen to be the mean of the same row. Obligation: v is the same, with an error that grows with
    (distance of the first element from the mean / standard deviation)^2, so no pipeline has it unless asked.
    """

    def rewrite(self, graph: Graph) -> Graph:
        for statement in graph.statements:
            made = self._shifted(graph, statement)
            if made:
                return self.rewrite(made)
        return graph

    def _shifted(self, graph: Graph, statement: Statement) -> Graph | None:
        found, fold = _distance_from_mean(statement, graph.by_name), statement.reduction
        if not found or not fold:
            return None
        element, out = found[0], statement.ranges
        first = element.substitute(dict.fromkeys(fold.ranges, Index.of(0)))
        distance = op("sub", element, first)
        sums = Statement(graph.fresh("apart"), statement.dtype, out, distance, fold)
        graph_with = graph.with_values((*graph.values, sums))
        squares = Statement(graph_with.fresh("squared"), statement.dtype, out, op("mul", distance, distance), fold)
        here = tuple(Index.of(r) for r in out)
        a, b = Read(sums.name, here), Read(squares.name, here)
        count = math.prod(r.extent for r in fold.ranges)
        body = op("max", op("sub", b, op("mul", op("mul", a, a), 1 / count)), 0.0)
        made = Statement(statement.name, statement.dtype, out, body)
        return replaced(graph, {statement.name: (sums, squares, made)})


@dataclass(frozen=True, kw_only=True)
class WelfordVariance(Rewrite):
    """A variance by blocks, each seen once: of every block (count, mean, M2), merged by Chan's formula.

    before  u[i] = sum[k] x[i, k];  m[i] = u[i] * (1 / n);  v[i] = sum[k] (x[i, k] - m[i]) * (x[i, k] - m[i])
    after   bs[i, t] = sum[b] x[i, t * B + b];  u[i] = sum[t] bs[i, t];  m[i] as before;  bm[i, t] = bs[i, t] * (1 / B)
            b2[i, t] = sum[b] (x[i, t * B + b] - bm[i, t])^2;  v[i] = sum[t] b2[i, t] + B * (bm[i, t] - m[i])^2

    The last line is the merge (n, m, M2) <- (n + B, m', M2 + b2 + (bm - m)^2 * n * B / (n + B)) unrolled: a machine may
    walk the blocks in any order. The last block may be short; it then counts for what it has. Where several ranges are
    folded the longest is cut. Holds where m is seen to be the mean of the same row and `block` is shorter than the
    range. Obligation: v is the same, as accurate as two passes.
    """

    block: int = 128

    def rewrite(self, graph: Graph) -> Graph:
        for name in [s.name for s in graph.statements]:
            graph = self._blocked(graph, graph.statement(name))
        return graph

    def _blocked(self, graph: Graph, statement: Statement) -> Graph:
        found, fold = _distance_from_mean(statement, graph.by_name), statement.reduction
        if not found or not fold:
            return graph
        element, centre, read = found
        total = graph.statement(read.value)
        cut = max(range(len(fold.ranges)), key=lambda n: fold.ranges[n].extent)
        k, theirs = fold.ranges[cut], total.reduced[cut]
        if k.extent <= self.block or (k.extent % self.block and not may_end(element)):
            return graph
        t, b = new_ranges(graph, count_of(k.extent, self.block), self.block)
        at, values, out = t * self.block + b, graph.by_name, statement.ranges
        rest = math.prod(r.extent for r in fold.ranges) // k.extent
        short = k.extent - (t.extent - 1) * self.block

        def each(function: Callable[[int], float]) -> Expr:
            """A number of each block, which follows from how many elements it has."""
            if short == self.block:
                return Const(function(self.block * rest))
            whole = op("less", Iota(Index.of(t)), t.extent - 1)
            return op("where", whole, function(self.block * rest), function(short * rest))

        def summed(ranges: tuple[Range, ...], gone: Range) -> Reduction:
            return Reduction("sum", (*(r for r in ranges if r != gone), b))

        body = inside(total.body, theirs, at, 0.0, values)
        sums = Statement(graph.fresh("block_sum"), total.dtype, (*total.ranges, t), body, summed(total.reduced, theirs))
        here = (*map(Index.of, total.ranges), Index.of(t))
        whole = Statement(total.name, total.dtype, total.ranges, Read(sums.name, here), Reduction("sum", (t,)))
        graph = replaced(graph, {total.name: (sums, whole)})
        own = Read(sums.name, (*read.indices, Index.of(t)))
        body = op("mul", own, each(lambda n: 1 / n))
        means = Statement(graph.fresh("block_mean"), statement.dtype, (*out, t), body)
        local = Read(means.name, (*map(Index.of, out), Index.of(t)))
        apart = inside(op("sub", element, local), k, at, 0.0, values)
        parts = Statement(
            graph.fresh("block_m2"), statement.dtype, (*out, t), op("mul", apart, apart), summed(fold.ranges, k)
        )
        away = op("sub", local, centre)
        body = op("add", Read(parts.name, local.indices), op("mul", op("mul", away, away), each(float)))
        made = Statement(statement.name, statement.dtype, out, body, Reduction("sum", (t,)))
        return replaced(graph, {statement.name: (means, parts, made)})


def _distance_from_mean(statement: Statement, values: Mapping[str, Value]) -> tuple[Expr, Expr, Read] | None:
    """The element, the mean and its read of the row's sum, where the statement sums squared distances from the mean."""
    if not statement.reduction or statement.reduction.op != "sum":
        return None
    square = looked_through(statement.body, values)
    if not (isinstance(square, Op) and square.name == "mul" and square.args[0] == square.args[1]):
        return None
    apart = looked_through(square.args[0], values)
    if not (isinstance(apart, Op) and apart.name == "sub"):
        return None
    element, centre = apart.args
    scaled = looked_through(centre, values)
    count = math.prod(r.extent for r in statement.reduced)
    if not (isinstance(scaled, Op) and isinstance(read := scaled.args[0], Read) and isinstance(scaled.args[1], Const)):
        return None
    number = float(scaled.args[1].value)
    if not (scaled.name == "mul" and number == 1 / count) and not (scaled.name == "div" and number == count):
        return None
    total = values[read.value]
    if not isinstance(total, Statement) or not total.reduction or total.reduction.op != "sum":
        return None
    return (element, centre, read) if alike(same_row(total, read, statement), element) else None
