"""Normalisations over rows and groups, in two passes (mean, then distances from it).

Decides which statements a norm is; the one-pass forms are rewrites.
"""

from __future__ import annotations

from collections.abc import Sequence

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph.build.core import Tensor, pointwise
from kohakuaccel.graph.build.movement import reshape
from kohakuaccel.graph.build.reductions import Axes, mean
from kohakuaccel.graph.expr import op


def layernorm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5, axes: int = 1
) -> Tensor:
    """(x - mean) / sqrt(var + eps) over the last `axes` axes, times weight, plus bias (each of the shape of those)."""
    return _affine(_normal(x, range(x.ndim - axes, x.ndim), eps), weight, bias)


def batchnorm(
    x: Tensor,
    mean: Tensor | None = None,
    var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """x[batch, channels, ...] normalised a channel: by a given mean and variance, or (None) by those of this batch."""
    if x.ndim < 2 or (mean is None) != (var is None):
        given = [name for name, t in (("mean", mean), ("var", var)) if t is not None]
        raise Refusal(
            "a mean with a variance, for x[batch, channels, ...]",
            where="graph.build.batchnorm",
            got=f"{x.shape} with {' and '.join(given) or 'neither'}",
        )
    column = (x.shape[1], *(1 for _ in x.shape[2:]))
    if mean is None or var is None:
        flat = _normal(x, [0, *range(2, x.ndim)], eps)
    else:
        centre, spread = reshape(mean, column), reshape(var, column)
        apart = pointwise(lambda a, b: op("sub", a, b), x, centre, name="centred")
        flat = pointwise(lambda a, b: op("mul", a, op("rsqrt", op("add", b, eps))), apart, spread, name="normal")
    return _affine(flat, *(None if t is None else reshape(t, column) for t in (weight, bias)))


def rmsnorm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """x / sqrt(mean(x * x) + eps) along the last axis, times weight."""
    squares = pointwise(lambda a: op("mul", a, a), x, name="squares")
    power = mean(squares, -1, keep=True)
    scaled = pointwise(lambda a, b: op("mul", a, op("rsqrt", op("add", b, eps))), x, power, name="rmsnorm")
    return _affine(scaled, weight, None)


def groupnorm(
    x: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """x[batch, channels, ...] normalised within each group of channels; weight and bias one number a channel."""
    if x.ndim < 2 or x.shape[1] % groups:
        raise Refusal("groups divide the channels", where="graph.build.groupnorm", got=f"{groups} of {x.shape}")
    rows = reshape(x, (x.shape[0], groups, -1))
    flat = reshape(_normal(rows, -1, eps), x.shape)
    column = (x.shape[1], *(1 for _ in x.shape[2:]))
    return _affine(flat, *(None if t is None else reshape(t, column) for t in (weight, bias)))


def _normal(x: Tensor, axes: Axes, eps: float) -> Tensor:
    centre = mean(x, axes, keep=True)
    apart = pointwise(lambda a, b: op("sub", a, b), x, centre, name="centred")
    spread = mean(pointwise(lambda a: op("mul", a, a), apart, name="squares"), axes, keep=True)
    return pointwise(lambda a, b: op("mul", a, op("rsqrt", op("add", b, eps))), apart, spread, name="normal")


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    parts: Sequence[tuple[str, Tensor | None]] = (("mul", weight), ("add", bias))
    for name, tensor in parts:
        if tensor is not None:
            x = pointwise(lambda a, b, name=name: op(name, a, b), x, tensor, name=f"t_{name}")
    return x
