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

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph.dtypes import BOOL, DType, WordFormat, kind_of, numpy_of
from kohakuaccel.graph.expr import OPS, Bits, Cast, Const, Expr, Iota, Op, Read
from kohakuaccel.graph.index import Index, Range
from kohakuaccel.graph.model import Constant, Graph, Input, Shape, Statement, Value
from kohakuaccel.graph.points import CHUNK, Array, Matmul, Space, Spans, assembled, contracted
from kohakuaccel.graph.scalar import compute, convert, to_word
from kohakuaccel.graph.structure import Contraction, as_contraction, linear
from kohakuaccel.graph.verify import format_of, verify

_REAL: Mapping[str, np.dtype[Any]] = {
    "FP16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "FP8E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "FP8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "FP8E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "FP8E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
}
_EIGHT: Mapping[np.dtype[Any], np.float32] = {
    t: np.float32(ml_dtypes.finfo(t).max) for name, t in _REAL.items() if name.startswith("FP8")
}
"""The largest value of 8-bit floats: what is beyond it saturates, and they are computed with in float32."""


def stored_in(dtype: DType) -> np.dtype[Any]:
    """The numpy dtype that holds values of a format natively; refuses formats that numpy has no type for."""
    if kind_of(dtype) != "real":
        return numpy_of(dtype)
    if dtype.name not in _REAL:
        raise Refusal("numpy holds values of the format", where="graph.native", got=dtype.name, limit=", ".join(_REAL))
    return _REAL[dtype.name]


def rounded(values: Array, dtype: np.dtype[Any]) -> Array:
    """Values in a dtype of `stored_in`."""
    top = _EIGHT.get(dtype)
    if top is not None and values.dtype != dtype:
        wide = values.astype(np.float32, copy=False)
        values = np.where(np.isfinite(wide), np.clip(wide, -top, top), wide)
    return values.astype(dtype, copy=False)


class Native:
    """A verified graph, ready to run many times: statements with what can be known before numbers are.

    matmul: who multiplies matrices, [batch, M, K] by [batch, K, N] of float32 or float64; its result is rounded once.
    """

    def __init__(self, graph: Graph, matmul: Matmul = np.matmul) -> None:
        self.graph = verify(graph)
        self.matmul = matmul
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
        if found and multiplied(statement, found):
            return _contract(statement, found, known, self.names, self.matmul)
        return _points(statement, known, self.names)


def multiplied(statement: Statement, found: Contraction) -> bool:
    """Whether a sum of products is computed as products of matrices: both can be written out over their ranges."""
    if not (found.m and found.n and kind_of(statement.dtype) == "real"):
        return False
    sides = ((*found.batch, *found.m, *found.k), (*found.batch, *found.k, *found.n))
    return all(prod(r.extent for r in side) <= 8 * CHUNK for side in sides)


def _contract(
    statement: Statement, found: Contraction, known: Mapping[str, Array], names: Mapping[str, Value], matmul: Matmul
) -> Array:
    """The products in float32, or in float64 where the result is that."""
    dtype = stored_in(statement.dtype)
    wide = np.float64 if dtype.itemsize == 8 else np.float32

    def operand(expr: Expr, own: tuple[Range, ...]) -> Array:
        return Box(own, known, names).value(expr).astype(wide, copy=False)

    product = contracted(statement, found, operand, matmul)
    return np.ascontiguousarray(rounded(product, dtype)).reshape(statement.shape)


def _points(statement: Statement, known: Mapping[str, Array], names: Mapping[str, Value]) -> Array:
    """The body at every point, then the fold."""
    space = (*statement.ranges, *statement.reduced)
    dtype = stored_in(statement.dtype)

    def part(spans: Spans) -> Array:
        body = Box(space, known, names, spans).value(statement.body, statement.dtype)
        return _folded(statement, np.broadcast_to(body, tuple(b - a for a, b in spans)), dtype)

    return assembled(statement, dtype, part)


def _folded(statement: Statement, body: Array, dtype: np.dtype[Any]) -> Array:
    fold = statement.reduction
    if fold is None:
        return rounded(body, dtype)
    axes = tuple(range(len(statement.ranges), body.ndim))
    if fold.op in ("max", "min"):
        ufunc = np.maximum if fold.op == "max" else np.minimum
        return rounded(np.asarray(ufunc.reduce(body, axis=axes)), dtype)
    ufunc = np.add if fold.op == "sum" else np.multiply
    wide = np.dtype(np.float64) if kind_of(statement.dtype) == "real" else dtype
    return rounded(np.asarray(ufunc.reduce(body, axis=axes, dtype=wide)), dtype)


class Box(Space):
    """Expressions over a part of a space of ranges, in their own formats."""

    def __init__(
        self,
        space: tuple[Range, ...],
        known: Mapping[str, Array],
        names: Mapping[str, Value],
        spans: Spans | None = None,
    ) -> None:
        super().__init__(space, spans)
        self.known, self.names = known, names
        self.done: dict[int, tuple[Expr, Array]] = {}

    def gathered(self, expr: Expr) -> Array:
        return self.value(expr)

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
        found = compute(expr.name, args)
        return rounded(found, stored_in(own)) if found.dtype == np.float32 and own is not None else found

    @staticmethod
    def _alike(args: list[Array], dtype: DType | None) -> list[Array]:
        """Real operands in one numpy dtype, as numpy's own promotion knows nothing of ours."""
        if dtype is None or kind_of(dtype) != "real":
            return args
        target = stored_in(dtype)
        target = np.dtype(np.float32) if target in _EIGHT else target
        return [a.astype(target, copy=False) for a in args]

    def _cast(self, expr: Cast) -> Array:
        values = self.value(expr.arg, None if isinstance(expr.arg, Const) else expr.dtype)
        if kind_of(expr.dtype) == "real":
            return rounded(values, stored_in(expr.dtype))
        if isinstance(expr.dtype, WordFormat):
            return to_word(values, expr.dtype)
        if expr.dtype == BOOL:
            return values != 0
        return convert(values.astype(np.float64) if values.dtype.kind == "V" else values, expr.dtype, str(expr))

    def _read(self, read: Read) -> Array:
        source = self.known[read.value]
        if not read.guards:
            flat = linear(read.indices, source.shape)
            if flat.affine:
                return self._strided(source, flat)
            places = tuple(self.index(i) for i in read.indices)
            return source[places] if places else source.reshape((1,) * self.rank)
        assert read.pad is not None
        held = self.held(read.guards)
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
