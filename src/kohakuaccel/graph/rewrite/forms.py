"""The catalogue of algebraic forms: the same function by other mathematics, which no scheduler finds by itself.

Decides when a statement is known to have another form. Each rule states its proof obligation, which the tests hold
numerically: where the form before gives a finite number, the form after gives the same one up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kohakuaccel.graph.blocks import count_of, inside, may_end, new_ranges
from kohakuaccel.graph.expr import Const, Expr, Op, Read, op
from kohakuaccel.graph.index import Index
from kohakuaccel.graph.model import Graph, Reduction, Statement, Value
from kohakuaccel.graph.rewrite.base import Rewrite, alike, looked_through, replaced, same_row


@dataclass(frozen=True, kw_only=True)
class ShiftedLogSumExp(Rewrite):
    """log2 of a sum of powers, with the greatest exponent taken off first.

    before  s[i] = sum[k] exp2(e[i, k]);                      y[i] = log2(s[i])
    after   m[i] = max[k] e[i, k];  z[i] = m[i], or 0 where m[i] is infinite
            s[i] = sum[k] exp2(e[i, k] - z[i]);               y[i] = log2(s[i]) + z[i]

    Holds where s is read under log2 only and is no output. Obligation: y is the same; where exp2(e) overflows or every
    one of them vanishes, the form after gives what exact arithmetic would.
    """

    def rewrite(self, graph: Graph) -> Graph:
        for statement in graph.statements:
            made = self._shifted(graph, statement)
            if made:
                return self.rewrite(made)
        return graph

    def _shifted(self, graph: Graph, statement: Statement) -> Graph | None:
        values = graph.by_name
        if not statement.reduction or statement.reduction.op != "sum" or not _logged_only(graph, statement.name):
            return None
        power = looked_through(statement.body, values)
        if not (isinstance(power, Op) and power.name == "exp2") or _is_shifted(power.args[0], statement, values):
            return None
        out, fold = statement.ranges, statement.reduced
        top = Statement(graph.fresh("top"), statement.dtype, out, power.args[0], Reduction("max", fold))
        here = Read(top.name, tuple(Index.of(r) for r in out))
        finite = op("where", op("equal", op("abs", here), math.inf), 0.0, here)
        shift = Statement(graph.with_values((*graph.values, top)).fresh("shift"), statement.dtype, out, finite)
        less = op("sub", power.args[0], Read(shift.name, here.indices))
        total = Statement(statement.name, statement.dtype, out, op("exp2", less), statement.reduction)

        def change(e: Expr) -> Expr:
            if not (isinstance(e, Op) and e.name == "log2" and isinstance(inner := e.args[0], Read)):
                return e
            return op("add", e, Read(shift.name, inner.indices)) if inner.value == statement.name else e

        return replaced(graph, {statement.name: (top, shift, total)}, change)


@dataclass(frozen=True, kw_only=True)
class OnlineSoftmax(Rewrite):
    """A softmax's maximum and sum block by block: each block is seen once, and what it leaves is rescaled.

    before  m[i] = max[k] e[i, k];  s[i] = sum[k] exp2((e[i, k] - m[i]) * c)
    after   bm[i, t] = max[b] e[i, t * B + b];  bs[i, t] = sum[b] exp2((e[i, t * B + b] - bm[i, t]) * c)
            m[i] = max[t] bm[i, t];             s[i] = sum[t] bs[i, t] * exp2((bm[i, t] - m[i]) * c)

    The last line is the recurrence (m, s) <- (max(m, bm), s * exp2(m - m') + bs * exp2(bm - m')) unrolled: a machine
    may walk the blocks in any order. A block of which nothing counts (bm is -inf) adds 0. Holds where m is the
    maximum of the same row, c is positive and `block` is shorter than the row. The last block may be short: behind the
    row's end elements are -inf, and what they weight is 0.
    Every sum of the row's powers goes along, weighted ones too: with `DivideLast` an attention becomes flash attention.
    Obligation: m and s are the same.
    """

    block: int = 128

    def rewrite(self, graph: Graph) -> Graph:
        for name in [s.name for s in graph.statements]:
            graph = self._tiled(graph, graph.statement(name))
        return graph

    def _tiled(self, graph: Graph, top: Statement) -> Graph:
        """Every sum against one maximum goes by blocks of it, and so does the maximum."""
        if not top.reduction or top.reduction.op != "max" or len(top.reduced) != 1:
            return graph
        found = [(s, f) for s in graph.statements if (f := _softmax_sum(s, top, graph.by_name))]
        k = top.reduced[0]
        if not found or k.extent <= self.block:
            return graph
        weighted = [rest for _, (_, rest, _, _) in found if rest is not None]
        if k.extent % self.block and not may_end(top.body, *weighted):
            return graph
        t, b = new_ranges(graph, count_of(k.extent, self.block), self.block)
        at, values = t * self.block + b, graph.by_name
        within = inside(top.body, k, at, -math.inf, values)
        tops = Statement(graph.fresh("block_top"), top.dtype, (*top.ranges, t), within, Reduction("max", (b,)))
        all_tops = Read(tops.name, (*(Index.of(r) for r in top.ranges), Index.of(t)))
        whole = Statement(top.name, top.dtype, top.ranges, all_tops, Reduction("max", (t,)))
        graph = replaced(graph, {top.name: (tops, whole)})
        for statement, (element, rest, read, scale) in found:
            (column,) = statement.reduced
            own = Read(tops.name, (*read.indices, Index.of(t)))
            # The power within its block, against the block's maximum in place of the row's.
            apart = op("sub", inside(element, column, at, -math.inf, values), own)
            empty = op("equal", own, -math.inf)
            name = graph.fresh("block_sum")
            body = op("where", empty, 0.0, op("exp2", op("mul", apart, scale)))
            body = body if rest is None else op("mul", body, inside(rest, column, at, 0.0, values))
            parts = Statement(name, statement.dtype, (*statement.ranges, t), body, Reduction("sum", (b,)))
            part = Read(name, (*(Index.of(r) for r in statement.ranges), Index.of(t)))
            factor = op("exp2", op("mul", op("sub", own, read), scale))
            body = op("where", empty, 0.0, op("mul", part, factor))
            total = Statement(statement.name, statement.dtype, statement.ranges, body, Reduction("sum", (t,)))
            graph = replaced(graph, {statement.name: (parts, total)})
        return graph


def _logged_only(graph: Graph, name: str) -> bool:
    """Whether a value is no output, and read, and only right under log2."""
    if any(name == output for _, output in graph.outputs):
        return False
    reads = logs = 0
    for statement in graph.readers(name):
        for e in statement.body.walk():
            reads += isinstance(e, Read) and e.value == name
            if isinstance(e, Op) and e.name == "log2" and isinstance(e.args[0], Read):
                logs += e.args[0].value == name and not e.args[0].guards
    return reads > 0 and reads == logs


def _is_shifted(exponent: Expr, statement: Statement, values: Mapping[str, Value]) -> bool:
    """Whether something that is one for a whole row is already taken off the exponent (or a factor times that)."""
    while isinstance(exponent, Op) and exponent.name == "mul" and isinstance(exponent.args[1], Const):
        exponent = looked_through(exponent.args[0], values)
    exponent = looked_through(exponent, values)
    if not (isinstance(exponent, Op) and exponent.name == "sub"):
        return False
    return not exponent.args[1].ranges().intersection(statement.reduced)


_Powers = tuple[Expr, Expr | None, Read, Const]


def _softmax_sum(statement: Statement, top: Statement, values: Mapping[str, Value]) -> _Powers | None:
    """The element, what its power weights, its read of the row's maximum `top`, and the scale, where powers are summed.

    What is weighted is anything that does not read the maximum; None where the powers stand alone.
    """
    if not statement.reduction or statement.reduction.op != "sum" or len(statement.reduced) != 1:
        return None
    power, rest = looked_through(statement.body, values), None
    if isinstance(power, Op) and power.name == "mul":
        power, rest = looked_through(power.args[0], values), power.args[1]
    if not (isinstance(power, Op) and power.name == "exp2"):
        return None
    apart, scale = looked_through(power.args[0], values), Const(1.0)
    if isinstance(apart, Op) and apart.name == "mul" and isinstance(apart.args[1], Const):
        scale, apart = apart.args[1], looked_through(apart.args[0], values)
    if not (isinstance(apart, Op) and apart.name == "sub" and isinstance(read := apart.args[1], Read)):
        return None
    if read.value != top.name or not scale.value > 0 or not alike(same_row(top, read, statement), apart.args[0]):
        return None
    if rest is not None and any(r.value == top.name for r in rest.reads()):
        return None
    return apart.args[0], rest, read, scale
