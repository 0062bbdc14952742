"""Functions that slide windows over an image: convolutions, transposed ones, pooling.

Decides the index maps of windows. That a convolution is a contraction is for `graph.structure` to see, not said here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph.build.core import Tensor, axes_of, of_reals, pointwise, result_dtype
from kohakuaccel.graph.build.movement import reshape
from kohakuaccel.graph.expr import Const, Read, op
from kohakuaccel.graph.index import Guard, Index, Range

Steps = int | Sequence[int]
"""One number for every axis of the image, or one each."""
_NAMES = {1: ("x",), 2: ("y", "x"), 3: ("z", "y", "x")}


def _steps(value: Steps, axes: int, where: str) -> tuple[int, ...]:
    listed = (value,) * axes if isinstance(value, int) else tuple(value)
    if len(listed) != axes:
        raise Refusal("one number an axis of the image", where=where, got=listed, limit=f"{axes} axes")
    return listed


def _window(
    x: Tensor, kernel: Sequence[int], stride: Steps, padding: Steps, dilation: Steps, where: str
) -> tuple[list[Range], list[Range], list[Index]]:
    """Output ranges, window ranges, and the source's index of each of the last axes."""
    axes = len(kernel)
    out: list[Range] = []
    inner: list[Range] = []
    places: list[Index] = []
    options = (_steps(value, axes, where) for value in (stride, padding, dilation))
    for name, extent, size, step, pad, gap in zip(_NAMES[axes], x.shape[-axes:], kernel, *options):
        count = (extent + 2 * pad - gap * (size - 1) - 1) // step + 1 if step > 0 and gap > 0 else 0
        if count < 1 or pad < 0 or size < 1:
            raise Refusal(
                "a window fits the padded image, with positive stride and dilation",
                where=where,
                got=f"window {size}, stride {step}, padding {pad}, dilation {gap}",
                limit=f"extent {extent}",
            )
        out.append(Range(name, count))
        inner.append(Range(f"k{name}", size))
        places.append(out[-1] * step + inner[-1] * gap - pad)
    return out, inner, places


def _grouped(x: Tensor, weight: Tensor, groups: int, channels: int, where: str, axes: int | None = None) -> int:
    """The number of image axes of a convolution whose weight takes `channels` of each group."""
    x.builder.own(weight)
    found = x.ndim - 2
    if weight.ndim != x.ndim or found not in _NAMES or (axes and found != axes):
        words = {1: "three", 2: "four", None: "three, four or five"}[axes]
        raise Refusal(f"x and weight have {words} axes", where=where, got=f"{x.shape} and {weight.shape}")
    if groups < 1 or weight.shape[0] % groups or channels * groups != x.shape[1]:
        raise Refusal("groups cut channels and filters evenly", where=where, got=f"{x.shape}, {weight.shape}, {groups}")
    return found


def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Steps = 1,
    padding: Steps = 0,
    dilation: Steps = 1,
    groups: int = 1,
) -> Tensor:
    """x[batch, channels, *image] with weight[filters, channels / groups, *window], plus bias[filters]; zero padding.

    One to three axes of image; each option is one number, or one an axis.
    """
    where = f"graph.build.conv{max(x.ndim - 2, 0)}d"
    _grouped(x, weight, groups, weight.shape[1] if weight.ndim > 1 else 0, where)
    filters, channels = weight.shape[:2]
    out, inner, places = _window(x, weight.shape[2:], stride, padding, dilation, where)
    b, g, o, c = Range("b", x.shape[0]), Range("g", groups), Range("o", filters // groups), Range("c", channels)
    group = g if groups > 1 else 0
    source = x.guarded((b, Index.of(group) * channels + c, *places), 0)
    kernel = weight.at(Index.of(group) * o.extent + o, c, *inner)
    ranges = (b, g, o, *out) if groups > 1 else (b, o, *out)
    dtype = result_dtype([x.dtype, weight.dtype])
    made = x.builder.statement(dtype, ranges, op("mul", source, kernel), ("sum", [c, *inner]), "t_conv")
    return _finished(made, bias, (x.shape[0], filters, *(r.extent for r in out)))


def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Steps = 1,
    padding: Steps = 0,
    dilation: Steps = 1,
    groups: int = 1,
) -> Tensor:
    """`conv` of x[batch, channels, w] with weight[filters, channels / groups, kw]."""
    _grouped(x, weight, groups, weight.shape[1] if weight.ndim > 1 else 0, "graph.build.conv1d", 1)
    return conv(x, weight, bias, stride, padding, dilation, groups)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Steps = 1,
    padding: Steps = 0,
    dilation: Steps = 1,
    groups: int = 1,
) -> Tensor:
    """`conv` of x[batch, channels, h, w] with weight[filters, channels / groups, kh, kw]."""
    _grouped(x, weight, groups, weight.shape[1] if weight.ndim > 1 else 0, "graph.build.conv2d", 2)
    return conv(x, weight, bias, stride, padding, dilation, groups)


def conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Steps = 1,
    padding: Steps = 0,
    output_padding: Steps = 0,
    dilation: Steps = 1,
    groups: int = 1,
) -> Tensor:
    """The transpose of `conv` as a map of images: x[batch, channels, *image] with weight[channels, filters / groups,
    *window], plus bias[filters].

    Extents: (image - 1) * stride - 2 * padding + dilation * (window - 1) + output_padding + 1. Each element gathers
    what a scatter would bring: its sources are at (place + padding - dilation * k) / stride, where that is whole.
    """
    where = f"graph.build.conv_transpose{max(x.ndim - 2, 0)}d"
    axes = _grouped(x, weight, groups, weight.shape[0] // max(groups, 1) if weight.ndim else 0, where)
    channels, filters = weight.shape[0] // groups, weight.shape[1] * groups
    options = [_steps(value, axes, where) for value in (stride, padding, output_padding, dilation)]
    b, g, o, c = Range("b", x.shape[0]), Range("g", groups), Range("o", weight.shape[1]), Range("c", channels)
    group = g if groups > 1 else 0
    out: list[Range] = []
    inner: list[Range] = []
    places: list[Index] = [Index.of(b), Index.of(group) * channels + c]
    guards: list[Guard] = []
    for name, extent, size, step, pad, more, gap in zip(_NAMES[axes], x.shape[2:], weight.shape[2:], *options):
        count = (extent - 1) * step - 2 * pad + gap * (size - 1) + more + 1
        if count < 1 or min(step, gap) < 1 or min(pad, more) < 0 or more >= max(step, gap):
            raise Refusal(
                "a transposed window leaves an image, with positive stride and dilation, and output padding below them",
                where=where,
                got=f"window {size}, stride {step}, padding {pad}, output padding {more}, dilation {gap}",
                limit=f"extent {extent}",
            )
        out.append(Range(name, count))
        inner.append(Range(f"k{name}", size))
        place = out[-1] + pad - inner[-1] * gap
        guards += [Guard(place % step, 0, 1), Guard(place // step, 0, extent)]
        places.append(place // step)
    guards = [guard for guard in guards if not guard.always]
    source = Read(x.name, tuple(places), tuple(guards), Const(0.0 if x.kind == "real" else 0) if guards else None)
    kernel = weight.at(Index.of(group) * channels + c, o, *inner)
    ranges = (b, g, o, *out) if groups > 1 else (b, o, *out)
    dtype = result_dtype([x.dtype, weight.dtype])
    made = x.builder.statement(dtype, ranges, op("mul", source, kernel), ("sum", [c, *inner]), "t_conv")
    return _finished(made, bias, (x.shape[0], filters, *(r.extent for r in out)))


def _finished(made: Tensor, bias: Tensor | None, shape: tuple[int, ...]) -> Tensor:
    if made.shape != shape:
        made = reshape(made, shape)
    return made if bias is None else made + reshape(bias, (shape[1], *(1 for _ in shape[2:])))


def max_pool2d(
    x: Tensor, kernel: Steps, stride: Steps | None = None, padding: Steps = 0, dilation: Steps = 1
) -> Tensor:
    """Greatest element of every window over the last two axes; padding never wins. stride: the window by default."""
    where = "graph.build.max_pool2d"
    size = _steps(kernel, 2, where)
    out, inner, places = _window(x, size, stride or size, padding, dilation, where)
    lead = axes_of(x.shape[:-2])
    body = x.guarded((*lead, *places), -math.inf if x.kind == "real" else int(x.dtype.lowest))
    return x.builder.statement(x.dtype, (*lead, *out), body, ("max", inner), "t_pool")


def avg_pool2d(
    x: Tensor, kernel: Steps, stride: Steps | None = None, padding: Steps = 0, count_padding: bool = True
) -> Tensor:
    """Mean of every window over the last two axes. count_padding: whether padding zeros are counted. Raises Refusal for
    what is no real."""
    where = "graph.build.avg_pool2d"
    of_reals(x, where)
    size = _steps(kernel, 2, where)
    out, inner, places = _window(x, size, stride or size, padding, 1, where)
    lead = axes_of(x.shape[:-2])
    total = x.builder.statement(x.dtype, (*lead, *out), x.guarded((*lead, *places), 0), ("sum", inner), "t_pool")
    if count_padding:
        return pointwise(lambda a: op("mul", a, 1 / math.prod(size)), total, name="t_pool")
    counts: list[np.ndarray] = []
    for r, window, place, extent in zip(out, inner, places, x.shape[-2:]):
        starts = np.arange(r.extent) * place.coefficient(r) + place.offset
        at = starts[:, None] + np.arange(window.extent)
        counts.append(((at >= 0) & (at < extent)).sum(1))
    scale = x.builder.constant(1 / reduce(np.multiply.outer, counts), x.dtype, "scale")
    return pointwise(lambda a, b: op("mul", a, b), total, scale, name="t_pool")
