"""A graph computed on the host in its own formats: every operation rounds to the format of its operands.

Decides how numpy computes a statement quickly: reads through strides, products of matrices, folds a slice at a time.
Where `run` is the ruler (float64, nothing rounded), this is what a processor with these formats computes; sums are
accumulated in float64 (products of matrices in their own format) and rounded once. It must not know machines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph.dtypes import BOOL, DType, WordFormat, kind_of, numpy_of
from kohakuaccel.graph.expr import OPS, Bits, Cast, Const, Expr, Iota, Op, Read
from kohakuaccel.graph.index import Index, Lookup, Quotient, Range
from kohakuaccel.graph.model import Constant, Graph, Input, Shape, Statement, Value
from kohakuaccel.graph.scalar import compute, convert, to_word
from kohakuaccel.graph.structure import Contraction, as_contraction, linear
from kohakuaccel.graph.verify import format_of, verify

Array = NDArray[Any]
CHUNK = 1 << 22
"""Points of an iteration space that are held at once."""
_REAL: Mapping[str, np.dtype[Any]] = {
    "FP16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
}


def stored_in(dtype: DType) -> np.dtype[Any]:
    """The numpy dtype that holds values of a format natively; refuses formats that numpy has no type for."""
    if kind_of(dtype) != "real":
        return numpy_of(dtype)
    if dtype.name not in _REAL:
        raise Refusal("numpy holds values of the format", where="graph.native", got=dtype.name, limit=", ".join(_REAL))
    return _REAL[dtype.name]


class Native:
    """A verified graph, ready to run many times: statements with what can be known before numbers are."""

    def __init__(self, graph: Graph) -> None:
        self.graph = verify(graph)
        self.names = graph.by_name
        self.contractions = {s.name: as_contraction(s) for s in graph.statements}
        last = {r.value: n for n, s in enumerate(graph.statements) for r in s.body.reads()}
        kept = {name for _, name in graph.outputs}
        self.over: list[tuple[Statement, list[str]]] = [
            (s, [name for name, at in last.items() if at == n and name not in kept])
            for n, s in enumerate(graph.statements)
        ]

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by label. inputs: by name, of the format's own numpy dtype and of the value's shape."""
        known: dict[str, Array] = {}
        for value in self.graph.values:
            if isinstance(value, Input):
                known[value.name] = inputs[value.name]
            elif isinstance(value, Constant):
                known[value.name] = np.ascontiguousarray(value.array.astype(stored_in(value.dtype)))
        with np.errstate(all="ignore"):
            for statement, over in self.over:
                known[statement.name] = self._statement(statement, known)
                for name in over:
                    known.pop(name, None)
        return {label: known[name] for label, name in self.graph.outputs}

    def _statement(self, statement: Statement, known: Mapping[str, Array]) -> Array:
        found = self.contractions[statement.name]
        if found and found.m and found.n and kind_of(statement.dtype) == "real" and _small(found):
            return _contract(statement, found, known, self.names)
        return _points(statement, known, self.names)


def _small(found: Contraction) -> bool:
    """Whether both operands can be written out over their ranges."""
    sides = ((*found.batch, *found.m, *found.k), (*found.batch, *found.k, *found.n))
    return all(prod(r.extent for r in side) <= 8 * CHUNK for side in sides)


def _contract(
    statement: Statement, found: Contraction, known: Mapping[str, Array], names: Mapping[str, Value]
) -> Array:
    """Both operands as stacks of matrices, then one matrix product each, in float32 or float64."""
    dtype = stored_in(statement.dtype)
    wide = np.float64 if dtype.itemsize == 8 else np.float32

    def operand(expr: Expr, *groups: tuple[Range, ...]) -> Array:
        own = tuple(r for group in groups for r in group)
        filled = np.broadcast_to(Box(own, known, names).value(expr), tuple(r.extent for r in own))
        return filled.astype(wide, copy=False).reshape(tuple(prod(r.extent for r in group) for group in groups))

    left = operand(found.left, found.batch, found.m, found.k)
    right = operand(found.right, found.batch, found.k, found.n)
    order = (*found.batch, *found.m, *found.n, *found.broadcast)
    product = np.matmul(left, right).reshape(tuple(1 if r in found.broadcast else r.extent for r in order))
    result = np.broadcast_to(product.transpose([order.index(r) for r in statement.ranges]), statement.shape)
    return np.ascontiguousarray(result.astype(dtype, copy=False)).reshape(statement.shape)


def _points(statement: Statement, known: Mapping[str, Array], names: Mapping[str, Value]) -> Array:
    """The body at every point, a slice of the outer ranges at a time, then the fold."""
    space = (*statement.ranges, *statement.reduced)
    sizes = [r.extent for r in space]
    dtype = stored_in(statement.dtype)
    if prod(sizes) <= CHUNK or not statement.ranges:
        spans = [(0, n) for n in sizes]
        return _folded(statement, _body(statement, space, known, names, spans), dtype)
    depth = 0
    while depth < len(statement.ranges) and prod(sizes[depth:]) > CHUNK:
        depth += 1
    outer, inner = sizes[: max(depth - 1, 0)], sizes[depth:]
    step = max(1, CHUNK // prod(inner))
    result = np.empty(statement.shape, dtype)
    for place in np.ndindex(*outer):
        for start in range(0, sizes[depth - 1], step):
            spans = [(n, n + 1) for n in place]
            spans.append((start, min(start + step, sizes[depth - 1])))
            spans += [(0, n) for n in inner]
            body = _body(statement, space, known, names, spans)
            where = tuple(slice(low, high) for low, high in spans[: len(statement.ranges)])
            result[where] = _folded(statement, body, dtype)
    return result


def _body(
    statement: Statement,
    space: tuple[Range, ...],
    known: Mapping[str, Array],
    names: Mapping[str, Value],
    spans: list[tuple[int, int]],
) -> Array:
    body = Box(space, known, names, spans).value(statement.body, statement.dtype)
    return np.broadcast_to(body, tuple(high - low for low, high in spans))


def _folded(statement: Statement, body: Array, dtype: np.dtype[Any]) -> Array:
    fold = statement.reduction
    if fold is None:
        return np.ascontiguousarray(body.astype(dtype, copy=False)).reshape(body.shape)
    axes = tuple(range(len(statement.ranges), body.ndim))
    if fold.op in ("max", "min"):
        ufunc = np.maximum if fold.op == "max" else np.minimum
        return np.asarray(ufunc.reduce(body, axis=axes)).astype(dtype)
    ufunc = np.add if fold.op == "sum" else np.multiply
    wide = np.dtype(np.float64) if kind_of(statement.dtype) == "real" else dtype
    return np.asarray(ufunc.reduce(body, axis=axes, dtype=wide)).astype(dtype)


class Box:
    """Expressions over a box of a space of ranges, in their own formats: an axis a range, extent 1 where constant."""

    def __init__(
        self,
        space: tuple[Range, ...],
        known: Mapping[str, Array],
        names: Mapping[str, Value],
        spans: list[tuple[int, int]] | None = None,
    ) -> None:
        self.space, self.known, self.names = space, known, names
        self.rank = len(space)
        self.spans = spans or [(0, r.extent) for r in space]
        self.axes: dict[Range, Array] = {}
        for n, (r, (low, high)) in enumerate(zip(space, self.spans)):
            shape = [1] * self.rank
            shape[n] = high - low
            self.axes[r] = np.arange(low, high, dtype=np.int64).reshape(shape)
        self.done: dict[int, tuple[Expr, Array]] = {}

    def value(self, expr: Expr, dtype: DType | None = None) -> Array:
        """An expression's values; dtype: of a number that stands alone."""
        if isinstance(expr, Const):
            return np.full((1,) * self.rank, expr.value).astype(self._const(expr, dtype))
        found = self.done.get(id(expr))
        if found is None:
            self.done[id(expr)] = found = (expr, self._value(expr, dtype))
        return found[1]

    @staticmethod
    def _const(expr: Const, dtype: DType | None) -> np.dtype[Any]:
        if expr.kind == "real":
            return stored_in(dtype) if dtype is not None and kind_of(dtype) == "real" else np.dtype(np.float64)
        return np.dtype(np.int64) if expr.kind == "int" else np.dtype(np.bool_)

    def _value(self, expr: Expr, dtype: DType | None) -> Array:
        match expr:
            case Iota():
                return self.index(expr.index)
            case Cast():
                return self._cast(expr)
            case Bits():
                values = self.value(expr.arg, expr.source).astype(stored_in(expr.source), copy=False)
                return np.ascontiguousarray(values).view(stored_in(expr.dtype)).reshape(values.shape)
            case Read():
                return self._read(expr)
            case Op():
                return self._op(expr, dtype)
            case _:
                raise TypeError(type(expr).__name__)

    def _op(self, expr: Op, dtype: DType | None) -> Array:
        own = None if OPS[expr.name].result == "bool" else format_of(expr, self.names)
        if OPS[expr.name].result == "bool":
            formats = [f for f in (format_of(a, self.names) for a in expr.args) if f is not None]
            own = (
                next((f for f in formats if all(f.is_exact_from(g) for g in formats)), formats[0]) if formats else None
            )
        own = own or dtype
        args = [self.value(a, own) for a in expr.args]
        if expr.name == "where":
            args[1:] = self._alike(args[1:], own)
        else:
            args = self._alike(args, own)
        return compute(expr.name, args)

    @staticmethod
    def _alike(args: list[Array], dtype: DType | None) -> list[Array]:
        """Real operands in one numpy dtype, as numpy's own promotion knows nothing of ours."""
        if dtype is None or kind_of(dtype) != "real":
            return args
        target = stored_in(dtype)
        return [a.astype(target, copy=False) for a in args]

    def _cast(self, expr: Cast) -> Array:
        values = self.value(expr.arg, None if isinstance(expr.arg, Const) else expr.dtype)
        if kind_of(expr.dtype) == "real":
            return values.astype(stored_in(expr.dtype), copy=False)
        if isinstance(expr.dtype, WordFormat):
            return to_word(values, expr.dtype)
        if expr.dtype == BOOL:
            return values != 0
        return convert(values.astype(np.float64) if values.dtype.kind == "V" else values, expr.dtype, str(expr))

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
            total = total + (part if factor == 1 else factor * part)
        return total

    def _lookup(self, lookup: Lookup, held: Array | None) -> Array:
        found = self.value(lookup.value).astype(np.int64)
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
        if not read.guards:
            flat = linear(read.indices, source.shape)
            if flat.affine:
                return self._strided(source, flat)
            places = tuple(self.index(i) for i in read.indices)
            return source[places] if places else source.reshape((1,) * self.rank)
        assert read.pad is not None
        held: Array | None = None
        for guard in read.guards:
            at = self.index(guard.index, held)
            one = (guard.low <= at) & (at < guard.high)
            held = one if held is None else held & one
        assert held is not None
        flat = self.index(linear(read.indices, source.shape), held)
        flat, held = np.broadcast_arrays(flat, held)
        inner = source.reshape(-1)[np.where(held, flat, 0)]
        return np.where(held, inner, np.array(read.pad.value).astype(source.dtype))

    def _strided(self, source: Array, flat: Index) -> Array:
        """A view of a contiguous value through the strides of an affine index."""
        size = source.dtype.itemsize
        start, shape, strides = flat.offset, [1] * self.rank, [0] * self.rank
        for n, (r, (low, high)) in enumerate(zip(self.space, self.spans)):
            factor = flat.coefficient(r)
            start += factor * low
            if factor:
                shape[n], strides[n] = high - low, factor * size
        view: Array = np.ndarray(
            tuple(shape), source.dtype, source.reshape(-1).view(np.uint8), start * size, tuple(strides)
        )
        return view


Evaluate = Callable[[Mapping[str, Array]], dict[str, Array]]

__all__ = ["Box", "Evaluate", "Native", "Shape", "stored_in"]
