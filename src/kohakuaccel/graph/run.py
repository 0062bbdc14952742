"""The ruler: what a graph computes in float64 and exact integers.

Decides the meaning of every statement, in numbers that no machine rounds: a real format is not rounded to, an integer
format is checked against (a result outside it is refused). It must not know machines, nor remember shapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kohakuaccel.diagnostics import Refusal, did_you_mean
from kohakuaccel.graph.dtypes import DType, kind_of, numpy_of
from kohakuaccel.graph.expr import Bits, Cast, Const, Expr, Iota, Op, Read
from kohakuaccel.graph.index import Index, Lookup, Quotient, Range
from kohakuaccel.graph.model import NUMPY, Constant, Graph, Input, Statement
from kohakuaccel.graph.scalar import compute, convert, convert_bits, fold
from kohakuaccel.graph.structure import Contraction, as_contraction
from kohakuaccel.graph.verify import verify

Array = NDArray[Any]
CHUNK = 1 << 22
"""Points of an iteration space that are held at once."""


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
            result = _contract(statement, contraction, known)
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


def _contract(statement: Statement, found: Contraction, known: Mapping[str, Array]) -> Array:
    """Both operands as stacks of matrices over the ranges they follow, then one matrix product each."""

    def operand(expr: Expr, *groups: tuple[Range, ...]) -> Array:
        own = tuple(r for group in groups for r in group)
        filled = np.broadcast_to(_Point(own, known).value(expr), tuple(r.extent for r in own))
        return filled.reshape(tuple(prod(r.extent for r in group) for group in groups))

    left = operand(found.left, found.batch, found.m, found.k)
    right = operand(found.right, found.batch, found.k, found.n)
    order = (*found.batch, *found.m, *found.n, *found.broadcast)
    product = np.matmul(left, right).reshape(tuple(1 if r in found.broadcast else r.extent for r in order))
    return np.broadcast_to(product.transpose([order.index(r) for r in statement.ranges]), statement.shape)


def _points(statement: Statement, known: Mapping[str, Array]) -> Array:
    """The body at every point, a slice of the outermost ranges at a time, then the fold."""
    space = (*statement.ranges, *statement.reduced)
    sizes = [r.extent for r in space]
    depth = 0
    while depth < len(statement.ranges) and prod(sizes[depth:]) > CHUNK:
        depth += 1
    # The range that splits into runs of several; those before it go one by one.
    outer, inner = sizes[: max(depth - 1, 0)], sizes[depth:]
    step = max(1, CHUNK // prod(inner)) if depth else 0
    result = np.empty(statement.shape, numpy_of(statement.dtype))
    for place in np.ndindex(*outer):
        cut = range(0, sizes[depth - 1], step) if depth else (0,)
        for start in cut:
            spans = [(n, n + 1) for n in place]
            if depth:
                spans.append((start, min(start + step, sizes[depth - 1])))
            spans += [(0, n) for n in inner]
            body = _Point(space, known, tuple(spans)).value(statement.body)
            body = np.broadcast_to(body, tuple(high - low for low, high in spans))
            if statement.reduction:
                axes = tuple(range(len(statement.ranges), len(space)))
                body = fold(statement.reduction.op, body, axes)
            where = tuple(slice(low, high) for low, high in spans[: len(statement.ranges)])
            result[where] = body
    return result


class _Point:
    """Expressions over a box of a space of ranges: every array has an axis a range, of extent 1 where constant."""

    def __init__(
        self, space: tuple[Range, ...], known: Mapping[str, Array], spans: tuple[tuple[int, int], ...] | None = None
    ) -> None:
        self.known = known
        self.rank = len(space)
        self.axes: dict[Range, Array] = {}
        for n, r in enumerate(space):
            low, high = spans[n] if spans else (0, r.extent)
            shape = [1] * self.rank
            shape[n] = high - low
            self.axes[r] = np.arange(low, high, dtype=np.int64).reshape(shape)
        self.done: dict[Expr, Array] = {}

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

    def index(self, index: Index, held: Array | None = None) -> Array:
        """An index as int64; where `held` is False its gathers may break their promise."""
        total = np.full((1,) * self.rank, index.offset, np.int64)
        for atom, factor in index.terms:
            if isinstance(atom, Range):
                part = self.axes[atom]
            elif isinstance(atom, Lookup):
                part = self._lookup(atom, held)
            else:
                inner = self.index(atom.index, held)
                part = inner // atom.divisor if isinstance(atom, Quotient) else inner % atom.divisor
            total = total + factor * part
        return total

    def _lookup(self, lookup: Lookup, held: Array | None) -> Array:
        found = self.value(lookup.value)
        bad = (found < 0) | (found >= lookup.extent)
        if held is not None:
            bad = bad & held
        if bad.any():
            raise Refusal(
                "a gathered index lies in what it promises",
                where=str(lookup),
                got=int(np.broadcast_to(found, bad.shape)[bad][0]),
                limit=f"0..{lookup.extent - 1}",
            )
        return found

    def _read(self, read: Read) -> Array:
        source = self.known[read.value]
        held: Array | None = None
        for guard in read.guards:
            at = self.index(guard.index, held)
            one = (guard.low <= at) & (at < guard.high)
            held = one if held is None else held & one
        places = [self.index(i, held) for i in read.indices]
        if held is None or read.pad is None:
            return source[tuple(places)] if places else source.reshape((1,) * self.rank)
        clipped = tuple(np.clip(p, 0, n - 1) for p, n in zip(places, source.shape))
        inner = source[clipped] if clipped else source.reshape((1,) * self.rank)
        return np.where(held, inner, np.array(read.pad.value).astype(source.dtype))
