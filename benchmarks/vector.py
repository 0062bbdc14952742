"""Vector-core work: silu and add over 1M elements, softmax over 512 x 512, in elements per second.

The bar counts one element-operation per element of the result, whatever the operator's number of steps;
"steps M/s" counts each vector-core operation on each element. "through" is what a user waits for from
numpy to numpy: conversion, upload, the run, readback; "on device" starts and ends with tensors on the
device. Times are medians; the ratio is numpy's best time in float32 over our median "through", in the
same run.

    python benchmarks/vector.py [--check] [--quick]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from timing import Bar, arguments, finish, interleaved

from kohakutpu import api as ktpu

Array = NDArray[np.float32]
BAR = 50.0


def numpy_softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@dataclass(frozen=True)
class Case:
    """An operator on `arity` operands of one shape; steps: vector-core operations per element."""

    shape: tuple[int, ...]
    arity: int
    steps: int
    ours: Callable[..., ktpu.Tensor]
    theirs: Callable[..., Array]


CASES = {
    # multiply, exp2, add, reciprocal, multiply
    "silu": Case((1 << 20,), 1, 5, lambda x: x.silu(), lambda x: x / (1 + np.exp(-x))),
    "add": Case((1 << 20,), 2, 1, lambda x, y: x + y, lambda x, y: x + y),
    # maximum, subtract, scale, exp2, sum, multiply
    "softmax": Case((512, 512), 1, 6, lambda x: x.softmax(), numpy_softmax),
}


def measure(name: str, repeats: int) -> dict[str, float | int | str]:
    case = CASES[name]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(case.shape).astype(np.float32) for _ in range(case.arity)]
    resident = [ktpu.tensor(array).pin() for array in arrays]

    def through() -> object:
        return case.ours(*map(ktpu.tensor, arrays)).numpy()

    def on_device() -> object:
        result = case.ours(*resident)
        ktpu.sync()
        return result

    def reference() -> object:
        return case.theirs(*arrays)

    exact = case.theirs(*(array.astype(np.float64) for array in arrays))
    error = np.linalg.norm(case.ours(*resident).numpy() - exact) / np.linalg.norm(exact)
    whole, inner, numpys = interleaved([through, on_device, reference], repeats)
    size = int(np.prod(case.shape))
    return {
        "operator": f"{name} {'x'.join(map(str, case.shape))}",
        "through M/s": size / whole.median / 1e6,
        "on device M/s": size / inner.median / 1e6,
        "steps M/s": size * case.steps / inner.median / 1e6,
        "numpy best M/s": size / numpys.best / 1e6,
        "ratio": numpys.best / whole.median,
        "relative error": float(error),
    }


def main() -> int:
    options = arguments("elementwise and row work of the vector cores")
    rows = [measure(name, 3 if options.quick else 7) for name in CASES]
    bars = [Bar(f"{row['operator']}, million elements per second", float(row["through M/s"]), BAR) for row in rows]
    return finish("vector", rows, bars, options.check)


if __name__ == "__main__":
    sys.exit(main())
