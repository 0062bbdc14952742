"""Convolution as a sum over taps: one accumulator, one sweep per tap over the pixel rows that the tap sees.

Channels are last (NHWC): a pixel is a row, so padding, stride and dilation are row copies with index arithmetic. Where
channels are so few that every tap would mostly multiply zeros, the taps of a pixel are joined into one row first. It
must not know tiles' limits or addresses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang import DimExpr, Port, View, dims, grid, sweep
from kohakuaccel.lang.indices import IndexExpr
from kohakutpu import lang as L
from kohakutpu import recording
from kohakutpu.kernels import movement
from kohakutpu.kernels.activations import activate
from kohakutpu.kernels.linear import linear
from kohakutpu.kernels.products import tile_of
from kohakutpu.lang import kernel

if TYPE_CHECKING:
    from kohakuaccel.machine import Machine
    from kohakutpu.storage import Storage
    from kohakutpu.tensor import Tensor

B, H, W, C, K, N, T = dims("B H W C K N T")
(pixels,) = dims("pixels")
KBLOCK = 32  # channels that share a scale: the granule of a contraction
JOINED = 4  # rows that one store puts one behind another

Pair = tuple[int, int]
Pads = tuple[Pair, Pair]
Half = NDArray[np.float16]
RowOf = Callable[[IndexExpr, IndexExpr, IndexExpr], View]  # from (batch, output row, output column)


@kernel(tune=tile_of("pixels", "N", "K", folded=("T",)))
def conv2d_taps(
    x=L.In(B, H, W, C),
    w=L.In(T, N, K),
    bias=L.In(N, optional=True),
    residual=L.In(pixels, N, optional=True),
    y=L.Out(pixels, N),
    *,
    size=(1, 1),
    stride=(1, 1),
    padding=((0, 0), (0, 0)),
    dilation=(1, 1),
    pixels=1,
    joined=False,
    activation="none",
    gm=2,
    gn=4,
    nk=1,
):
    """y[p] = activation(sum over taps of x[b, i * stride + tap * dilation - padding] @ w[tap].T + bias) + residual[p].

    p counts output pixels (b, i, j), `pixels` in all. w is (taps, N, C); with `joined` it is (1, N, taps * C). An
    epilogue works on accumulators after their one rounding to FP16.
    """
    high, wide = (
        (n + sum(pad) - d * (k - 1) - 1) // s + 1 for n, k, s, pad, d in zip((H, W), size, stride, padding, dilation)
    )
    source, taps = _padded(x, padding), size[0] * size[1]

    def seen(tap: IndexExpr | int, b: IndexExpr, i: IndexExpr, j: IndexExpr) -> View:
        """The pixel that a tap sees from output pixel (b, i, j)."""
        down, across = tap // size[1], tap % size[1]
        return source[b, i * stride[0] + down * dilation[0], j * stride[1] + across * dilation[1]]

    def pixel(b: IndexExpr, i: IndexExpr, j: IndexExpr) -> IndexExpr:
        return (b * high + i) * wide + j

    def joined_rows(rows: list[RowOf], width: DimExpr) -> L.Temp:
        """Per output pixel, those rows one behind another."""
        made = L.temp(1, pixels, width)
        for b, i, j in grid(B, high, wide):
            made[0, pixel(b, i, j)] <<= L.join(*(row(b, i, j) for row in rows))
        return made

    if joined:
        rows: list[tuple[RowOf, int]] = [(partial(seen, tap), 1) for tap in range(taps)]
        seen_by = _tree(rows, joined_rows, pixel)
    else:
        seen_by = L.temp(T, pixels, C)
        for tap, b, i, j in grid(taps, B, high, wide):
            seen_by[tap, pixel(b, i, j)] <<= seen(tap, b, i, j)
    for i, j in grid(y.tiles(gm), w.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for tap in range(1 if joined else taps):
            for k in sweep(w.chunks32(nk)):
                acc += seen_by[tap, i, k] @ w[tap, j, k]
        value = activate(activation, acc if bias is None else acc + bias[j])
        y[i, j] <<= value if residual is None else value + residual[i, j]


def windows_tile(machine: Machine, sizes: Mapping[str, int]) -> dict[str, object]:
    """A tile whose chunks are whole: a descriptor names no channel behind the last."""
    from kohakutpu.lower.tiling import choose

    tile = choose(machine, sizes["pixels"], sizes["N"], sizes["C"], 1, sizes["T"])
    return {"gm": tile.gm, "gn": tile.gn, "nk": math.gcd(tile.nk, max(1, sizes["C"] // KBLOCK))}


@kernel(tune=windows_tile)
def conv2d_windows(
    x=L.In(B, H, W, C),
    w=L.In(T, N, C),
    bias=L.In(N, optional=True),
    residual=L.In(pixels, N, optional=True),
    y=L.Out(pixels, N),
    *,
    size=(1, 1),
    stride=(1, 1),
    padding=((0, 0), (0, 0)),
    dilation=(1, 1),
    pixels=1,
    activation="none",
    gm=2,
    gn=4,
    nk=1,
):
    """What conv2d_taps computes, on a machine with r2_desc_fill: clusters read windows of the image by descriptor, so
    no row is copied and nothing is packed. Whole K blocks of 32 channels, output rows of whole groups of 4 pixels."""
    seen = L.windows(x, pixels, size=size, stride=stride, padding=padding, dilation=dilation)
    for i, j in grid(y.tiles(gm), w.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for tap in range(size[0] * size[1]):
            for k in sweep(w.chunks32(nk)):
                acc += seen[tap, i, k] @ w[tap, j, k]
        value = activate(activation, acc if bias is None else acc + bias[j])
        y[i, j] <<= value if residual is None else value + residual[i, j]


def _tree(
    rows: list[tuple[RowOf, int]], join: Callable[[list[RowOf], DimExpr], L.Temp], pixel: Callable[..., IndexExpr]
) -> L.Temp:
    """All rows of a pixel in one, a few at a time. rows: (row, taps in it)."""
    while True:
        level = [rows[n : n + JOINED] for n in range(0, len(rows), JOINED)]
        counts = [sum(count for _, count in some) for some in level]
        made = [join([row for row, _ in some], C * count) for some, count in zip(level, counts)]
        if len(made) == 1:
            return made[0]
        rows = [(lambda b, i, j, block=block: block[0, pixel(b, i, j)], count) for block, count in zip(made, counts)]


def _padded(x: Port, padding: Pads) -> Port:
    """x with rows and columns of zero pixels around it."""
    (top, bottom), (left, right) = padding
    if not any((top, bottom, left, right)):
        return x
    made = L.temp(B, H + (top + bottom), W + (left + right), C)
    for b, i, j in grid(B, H, W):
        made[b, i + top, j + left] <<= x[b, i, j]
    for count, first in ((top, 0), (bottom, H + top)):
        if count:
            for b, i, j in grid(B, count, W + (left + right)):
                made[b, i + first, j] <<= 0.0
    for count, first in ((left, 0), (right, W + left)):
        if count:
            for b, i, j in grid(B, H, count):
                made[b, i + top, j + first] <<= 0.0
    return made


# what the tensor level calls


def conv2d(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    stride: int | Pair = 1,
    padding: int | Pair | Pads = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
    activation: str = "none",
    residual: Any = None,
    layout: str = "NHWC",
) -> Tensor:
    """A 2-D convolution (cross-correlation, as everywhere in deep learning) of x with w.

    layout "NHWC" (native): x (B, H, W, C), w (N, kh, kw, C / groups), result (B, H', W', N). "NCHW": x (B, C, H, W), w
    (N, C / groups, kh, kw), result (B, N, H', W'); x and the result are permuted. padding: one number, one per axis, or
    ((top, bottom), (left, right)). bias (N,), activation, and a residual of the result's shape follow in the epilogue.

    Groups of a multiple of 32 channels are convolved one by one; smaller ones as one convolution whose weights are zero
    between groups, which costs as much as the ungrouped one. Refused: shapes that do not fit each other, a window
    larger than the padded image.
    """
    from kohakutpu.tensor import as_tensor

    image, weight = as_tensor(x, where="conv2d"), as_tensor(w, where="conv2d")
    if layout not in ("NHWC", "NCHW"):
        raise Refusal("an image's axes are in a known order", where="conv2d", got=layout, limit="NHWC, NCHW")
    for name, value in (("x", image), ("w", weight)):
        if value.ndim != 4 or value.size == 0:
            raise Refusal("an image and its weights have four axes", where=f"conv2d {name}", got=f"shape {value.shape}")
    recorder = recording.current()
    if layout == "NCHW":
        image = image.transpose(0, 2, 3, 1)
        if recorder is None:
            weight = _form(weight, "last", lambda v: v.transpose(0, 2, 3, 1))
        else:
            weight = weight.transpose(0, 2, 3, 1)
        if residual is not None:
            residual = as_tensor(residual, where="conv2d residual").transpose(0, 2, 3, 1)
    channels, outputs = image.shape[3], weight.shape[0]
    if groups < 1 or channels % groups or outputs % groups or weight.shape[3] * groups != channels:
        raise Refusal(
            "channels and outputs divide by the groups, and a weight spans its group's channels",
            where="conv2d",
            got=f"{channels} channels, weights {weight.shape}, {groups} groups",
            limit=f"weights (outputs, kh, kw, {channels} / groups)",
        )
    knobs = {
        "stride": _pair(stride, "stride"),
        "dilation": _pair(dilation, "dilation"),
        "padding": _pads(padding),
        "activation": activation,
    }
    if recorder is not None:
        result = recorder.operator("conv2d", image, weight, bias, residual, groups=groups, **knobs)
    elif groups > 1 and weight.shape[3] % KBLOCK == 0:
        result = _by_group(image, weight, bias, residual, groups, knobs)
    else:
        dense = weight if groups == 1 else _form(weight, ("dense", groups), lambda v: _dense(v, groups))
        result = _whole(image, dense, bias, residual, knobs)
    return result if layout == "NHWC" else result.transpose(0, 3, 1, 2)


def _by_group(image: Tensor, weight: Tensor, bias: Any, residual: Any, groups: int, knobs: dict[str, Any]) -> Tensor:
    """One convolution per group, its channels sliced off, the results side by side."""
    channels, outputs = weight.shape[3], weight.shape[0] // groups
    parts: list[Tensor] = []
    for g in range(groups):
        first, end = g * outputs, (g + 1) * outputs
        some = _form(weight, ("group", groups, g), lambda v, first=first, end=end: v[first:end])
        parts.append(
            _whole(
                movement.slice(image, 3, g * channels, (g + 1) * channels),
                some,
                None if bias is None else movement.slice(bias, 0, first, end),
                None if residual is None else movement.slice(residual, 3, first, end),
                knobs,
            )
        )
    return movement.concat(parts, 3)


def _whole(image: Tensor, weight: Tensor, bias: Any, residual: Any, knobs: dict[str, Any]) -> Tensor:
    """One ungrouped convolution, channels last."""
    (count, *extent, channels), (outputs, *size, _) = image.shape, weight.shape
    high, wide = (
        (n + sum(pad) - d * (k - 1) - 1) // s + 1
        for n, k, s, pad, d in zip(extent, size, knobs["stride"], knobs["padding"], knobs["dilation"])
    )
    if min(high, wide) < 1:
        raise Refusal(
            "a convolution's window fits into its padded image",
            where="conv2d",
            got=f"{size[0]} x {size[1]} taps, dilation {knobs['dilation']}, on {extent[0]} x {extent[1]} pixels",
            limit=f"padding {knobs['padding']}",
            hint="pad the image",
        )
    shape, pixels = (count, high, wide, outputs), count * high * wide
    operands: dict[str, Any] = {}
    if bias is not None:
        operands["bias"] = bias
    if residual is not None:
        operands["residual"] = movement.as_operand(residual, "conv2d residual").reshape(pixels, outputs)
    taps = size[0] * size[1]
    if taps == 1 and knobs["stride"] == (1, 1) and knobs["padding"] == ((0, 0), (0, 0)):
        rows, flat = image.reshape(-1, channels), weight.reshape(outputs, channels)
        return linear(rows, flat, activation=knobs["activation"], **operands).reshape(shape)
    blocks, together = taps * -(-channels // KBLOCK), -(-taps * channels // KBLOCK)
    joined = taps > 1 and blocks >= 2 * together
    if joined:
        made = weight.reshape(1, outputs, taps * channels)
    else:
        made = _form(weight, "taps", lambda v: v.transpose(1, 2, 0, 3).reshape(taps, outputs, channels))
    from kohakutpu.lower.windows import why_not

    if not joined and not why_not(image.device.machine, wide, channels):
        found = conv2d_windows(image, made, **operands, **knobs, size=tuple(size), pixels=pixels)
        return found.reshape(shape)
    found = conv2d_taps(image, made, **operands, **knobs, size=tuple(size), pixels=pixels, joined=joined)
    return found.reshape(shape)


def _dense(weight: Half, groups: int) -> Half:
    """Grouped weights as ungrouped ones: zeros between the groups."""
    outputs, high, wide, channels = weight.shape
    found = np.zeros((groups, outputs // groups, high, wide, groups, channels), np.float16)
    for g, part in enumerate(weight.reshape(groups, -1, high, wide, channels)):
        found[g, :, :, :, g] = part
    return found.reshape(outputs, high, wide, groups * channels)


_forms: WeakKeyDictionary[Storage, dict[object, Tensor]] = WeakKeyDictionary()
"""Weights in the forms that convolutions asked for, for as long as the weights live."""


def _form(weight: Tensor, key: object, make: Callable[[Half], Half]) -> Tensor:
    from kohakutpu.tensor import as_tensor

    made = _forms.setdefault(weight.storage, {})
    name = weight.shape, key
    if name not in made:
        values = make(weight.storage.host().reshape(weight.shape))
        made[name] = as_tensor(np.ascontiguousarray(values), device=weight.device, dtype=weight.dtype)
    return made[name]


def _pair(value: int | Pair, what: str) -> Pair:
    first, second = (value, value) if isinstance(value, int) else value
    if first < 1 or second < 1:
        raise Refusal(f"a {what} is at least 1", where="conv2d", got=repr(value))
    return first, second


def _pads(value: int | Pair | Pads) -> Pads:
    first, second = (value, value) if isinstance(value, int) else value
    pads = tuple((p, p) if isinstance(p, int) else (p[0], p[1]) for p in (first, second))
    if min(min(p) for p in pads) < 0:
        raise Refusal("padding is not negative", where="conv2d", got=repr(value), hint="slice the image instead")
    return pads[0], pads[1]
