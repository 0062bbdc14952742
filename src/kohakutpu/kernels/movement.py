"""Copies on the device: concatenate, slice, gather, permute, repeat. No arithmetic; every element keeps its value.

Rows move as whole words wherever both places begin at one (any NaN's bits included); columns at other places are
assembled from shifted lanes, and steps along the last axis go through two transposes, which the plan shows. There a NaN
becomes 0x7E00, as everywhere in the core.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang import DimExpr, dims, grid, lookup
from kohakutpu import broadcasting as shapes
from kohakutpu import lang as L
from kohakutpu import recording
from kohakutpu.lang import Kernel, kernel

if TYPE_CHECKING:
    from kohakutpu.tensor import Tensor

A, R, S, T, U, Q, N, M, C, D, E, F = dims("A R S T U Q N M C D E F")
(count,) = dims("count")
FEW = 5  # columns, or rows one behind another, that one store puts together
NONE = np.zeros(1, np.int64)


# rows along an axis before the last: x seen as (A, R, Q, N)


@kernel
def slice_rows(x=L.In(A, R, Q, N), y=L.Out(A, count, Q, N), *, start=0, step=1, count=1):
    """y[:, k] = x[:, start + step * k]."""
    for a, k, q in grid(A, count, Q):
        y[a, k, q] <<= x[a, k * step + start, q]


@kernel
def take_rows(x=L.In(A, R, Q, N), y=L.Out(A, count, Q, N), *, index=NONE, count=1):
    """y[:, k] = x[:, index[k]]."""
    order = lookup(index)
    for a, k, q in grid(A, count, Q):
        y[a, k, q] <<= x[a, order[k], q]


@kernel
def repeat_rows(x=L.In(A, R, Q, N), y=L.Out(A, count, Q, N), *, times=1, count=1):
    """y[:, k] = x[:, k // times]."""
    for a, k, q in grid(A, count, Q):
        y[a, k, q] <<= x[a, k // times, q]


@kernel
def tile_rows(x=L.In(A, R, Q, N), y=L.Out(A, count, Q, N), *, period=1, count=1):
    """y[:, k] = x[:, k % period], period being R."""
    for a, k, q in grid(A, count, Q):
        y[a, k, q] <<= x[a, k % period, q]


@kernel
def concat2(x0=L.In(A, R, N), x1=L.In(A, S, N), y=L.Out(A, R + S, N)):
    """Two blocks of rows one behind the other, for every element of A."""
    _behind(y, x0, x1)


@kernel
def concat3(x0=L.In(A, R, N), x1=L.In(A, S, N), x2=L.In(A, T, N), y=L.Out(A, R + S + T, N)):
    """Three blocks of rows."""
    _behind(y, x0, x1, x2)


@kernel
def concat4(x0=L.In(A, R, N), x1=L.In(A, S, N), x2=L.In(A, T, N), x3=L.In(A, U, N), y=L.Out(A, R + S + T + U, N)):
    """Four blocks of rows."""
    _behind(y, x0, x1, x2, x3)


def _behind(y: L.Out, *blocks: L.In) -> None:
    """Stages that store blocks of rows one behind another."""
    at: DimExpr | int = 0
    for x in blocks:
        for a, r in grid(x.each(0), x.rows()):
            y[a, r + at] <<= x[a, r]
        at = at + x.axes[1]


# columns: x seen as (M, N)


@kernel
def slice_columns(x=L.In(M, N), y=L.Out(M, count), *, start=0, count=1):
    """y = x[:, start : start + count]."""
    for r in grid(x.rows()):
        y[r] <<= x[r, start : start + count]


@kernel
def pick_columns(x=L.In(M, N), y=L.Out(M, count), *, index=(0,), count=1):
    """y = x[:, index], for a few columns."""
    for r in grid(x.rows()):
        y[r] <<= L.join(*(x[r, i : i + 1] for i in index))


@kernel
def take_columns(x=L.In(M, N), y=L.Out(M, count), *, index=NONE, count=1):
    """y = x[:, index], as rows of the transpose."""
    order = lookup(index)
    t = L.temp(count, M)
    for k in grid(count):
        t[k] <<= x.T[order[k]]
    for r in grid(M):
        y[r] <<= t.T[r]


@kernel
def fill_columns(x=L.In(M, 1), y=L.Out(M, count), *, count=1):
    """Row r filled with the number x[r]."""
    for r in grid(x.rows()):
        y[r] <<= x[r, 0]


@kernel
def join2(x0=L.In(M, C), x1=L.In(M, D), y=L.Out(M, C + D)):
    """Two blocks of columns side by side."""
    for r in grid(M):
        y[r] <<= L.join(x0[r], x1[r])


@kernel
def join3(x0=L.In(M, C), x1=L.In(M, D), x2=L.In(M, E), y=L.Out(M, C + D + E)):
    """Three blocks of columns side by side."""
    for r in grid(M):
        y[r] <<= L.join(x0[r], x1[r], x2[r])


@kernel
def join4(x0=L.In(M, C), x1=L.In(M, D), x2=L.In(M, E), x3=L.In(M, F), y=L.Out(M, C + D + E + F)):
    """Four blocks of columns side by side."""
    for r in grid(M):
        y[r] <<= L.join(x0[r], x1[r], x2[r], x3[r])


# permutations of any rank


@lru_cache(maxsize=64)
def permutation(order: tuple[int, ...]) -> Kernel:
    """The kernel of y = transpose(x, order). Leading axes move as rows; where the last axis moves, one transpose of the
    last two axes does it, between row copies that put the right axes there."""
    axes = dims(" ".join(f"A{n}" for n in range(len(order))))
    last, inner = len(order) - 1, order[-1]
    lead = [a for a in order if a not in (inner, last)]

    def rows(y: Any, x: Any, to: Sequence[int], by: Sequence[int]) -> None:
        """y, whose leading axes are `to`, from rows of x, whose leading axes are `by`."""
        for found in grid(*(axes[a] for a in to)):
            at = dict(zip(to, found if isinstance(found, tuple) else (found,)))
            y[found] <<= x[tuple(at[a] for a in by)]

    def permute(x=L.In(*axes), y=L.Out(*(axes[a] for a in order))):
        if inner == last:
            rows(y, x, order[:-1], range(last))
            return
        turned, before = x, [*lead, inner]
        if before != [*range(last)]:
            turned = L.temp(*(axes[a] for a in (*before, last)))
            rows(turned, x, before, range(last))
        rows(y, turned.T, order[:-1], [*lead, last])

    permute.__name__ = "permute_" + "".join(map(str, order))
    return kernel(permute)


_CONCAT: dict[int, Kernel] = {2: concat2, 3: concat3, 4: concat4}
_JOIN: dict[int, Kernel] = {2: join2, 3: join3, 4: join4}

# what the tensor level calls


def as_operand(x: Any, where: str) -> Tensor:
    """x as a tensor. Refused: one without elements."""
    from kohakutpu.tensor import as_tensor

    value = as_tensor(x, where=where)
    if value.size == 0:
        raise Refusal("a copy on the device moves at least one element", where=where, got=f"shape {value.shape}")
    return value


def _axis(axis: int, ndim: int, where: str) -> int:
    if ndim == 0:
        raise Refusal("a copy along an axis needs one", where=where, got="a tensor without axes")
    (found,) = shapes.normalise_axes(axis, ndim, where)
    return found


def _chosen(rows: int, where: str, got: object) -> None:
    if rows < 1:
        raise Refusal("a copy on the device moves at least one element", where=where, got=got, hint="take some")


def _rows(x: Tensor, axis: int) -> Tensor:
    """x as (A, R, Q, N), R being the axis, which is not the last."""
    size = shapes.size_of
    return x.reshape(size(x.shape[:axis]), x.shape[axis], size(x.shape[axis + 1 : -1]), x.shape[-1])


def _flat(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def concat(values: Sequence[Any], axis: int = 0) -> Tensor:
    """Tensors one behind another along an axis. Refused: none, shapes that differ elsewhere, empty ones."""
    given = [as_operand(v, "concat") for v in values]
    if not given:
        raise Refusal("a concatenation has at least one tensor", where="concat")
    chosen = _axis(axis, given[0].ndim, "concat")
    for other in given[1:]:
        shape = given[0].shape
        if other.ndim != len(shape) or any(n != m for i, (n, m) in enumerate(zip(shape, other.shape)) if i != chosen):
            raise Refusal(
                "tensors of one concatenation agree in every other axis",
                where=f"concat along axis {chosen}",
                got=f"{shape} and {other.shape}",
            )
    shape = (*given[0].shape[:chosen], sum(v.shape[chosen] for v in given), *given[0].shape[chosen + 1 :])
    recorder = recording.current()
    if recorder is not None:
        return recorder.operator("concat", *given, axis=chosen)
    final = chosen == len(shape) - 1
    level = [_flat(v) if final else v.reshape(shapes.size_of(shape[:chosen]), -1, shape[-1]) for v in given]
    call = _JOIN if final else _CONCAT
    while len(level) > 1:
        size = 4 if len(level) != 5 else 3
        parts = [level[n : n + size] for n in range(0, len(level), size)]
        level = [call[len(part)](*part) if len(part) > 1 else part[0] for part in parts]
    return level[0].reshape(shape)


def slice(x: Any, axis: int = 0, start: int | None = None, stop: int | None = None, step: int = 1) -> Tensor:
    """x[..., start:stop:step, ...] along one axis, as Python counts. Refused: no element left, a step of 0."""
    value = as_operand(x, "slice")
    chosen = _axis(axis, value.ndim, "slice")
    if step == 0:
        raise Refusal("a slice steps forwards or backwards", where="slice", got="step 0")
    picked = range(*builtins.slice(start, stop, step).indices(value.shape[chosen]))
    _chosen(len(picked), "slice", f"{start}:{stop}:{step} of {value.shape[chosen]}")
    shape = (*value.shape[:chosen], len(picked), *value.shape[chosen + 1 :])
    if picked == range(value.shape[chosen]):
        return value
    recorder = recording.current()
    if recorder is not None:
        return recorder.operator("slice", value, axis=chosen, places=picked)
    if chosen < value.ndim - 1:
        knobs = {"start": picked[0], "step": step if len(picked) > 1 else 1, "count": len(picked)}
        return slice_rows(_rows(value, chosen), **knobs).reshape(shape)
    if step == 1 or len(picked) == 1:
        return slice_columns(_flat(value), start=picked[0], count=len(picked)).reshape(shape)
    return _columns(value, np.array(picked, np.int64)).reshape(shape)


def gather(x: Any, indices: ArrayLike, axis: int = 0) -> Tensor:
    """numpy's take: x[..., indices, ...], the axis replaced by the axes of `indices`, whole numbers that the host knows
    (negative ones count from the end). Refused: numbers outside the axis, no index."""
    value = as_operand(x, "gather")
    chosen = _axis(axis, value.ndim, "gather")
    index = np.asarray(indices)
    _chosen(index.size, "gather", f"{index.size} indices")
    length = value.shape[chosen]
    if index.dtype.kind not in "iu" or index.min() < -length or index.max() >= length:
        raise Refusal(
            "a gather's indices are whole numbers inside the axis",
            where=f"gather along axis {chosen}",
            got=index.dtype if index.dtype.kind not in "iu" else f"{index.min()}..{index.max()}",
            limit=f"{-length}..{length - 1}",
        )
    rows = np.where(index < 0, index + length, index).astype(np.int64).reshape(-1)
    shape = (*value.shape[:chosen], *index.shape, *value.shape[chosen + 1 :])
    recorder = recording.current()
    if recorder is not None:
        return recorder.operator("gather", value, axis=chosen, places=rows.reshape(index.shape))
    if chosen == value.ndim - 1:
        return _columns(value, rows).reshape(shape)
    return take_rows(_rows(value, chosen), index=rows, count=len(rows)).reshape(shape)


def _columns(x: Tensor, index: NDArray[np.int64]) -> Tensor:
    if len(index) <= FEW:
        return pick_columns(_flat(x), index=tuple(index.tolist()), count=len(index))
    return take_columns(_flat(x), index=index, count=len(index))


def repeat(x: Any, times: int, axis: int = 0) -> Tensor:
    """numpy's repeat: every position of the axis `times` times in a row."""
    value, chosen = _stretched(x, times, axis, "repeat")
    shape = (*value.shape[:chosen], times * value.shape[chosen], *value.shape[chosen + 1 :])
    if times == 1:
        return value
    recorder = recording.current()
    if recorder is not None:
        return recorder.operator("repeat", value, axis=chosen, times=times)
    if chosen < value.ndim - 1:
        return repeat_rows(_rows(value, chosen), times=times, count=shape[chosen]).reshape(shape)
    if value.shape[-1] == 1:
        return fill_columns(value.reshape(-1, 1), count=times).reshape(shape)
    return _columns(value, np.repeat(np.arange(value.shape[-1]), times)).reshape(shape)


def tile(x: Any, times: int, axis: int = 0) -> Tensor:
    """The whole axis `times` times in a row."""
    value, chosen = _stretched(x, times, axis, "tile")
    shape = (*value.shape[:chosen], times * value.shape[chosen], *value.shape[chosen + 1 :])
    if times == 1:
        return value
    recorder = recording.current()
    if recorder is not None:
        return recorder.operator("tile", value, axis=chosen, times=times)
    if chosen < value.ndim - 1:
        found = tile_rows(_rows(value, chosen), period=value.shape[chosen], count=shape[chosen])
        return found.reshape(shape)
    return concat([value] * times, chosen)


def _stretched(x: Any, times: int, axis: int, where: str) -> tuple[Tensor, int]:
    value = as_operand(x, where)
    if not isinstance(times, int) or isinstance(times, bool) or times < 1:
        raise Refusal("an axis is repeated a whole number of times, at least once", where=where, got=repr(times))
    return value, _axis(axis, value.ndim, where)


def expand(x: Any, shape: Sequence[int]) -> Tensor:
    """x stretched to a shape by numpy's broadcasting, one copy per run of stretched axes."""
    value, wanted = as_operand(x, "expand"), tuple(int(n) for n in shape)
    if shapes.broadcast(value.shape, wanted, "expand") != wanted:
        raise Refusal("a tensor stretches to a larger shape", where="expand", got=value.shape, limit=wanted)
    recorder = recording.current()
    if recorder is not None:
        return recorder.expanded(value, wanted)
    value = value.reshape((*(1,) * (len(wanted) - value.ndim), *value.shape))
    end = len(wanted)
    while end:
        begin = end
        while begin and value.shape[begin - 1] == 1 and wanted[begin - 1] != 1:
            begin -= 1
        if begin < end:
            times = shapes.size_of(wanted[begin:end])
            merged = value.reshape((*value.shape[:begin], 1, *value.shape[end:]))
            value = repeat(merged, times, begin).reshape((*value.shape[:begin], *wanted[begin:end], *value.shape[end:]))
        end = begin - 1 if begin == end else begin
    return value.reshape(wanted)


def permute(x: Any, axes: Sequence[int]) -> Tensor:
    """numpy's transpose. Axes of length 1 and axes that stay together cost nothing; nothing moves where the order of
    elements stays."""
    value = as_operand(x, "permute")
    order = tuple(a + value.ndim if a < 0 else a for a in axes)
    if sorted(order) != list(range(value.ndim)):
        raise Refusal(
            "a permutation names every axis once", where="permute", got=tuple(axes), limit=f"{value.ndim} axes"
        )
    shape = tuple(value.shape[a] for a in order)
    if shapes.keeps_order(value.shape, order):
        return value.reshape(shape)
    recorder = recording.current()
    if recorder is not None:
        return recorder.permuted(value, order)
    long = [a for a in order if value.shape[a] != 1]
    runs: list[list[int]] = []
    for a in long:
        between = runs and all(value.shape[b] == 1 for b in range(runs[-1][-1] + 1, a)) and a > runs[-1][-1]
        if between:
            runs[-1].append(a)
        else:
            runs.append([a])
    source = sorted(runs)
    merged = tuple(shapes.size_of(tuple(value.shape[a] for a in run)) for run in source)
    compact = tuple(source.index(run) for run in runs)
    return permutation(compact)(value.reshape(merged)).reshape(shape)
