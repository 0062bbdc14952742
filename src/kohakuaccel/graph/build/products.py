"""Sums of products: matrix products and attention.

Decides the ranges and index maps of each. That these are contractions is for `graph.structure` to see, not said here.
"""

from __future__ import annotations

import math

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph.build.core import Tensor, axes_of, broadcast, pointwise, result_dtype
from kohakuaccel.graph.build.movement import permute, reshape, transpose
from kohakuaccel.graph.build.reductions import softmax
from kohakuaccel.graph.dtypes import DType
from kohakuaccel.graph.expr import Iota, op
from kohakuaccel.graph.index import Index, Range


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
