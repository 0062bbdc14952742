"""Folds along axes and what is made of them: sums, extremes and where they are, softmax.

Decides which statements make one function; the naive form of a softmax is never built, the maximum is always taken off.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod as product

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph.build.core import Tensor, axis_of, converted, of_reals, pointwise
from kohakuaccel.graph.build.elementwise import LN2, LOG2E, exp, log
from kohakuaccel.graph.build.movement import reshape
from kohakuaccel.graph.dtypes import BOOL, DType
from kohakuaccel.graph.expr import Expr, Iota, op
from kohakuaccel.graph.index import Index, Range
from kohakuaccel.graph.model import ReduceOp
from kohakuaccel.numerics import INT32

Axes = int | Sequence[int] | None


def reduce(how: ReduceOp, x: Tensor, axes: Axes = None, keep: bool = False, dtype: DType | None = None) -> Tensor:
    """A fold over some axes (None: all). keep: they stay, with extent 1."""
    listed = range(x.ndim) if axes is None else [axes] if isinstance(axes, int) else axes
    gone = {axis_of(a, x.ndim, f"graph.build.{how}") for a in listed}
    if not gone:
        return x
    every = [Range(f"{'k' if n in gone else 'i'}{n}", extent) for n, extent in enumerate(x.shape)]
    out = [Range(f"i{n}", 1) if n in gone else every[n] for n in range(x.ndim) if keep or n not in gone]
    folded = [every[n] for n in sorted(gone)]
    target = dtype or x.dtype
    body = converted(x.at(*every), x.dtype, target)
    return x.builder.statement(target, out, body, (how, folded), f"t_{how}")


def sum_(x: Tensor, axes: Axes = None, keep: bool = False, dtype: DType | None = None) -> Tensor:
    """Sum over axes. dtype: of the result; truth values are counted when it is an integer format."""
    return reduce("sum", x, axes, keep, dtype or (INT32 if x.dtype == BOOL else None))


def max_(x: Tensor, axes: Axes = None, keep: bool = False) -> Tensor:
    """Greatest over axes; of truth values: whether any holds."""
    return reduce("max", x, axes, keep)


def min_(x: Tensor, axes: Axes = None, keep: bool = False) -> Tensor:
    """Smallest over axes; of truth values: whether all hold."""
    return reduce("min", x, axes, keep)


def prod(x: Tensor, axes: Axes = None, keep: bool = False) -> Tensor:
    """Product over axes."""
    return reduce("prod", x, axes, keep)


def mean(x: Tensor, axes: Axes = None, keep: bool = False) -> Tensor:
    """Sum over axes times the reciprocal of their size. Raises Refusal for what is no real."""
    total = reduce("sum", of_reals(x, "graph.build.mean"), axes, keep)
    count = product(x.shape) / product(total.shape)
    return pointwise(lambda a: op("mul", a, 1 / count), total, name="t_mean")


def var(x: Tensor, axes: Axes = None, keep: bool = False, correction: int = 0) -> Tensor:
    """Sum of squared distances from the mean (two passes), over the number of elements less `correction`."""
    centre = mean(x, axes, True)
    apart = pointwise(lambda a, b: op("sub", a, b), x, centre, name="centred")
    squares = pointwise(lambda a: op("mul", a, a), apart, name="squares")
    count = product(x.shape) // product(centre.shape)
    if count <= correction:
        raise Refusal("a variance has more elements than its correction", where="graph.build.var", got=count)
    total = reduce("sum", squares, axes, keep)
    return pointwise(lambda a: op("mul", a, 1 / (count - correction)), total, name="t_mean")


def std(x: Tensor, axes: Axes = None, keep: bool = False, correction: int = 0) -> Tensor:
    """Square root of the variance."""
    return pointwise(lambda a: op("sqrt", a), var(x, axes, keep, correction), name="std")


def any_(x: Tensor, axes: Axes = None, keep: bool = False) -> Tensor:
    """Whether any element over axes is true, or not zero."""
    return reduce("max", x, axes, keep, BOOL)


def all_(x: Tensor, axes: Axes = None, keep: bool = False) -> Tensor:
    """Whether all elements over axes are true, or not zero."""
    return reduce("min", x, axes, keep, BOOL)


def argmax(x: Tensor, axis: int | None = None, keep: bool = False) -> Tensor:
    """Index (INT32) of the first greatest element along an axis (None: of the flat value), or of the first NaN."""
    return _place("max", x, axis, keep)


def argmin(x: Tensor, axis: int | None = None, keep: bool = False) -> Tensor:
    """Index (INT32) of the first smallest element along an axis (None: of the flat value), or of the first NaN."""
    return _place("min", x, axis, keep)


def _place(how: ReduceOp, x: Tensor, axis: int | None, keep: bool) -> Tensor:
    if axis is None:
        made = _place(how, reshape(x, (-1,)), 0, keep)
        return reshape(made, (1,) * x.ndim) if keep else made
    axis = axis_of(axis, x.ndim, f"graph.build.arg{how}")
    best = reduce(how, x, axis, keep=True)
    every = [Range(f"{'k' if n == axis else 'i'}{n}", extent) for n, extent in enumerate(x.shape)]
    here, k = x.at(*every), every[axis]
    top = best.at(*(0 if n == axis else r for n, r in enumerate(every)))
    other: Expr = op("not", op("equal", here, top))
    if x.kind == "real":  # a NaN equals nothing, itself included
        other = op("and", other, op("equal", here, here))
    body = op("where", other, k.extent, Iota(Index.of(k)))
    out = [Range(f"i{n}", 1) if n == axis else r for n, r in enumerate(every) if keep or n != axis]
    return x.builder.statement(INT32, out, body, ("min", [k]), f"t_arg{how}")


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """exp(x - max) / sum(exp(x - max)) along an axis."""
    top = max_(x, axis, keep=True)
    parts = pointwise(lambda a, b: op("exp2", op("mul", op("sub", a, b), LOG2E)), x, top, name="exps")
    total = sum_(parts, axis, keep=True)
    return pointwise(lambda a, b: op("div", a, b), parts, total, name="softmax")


def logsumexp(x: Tensor, axes: Axes = -1, keep: bool = False) -> Tensor:
    """log(sum(exp(x))) in its plain form; the rewrite catalogue knows the shifted one."""
    return log(sum_(exp(x), axes, keep))


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """(x - max) - log(sum(exp(x - max))) along an axis."""
    top = max_(x, axis, keep=True)
    apart = pointwise(lambda a, b: op("sub", a, b), x, top, name="shifted")
    total = sum_(exp(apart), axis, keep=True)
    return pointwise(lambda a, b: op("sub", a, op("mul", op("log2", b), LN2)), apart, total, name="log_softmax")
