"""Rules that tidy: one spelling, nothing twice, nothing unread, nothing left to compute that is known.

Decides what counts as the same. No rule here changes a bit of any result in any format, save that a constant computed
now is rounded once where a machine would round at every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph.dtypes import DType, kind_of
from kohakuaccel.graph.expr import COMMUTATIVE, Cast, Const, Expr, Iota, Op, Read, rebuild
from kohakuaccel.graph.index import Index, Range
from kohakuaccel.graph.model import NUMPY, Constant, Graph, Input, Reduction, Statement, Value
from kohakuaccel.graph.rewrite.base import Rewrite, with_body, with_reads
from kohakuaccel.graph.run import evaluate
from kohakuaccel.graph.scalar import compute


@dataclass(frozen=True, kw_only=True)
class Canonicalise(Rewrite):
    """One spelling of every statement.

    before  t[row<4, one<1] = sum[q<8, u<1] 2.0 * guard(x[row, q + u], 0.0, 0 <= q < 8)
    after   t[i0<4, i1<1]   = sum[k0<8]     x[i0, k0] * 2.0

    Ranges are i0, i1, ... and k0, k1, ...; a range of extent 1 is 0 in the body and is not folded; guards that always
    hold go, reads that never happen are their pad; the number stands right of an operation that commutes.
    """

    def rewrite(self, graph: Graph) -> Graph:
        outer, inner = (_stem(graph, s) for s in "ik")
        return graph.with_values(_canonical(v, outer, inner) if isinstance(v, Statement) else v for v in graph.values)


@dataclass(frozen=True, kw_only=True)
class CommonSubexpressions(Rewrite):
    """Values computed the same way are computed once.

    before  a[i<4] = x[i] + y[i];  b[j<4] = y[j] + x[j];  c[i<4] = a[i] * b[i]
    after   a[i<4] = x[i] + y[i];  c[i<4] = a[i] * a[i]
    """

    def rewrite(self, graph: Graph) -> Graph:
        names: dict[str, str] = {}
        first: dict[object, str] = {}
        kept: list[Value] = []
        for value in graph.values:
            if isinstance(value, Statement):
                value = with_body(value, with_reads(value.body, names))
            if not isinstance(value, Input):
                key = _key(value)
                if key in first:
                    names[value.name] = first[key]
                    continue
                first[key] = value.name
            kept.append(value)
        return Graph(tuple(kept), tuple((label, names.get(name, name)) for label, name in graph.outputs))


@dataclass(frozen=True, kw_only=True)
class DeadCode(Rewrite):
    """Values that no output depends on go; inputs stay.

    before  a[i<4] = x[i];  b[i<4] = x[i] * x[i];  output a
    after   a[i<4] = x[i];  output a
    """

    def rewrite(self, graph: Graph) -> Graph:
        alive = {name for _, name in graph.outputs}
        for value in reversed(graph.values):
            if isinstance(value, Statement) and value.name in alive:
                alive |= {r.value for r in value.body.reads()}
        return graph.with_values(v for v in graph.values if v.name in alive or isinstance(v, Input))


@dataclass(frozen=True, kw_only=True)
class FoldConstants(Rewrite):
    """What depends on constants alone is computed now, by the ruler; operations that change nothing go.

    before  c = [1.0, 2.0];  a[i<2] = c[i] * 3.0;  b[i<4] = cast(x[i], FP32) * (2.0 - 1.0)   (x is FP16)
    after   c = [1.0, 2.0];  a = [3.0, 6.0];       b[i<4] = x[i]

    limit: elements a computed constant may have. A cast goes where its format holds every value of what is read; a
    product with 1 and a quotient by 1 go; a sum with 0 stays (it turns -0.0 into 0.0).
    """

    limit: int = 4096

    def rewrite(self, graph: Graph) -> Graph:
        values: dict[str, Value] = {}
        for value in graph.values:
            if isinstance(value, Statement):
                value = with_body(value, rebuild(value.body, lambda e: _folded(e, values)))
                value = self._known(value, values)
            values[value.name] = value
        return graph.with_values(values.values())

    def _known(self, statement: Statement, values: dict[str, Value]) -> Value:
        sources = {r.value: values[r.value] for r in statement.body.reads()}
        arrays = {name: v.array for name, v in sources.items() if isinstance(v, Constant)}
        size = prod(r.extent for r in (*statement.ranges, *statement.reduced))
        if len(arrays) != len(sources) or size > 16 * self.limit or prod(statement.shape) > self.limit:
            return statement
        if not sources and not isinstance(statement.body, Const):
            return statement  # an arange or a mask costs a machine nothing to make
        try:
            return Constant.of(statement.name, evaluate(statement, arrays), statement.dtype)
        except Refusal:
            return statement  # a run has to refuse it, with its numbers


def _stem(graph: Graph, stem: str) -> str:
    names = graph.by_name
    while any(name.startswith(stem) and name[len(stem) :].isdigit() for name in names):
        stem += "_"
    return stem


def _canonical(statement: Statement, outer: str, inner: str) -> Statement:
    out = tuple(Range(f"{outer}{n}", r.extent) for n, r in enumerate(statement.ranges))
    folded = [r for r in statement.reduced if r.extent > 1]
    new = {r: Index.of(0) for r in (*statement.ranges, *statement.reduced)}
    new |= {old: Index.of(r) for old, r in zip(statement.ranges, out) if r.extent > 1}
    fold = tuple(Range(f"{inner}{n}", r.extent) for n, r in enumerate(folded))
    new |= {old: Index.of(r) for old, r in zip(folded, fold)}
    body = rebuild(statement.body.substitute(new), _tidied)
    reduction = Reduction(statement.reduction.op, fold) if statement.reduction and fold else None
    return Statement(statement.name, statement.dtype, out, body, reduction)


def _tidied(expr: Expr) -> Expr:
    if isinstance(expr, Read) and expr.guards:
        if any(g.never for g in expr.guards) and expr.pad:
            return expr.pad
        guards = tuple(dict.fromkeys(g for g in expr.guards if not g.always))
        return Read(expr.value, expr.indices, guards, expr.pad if guards else None)
    if isinstance(expr, Iota) and expr.index.constant is not None:
        return Const(expr.index.constant)
    if isinstance(expr, Op) and expr.name in COMMUTATIVE:
        first, second = expr.args
        if isinstance(first, Const) and not isinstance(second, Const):
            return Op(expr.name, (second, first))
    return expr


def _key(value: Value) -> object:
    """Equal for values computed the same way, however their ranges are called and their operands ordered."""
    if not isinstance(value, Statement):
        return value.dtype, value.shape, value.data if isinstance(value, Constant) else value.name
    plain = _canonical(value, "i", "k")

    def sort(expr: Expr) -> Expr:
        if isinstance(expr, Op) and expr.name in COMMUTATIVE:
            return Op(expr.name, tuple(sorted(expr.args, key=str)))
        return expr

    return plain.dtype, plain.ranges, plain.reduction, rebuild(plain.body, sort)


def _folded(expr: Expr, values: dict[str, Value]) -> Expr:
    """One node over folded children."""
    if isinstance(expr, Cast):
        source = _format(expr.arg, values)
        same = source == expr.dtype
        if (
            source
            and (same or kind_of(source) != "word")
            and (kind_of(source) == kind_of(expr.dtype) and expr.dtype.is_exact_from(source))
        ):
            return expr.arg
    if isinstance(expr, Op):
        if all(isinstance(a, Const) for a in expr.args):
            return _computed(expr)
        if expr.name == "where" and isinstance(expr.args[0], Const):
            return expr.args[1] if expr.args[0].value else expr.args[2]
        if expr.name in ("mul", "div", "idiv") and expr.args[1] in (Const(1.0), Const(1)):
            return expr.args[0]
        if expr.name == "mul" and expr.args[0] in (Const(1.0), Const(1)):
            return expr.args[1]
        inner = expr.args[0]
        if expr.name in ("neg", "not") and isinstance(inner, Op) and inner.name == expr.name:
            return inner.args[0]
    return expr


def _format(expr: Expr, values: dict[str, Value]) -> DType | None:
    """The format an expression's values surely have: a read's own (pads included), or a cast's."""
    if isinstance(expr, Cast):
        return expr.dtype
    if isinstance(expr, Read) and (expr.pad is None or expr.pad.value == 0):
        return values[expr.value].dtype
    return None


def _computed(expr: Op) -> Expr:
    args = [np.array(a.value, NUMPY[a.kind]) for a in expr.args if isinstance(a, Const)]
    try:
        with np.errstate(all="ignore"):
            return Const(np.asarray(compute(expr.name, args)).item())
    except Refusal:
        return expr
