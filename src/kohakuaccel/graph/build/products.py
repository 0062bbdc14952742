"""Sums of products: matrix products, convolutions, attention; and pooling, which slides the same windows.

Decides the ranges and index maps of each. That these are contractions is for `graph.structure` to see, not said here.
"""

from __future__ import annotations

import math

import numpy as np

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph.build.core import Tensor, axes_of, broadcast, pointwise, result_dtype
from kohakuaccel.graph.build.movement import permute, reshape, transpose
from kohakuaccel.graph.build.reductions import softmax
from kohakuaccel.graph.dtypes import DType
from kohakuaccel.graph.expr import Iota, op
from kohakuaccel.graph.index import Index, Range

Pair = int | tuple[int, int]


def matmul(a: Tensor, b: Tensor, dtype: DType | None = None) -> Tensor:
    """a[..., m, k] times b[..., k, n]; leading axes broadcast, and a vector is a row (a) or a column (b)."""
    if not a.ndim or not b.ndim:
        raise Refusal("a product of matrices or vectors", where="graph.build.matmul", got=f"{a.shape} and {b.shape}")
    if a.ndim == 1:
        made = matmul(reshape(a, (1, *a.shape)), b, dtype)
        return reshape(made, made.shape[:-1] if b.ndim == 1 else (*made.shape[:-2], made.shape[-1]))
    if b.ndim == 1:
        made = matmul(a, reshape(b, (*b.shape, 1)), dtype)
        return reshape(made, made.shape[:-1])
    if a.shape[-1] != b.shape[-2]:
        raise Refusal("the inner extents agree", where="graph.build.matmul", got=f"{a.shape} and {b.shape}")
    a.builder.own(b)
    lead = axes_of(broadcast([a.shape[:-2], b.shape[:-2]], "graph.build.matmul"), "b")
    m, n, k = Range("m", a.shape[-2]), Range("n", b.shape[-1]), Range("k", a.shape[-1])

    def leading(t: Tensor) -> list[Index]:
        own = lead[len(lead) - t.ndim + 2 :]
        return [Index.of(0 if extent == 1 else r) for extent, r in zip(t.shape, own)]

    body = op("mul", a.at(*leading(a), m, k), b.at(*leading(b), k, n))
    target = dtype or result_dtype([a.dtype, b.dtype])
    return a.builder.statement(target, (*lead, m, n), body, ("sum", [k]), "t_matmul")


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x[..., k] times weight[n, k] transposed, plus bias[n]: leading axes of x stay axes, the weight is shared."""
    if weight.ndim != 2 or not x.ndim or x.shape[-1] != weight.shape[1]:
        raise Refusal("x[..., k] and weight[n, k]", where="graph.build.linear", got=f"{x.shape} and {weight.shape}")
    x.builder.own(weight)
    lead, n, k = axes_of(x.shape[:-1]), Range("n", weight.shape[0]), Range("k", weight.shape[1])
    body = op("mul", x.at(*lead, k), weight.at(n, k))
    made = x.builder.statement(result_dtype([x.dtype, weight.dtype]), (*lead, n), body, ("sum", [k]), "t_linear")
    return made if bias is None else made + bias


def _pair(value: Pair) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def _window(
    x: Tensor, kernel: tuple[int, int], stride: Pair, padding: Pair, dilation: Pair, where: str
) -> tuple[list[Range], list[Range], list[Index]]:
    """Output ranges y and x, window ranges ky and kx, and the source's index of both axes."""
    out: list[Range] = []
    inner: list[Range] = []
    places: list[Index] = []
    steps, pads, gaps = _pair(stride), _pair(padding), _pair(dilation)
    for n, (extent, size, step, pad, gap) in enumerate(zip(x.shape[-2:], kernel, steps, pads, gaps)):
        count = (extent + 2 * pad - gap * (size - 1) - 1) // step + 1 if step > 0 and gap > 0 else 0
        if count < 1 or pad < 0 or size < 1:
            raise Refusal(
                "a window fits the padded image, with positive stride and dilation",
                where=where,
                got=f"window {size}, stride {step}, padding {pad}, dilation {gap}",
                limit=f"extent {extent}",
            )
        out.append(Range("yx"[n], count))
        inner.append(Range(("ky", "kx")[n], size))
        places.append(out[-1] * step + inner[-1] * gap - pad)
    return out, inner, places


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:
    """x[batch, channels, h, w] with weight[filters, channels / groups, kh, kw], plus bias[filters]; zero padding."""
    where = "graph.build.conv2d"
    if x.ndim != 4 or weight.ndim != 4:
        raise Refusal("x and weight have four axes", where=where, got=f"{x.shape} and {weight.shape}")
    filters, channels = weight.shape[:2]
    if groups < 1 or filters % groups or channels * groups != x.shape[1]:
        raise Refusal("groups cut channels and filters evenly", where=where, got=f"{x.shape}, {weight.shape}, {groups}")
    x.builder.own(weight)
    out, inner, places = _window(x, (weight.shape[2], weight.shape[3]), stride, padding, dilation, where)
    b, g, o, c = Range("b", x.shape[0]), Range("g", groups), Range("o", filters // groups), Range("c", channels)
    group = g if groups > 1 else 0
    source = x.guarded((b, Index.of(group) * channels + c, *places), 0)
    kernel = weight.at(Index.of(group) * o.extent + o, c, *inner)
    ranges = (b, g, o, *out) if groups > 1 else (b, o, *out)
    dtype = result_dtype([x.dtype, weight.dtype])
    made = x.builder.statement(dtype, ranges, op("mul", source, kernel), ("sum", [c, *inner]), "t_conv")
    if groups > 1:
        made = reshape(made, (x.shape[0], filters, *(r.extent for r in out)))
    return made if bias is None else made + reshape(bias, (filters, 1, 1))


def max_pool2d(x: Tensor, kernel: Pair, stride: Pair | None = None, padding: Pair = 0, dilation: Pair = 1) -> Tensor:
    """Greatest element of every window over the last two axes; padding never wins. stride: the window by default."""
    size = _pair(kernel)
    out, inner, places = _window(x, size, stride or size, padding, dilation, "graph.build.max_pool2d")
    lead = axes_of(x.shape[:-2])
    body = x.guarded((*lead, *places), -math.inf if x.kind == "real" else int(x.dtype.lowest))
    return x.builder.statement(x.dtype, (*lead, *out), body, ("max", inner), "t_pool")


def avg_pool2d(
    x: Tensor, kernel: Pair, stride: Pair | None = None, padding: Pair = 0, count_padding: bool = True
) -> Tensor:
    """Mean of every window over the last two axes. count_padding: whether padding zeros are counted."""
    size = _pair(kernel)
    out, inner, places = _window(x, size, stride or size, padding, 1, "graph.build.avg_pool2d")
    lead = axes_of(x.shape[:-2])
    total = x.builder.statement(x.dtype, (*lead, *out), x.guarded((*lead, *places), 0), ("sum", inner), "t_pool")
    if count_padding:
        return pointwise(lambda a: op("mul", a, 1 / (size[0] * size[1])), total, name="t_pool")
    counts: list[np.ndarray] = []
    for r, window, place, extent in zip(out, inner, places, x.shape[-2:]):
        starts = np.arange(r.extent) * place.coefficient(r) + place.offset
        at = starts[:, None] + np.arange(window.extent)
        counts.append(((at >= 0) & (at < extent)).sum(1))
    scale = x.builder.constant(1 / np.outer(*counts), x.dtype, "scale")
    return pointwise(lambda a, b: op("mul", a, b), total, scale, name="t_pool")


def attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, causal: bool = False, mask: Tensor | None = None
) -> Tensor:
    """softmax(q k^T * scale + mask) v over the last two axes, plainly: scores, softmax, product.

    q[..., m, d], k[..., n, d], v[..., n, e]; scale: 1 / sqrt(d) by default. causal: row i sees columns up to
    i + n - m. mask: truth values (False hides) or numbers to add, broadcast over the scores.
    """
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = matmul(q, transpose(k)) * factor
    if causal:
        ranges = axes_of(scores.shape)
        shift = scores.shape[-1] - scores.shape[-2]
        hidden = op("less", Iota(ranges[-2] + shift), Iota(Index.of(ranges[-1])))
        body = op("where", hidden, -math.inf, scores.at(*ranges))
        scores = scores.builder.statement(scores.dtype, ranges, body, name="scores")
    if mask is not None and mask.kind == "bool":
        scores = pointwise(lambda a, b: op("where", b, a, -math.inf), scores, mask, dtype=scores.dtype, name="scores")
    elif mask is not None:
        scores = scores + mask
    return matmul(softmax(scores), v)


def heads(x: Tensor, count: int) -> Tensor:
    """x[..., m, count * d] as [..., count, m, d]."""
    if x.shape[-1] % count:
        raise Refusal("heads cut the last axis evenly", where="graph.build.heads", got=f"{count} of {x.shape}")
    split = reshape(x, (*x.shape[:-1], count, x.shape[-1] // count))
    n = split.ndim
    return permute(split, (*range(n - 3), n - 2, n - 3, n - 1))
