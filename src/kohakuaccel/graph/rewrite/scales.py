"""Forms that move factors: a divisor out of a sum, a scale into an operand, a mean into its squares.

Decides when a factor may stand elsewhere. Each rule states its proof obligation, which the tests hold numerically.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kohakuaccel.graph.expr import Const, Expr, Op, Read, op, rebuild
from kohakuaccel.graph.index import Index
from kohakuaccel.graph.model import Graph, Statement, Value
from kohakuaccel.graph.rewrite.base import Rewrite, looked_through, with_body, with_reads
from kohakuaccel.numerics import FP32

_DONE = "a factor moved"  # no identifier, so no value has this name


@dataclass(frozen=True, kw_only=True)
class DivideLast(Rewrite):
    """A product of weights that share a divisor is divided once an element, after the sum.

    before  p[i, k] = e[i, k] / s[i];  o[i, j] = sum[k] p[i, k] * v[k, j]
    after   w[i, j] = sum[k] e[i, k] * v[k, j];  o[i, j] = w[i, j] / s[i]

    Holds where the divisor follows no folded range. Obligation: o is the same; where s is zero or infinite, both forms
    give no finite number.
    """

    def rewrite(self, graph: Graph) -> Graph:
        for name in [s.name for s in graph.statements]:
            graph = _divided(graph, graph.statement(name))
        return graph


@dataclass(frozen=True, kw_only=True)
class ScaleOperand(Rewrite):
    """A constant factor on a contraction becomes one on its first operand: the scaled query of an attention.

    before  s[i, j] = sum[k] q[i, k] * x[j, k];            y[i, j] = f(s[i, j] * 0.125)
    after   s[i, j] = sum[k] (q[i, k] * 0.125) * x[j, k];  y[i, j] = f(s[i, j])

    Holds where every reader multiplies by the same number and s is no output. exact: only powers of two, which
    round nothing unless a product leaves the normal range. Obligation: y is the same.
    """

    exact: bool = False

    def rewrite(self, graph: Graph) -> Graph:
        for name in [s.name for s in graph.statements]:
            statement = graph.statement(name)
            factor = _common_factor(graph, statement.name)
            body, fold = statement.body, statement.reduction
            if factor is None or not fold or fold.op != "sum" or not (isinstance(body, Op) and body.name == "mul"):
                continue
            if self.exact and math.frexp(float(factor.value))[0] not in (0.5, -0.5):
                continue
            scaled = with_body(statement, op("mul", op("mul", body.args[0], factor), body.args[1]))

            graph = _refactored(graph, scaled, None)
        return graph


@dataclass(frozen=True, kw_only=True)
class MeanInside(Rewrite):
    """A mean of squares whose sum a narrow format could not hold: the mean is taken before squaring, by a power of two.

    before  s[i] = sum[k<n] x[i, k] * x[i, k];              m[i] = s[i] * (1 / n)
    after   s[i] = sum[k<n] (x[i, k] * r) * (x[i, k] * r);  m[i] = s[i] * (1 / (n r r))      r = 2^-ceil(log2(n) / 2)

    Holds where every reader multiplies by the same number, s is no output and its format lacks the range of FP32. What
    is summed is at most the greatest square then. Obligation: m is the same.
    """

    def rewrite(self, graph: Graph) -> Graph:
        for name in [s.name for s in graph.statements]:
            statement = graph.statement(name)
            factor, fold = _common_factor(graph, statement.name), statement.reduction
            if factor is None or not fold or fold.op != "sum" or statement.dtype.contains_range_of(FP32):
                continue
            square = looked_through(statement.body, graph.by_name)
            if not (isinstance(square, Op) and square.name == "mul" and square.args[0] == square.args[1]):
                continue
            if isinstance(square.args[0], Op) and isinstance(square.args[0].args[-1], Const):
                continue  # scaled already
            count = math.prod(r.extent for r in fold.ranges)
            scale = 2.0 ** -math.ceil(math.log2(count) / 2)
            if scale == 1.0:
                continue
            part = op("mul", square.args[0], scale)
            made = with_body(statement, op("mul", part, part))
            graph = _refactored(graph, made, Const(float(factor.value) / (scale * scale)))
        return graph


def _divided(graph: Graph, statement: Statement) -> Graph:
    body, fold = statement.body, statement.reduction
    if not fold or fold.op != "sum" or not (isinstance(body, Op) and body.name == "mul"):
        return graph
    weight = looked_through(body.args[0], graph.by_name)
    if not (isinstance(weight, Op) and weight.name == "div") or weight.args[1].ranges().intersection(fold.ranges):
        return graph
    above, below = weight.args
    product = op("mul", above, body.args[1])
    total = Statement(graph.fresh("weighted"), statement.dtype, statement.ranges, product, fold)
    here = Read(total.name, tuple(Index.of(r) for r in statement.ranges))
    made = Statement(statement.name, statement.dtype, statement.ranges, op("div", here, below))
    values: list[Value] = []
    for value in graph.values:
        values += (total, made) if value.name == statement.name else (value,)
    return graph.with_values(values)


def _refactored(graph: Graph, made: Statement, factor: Const | None) -> Graph:
    """The graph with one statement replaced, and its readers' factor by another (None: by no factor)."""

    def change(e: Expr) -> Expr:
        if not (isinstance(e, Op) and e.name == "mul" and isinstance(read := e.args[0], Read)):
            return e
        if read.value != made.name or not isinstance(e.args[1], Const):
            return e
        # Under another name until all is done: the product around this one must not match in its turn.
        done = Read(_DONE, read.indices)
        return done if factor is None else Op("mul", (done, factor))

    values: list[Value] = []
    for value in graph.values:
        if value.name == made.name:
            value = made
        elif isinstance(value, Statement):
            value = with_body(value, with_reads(rebuild(value.body, change), {_DONE: made.name}))
        values.append(value)
    return graph.with_values(values)


def _common_factor(graph: Graph, name: str) -> Const | None:
    """The number by which every read of a value is multiplied, where there is one and the value is no output."""
    if any(name == output for _, output in graph.outputs):
        return None
    reads = 0
    factors: list[Const] = []
    for statement in graph.readers(name):
        for e in statement.body.walk():
            reads += isinstance(e, Read) and e.value == name
            if isinstance(e, Op) and e.name == "mul" and isinstance(inner := e.args[0], Read) and inner.value == name:
                factors += [e.args[1]] if isinstance(e.args[1], Const) and not inner.guards else []
    return factors[0] if factors and len(factors) == reads and len(set(factors)) == 1 else None
