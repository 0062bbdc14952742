"""Reads and sums at places that are themselves values: embedding, gather, one-hot, scatters.

Decides index maps with lookups. A scatter is a masked fold over its sources: nothing is sorted, duplicates are folded.
"""

from __future__ import annotations

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph.build.core import Builder, Tensor, axes_of, axis_of, number, pointwise
from kohakuaccel.graph.dtypes import WORDS, DType, kind_of
from kohakuaccel.graph.expr import Cast, Expr, Iota, literal, op
from kohakuaccel.graph.index import Index, Lookup, Range
from kohakuaccel.graph.model import ReduceOp
from kohakuaccel.graph.scalar import JOIN, identity
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
    hit = _equal(ids.at(*ranges[:-1]), ranges[-1], ids)
    numbers = (literal(number(n, kind_of(dtype)), dtype) for n in (1, 0))
    return ids.builder.statement(dtype, ranges, op("where", hit, *numbers), name="hot")


def scatter_add(base: Tensor, ids: Tensor, source: Tensor, axis: int = 0) -> Tensor:
    """base with source[n, ...] added to row ids[n] along an axis, for every n; an id outside the rows adds nowhere."""
    where = "graph.build.scatter_add"
    _integers(ids, "scatter_add")
    axis = axis_of(axis, base.ndim, where)
    if ids.ndim != 1 or source.shape != (*base.shape[:axis], *ids.shape, *base.shape[axis + 1 :]):
        got = f"{source.shape}, {ids.shape}, {base.shape}"
        raise Refusal("source[n, ...] for ids[n] and base[rows, ...]", where=where, got=got)
    for t in (ids, source):
        base.builder.own(t)
    ranges, n = axes_of(base.shape), Range("n", ids.shape[0])
    hit = _equal(ids.at(n), ranges[axis], ids)
    body = op("where", hit, source.at(*ranges[:axis], n, *ranges[axis + 1 :]), _neutral("sum", base))
    added = base.builder.statement(base.dtype, ranges, body, ("sum", [n]), "added")
    return base + added


def scatter_reduce(base: Tensor, axis: int, places: Tensor, source: Tensor, how: ReduceOp = "sum") -> Tensor:
    """base with source[n, j] folded into base[places[n, j], j] (axis 0), and so on, for every element of `places`.

    places: of base's rank, and at most the extents of source and, but for the axis, of base. A place outside the axis
    is nowhere; several at one place are folded together, in no order.
    """
    k, ranges, hit, element = _hits(base, axis, places, source, "scatter_reduce")
    body = op("where", hit, element, _neutral(how, base))
    found = base.builder.statement(base.dtype, ranges, body, (how, [k]), "folded")
    return pointwise(lambda a, b: op(JOIN[how], a, b), base, found, dtype=base.dtype, name="scattered")


def scatter(base: Tensor, axis: int, places: Tensor, source: Tensor) -> Tensor:
    """base with base[places[n, j], j] = source[n, j] (axis 0), and so on; of several at one place the last stays.

    places: as in `scatter_reduce`.
    """
    k, ranges, hit, _ = _hits(base, axis, places, source, "scatter")
    axis %= base.ndim
    body = op("where", hit, Iota(Index.of(k)), -1)
    last = base.builder.statement(INT32, ranges, body, ("max", [k]), "last")
    here = last.at(*ranges)
    chosen = Index.of(Lookup(op("max", here, 0), k.extent))
    element = source.guarded([chosen if n == axis else r for n, r in enumerate(ranges)], number(0, source.kind))
    body = op("where", op("less", here, 0), base.at(*ranges), element)
    return base.builder.statement(base.dtype, ranges, body, name="scattered")


def _hits(
    base: Tensor, axis: int, places: Tensor, source: Tensor, name: str
) -> tuple[Range, tuple[Range, ...], Expr, Expr]:
    """The range along `places`, the result's ranges, whether an element arrives there, and that element."""
    where = f"graph.build.{name}"
    axis = axis_of(axis, base.ndim, where)
    _integers(places, name)
    if places.kind == "word" and places.dtype.lowest == 0:
        raise Refusal("places are integers with a sign", where=where, got=places.dtype, hint="cast them")
    fits = places.ndim == base.ndim == source.ndim
    for n, (p, s, b) in enumerate(zip(places.shape, source.shape, base.shape)):
        fits = fits and p <= s and (n == axis or p <= b)
    if not fits or source.kind != base.kind:
        raise Refusal(
            "places fit the source, and the value but for the axis; both of one kind",
            where=where,
            got=f"places {places.shape}, source {source.dtype}{source.shape}",
            limit=f"{base.dtype}{base.shape}",
        )
    for t in (places, source):
        base.builder.own(t)
    ranges, k = axes_of(base.shape), Range("k", places.shape[axis])
    at = [k if n == axis else r for n, r in enumerate(ranges)]
    hit = _equal(places.guarded(at, -1), ranges[axis], places)
    return k, ranges, hit, source.guarded(at, number(0, source.kind))


def _neutral(how: ReduceOp, base: Tensor) -> Expr:
    return literal(identity(how, base.dtype), base.dtype)


def _equal(place: Expr, r: Range, ids: Tensor) -> Expr:
    """Whether a place is that of a range; words are compared where both fit."""
    here: Expr = Iota(Index.of(r))
    if ids.kind == "word":
        place, here = Cast(place, WORDS["S64"]), Cast(here, WORDS["S64"])
    return op("equal", place, here)


def _integers(ids: Tensor, name: str) -> None:
    if ids.kind not in ("int", "word"):
        raise Refusal("places are integers", where=f"graph.build.{name}", got=ids.dtype, hint="cast them")
