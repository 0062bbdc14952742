"""More functions that only move elements: axes of one, rolls, repeats, splits, stacks, padding that mirrors, masks.

Decides index maps; computes nothing but which side of a diagonal an element is on.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph.build.core import Builder, Tensor, axes_of, axis_of, number
from kohakuaccel.graph.build.movement import concat, pad, reshape, slice_
from kohakuaccel.graph.dtypes import BOOL
from kohakuaccel.graph.expr import Const, Expr, Iota, Read, literal, op
from kohakuaccel.graph.index import Guard, Index

PadMode = Literal["constant", "reflect", "replicate", "circular"]


def unsqueeze(x: Tensor, axis: int) -> Tensor:
    """A new axis of extent 1, where it says."""
    axis = axis_of(axis, x.ndim + 1, "graph.build.unsqueeze")
    return reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))


def squeeze(x: Tensor, axes: int | Sequence[int] | None = None) -> Tensor:
    """Without some axes of extent 1 (None: without all of them)."""
    listed = [n for n, e in enumerate(x.shape) if e == 1] if axes is None else [axes] if isinstance(axes, int) else axes
    gone = {axis_of(a, x.ndim, "graph.build.squeeze") for a in listed}
    if any(x.shape[n] != 1 for n in gone):
        raise Refusal("an axis that goes has extent 1", where="graph.build.squeeze", got=x.shape)
    return reshape(x, tuple(e for n, e in enumerate(x.shape) if n not in gone))


def flatten(x: Tensor, first: int = 0, last: int = -1) -> Tensor:
    """Axes first .. last as one."""
    if not x.ndim:
        return reshape(x, (1,))
    a, b = (axis_of(n, x.ndim, "graph.build.flatten") for n in (first, last))
    return reshape(x, (*x.shape[:a], prod(x.shape[a : b + 1]), *x.shape[b + 1 :]))


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Values of one shape along a new axis."""
    return concat([unsqueeze(t, axis) for t in tensors], axis)


def split(x: Tensor, sizes: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """Pieces along an axis: of so many elements each (the last may be shorter), or of the listed sizes."""
    axis = axis_of(axis, x.ndim, "graph.build.split")
    extent = x.shape[axis]
    if isinstance(sizes, int):
        step = max(sizes, 1)
        listed = [min(step, extent - at) for at in range(0, extent, step)] if sizes > 0 else [sizes]
    else:
        listed = list(sizes)
    if sum(listed) != extent or any(n < 1 for n in listed):
        raise Refusal("pieces make up the axis", where="graph.build.split", got=sizes, limit=extent)
    starts = [sum(listed[:n]) for n in range(len(listed))]
    return [slice_(x, axis, at, at + n) for at, n in zip(starts, listed)]


def _along(x: Tensor, axis: int, extent: int, place: Index, name: str) -> Tensor:
    """x with one axis of `extent`, read at `place` of it; the axis' range is i<axis>."""
    ranges = axes_of([*x.shape[:axis], extent, *x.shape[axis + 1 :]])
    return x.builder.statement(
        x.dtype, ranges, x.at(*(place if n == axis else r for n, r in enumerate(ranges))), name=name
    )


def roll(x: Tensor, shift: int, axis: int) -> Tensor:
    """Elements moved `shift` places along an axis; what leaves at one end comes in at the other."""
    axis = axis_of(axis, x.ndim, "graph.build.roll")
    r = axes_of(x.shape)[axis]
    return _along(x, axis, r.extent, (r - shift) % r.extent, "rolled")


def repeat(x: Tensor, times: Sequence[int]) -> Tensor:
    """The whole value so many times along each axis; further leading numbers make new axes."""
    if len(times) < x.ndim or any(n < 1 for n in times):
        raise Refusal("a positive number for every axis", where="graph.build.repeat", got=tuple(times), limit=x.ndim)
    sizes = (*(1 for _ in range(len(times) - x.ndim)), *x.shape)
    ranges = axes_of([n * e for n, e in zip(times, sizes)])
    own = ranges[len(times) - x.ndim :]
    return x.builder.statement(x.dtype, ranges, x.at(*(r % e for r, e in zip(own, x.shape))), name="repeated")


def repeat_interleave(x: Tensor, times: int, axis: int) -> Tensor:
    """Every element along an axis so many times in a row: the keys of grouped-query attention."""
    axis = axis_of(axis, x.ndim, "graph.build.repeat_interleave")
    if times < 1:
        raise Refusal("elements are repeated", where="graph.build.repeat_interleave", got=times)
    extent = x.shape[axis] * times
    return _along(x, axis, extent, axes_of([*x.shape[:axis], extent])[axis] // times, "repeated")


def interpolate_nearest(x: Tensor, size: Sequence[int]) -> Tensor:
    """The last axes at other extents; element i reads floor(i * old / new)."""
    if not 0 < len(size) <= x.ndim or any(n < 1 for n in size):
        raise Refusal(
            "extents for the last axes", where="graph.build.interpolate_nearest", got=tuple(size), limit=x.shape
        )
    lead = x.ndim - len(size)
    ranges = axes_of([*x.shape[:lead], *size])
    places = [r if n < lead else r * x.shape[n] // r.extent for n, r in enumerate(ranges)]
    return x.builder.statement(x.dtype, ranges, x.at(*places), name="resized")


def pad_mode(x: Tensor, widths: Sequence[tuple[int, int]], mode: PadMode = "constant", value: float = 0) -> Tensor:
    """(before, after) more elements along each axis, made of the value's own: mirrored without the edge (reflect), the
    edge again (replicate), or from the other end (circular). "constant" is `pad`.
    """
    where = "graph.build.pad_mode"
    if mode == "constant":
        return pad(x, widths, value)
    if len(widths) != x.ndim:
        raise Refusal("one pair of widths an axis", where=where, got=len(widths), limit=x.ndim)
    for axis, (before, after) in enumerate(widths):
        extent = x.shape[axis]
        limit = {"reflect": extent - 1, "circular": extent, "replicate": before + after}.get(mode)
        if limit is None:
            raise Refusal("a mode of padding", where=where, got=mode, limit="constant, reflect, replicate, circular")
        if min(before, after) < 0 or max(before, after) > limit:
            raise Refusal("padding is made of what is there", where=where, got=(before, after), limit=f"0..{limit}")
        if before or after:
            x = _padded(x, axis, before, after, mode)
    return x


def _padded(x: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    extent = x.shape[axis]
    ranges = axes_of([*x.shape[:axis], extent + before + after, *x.shape[axis + 1 :]])
    r = ranges[axis]
    if mode == "circular":
        return _along(x, axis, r.extent, (r - before) % extent, "padded")
    front, back = (
        (before - r, 2 * (extent - 1) + before - r) if mode == "reflect" else (Index.of(0), Index.of(extent - 1))
    )

    def at(place: Index) -> Expr:
        indices = tuple(place if n == axis else Index.of(other) for n, other in enumerate(ranges))
        guard = Guard(place, 0, extent)
        guards = () if guard.always else (guard,)
        return Read(x.name, indices, guards, Const(number(0, x.kind)) if guards else None)

    body = op("where", op("less", Iota(Index.of(r)), before + extent), at(r - before), at(back))
    if before:
        body = op("where", op("less", Iota(Index.of(r)), before), at(front), body)
    return x.builder.statement(x.dtype, ranges, body, name="padded")


def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    """The elements of the last two axes on and below a diagonal; 0 above it."""
    return _triangle(x, diagonal, upper=False)


def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    """The elements of the last two axes on and above a diagonal; 0 below it."""
    return _triangle(x, diagonal, upper=True)


def _triangle(x: Tensor, diagonal: int, upper: bool) -> Tensor:
    if x.ndim < 2:
        raise Refusal("a triangle has two axes", where=f"graph.build.tri{'u' if upper else 'l'}", got=x.shape)
    ranges = axes_of(x.shape)
    row, column = Iota(ranges[-2] + diagonal), Iota(Index.of(ranges[-1]))
    gone = op("less", column, row) if upper else op("less", row, column)
    body = op("where", gone, literal(number(0, x.kind), x.dtype), x.at(*ranges))
    return x.builder.statement(x.dtype, ranges, body, name="triangle")


def tril_mask(builder: Builder, rows: int, columns: int, diagonal: int = 0) -> Tensor:
    """BOOL[rows, columns]: whether a place is on or below a diagonal. columns - rows: what a causal attention sees."""
    row, column = axes_of((rows, columns))
    above = op("less", Iota(row + diagonal), Iota(Index.of(column)))
    return builder.statement(BOOL, (row, column), op("not", above), name="mask")
