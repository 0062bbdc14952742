"""A quantised network in whole numbers, written from the definition: a loop an element of a window, int64, no graph.

It shares nothing with `tinytpu.models` but the layers' numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]


def convolved(x: Whole, weight: Whole, stride: int, padding: int) -> Whole:
    batch, channels, height, width = x.shape
    out, _, tall, wide = weight.shape
    rows, columns = (height + 2 * padding - tall) // stride + 1, (width + 2 * padding - wide) // stride + 1
    sums = np.zeros((batch, out, rows, columns), np.int64)
    for row in range(rows):
        for column in range(columns):
            for i in range(tall):
                for j in range(wide):
                    y, z = row * stride + i - padding, column * stride + j - padding
                    if 0 <= y < height and 0 <= z < width:
                        sums[:, :, row, column] += np.tensordot(x[:, :, y, z], weight[:, :, i, j], ((1,), (1,)))
    assert channels == weight.shape[1]
    return sums


def greatest(x: Whole, size: int) -> Whole:
    batch, channels, height, width = x.shape
    found = np.zeros((batch, channels, height // size, width // size), np.int64)
    for row in range(height // size):
        for column in range(width // size):
            window = x[:, :, row * size : (row + 1) * size, column * size : (column + 1) * size]
            found[:, :, row, column] = window.max((2, 3))
    return found


def rescaled(sums: Whole, factor: Whole, shift: int, low: int) -> Whole:
    """Divided and rounded half up with Python's integers where they could leave 64 bits."""
    exact = [[int(s) * int(f) for s, f in zip(row, np.resize(factor, len(row)))] for row in sums.tolist()]
    return np.array(
        [[min(max((v + (1 << shift - 1)) // (1 << shift), low), 127) for v in row] for row in exact], np.int64
    )


def run(network: Any, x: NDArray[np.int8]) -> Whole:
    """The sums of the last layer, of inputs int8[batch, ...]."""
    h = x.astype(np.int64)
    for layer in network.layers:
        if hasattr(layer, "size"):
            h = greatest(h, layer.size)
            continue
        weight, bias = layer.weight.astype(np.int64), layer.bias.astype(np.int64)
        if weight.ndim == 4:
            h = convolved(h, weight, layer.stride, layer.padding) + bias[:, None, None]
        else:
            h = np.stack([(h.reshape(len(h), -1) * row).sum(1) for row in weight], 1) + bias
        if layer.rescale is not None:
            how = layer.rescale
            last = np.moveaxis(h, 1, -1)
            flat = rescaled(last.reshape(-1, len(weight)), how.factor, how.shift, how.low)
            h = np.moveaxis(flat.reshape(last.shape), -1, 1)
    return h
