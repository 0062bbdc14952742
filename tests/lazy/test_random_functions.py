"""Random functions of the tensor level, traced: near float64 computed by numpy, whatever order and forms they use."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakutpu import api as ktpu
from kohakutpu import kernels

Array = NDArray[np.float64]
Step = tuple[Callable[[Any], Any], Callable[[Array], Array]]
STEPS = 9
"""Steps of one function. Every value stays within +-4, so a rounding to FP16 is 2**-10 at most, and no step grows an
error more than fourfold; most shrink it."""


def step(rng: random.Random, shape: tuple[int, ...]) -> Step:
    """One step on a value of a shape: on tensors, and on float64 arrays."""
    axis = rng.randrange(len(shape))
    order = rng.sample(range(len(shape)), len(shape))
    number = rng.choice([0.5, -0.75, 1.25])
    flat = (-1, shape[-1]) if rng.random() < 0.5 else (shape[0], -1)
    first = rng.randrange(shape[axis])
    steps: list[Step] = [
        (lambda x: x * number, lambda x: x * number),
        (lambda x: (x + number).minimum(4.0), lambda x: np.minimum(x + number, 4)),
        (lambda x: x.relu() - 1.0, lambda x: np.maximum(x, 0) - 1),
        (lambda x: x.sigmoid(), lambda x: 1 / (1 + np.exp(-x))),
        (lambda x: x.softmax(axis), lambda x: np.exp(x - x.max(axis, keepdims=True)) / _total(x, axis)),
        (lambda x: x - x.mean(axis, keepdims=True), lambda x: x - x.mean(axis, keepdims=True)),
        (lambda x: x.max(axis, keepdims=True) - x.abs(), lambda x: x.max(axis, keepdims=True) - np.abs(x)),
        (lambda x: x.transpose(*order), lambda x: x.transpose(order)),
        (lambda x: x.reshape(*flat), lambda x: x.reshape(flat)),
        (lambda x: x * x.sigmoid(), lambda x: x / (1 + np.exp(-x))),
        (lambda x: kernels.slice(x, axis, first), lambda x: x.take(range(first, x.shape[axis]), axis)),
        (lambda x: kernels.concat([x, x * 0.5], axis), lambda x: np.concatenate([x, x * 0.5], axis)),
        (lambda x: x.maximum(x.T.reshape(*x.shape)), lambda x: np.maximum(x, x.T.reshape(x.shape))),
    ]
    return rng.choice(steps)


def _total(x: Array, axis: int) -> Array:
    return np.exp(x - x.max(axis, keepdims=True)).sum(axis, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
def test_a_random_function_is_near_float64(seed: int) -> None:
    rng = random.Random(seed)
    data = np.random.default_rng(seed).uniform(-2, 2, (rng.randrange(2, 9), rng.choice([5, 16, 33, 48])))
    x = ktpu.tensor(data)
    exact: Array = x.numpy().astype(np.float64)
    steps: list[Step] = []
    for _ in range(STEPS):
        made = step(rng, exact.shape)
        if made[1](exact).size <= 4096:
            steps.append(made)
            exact = made[1](exact)

    def run(x: ktpu.Tensor) -> ktpu.Tensor:
        for on_tensors, _ in steps:
            x = on_tensors(x)
        return x

    got = ktpu.jit(run)(x)
    assert got.shape == exact.shape
    assert np.abs(got.numpy() - exact).max() <= 2.0**-8
    with ktpu.graph():
        block = run(x)
    assert np.abs(block.numpy() - exact).max() <= 2.0**-8
