"""Layers of a float32 network, and what they compute on the host.

A network is a tuple of layers over images [batch, channels, height, width] or rows [batch, features]. Decides what a
layer is and its float32 function; it must not know integers, graphs or the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal

Floats = NDArray[np.float32]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Dense:
    """y = x @ weight.T + bias, of x flattened to rows; then max(y, 0) where `relu`. weight float32[out, in], bias
    float32[out]."""

    name: str
    weight: Floats
    bias: Floats
    relu: bool = True

    def shape(self, before: Shape) -> Shape:
        """The shape of one output, from one input's. Raises Refusal where they do not fit."""
        if prod(before) != self.weight.shape[1]:
            raise Refusal(
                "layers fit each other", where=self.name, got=before, limit=f"{self.weight.shape[1]} features"
            )
        return (self.weight.shape[0],)


@dataclass(frozen=True)
class Conv:
    """A convolution with zero padding and bias, then max(y, 0) where `relu`. weight float32[out, in, height, width],
    bias float32[out]."""

    name: str
    weight: Floats
    bias: Floats
    stride: int = 1
    padding: int = 0
    relu: bool = True

    def shape(self, before: Shape) -> Shape:
        """The shape of one output, from one input's. Raises Refusal where they do not fit."""
        out, channels, *window = self.weight.shape
        if len(before) != 3 or before[0] != channels:
            raise Refusal(
                "layers fit each other", where=self.name, got=before, limit=f"{channels} channels of an image"
            )
        sizes = [(n + 2 * self.padding - k) // self.stride + 1 for n, k in zip(before[1:], window)]
        if min(sizes) < 1:
            raise Refusal("a window fits its image", where=self.name, got=before[1:], limit=tuple(window))
        return (out, *sizes)


@dataclass(frozen=True)
class MaxPool:
    """The greatest of every window of size x size, windows side by side; what is left over at the end is not read."""

    name: str
    size: int = 2

    def shape(self, before: Shape) -> Shape:
        """The shape of one output, from one input's. Raises Refusal where they do not fit."""
        if len(before) != 3 or min(before[1:]) < self.size:
            raise Refusal("a window fits its image", where=self.name, got=before, limit=self.size)
        return (before[0], before[1] // self.size, before[2] // self.size)


Layer = Dense | Conv | MaxPool


def shapes(layers: Sequence[Layer], first: Shape) -> list[Shape]:
    """Shapes of one example: the input's, then every layer's output. Raises Refusal where layers do not fit."""
    found = [first]
    for layer in layers:
        found.append(layer.shape(found[-1]))
    return found


def windows(x: NDArray[Any], size: Sequence[int], stride: int, padding: int) -> NDArray[Any]:
    """Every window of images with zeros around: [batch, rows, columns, channels * height * width]."""
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    found = np.lib.stride_tricks.sliding_window_view(padded, tuple(size), (2, 3))[:, :, ::stride, ::stride]
    batch, channels, rows, columns = found.shape[:4]
    return np.ascontiguousarray(found.transpose(0, 2, 3, 1, 4, 5)).reshape(batch, rows, columns, channels * prod(size))


def pooled(x: NDArray[Any], size: int) -> NDArray[Any]:
    """The windows of a MaxPool: [batch, channels, rows, columns, size * size]."""
    batch, channels, rows, columns = x.shape
    rows, columns = rows // size, columns // size
    cut = x[:, :, : rows * size, : columns * size].reshape(batch, channels, rows, size, columns, size)
    return cut.transpose(0, 1, 2, 4, 3, 5).reshape(batch, channels, rows, columns, size * size)


def forward(layers: Sequence[Layer], x: Floats) -> list[Floats]:
    """The input and every layer's output in float32."""
    found = [np.asarray(x, np.float32)]
    for layer in layers:
        h = found[-1]
        match layer:
            case MaxPool():
                y = pooled(h, layer.size).max(-1)
            case Dense():
                y = h.reshape(len(h), -1) @ layer.weight.T + layer.bias
            case Conv():
                rows = windows(h, layer.weight.shape[2:], layer.stride, layer.padding)
                y = (rows @ layer.weight.reshape(len(layer.weight), -1).T + layer.bias).transpose(0, 3, 1, 2)
        found.append(np.maximum(y, 0) if not isinstance(layer, MaxPool) and layer.relu else y)
    return found
