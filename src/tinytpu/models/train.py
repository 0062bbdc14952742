"""Training of small float32 networks on the host: cross-entropy, Adam, batches drawn by seed.

Decides the gradients of the layers. Nothing here runs on the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tinytpu.models.layers import Conv, Dense, Floats, Layer, MaxPool, forward, pooled, windows

BATCH = 64
Labels = NDArray[np.int64]
Gradient = tuple[Floats, Floats]


def drawn(layers: Sequence[Layer], seed: int = 0) -> tuple[Layer, ...]:
    """The layers with weights drawn for training (He's rule) and biases of 0; their arrays give the shapes only."""
    rng = np.random.default_rng(seed)

    def of(layer: Layer) -> Layer:
        if isinstance(layer, MaxPool):
            return layer
        shape = layer.weight.shape
        scale = np.sqrt(2 / (layer.weight.size / shape[0]))
        return replace(layer, weight=(rng.standard_normal(shape) * scale).astype(np.float32), bias=0 * layer.bias)

    return tuple(of(layer) for layer in layers)


def dense(name: str, inputs: int, outputs: int, *, relu: bool = True) -> Dense:
    """A dense layer of zeros."""
    return Dense(name, np.zeros((outputs, inputs), np.float32), np.zeros(outputs, np.float32), relu)


def conv(name: str, inputs: int, outputs: int, size: int = 3, *, stride: int = 1, padding: int = 1) -> Conv:
    """A convolution of zeros."""
    weight = np.zeros((outputs, inputs, size, size), np.float32)
    return Conv(name, weight, np.zeros(outputs, np.float32), stride, padding)


def fitted(
    layers: Sequence[Layer], x: Floats, labels: Labels, *, epochs: int = 30, rate: float = 1e-2, seed: int = 0
) -> tuple[Layer, ...]:
    """The layers after `epochs` passes over x, the rate falling to 0. The last layer gives logits.

    Batches are of 64; what is left over at the end of a pass is left out."""
    rng = np.random.default_rng(seed)
    layers = tuple(layers)
    moments = [[np.zeros_like(a) for a in _arrays(layer) for _ in range(2)] for layer in layers]
    batches = len(x) // BATCH
    order = rng.permutation(len(x))
    for step in range(epochs * batches):
        if step % batches == 0:
            order = rng.permutation(len(x))
        take = order[step % batches * BATCH :][:BATCH]
        gradients = gradients_of(layers, x[take], labels[take])
        now = rate * (1 - step / (epochs * batches))
        layers = tuple(
            layer if g is None else _moved(layer, g, m, now, step + 1)
            for layer, g, m in zip(layers, gradients, moments)
        )
    return layers


def _arrays(layer: Layer) -> tuple[Floats, ...]:
    return () if isinstance(layer, MaxPool) else (layer.weight, layer.bias)


def _moved(layer: Layer, gradient: Gradient, moments: list[Floats], rate: float, step: int) -> Layer:
    """One step of Adam."""
    made: list[Floats] = []
    for n, (array, g) in enumerate(zip(_arrays(layer), gradient)):
        mean, square = moments[2 * n : 2 * n + 2]
        mean += 0.1 * (g - mean)
        square += 0.001 * (g * g - square)
        change = mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
        made.append((array - rate * change).astype(np.float32))
    return replace(layer, weight=made[0], bias=made[1])


def gradients_of(layers: Sequence[Layer], x: Floats, labels: Labels) -> list[Gradient | None]:
    """Of the mean cross-entropy, by layer."""
    values = forward(layers, x)
    logits = values[-1]
    odds = np.exp(logits - logits.max(1, keepdims=True))
    back = odds / odds.sum(1, keepdims=True)
    back[np.arange(len(x)), labels] -= 1
    back /= len(x)
    found: list[Gradient | None] = []
    for n, layer in reversed(tuple(enumerate(layers))):
        before, after = values[n : n + 2]
        back = back.reshape(after.shape)
        if isinstance(layer, MaxPool):
            found.append(None)
            back = _unpooled(layer, before, after, back)
            continue
        if layer.relu:
            back = back * (after > 0)
        if isinstance(layer, Dense):
            rows = before.reshape(len(before), -1)
            found.append((back.T @ rows, back.sum(0)))
            back = back @ layer.weight
        else:
            found.append(_of_weights(layer, before, back))
            if n:  # nobody asks for the gradient of the pixels
                back = _of_images(layer, before, back)
    return found[::-1]


def _unpooled(layer: MaxPool, before: Floats, after: Floats, back: Floats) -> Floats:
    """The gradient of a pool's input: all of it goes to the first greatest of a window."""
    size = layer.size
    batch, channels, rows, columns = after.shape
    spread = np.zeros((*after.shape, size * size), np.float32)
    np.put_along_axis(spread, pooled(before, size).argmax(-1)[..., None], back[..., None], -1)
    whole = np.zeros_like(before)
    whole[:, :, : rows * size, : columns * size] = (
        spread.reshape(batch, channels, rows, columns, size, size)
        .transpose(0, 1, 2, 4, 3, 5)
        .reshape(batch, channels, rows * size, columns * size)
    )
    return whole


def _of_weights(layer: Conv, before: Floats, back: Floats) -> Gradient:
    out, _, *size = layer.weight.shape
    sources = windows(before, size, layer.stride, layer.padding)
    rows = back.transpose(0, 2, 3, 1).reshape(-1, out)
    weight = rows.T @ sources.reshape(len(rows), -1)
    return weight.reshape(layer.weight.shape), rows.sum(0)


def _of_images(layer: Conv, before: Floats, back: Floats) -> Floats:
    """The gradient of a convolution's input: every tap adds its share where it has read."""
    _, _, tall, wide = layer.weight.shape
    batch, channels, height, width = before.shape
    pad, step = layer.padding, layer.stride
    whole = np.zeros((batch, channels, height + 2 * pad, width + 2 * pad), np.float32)
    rows, columns = (n * step for n in back.shape[2:])
    for y in range(tall):
        for x in range(wide):
            share = np.einsum("boyx,oc->bcyx", back, layer.weight[:, :, y, x], optimize=True)
            whole[:, :, y : y + rows : step, x : x + columns : step] += share
    return whole[:, :, pad : pad + height, pad : pad + width]
