"""Post-training quantisation: a float32 network and some images become int8 weights, int32 biases and factors.

Symmetric: a value is its int8 number times a scale, zero is 0. A layer is

    sums = x @ weight + bias                             int32, in units of the scales of x and weight
    y = clamp((sums * factor + 2**(shift - 1)) >> shift, 0 or -128, 127)        as the machine's op 45 (datasheet 7)

with the bound 0 where max(y, 0) follows. Decides scales, factors and shifts; it must not know graphs or the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import frexp, prod

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from tinytpu.models.layers import Conv, Dense, Floats, Layer, MaxPool, Shape, forward, shapes

MOST = 127
"""The greatest int8; -128 is left out of weights, so that they are symmetric."""
NEAR = 1 / 64
"""Of the greatest scale of a layer's channels, the least that a channel has."""
MAX_SHIFT = 31
"""What the machine's requantisation can shift by (datasheet 8)."""


@dataclass(frozen=True)
class Rescale:
    """y = clamp((sums * factor + 2**(shift - 1)) >> shift, low, 127). factor: int64[1], or one a channel."""

    factor: NDArray[np.int64]
    shift: int
    low: int

    @property
    def half(self) -> int:
        """What is added before the shift: ties go up."""
        return 1 << (self.shift - 1)


@dataclass(frozen=True)
class QuantisedLayer:
    """A dense layer (weight int8[out, in]) or a convolution (int8[out, in, height, width]) on int8.

    bias: int32[out]. scales: float64[1] or [out], what a unit of the sums is. rescale: None where the sums themselves
    leave the network.
    """

    name: str
    weight: NDArray[np.int8]
    bias: NDArray[np.int32]
    scales: NDArray[np.float64]
    rescale: Rescale | None
    stride: int = 1
    padding: int = 0

    @property
    def window(self) -> tuple[int, ...]:
        """Height and width of a convolution, () of a dense layer."""
        return self.weight.shape[2:]


def greatest_sum(weight: NDArray[np.int8], bias: NDArray[np.number]) -> int:
    """The greatest magnitude of a sum of any int8 inputs, with the bias."""
    weights = np.abs(weight.astype(np.int64)).reshape(len(weight), -1).sum(1)
    return int((128 * weights + np.abs(bias.astype(np.int64))).max())


@dataclass(frozen=True)
class Quantised:
    """A network on int8. shapes: of one example, in and after every layer. scale: what a unit of the input is."""

    layers: tuple[QuantisedLayer | MaxPool, ...]
    shapes: tuple[Shape, ...]
    scale: float

    def inputs(self, x: Floats) -> NDArray[np.int8]:
        """Real inputs as the network takes them, rounded to nearest even. Raises Refusal for what int8 cannot hold."""
        found = np.rint(np.asarray(x, np.float64) / self.scale)
        if found.size and (np.abs(found).max() > MOST or np.isnan(found).any()):
            raise Refusal(
                "an input is within the scale's int8", where="Quantised", got=float(np.abs(x).max()),
                limit=MOST * self.scale, hint="calibrate with inputs that reach as far",
            )  # fmt: skip
        return found.astype(np.int8)

    def macs(self) -> dict[str, int]:
        """Multiplications of one example, by layer."""
        found: dict[str, int] = {}
        for layer, after in zip(self.layers, self.shapes[1:]):
            if isinstance(layer, QuantisedLayer):
                found[layer.name] = prod(after) * (layer.weight.size // len(layer.weight))
        return found


def quantise(
    layers: Sequence[Layer],
    calibration: Floats,
    *,
    scale: float | None = None,
    per_channel: bool = True,
    bits: int | None = None,
) -> Quantised:
    """The network on int8.

    calibration: float32 inputs; the greatest value that a layer gives for them becomes 127. scale: of the network's
    input, by default from the calibration too. per_channel: a scale for every output channel, but one for the last
    layer, whose sums are compared. bits: of the greatest factor; by default as many as keep its product with any sum
    within 32 bits, 15 at most.
    Raises Refusal for inputs that are all 0, a last layer that cannot end a network, and a factor beyond its bits.
    """
    if bits is not None and not 2 <= bits <= 31:
        raise Refusal("a factor is an int32", where="quantise", got=f"{bits} bits", limit="2..31")
    if not layers or isinstance(layers[-1], MaxPool) or layers[-1].relu:
        raise Refusal("a network ends in a layer without max(y, 0), whose sums are compared", where="quantise")
    values = forward(layers, calibration)
    first = _greatest(values[0], "input") / MOST if scale is None else scale
    made: list[QuantisedLayer | MaxPool] = []
    before = first
    for n, (layer, after) in enumerate(zip(layers, values[1:])):
        if isinstance(layer, MaxPool):
            made.append(layer)
            continue
        last = n == len(layers) - 1
        weight, scales = _weights(layer, per_channel and not last)
        sums = before * scales
        bias = np.rint(layer.bias.astype(np.float64) / sums)
        most = greatest_sum(weight, bias)
        if most >= 1 << 31:  # the machine's wrap around
            raise Refusal("sums fit 32 bits", where=layer.name, got=most, limit=(1 << 31) - 1)
        rescale = None
        if not last:
            before = _greatest(after, layer.name) / MOST
            rescale = _rescale(layer, sums / before, bits or min(15, max(2, 30 - most.bit_length())))
        stride, padding = (layer.stride, layer.padding) if isinstance(layer, Conv) else (1, 0)
        made.append(QuantisedLayer(layer.name, weight, bias.astype(np.int32), sums, rescale, stride, padding))
    return Quantised(tuple(made), tuple(shapes(layers, values[0].shape[1:])), first)


def _greatest(values: Floats, where: str) -> float:
    found = float(np.abs(values).max())
    if not 0 < found < np.inf:
        raise Refusal("calibration gives values that are not all 0, and finite", where=where, got=found)
    return found


def _weights(layer: Dense | Conv, per_channel: bool) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """int8 weights, and their scales: float64[out] or [1]. No channel's is less than NEAR of the greatest: factors of
    all channels share a shift, and a bias of finer units would leave them few bits."""
    weight = layer.weight.astype(np.float64)
    flat = np.abs(weight).reshape(len(weight), -1)
    greatest = flat.max(1) if per_channel else flat.max(keepdims=True).reshape(1)
    scales = np.maximum(greatest, (greatest.max() or MOST) * NEAR) / MOST
    found = np.rint(weight / scales.reshape(-1, *(1,) * (weight.ndim - 1)))
    return found.astype(np.int8), scales


def _rescale(layer: Dense | Conv, ratio: NDArray[np.float64], bits: int) -> Rescale:
    """Factors of `bits` bits at most, with the shift that brings the greatest ratio there."""
    shift = min(bits - frexp(float(ratio.max()))[1], MAX_SHIFT)
    factor = np.rint(np.ldexp(ratio, shift)).astype(np.int64)
    if factor.max() >= 1 << bits:  # rounded up to a power of two
        shift -= 1
        factor = np.rint(np.ldexp(ratio, shift)).astype(np.int64)
    if shift < 1:
        raise Refusal(
            "a layer's outputs are coarser than its sums", where=layer.name, got=float(ratio.max()), limit=2.0**bits,
            hint="calibrate with more inputs",
        )  # fmt: skip
    return Rescale(factor, shift, 0 if layer.relu else -128)
