"""Reads and sums at places that are themselves values: embedding, gather, one-hot, scatter-add.

Decides index maps with lookups. A scatter is a masked sum over its sources: nothing is sorted, and duplicates add up.
"""

from __future__ import annotations

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph.build.core import Builder, Tensor, axes_of, axis_of
from kohakuaccel.graph.dtypes import DType
from kohakuaccel.graph.expr import Iota, op
from kohakuaccel.graph.index import Index, Lookup, Range
from kohakuaccel.numerics import FP32, INT32


def arange(builder: Builder, extent: int) -> Tensor:
    """0 .. extent - 1 (INT32)."""
    r = Range("i0", extent)
    return builder.statement(INT32, [r], Iota(Index.of(r)), name="places")


def take(x: Tensor, places: Tensor, axis: int = 0) -> Tensor:
    """x with one axis replaced by the axes of `places`, whose integers pick along it; they lie within its extent."""
    axis = axis_of(axis, x.ndim, "graph.build.take")
    _integers(places, "take")
    x.builder.own(places)
    ranges = axes_of([*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]])
    chosen = Lookup(places.at(*ranges[axis : axis + places.ndim]), x.shape[axis])
    body = x.at(*ranges[:axis], chosen, *ranges[axis + places.ndim :])
    return x.builder.statement(x.dtype, ranges, body, name="taken")


def embedding(table: Tensor, ids: Tensor) -> Tensor:
    """Rows table[v, d] named by ids[...]: result [..., d]."""
    return take(table, ids, 0)


def gather(x: Tensor, axis: int, places: Tensor) -> Tensor:
    """result[i, j] = x[places[i, j], j] (axis 0), and so on: `places` has x's rank, and at most its other extents."""
    axis = axis_of(axis, x.ndim, "graph.build.gather")
    _integers(places, "gather")
    others = [n for n in range(x.ndim) if n != axis]
    if places.ndim != x.ndim or any(places.shape[n] > x.shape[n] for n in others):
        raise Refusal(
            "places have the value's rank and fit its other extents",
            where="graph.build.gather",
            got=places.shape,
            limit=x.shape,
        )
    x.builder.own(places)
    ranges = axes_of(places.shape)
    chosen = Lookup(places.at(*ranges), x.shape[axis])
    body = x.at(*(chosen if n == axis else r for n, r in enumerate(ranges)))
    return x.builder.statement(x.dtype, ranges, body, name="gathered")


def one_hot(ids: Tensor, classes: int, dtype: DType = FP32) -> Tensor:
    """1 at [..., ids[...]], 0 elsewhere: result [..., classes]; an id outside them gives a row of zeros."""
    _integers(ids, "one_hot")
    ranges = axes_of((*ids.shape, classes))
    hit = op("equal", ids.at(*ranges[:-1]), Iota(Index.of(ranges[-1])))
    numbers = (1.0, 0.0) if isinstance(dtype, type(FP32)) else (1, 0)
    return ids.builder.statement(dtype, ranges, op("where", hit, *numbers), name="hot")


def scatter_add(base: Tensor, ids: Tensor, source: Tensor) -> Tensor:
    """base with source[n, ...] added to row ids[n], for every n; an id outside the rows adds nowhere."""
    _integers(ids, "scatter_add")
    if ids.ndim != 1 or source.shape != (*ids.shape, *base.shape[1:]):
        raise Refusal(
            "source[n, ...] for ids[n] and base[rows, ...]",
            where="graph.build.scatter_add",
            got=f"{source.shape}, {ids.shape}, {base.shape}",
        )
    for t in (ids, source):
        base.builder.own(t)
    ranges, n = axes_of(base.shape), Range("n", ids.shape[0])
    hit = op("equal", ids.at(n), Iota(Index.of(ranges[0])))
    zero = 0.0 if base.kind == "real" else 0
    body = op("where", hit, source.at(n, *ranges[1:]), zero)
    added = base.builder.statement(base.dtype, ranges, body, ("sum", [n]), "added")
    return base + added


def _integers(ids: Tensor, name: str) -> None:
    if ids.kind != "int":
        raise Refusal("places are integers", where=f"graph.build.{name}", got=ids.dtype, hint="cast them")
