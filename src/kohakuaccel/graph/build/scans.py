"""Running folds along an axis: cumsum, cumprod, cummax, cummin.

Decides which form is built: the direct one, quadratic in the axis, unless a block is named. The rewrite `BlockedScan`
chooses blocks where they pay.
"""

from __future__ import annotations

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph.build.core import Tensor, axes_of, axis_of
from kohakuaccel.graph.index import Range
from kohakuaccel.graph.model import ReduceOp
from kohakuaccel.graph.scan import blocked, direct
from kohakuaccel.graph.structure import Scan


def scan(how: ReduceOp, x: Tensor, axis: int, reverse: bool = False, block: int | None = None) -> Tensor:
    """A fold of everything up to each place along an axis, that place included (reverse: from it to the end).

    block: build the form by blocks of so many elements (n * block + (n / block)^2 steps), not the direct one (n^2).
    """
    axis = axis_of(axis, x.ndim, f"graph.build.cum{how}")
    ranges = axes_of(x.shape)
    k = Range("k", x.shape[axis])
    element = x.at(*(k if n == axis else r for n, r in enumerate(ranges)))
    found = Scan(how, ranges[axis], k, element, reverse)
    builder, made = x.builder, direct(x.builder.fresh(f"cum{how}"), x.dtype, ranges, found)
    if block is None:
        return builder.keep(made)
    if block < 1:
        raise Refusal("a block has one element at least", where=f"graph.build.cum{how}", got=block)
    *parts, whole = blocked(made, found, block, builder.values, builder.fresh, _named)
    for part in parts:
        builder.keep(part)
    return builder.keep(whole)


def cumsum(x: Tensor, axis: int, reverse: bool = False, block: int | None = None) -> Tensor:
    """Running sum; see `scan`."""
    return scan("sum", x, axis, reverse, block)


def cumprod(x: Tensor, axis: int, reverse: bool = False, block: int | None = None) -> Tensor:
    """Running product; see `scan`."""
    return scan("prod", x, axis, reverse, block)


def cummax(x: Tensor, axis: int, reverse: bool = False, block: int | None = None) -> Tensor:
    """Running maximum; see `scan`."""
    return scan("max", x, axis, reverse, block)


def cummin(x: Tensor, axis: int, reverse: bool = False, block: int | None = None) -> Tensor:
    """Running minimum; see `scan`."""
    return scan("min", x, axis, reverse, block)


def _named(*extents: int) -> tuple[Range, ...]:
    return tuple(Range(name, extent) for name, extent in zip("tubc", extents))
