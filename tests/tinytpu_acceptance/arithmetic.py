"""Sums, differences, products, extrema of int32 and float32: two tensors, a tensor and a number, both formats' ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from tinytpu_acceptance.table import Check, Table, table
from tinytpu_acceptance.tensors import F32, I32, INT_EDGES, SPECIALS, Array, crossed, ints, reals, tensor, words

Two = Callable[[Any, Any], Any]
OPS: dict[str, tuple[Two, Two]] = {
    "add": (lambda x, y: x + y, np.add), "sub": (lambda x, y: x - y, np.subtract),
    "mul": (lambda x, y: x * y, np.multiply), "min": (lambda x, y: x.minimum(y), np.minimum),
    "max": (lambda x, y: x.maximum(y), np.maximum),
}  # fmt: skip
SHAPES = [(1,), (3,), (4,), (5,), (16,), (17,), (48,), (2, 3), (4, 4), (5, 7), (2, 3, 4), (2, 1, 3, 2)]
FLOAT_SHAPES = [(1,), (5,), (16,), (17,), (80,), (3, 5), (4, 8), (2, 3, 4), (2, 2, 2, 3)]
NUMBER_SHAPES = [(1,), (18,), (4, 5)]
CAPACITIES = (256, 272, 496, 497, 512, 1000)
"""Elements at and beyond what one program holds: 16 and 17 tiles of two operands, 31 and 32 outputs."""


def pairs(make: Callable[..., Array], shapes: list[tuple[int, ...]], rtol: float) -> Iterator[Check]:
    for (name, (fn, want)), shape in product(OPS.items(), shapes):
        label = "x".join(map(str, shape))
        yield tensor(f"{name} {label}", fn, make(1, *shape), make(2, *shape), want=want, rtol=rtol)


def with_number(make: Callable[..., Array], kind: Any, numbers: list[Any], shapes: list[tuple[int, ...]],
                rtol: float) -> Iterator[Check]:  # fmt: skip
    for (name, (fn, want)), c, shape in product(OPS.items(), numbers, shapes):
        label = "x".join(map(str, shape))
        yield tensor(f"{name} {label} with {c}", lambda x, c=c, fn=fn: fn(x, c), make(3, *shape),
                     want=lambda x, c=c, want=want: want(x, kind(c)), rtol=rtol)  # fmt: skip
    for c, shape in product(numbers, shapes):
        label = "x".join(map(str, shape))
        yield tensor(
            f"{c} sub {label}", lambda x, c=c: c - x, make(4, *shape), want=lambda x, c=c: kind(c) - x, rtol=rtol
        )
        yield tensor(
            f"{c} add {label}", lambda x, c=c: c + x, make(4, *shape), want=lambda x, c=c: kind(c) + x, rtol=rtol
        )
        yield tensor(
            f"{c} mul {label}", lambda x, c=c: c * x, make(4, *shape), want=lambda x, c=c: kind(c) * x, rtol=rtol
        )


def ends() -> Iterator[Check]:
    a, b = crossed(INT_EDGES)
    for name, (fn, want) in OPS.items():
        yield tensor(f"{name} of the ends of int32", fn, a, b, want=want)
        yield tensor(f"{name} of any int32", fn, words(5, 100), words(6, 100), want=want)
        for n in CAPACITIES:
            if name in ("add", "max") or n == 512:
                yield tensor(f"{name} of {n}", fn, words(7, n), words(8, n), want=want)


def special_reals() -> Iterator[Check]:
    a, b = crossed(SPECIALS)
    for name, (fn, want) in OPS.items():
        yield tensor(f"{name} of zeros, Inf, NaN, subnormals", fn, a, b, want=want)
        yield tensor(f"{name} of subnormals", fn, reals(5, 64, scale=1e-40), reals(6, 64, scale=1e-40), want=want)
        for n in (272, 500):
            if name in ("add", "mul") or n == 500:
                yield tensor(f"{name} of {n} reals", fn, reals(7, n), reals(8, n), want=want)


TABLES: tuple[Table, ...] = (
    table("int arithmetic", "int32, two tensors", pairs(ints, SHAPES, 0), slow=True),
    table(
        "int arithmetic",
        "int32 and a number",
        with_number(ints, I32, [5, -3, 1000], NUMBER_SHAPES, 0),
        slow=True,
    ),
    table("int arithmetic", "int32 at its ends", ends()),
    table("float arithmetic", "float32, two tensors", pairs(reals, FLOAT_SHAPES, 0)),
    table("float arithmetic", "float32 and a number", with_number(reals, F32, [2.5, -0.3], NUMBER_SHAPES, 0)),
    table("float arithmetic", "float32 at its ends", special_reals()),
)
