"""A quantised network as a graph.

Decides the statements of every layer. It must not know programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph import WORDS, DType, Expr, Graph, Range
from kohakuaccel.graph import build as g
from kohakuaccel.graph.expr import Cast, Const, op
from kohakuaccel.graph.index import Index
from tinytpu.models.layers import MaxPool
from tinytpu.models.quantisation import MOST, Quantised, QuantisedLayer, greatest_sum

S8, S16, S32 = WORDS["S8"], WORDS["S16"], WORDS["S32"]
ARGMAX = "argmax"
"""The layer of the statements that find the greatest sum."""


@dataclass(frozen=True)
class Lowered:
    """A network's graph for a batch: input `x` S8[batch, ...], output `label` INT32[batch] or `sums` S32[batch,
    classes]. layers: which layer a statement is of."""

    graph: Graph
    layers: Mapping[str, str]


def lowered(network: Quantised, batch: int, *, argmax: bool = True) -> Lowered:
    """The graph of a batch; weights are constants. argmax: whether it ends in the place of the greatest sum, the first
    of several. Raises Refusal for an empty batch.

    A pool behind a layer takes the greatest of its sums: factors are not negative, so that the greatest sum gives the
    greatest number, and fewer of them are requantised.
    """
    if batch < 1:
        raise Refusal("a batch has an example", where="lowered", got=batch)
    builder = g.Builder()
    owners: dict[str, str] = {}
    h = builder.input("x", (batch, *network.shapes[0]), S8)
    layers = list(network.layers)
    while layers:
        layer = layers.pop(0)
        if isinstance(layer, MaxPool):
            h = _pool(h, layer)
        else:
            h = (_convolution if layer.window else _product)(h, layer)
            _owned(builder, owners, layer.name)
            while layers and isinstance(pool := layers[0], MaxPool):
                layers.pop(0)
                h = _pool(h, pool)
                _owned(builder, owners, pool.name)
            h = _rescaled(layer, h)
        _owned(builder, owners, layer.name)
    if argmax:
        h = g.argmax(h, 1)
        _owned(builder, owners, ARGMAX)
    return Lowered(builder.graph(label=h) if argmax else builder.graph(sums=h), owners)


def _owned(builder: g.Builder, owners: dict[str, str], layer: str) -> None:
    """What was built since the last call is this layer's."""
    for name in builder.names:
        owners.setdefault(name, layer)


def _constant(h: g.Tensor, values: NDArray[np.integer], name: str) -> g.Tensor:
    """In the narrowest format that holds the values: what is known to be small is computed with fewer words."""
    low, high = int(values.min()), int(values.max())
    dtype = next(d for d in (S8, S16, S32) if d.lowest <= low and high <= d.max)
    return h.builder.constant(values, dtype, name)


def _product(h: g.Tensor, layer: QuantisedLayer) -> g.Tensor:
    out, features = layer.weight.shape
    weight = h.builder.constant(layer.weight, S8, f"{layer.name}_weight")
    m, n, k = Range("m", h.shape[0]), Range("n", out), Range("k", features)
    source = h.at(m, *_places(k, h.shape[1:]))
    body = op("mul", Cast(source, S32), Cast(weight.at(n, k), S32))
    return h.builder.statement(S32, (m, n), body, ("sum", [k]), f"{layer.name}_product")


def _places(k: Range, shape: tuple[int, ...]) -> list[Index]:
    """Indices of a value of this shape at its k-th element."""
    found: list[Index] = []
    for n, extent in enumerate(shape):
        inner = prod(shape[n + 1 :])
        at = Index.of(k) if inner == 1 else Index.of(k) // inner
        found.append(at if n == 0 else at % extent)
    return found


def _convolution(h: g.Tensor, layer: QuantisedLayer) -> g.Tensor:
    out, channels, *window = layer.weight.shape
    weight = h.builder.constant(layer.weight, S8, f"{layer.name}_weight")
    sizes = [(n + 2 * layer.padding - k) // layer.stride + 1 for n, k in zip(h.shape[2:], window)]
    b, o, c = Range("b", h.shape[0]), Range("o", out), Range("c", channels)
    places = [Range(name, size) for name, size in zip("yx", sizes)]
    taps = [Range(name, size) for name, size in zip(("ky", "kx"), window)]
    at = [p * layer.stride + t - layer.padding for p, t in zip(places, taps)]
    body = op("mul", Cast(h.guarded((b, c, *at), 0), S32), Cast(weight.at(o, c, *taps), S32))
    return h.builder.statement(S32, (b, o, *places), body, ("sum", [c, *taps]), f"{layer.name}_product")


def _rescaled(layer: QuantisedLayer, sums: g.Tensor) -> g.Tensor:
    """Bias and requantisation of a layer's sums."""

    def channels(values: NDArray[np.int64], name: str) -> g.Tensor | int:
        if values.size == 1:
            return int(values.item())
        return _constant(sums, values.reshape(-1, *(1,) * (sums.ndim - 2)), f"{layer.name}_{name}")

    how = layer.rescale
    bias = layer.bias.astype(np.int64)
    if how is None:
        return _words(sums, lambda a, b: op("add", a, b), channels(bias, "bias"), name=f"{layer.name}_sums")
    factor = channels(how.factor, "factor")
    if greatest_sum(layer.weight, layer.bias) * int(how.factor.max()) + how.half >= 1 << 31:
        moved = _words(sums, lambda a, b: op("add", a, b), channels(bias, "bias"), name=f"{layer.name}_moved")
        return g.requantise(moved, factor, how.shift, low=how.low)
    # The same in 32 bits: the bias and the half are one number, and bounds are met before the shift.
    least, greatest = max(how.low << how.shift, -1 << 31), min((MOST + 1 << how.shift) - 1, (1 << 31) - 1)

    def body(value: Expr, scale: Expr, more: Expr) -> Expr:
        moved = op("add", op("mul", value, scale), more)
        held = op("min", op("max", moved, _word(least)), _word(greatest))
        return Cast(op("shr", held, _word(how.shift)), S8)

    more = channels(bias * how.factor + how.half, "offset")
    return _words(sums, body, factor, more, dtype=S8, name=f"{layer.name}_out")


def _word(number: int) -> Expr:
    return Cast(Const(number), S32)


def _words(
    sums: g.Tensor, what: Callable[..., Expr], *others: g.Tensor | int, dtype: DType = S32, name: str
) -> g.Tensor:
    """`what` of sums and others in S32."""
    tensors = [other for other in others if isinstance(other, g.Tensor)]

    def body(value: Expr, *parts: Expr) -> Expr:
        left = list(parts)
        return what(value, *(_word(o) if isinstance(o, int) else Cast(left.pop(0), S32) for o in others))

    return g.pointwise(body, sums, *tensors, dtype=dtype, name=name)


def _pool(h: g.Tensor, layer: MaxPool) -> g.Tensor:
    b, c, *sizes = h.shape
    places = [Range(name, size // layer.size) for name, size in zip("yx", sizes)]
    taps = [Range(name, layer.size) for name in ("ky", "kx")]
    lead = Range("b", b), Range("c", c)
    body = h.at(*lead, *(p * layer.size + t for p, t in zip(places, taps)))
    return h.builder.statement(h.dtype, (*lead, *places), body, ("max", taps), layer.name)
