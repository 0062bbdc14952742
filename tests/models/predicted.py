"""The error that the number formats predict for a whole model: the numpy reference with random errors put in.

A product's operands are off by a uniform error of at most half a step of their block of 32 (datasheet 2.2), a stored
value by half an ulp of FP16. Both come from `api.bounds`; no number here was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from api.bounds import FP16, TINY, quantiser_error
from kohakutpu.models.parameters import mapped
from kohakutpu.models.reference import Reference

Doubles = NDArray[np.float64]


def doubles(tree: Any) -> Any:
    """Parameters in float64."""
    return mapped(tree, lambda array: np.asarray(array, np.float64))


def noisy(seed: int) -> Reference:
    """The reference's arithmetic with the formats' errors, drawn by a seed."""
    rng = np.random.default_rng(seed)

    def product(a: Doubles, b: Doubles) -> Doubles:
        a, b = (x + quantiser_error(x) * rng.uniform(-1, 1, x.shape) for x in (a, b))
        return a @ np.swapaxes(b, -1, -2)

    def stored(x: Doubles) -> Doubles:
        return x + (np.abs(x) * FP16 + TINY) * rng.uniform(-1, 1, x.shape)

    return Reference(product, stored)


def off(got: Any, exact: Doubles) -> float:
    """Norm of the error over the norm of the exact values."""
    values = np.asarray(got, np.float64)
    assert values.shape == exact.shape, (values.shape, exact.shape)
    return float(np.linalg.norm(values - exact) / np.linalg.norm(exact))


def close(got: Any, model: Callable[[Reference], Doubles], draws: int = 4) -> float:
    """Hold a machine's result against `model(arithmetic)`; the relative error.

    It is at most 1.25 times what the formats predict (root mean square over `draws`), with the allowance for few values
    that `kernels.expected` has, and at least a third of it: less would mean that something other than this machine
    computed.
    """
    exact = model(Reference())
    predicted = float(np.sqrt(np.mean([off(model(noisy(seed)), exact) ** 2 for seed in range(draws)])))
    error = off(got, exact)
    room = 1.25 + 1.5 / np.sqrt(exact.size)
    assert predicted / 3 <= error <= room * predicted, f"error {error:.2e}, predicted {predicted:.2e}"
    return error
