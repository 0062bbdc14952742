"""Vector-core work: silu and add over 1M elements, softmax over 512 x 512, in elements per second.

One element-operation is one element of the result, whatever the operator's number of instructions.
"through" is what a user waits for from numpy to numpy: conversion, upload, the run, readback; "on device"
starts and ends with tensors on the device. The ratio is our rate "through" over numpy's in float32, in
the same run.

    python benchmarks/vector.py [--check] [--quick]
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from timing import Bar, arguments, finish, interleaved

from kohakutpu import api as ktpu

Array = NDArray[np.float32]
BAR = 50.0


def numpy_softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


CASES: dict[str, tuple[tuple[int, ...], int, Callable[..., ktpu.Tensor], Callable[..., Array]]] = {
    "silu": ((1 << 20,), 1, lambda x: x.silu(), lambda x: x / (1 + np.exp(-x))),
    "add": ((1 << 20,), 2, lambda x, y: x + y, lambda x, y: x + y),
    "softmax": ((512, 512), 1, lambda x: x.softmax(), numpy_softmax),
}


def measure(name: str, repeats: int) -> dict[str, float | int | str]:
    shape, arity, ours, theirs = CASES[name]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for _ in range(arity)]
    resident = [ktpu.tensor(array).pin() for array in arrays]

    def through() -> object:
        return ours(*map(ktpu.tensor, arrays)).numpy()

    def on_device() -> object:
        result = ours(*resident)
        ktpu.sync()
        return result

    def reference() -> object:
        return theirs(*arrays)

    exact = theirs(*(array.astype(np.float64) for array in arrays))
    error = np.linalg.norm(ours(*resident).numpy() - exact) / np.linalg.norm(exact)
    whole, inner, numpys = interleaved([through, on_device, reference], repeats)
    size = int(np.prod(shape))
    return {
        "operator": f"{name} {'x'.join(map(str, shape))}",
        "through M/s": size / whole / 1e6,
        "on device M/s": size / inner / 1e6,
        "numpy M/s": size / numpys / 1e6,
        "ratio": numpys / whole,
        "relative error": float(error),
    }


def main() -> int:
    options = arguments("elementwise and row work of the vector cores")
    rows = [measure(name, 3 if options.quick else 7) for name in CASES]
    bars = [
        Bar(f"{row['operator']}, million elements per second", float(row["through M/s"]), BAR) for row in rows
    ]
    return finish("vector", rows, bars, options.check)


if __name__ == "__main__":
    sys.exit(main())
