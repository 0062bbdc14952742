"""The ruler: what a graph computes in float64 and exact integers.

Decides the meaning of every statement, in numbers that no machine rounds: a real format is not rounded to, an integer
format is checked against (a result outside it is refused). It must not know machines, nor remember shapes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from kohakuaccel.diagnostics import Refusal, did_you_mean
from kohakuaccel.graph.dtypes import DType, kind_of, numpy_of
from kohakuaccel.graph.expr import Bits, Cast, Const, Expr, Iota, Op, Read
from kohakuaccel.graph.index import Range
from kohakuaccel.graph.model import NUMPY, Constant, Graph, Input, Statement
from kohakuaccel.graph.points import Array, Space, Spans, assembled, contracted
from kohakuaccel.graph.scalar import compute, convert, convert_bits, fold
from kohakuaccel.graph.structure import as_contraction
from kohakuaccel.graph.verify import verify


def run(graph: Graph, inputs: Mapping[str, ArrayLike], *, keep: tuple[str, ...] = ()) -> dict[str, Array]:
    """Outputs by label (and the values named in `keep`, by name), as float64, int64 or bool arrays.

    inputs: one array per input of the graph, of its shape; integers where the input is an integer. Raises a `Refusal`
    for a wrong set of inputs, a gathered index outside its promise, or an integer outside its format.
    """
    verify(graph)
    known: dict[str, Array] = {}
    names = {v.name for v in graph.inputs}
    for name in inputs:
        if name not in names:
            raise Refusal(f"inputs are the graph's{did_you_mean(name, names)}", where="run", got=name)
    for value in graph.values:
        if isinstance(value, Input):
            if value.name not in inputs:
                raise Refusal("every input is given", where="run", got=f"nothing for {value.name}")
            known[value.name] = _given(value, inputs[value.name])
        elif isinstance(value, Constant):
            known[value.name] = value.array
        else:
            known[value.name] = evaluate(value, known)
    return {label: known[name] for label, name in graph.outputs} | {name: known[name] for name in keep}


def evaluate(statement: Statement, known: Mapping[str, Array]) -> Array:
    """One statement over the arrays of the values it reads."""
    contraction = as_contraction(statement)
    with np.errstate(all="ignore"):
        if contraction:
            result = contracted(statement, contraction, lambda e, own: _Point(own, known).value(e))
        else:
            result = _points(statement, known)
    return _checked(result, statement.dtype, f"statement {statement.name}")


def _given(value: Input, given: ArrayLike) -> Array:
    array = np.asarray(given)
    if array.shape != value.shape:
        raise Refusal("an input has its shape", where=f"input {value.name}", got=array.shape, limit=value.shape)
    allowed = {"real": "fiub", "int": "iu", "bool": "b", "word": "iu"}[kind_of(value.dtype)]
    if array.dtype.kind not in allowed and not (array.dtype.kind == "V" and allowed == "fiub"):
        raise Refusal(f"an input of {value.dtype} holds such numbers", where=f"input {value.name}", got=array.dtype)
    return _checked(array.astype(numpy_of(value.dtype)), value.dtype, f"input {value.name}")


def _checked(array: Array, dtype: DType, where: str) -> Array:
    if kind_of(dtype) == "int" and array.size:
        low, high = int(array.min()), int(array.max())
        if low < dtype.lowest or high > dtype.max:
            raise Refusal(
                f"integers lie in {dtype}",
                where=where,
                got=low if low < dtype.lowest else high,
                limit=f"{int(dtype.lowest)}..{int(dtype.max)}",
                hint="use a wider integer format",
            )
    return array


def _points(statement: Statement, known: Mapping[str, Array]) -> Array:
    """The body at every point, then the fold."""
    space = (*statement.ranges, *statement.reduced)
    axes = tuple(range(len(statement.ranges), len(space)))

    def part(spans: Spans) -> Array:
        body = np.broadcast_to(_Point(space, known, spans).value(statement.body), tuple(b - a for a, b in spans))
        return fold(statement.reduction.op, body, axes) if statement.reduction else body

    return assembled(statement, numpy_of(statement.dtype), part)


class _Point(Space):
    """Expressions over a part of a space of ranges."""

    def __init__(self, space: tuple[Range, ...], known: Mapping[str, Array], spans: Spans | None = None) -> None:
        super().__init__(space, spans)
        self.known = known
        self.done: dict[Expr, Array] = {}

    def gathered(self, expr: Expr) -> Array:
        return self.value(expr)

    def value(self, expr: Expr) -> Array:
        if expr not in self.done:
            self.done[expr] = self._value(expr)
        return self.done[expr]

    def _value(self, expr: Expr) -> Array:
        if isinstance(expr, Const):
            return np.full((1,) * self.rank, expr.value, NUMPY[expr.kind])
        if isinstance(expr, Iota):
            return self.index(expr.index)
        if isinstance(expr, Cast):
            return self._cast(expr)
        if isinstance(expr, Bits):
            return self._bits(expr)
        if isinstance(expr, Read):
            return self._read(expr)
        assert isinstance(expr, Op)
        return compute(expr.name, [self.value(a) for a in expr.args])

    def _cast(self, expr: Cast) -> Array:
        return _checked(convert(self.value(expr.arg), expr.dtype, str(expr)), expr.dtype, str(expr))

    def _bits(self, expr: Bits) -> Array:
        return convert_bits(self.value(expr.arg), expr.source, expr.dtype)

    def _read(self, read: Read) -> Array:
        source = self.known[read.value]
        held = self.held(read.guards)
        places = [self.index(i, held) for i in read.indices]
        if held is None or read.pad is None:
            return source[tuple(places)] if places else source.reshape((1,) * self.rank)
        clipped = tuple(np.clip(p, 0, n - 1) for p, n in zip(places, source.shape))
        inner = source[clipped] if clipped else source.reshape((1,) * self.rank)
        return np.where(held, inner, np.array(read.pad.value).astype(source.dtype))
