"""Functions that only move elements: each is one statement whose body is a read (or, for `concat`, a choice of reads).

Decides index maps; computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph.build.core import Tensor, axes_of, axis_of, broadcast, number, result_dtype
from kohakuaccel.graph.expr import Const, Expr, Iota, Read, Scalar, op
from kohakuaccel.graph.index import Guard, Index


def permute(x: Tensor, order: Sequence[int]) -> Tensor:
    """Axis n of the result is axis order[n] of x."""
    axes = [axis_of(a, x.ndim, "graph.build.permute") for a in order]
    if sorted(axes) != list(range(x.ndim)):
        raise Refusal("an order names every axis once", where="graph.build.permute", got=tuple(order), limit=x.ndim)
    ranges = axes_of([x.shape[a] for a in axes])
    return x.builder.statement(x.dtype, ranges, x.at(*(ranges[axes.index(n)] for n in range(x.ndim))), name="permuted")


def transpose(x: Tensor, a: int = -2, b: int = -1) -> Tensor:
    """Two axes exchanged."""
    order = list(range(x.ndim))
    a, b = (axis_of(n, x.ndim, "graph.build.transpose") for n in (a, b))
    order[a], order[b] = order[b], order[a]
    return permute(x, order)


def reshape(x: Tensor, shape: Sequence[int]) -> Tensor:
    """The same elements in row-major order under another shape; one extent may be -1."""
    sizes = list(shape)
    if sizes.count(-1) == 1 and prod(x.shape) % -prod(sizes) == 0:
        sizes[sizes.index(-1)] = prod(x.shape) // -prod(sizes)
    if prod(sizes) != prod(x.shape) or any(n < 1 for n in sizes):
        raise Refusal("a reshape keeps every element", where="graph.build.reshape", got=f"{x.shape} to {tuple(shape)}")
    ranges = axes_of(sizes)
    flat = Index.of(0)
    for r in ranges:
        flat = flat * r.extent + r
    indices: list[Index] = []
    for extent in reversed(x.shape):
        indices.append(flat % extent)
        flat = flat // extent
    return x.builder.statement(x.dtype, ranges, x.at(*reversed(indices)), name="reshaped")


def expand(x: Tensor, shape: Sequence[int]) -> Tensor:
    """x repeated along its axes of extent 1 and along new leading ones, to `shape`."""
    full = broadcast([x.shape, tuple(shape)], "graph.build.expand")
    if full != tuple(shape):
        raise Refusal("a value expands to the shape", where="graph.build.expand", got=f"{x.shape} to {tuple(shape)}")
    ranges = axes_of(full)
    own = ranges[len(full) - x.ndim :]
    indices = (0 if n == 1 else r for n, r in zip(x.shape, own))
    return x.builder.statement(x.dtype, ranges, x.at(*indices), name="expanded")


def slice_(x: Tensor, axis: int, start: int = 0, stop: int | None = None, step: int = 1) -> Tensor:
    """Elements start, start + step, ... below stop (above it for a negative step) along one axis, as Python slices."""
    axis = axis_of(axis, x.ndim, "graph.build.slice_")
    extent = x.shape[axis]
    if step == 0:
        raise Refusal("a slice has a step", where="graph.build.slice_", got=0)
    places = range(extent)[slice(start if step > 0 or start else None, stop, step)]
    if not places:
        raise Refusal("a slice keeps something", where="graph.build.slice_", got=f"{start}:{stop}:{step} of {extent}")
    ranges = axes_of([*x.shape[:axis], len(places), *x.shape[axis + 1 :]])
    indices = [r * step + places[0] if n == axis else r for n, r in enumerate(ranges)]
    return x.builder.statement(x.dtype, ranges, x.at(*indices), name="sliced")


def flip(x: Tensor, axes: Sequence[int]) -> Tensor:
    """Some axes back to front."""
    turned = {axis_of(a, x.ndim, "graph.build.flip") for a in axes}
    ranges = axes_of(x.shape)
    indices = [r.extent - 1 - r if n in turned else r for n, r in enumerate(ranges)]
    return x.builder.statement(x.dtype, ranges, x.at(*indices), name="flipped")


def pad(x: Tensor, widths: Sequence[tuple[int, int]], value: Scalar = 0) -> Tensor:
    """(before, after) more elements along each axis, all `value`; a negative width cuts."""
    if len(widths) != x.ndim:
        raise Refusal("one pair of widths an axis", where="graph.build.pad", got=len(widths), limit=x.ndim)
    ranges = axes_of([n + before + after for n, (before, after) in zip(x.shape, widths)])
    body = x.guarded([r - before for r, (before, _) in zip(ranges, widths)], value)
    return x.builder.statement(x.dtype, ranges, body, name="padded")


def concat(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """The values one after the other along an axis."""
    if not tensors:
        raise Refusal("something to concatenate", where="graph.build.concat", got="nothing")
    first = tensors[0]
    axis = axis_of(axis, first.ndim, "graph.build.concat")
    rests = {t.shape[:axis] + t.shape[axis + 1 :] for t in tensors}
    if len(rests) != 1:
        got = ", ".join(str(t.shape) for t in tensors)
        raise Refusal("concatenated shapes differ in one axis", where="graph.build.concat", got=got, limit=axis)
    for t in tensors:
        first.builder.own(t)
    dtype = result_dtype([t.dtype for t in tensors])
    total = sum(t.shape[axis] for t in tensors)
    ranges = axes_of([*first.shape[:axis], total, *first.shape[axis + 1 :]])
    body: Expr | None = None
    end = total
    for t in reversed(tensors):
        start = end - t.shape[axis]
        indices = tuple(r - start if n == axis else Index.of(r) for n, r in enumerate(ranges))
        guard = Guard(indices[axis], 0, t.shape[axis])
        piece = (
            Read(t.name, indices) if len(tensors) == 1 else Read(t.name, indices, (guard,), Const(number(0, t.kind)))
        )
        body = piece if body is None else op("where", op("less", Iota(Index.of(ranges[axis])), end), piece, body)
        end = start
    assert body is not None
    return first.builder.statement(dtype, ranges, body, name="joined")
