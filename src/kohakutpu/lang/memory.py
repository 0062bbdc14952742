"""Values a kernel keeps: temporaries in memory, tables known while tracing, and L1 regions of a cluster.

A temporary is written by one stage and read by a later one. A table is a constant that the kernel ships. A region
names the L1 window an operand is filled into, for authors who want to say it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import EllipsisType
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.lang.dims import DimExpr
from kohakuaccel.lang.ports import Axis, Port
from kohakuaccel.lang.trace import StatementNode, recorder, user_line
from kohakuaccel.lang.values import Contraction, View
from kohakutpu.lang.ports import _positive, _Tilings, stored_name


class Temp(_Tilings):
    """A temporary tensor in device memory."""

    direction: Literal["in", "out", "temp", "table"] = "temp"


Pair = tuple[int, int]


class Windows(_Tilings):
    """(taps, pixels, channels): what each tap of a convolution sees of an image, as the left operand of a contraction.
    It has no bytes of its own: a cluster reads the image itself, by descriptor (`r2_desc_fill`)."""

    direction: Literal["in", "out", "temp", "table"] = "temp"
    image: Port
    size: Pair
    stride: Pair
    padding: tuple[Pair, Pair]
    dilation: Pair


def windows(
    image: Port, pixels: Axis, *, size: Pair, stride: Pair, padding: tuple[Pair, Pair], dilation: Pair
) -> Windows:
    """The windows of `image` (count, rows, columns, channels) over `pixels` output positions, row by
    row; padding ((top, bottom), (left, right)) reads as zeros. Refused when lowered: a machine without r2_desc_fill,
    channels that are no multiple of 32, output rows that are no multiple of 4."""
    active = recorder("windows")
    if len(image.axes) != 4 or image.batched:
        raise Refusal(
            "windows are taken of an image with four axes",
            where="windows",
            got=str(image),
            limit="(count, rows, columns, channels)",
            source=user_line(),
        )
    made = Windows(size[0] * size[1], pixels, image.axes[3])
    made.image, made.size, made.stride, made.padding, made.dilation = image, size, stride, padding, dilation
    made.name = active.fresh("windows")
    active.internal.append(made)
    return made


class Table(_Tilings):
    """A constant tensor whose contents are known while tracing."""

    direction: Literal["in", "out", "temp", "table"] = "table"
    _given: NDArray[np.float16] | None = None
    _rule: Callable[..., ArrayLike] | None = None
    _source: SourceLine | None = None

    def contents(self, sizes: Mapping[str, int]) -> NDArray[np.float16]:
        """Its values once the dims have numbers. Refused: a rule's array of another shape, values beyond FP16."""
        if self._given is not None:
            return self._given
        assert self._rule is not None
        shape = tuple(int(a.value(sizes)) if isinstance(a, DimExpr) else a for a in self.axes)
        values = _halves(self._rule(*shape), self._source)
        if values.shape != shape:
            raise Refusal(
                "a table's rule returns an array of the table's shape",
                where=str(self),
                got=values.shape,
                limit=shape,
                source=self._source,
            )
        return values


def temp(*shape: Axis | EllipsisType, dtype: DTypeLike | None = None) -> Temp:
    """A temporary of this shape; a leading `...` gives it the batch axes of the inputs. dtype: as for `Out`."""
    active = recorder("a temporary")
    made = Temp(*shape)
    made.stored = stored_name(dtype, "temp")
    made.name = active.fresh("t")
    active.internal.append(made)
    return made


def table(contents: ArrayLike | Callable[..., ArrayLike], *shape: Axis) -> Table:
    """A constant of one or more axes: `table(array)`, or `table(rule, Lq, Lk)`, whose contents are `rule(lq, lk)` once
    the dims have their numbers. Refused: no element, values beyond FP16."""
    active = recorder("a table")
    source = user_line()
    if callable(contents):
        made = Table(*shape)
        made._rule = contents
    else:
        values = _halves(contents, source)
        made = Table(*(int(n) for n in values.shape))
        made._given = values
    if not made.axes:
        raise Refusal("a table has at least one axis", where="table", hint="table(rule, M, N)", source=source)
    made._source = source
    made.name = active.fresh("table")
    active.internal.append(made)
    return made


def _halves(contents: ArrayLike, source: SourceLine | None) -> NDArray[np.float16]:
    given = np.asarray(contents)
    if given.ndim == 0 or given.size == 0 or given.dtype.kind not in "iufb":
        raise Refusal(
            "a table is an array of numbers with at least one element",
            where="table",
            got=f"{given.dtype} {given.shape}",
            source=source,
        )
    with np.errstate(over="ignore"):
        values = given.astype(np.float16)
    if np.any(np.isfinite(given.astype(np.float64)) & np.isinf(values)):
        raise Refusal(
            "a table's values fit FP16",
            where="table",
            got=float(np.abs(given.astype(np.float64)).max()),
            limit=65504,
            hint="scale it, or use the Inf you mean",
            source=source,
        )
    return values


class Region:
    """An L1 window of `groups` x `blocks` entries: `ra <<= a[i, k]` fills it, `ra @ rb` multiplies what is there."""

    def __init__(self, groups: int, blocks: int) -> None:
        active = recorder("a region")
        self.groups = groups
        self.blocks = blocks
        self.name = active.fresh("r")
        self.source = user_line()
        self.view: View | None = None

    def __ilshift__(self, view: View) -> Region:
        source = user_line()
        if not isinstance(view, View):
            raise Refusal(
                "a region is filled from a view of a port",
                where=f"{self.name} <<=",
                got=type(view).__name__,
                hint="write ra <<= a[i, k]",
                source=source,
            )
        recorder("a fill").add(StatementNode("fill", (self, view), f"{self.name} <<= {view}", source))
        self.view = view
        return self

    def __matmul__(self, other: Region) -> Contraction:
        source = user_line()
        for region in (self, other):
            if not isinstance(region, Region) or region.view is None:
                raise Refusal(
                    "a contraction of regions multiplies what was filled into them",
                    where=f"{self.name} @ {getattr(other, 'name', other)}",
                    hint="fill both first: ra <<= a[i, k]",
                    source=source,
                )
        assert self.view is not None
        assert other.view is not None
        return Contraction(self.view, other.view)

    def __str__(self) -> str:
        return self.name


def region(groups: int, blocks: int) -> Region:
    """An L1 window of `groups` lane groups by `blocks` K blocks."""
    return Region(_positive(groups, "region"), _positive(blocks, "region"))


__all__ = ["Region", "Table", "Temp", "region", "table", "temp"]
