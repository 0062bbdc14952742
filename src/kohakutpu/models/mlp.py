"""A multilayer perceptron: linear layers with one activation between them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from kohakutpu import api as ktpu
from kohakutpu import kernels
from kohakutpu.device import Device
from kohakutpu.models.blocks import traced
from kohakutpu.models.parameters import Draw, Host, Linear, on_device
from kohakutpu.tensor import Tensor

Layers = tuple[Linear[Host], ...]


def draw_mlp(sizes: Sequence[int], seed: int = 0) -> Layers:
    """Random layers from sizes[0] inputs to sizes[-1] outputs."""
    draw = Draw(seed)
    return tuple(draw.linear(n, k) for k, n in pairwise(sizes))


class MLP:
    """Layers on a device; a call takes x (..., K) to (..., N). jit: compiled as one program."""

    def __init__(
        self, layers: Layers, activation: str = "relu", device: Device | None = None, jit: bool = False
    ) -> None:
        if not layers:
            raise Refusal("a perceptron has at least one layer", where="MLP", got=0)
        for before, after in pairwise(layers):
            if before.w.shape[0] != after.w.shape[1]:
                raise Refusal("layers fit each other", where="MLP", got=f"{before.w.shape} then {after.w.shape}")
        self.layers: tuple[Linear[Tensor], ...] = on_device(layers, device)
        self.activation = activation
        self.forward = traced(self._forward, jit)

    @classmethod
    def from_numpy(cls, weights: Sequence[NDArray[Any]], biases: Sequence[NDArray[Any]], **options: Any) -> MLP:
        """Weights (N, K) as they are multiplied, biases (N,)."""
        layers = tuple(
            Linear(np.asarray(w, np.float32), np.asarray(b, np.float32)) for w, b in zip(weights, biases, strict=True)
        )
        return cls(layers, **options)

    def __call__(self, x: Any) -> Tensor:
        h = ktpu.tensor(x, device=self.layers[0].w.device)
        shape = (*h.shape[:-1], self.layers[-1].w.shape[0])
        return self.forward(h.reshape(-1, h.shape[-1])).reshape(shape)

    def _forward(self, h: Tensor) -> Tensor:
        for n, layer in enumerate(self.layers):
            last = n == len(self.layers) - 1
            h = kernels.linear(h, layer.w, layer.b, activation="none" if last else self.activation)
        return h
