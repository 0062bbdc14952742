"""Bits, shifts, comparisons, division and remainder, casts: every dtype that lanes hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
from tinygrad.dtype import dtypes

from tinytpu_acceptance.table import Check, Table, table
from tinytpu_acceptance.tensors import (
    F32,
    I32,
    INT_EDGES,
    SPECIALS,
    Array,
    crossed,
    ints,
    reals,
    tensor,
    uniform,
    words,
)

Two = Callable[[Any, Any], Any]
LOGIC: dict[str, Two] = {"and": lambda x, y: x & y, "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y}
SHAPES = [(1,), (5,), (16,), (17,), (4, 5)]


def size(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def bits() -> Iterator[Check]:
    for (name, fn), shape in product(LOGIC.items(), SHAPES):
        yield tensor(f"{name} {size(shape)}", fn, words(1, *shape), words(2, *shape), want=fn)
    for (name, fn), c in product(LOGIC.items(), (0, 15, -1, 0x7F0F00FF)):
        yield tensor(
            f"{name} with {c}", lambda x, c=c, fn=fn: fn(x, c), words(3, 19), want=lambda x, c=c, fn=fn: fn(x, I32(c))
        )
    flags = np.random.default_rng(4).random((2, 21)) < 0.5
    for name, fn in LOGIC.items():
        yield tensor(f"{name} of flags", fn, flags[0], flags[1], want=fn)
        yield tensor(
            f"{name} of flags and True", lambda x, fn=fn: fn(x, True), flags[0], want=lambda x, fn=fn: fn(x, True)
        )
    yield tensor("not", lambda x: ~x, words(5, 19), want=np.invert)
    yield tensor("not of flags", lambda x: ~x, flags[0], want=np.invert)
    yield tensor("not of one", lambda x: ~x, words(6, 1), want=np.invert)
    for n in (0, 1, 4, 17, 31):
        yield tensor(f"shift left by {n}", lambda x, n=n: x << n, words(7, 18), want=lambda x, n=n: x << I32(n))
        yield tensor(f"shift right by {n}", lambda x, n=n: x >> n, words(8, 18), want=lambda x, n=n: x >> I32(n))
    by = ints(9, 18, low=0, high=32)
    yield tensor("shift left by a tensor", lambda x, n: x << n, words(10, 18), by, want=np.left_shift)
    yield tensor("shift right by a tensor", lambda x, n: x >> n, words(11, 18), by, want=np.right_shift)
    yield tensor(
        "a negative number shifted right",
        lambda x: x >> 1,
        np.array([-8, -1, -7, 8], I32),
        want=np.array([-4, -1, -4, 4], I32),
    )
    whole = words(12, 20).view(np.uint32)
    yield tensor("uint32 shifted right", lambda x: x >> 3, whole, want=lambda x: x >> np.uint32(3))
    yield tensor("uint32 shifted left", lambda x: x << 5, whole, want=lambda x: x << np.uint32(5))
    for dtype in (np.int8, np.uint8, np.int16, np.uint16):
        narrow = words(13, 8).view(dtype)
        for name, fn in LOGIC.items():
            yield tensor(f"{name} of {dtype.__name__}", fn, narrow, narrow[::-1].copy(), want=fn)
        yield tensor(f"not of {dtype.__name__}", lambda x: ~x, narrow, want=np.invert)


COMPARE: dict[str, Two] = {
    "lt": lambda x, y: x < y, "gt": lambda x, y: x > y,
    "eq": lambda x, y: x == y, "ne": lambda x, y: x != y,
}  # fmt: skip


ORDER: dict[str, tuple[Two, Two]] = {
    "le": (lambda x, y: x <= y, lambda x, y: ~(x > y)), "ge": (lambda x, y: x >= y, lambda x, y: ~(x < y)),
}  # fmt: skip
"""tinygrad's, which hold for a NaN."""


def comparisons(make: Callable[..., Array], kind: Any, numbers: list[Any], ends: Array) -> Iterator[Check]:
    for (name, fn), shape in product(COMPARE.items(), [(3,), (18,), (4, 5)]):
        x, y = make(1, *shape), make(2, *shape)
        y.reshape(-1)[::3] = x.reshape(-1)[::3]
        yield tensor(f"{name} {size(shape)}", fn, x, y, want=fn)
    for (name, fn), c in product(COMPARE.items(), numbers):
        yield tensor(
            f"{name} with {c}", lambda x, c=c, fn=fn: fn(x, c), make(3, 20), want=lambda x, c=c, fn=fn: fn(x, kind(c))
        )
    a, b = crossed(ends)
    for name, fn in COMPARE.items():
        yield tensor(f"{name} at the ends", fn, a, b, want=fn)
    for name, (fn, want) in ORDER.items():
        yield tensor(f"{name} 18", fn, make(4, 18), make(5, 18), want=want)
        yield tensor(f"{name} at the ends", fn, a, b, want=want)


def unsigned() -> Iterator[Check]:
    for dtype in (np.int8, np.uint8, np.int16, np.uint16, np.uint32):
        a, b = crossed(np.array([0, 1, -1, -128, 127, 100, 1 << 15, (1 << 15) - 1, -(1 << 31)]).astype(dtype))
        for name in ("lt", "eq", "ne"):
            yield tensor(f"{name} of {dtype.__name__}", COMPARE[name], a, b, want=COMPARE[name])


def divisions() -> Iterator[Check]:
    a = np.array([-7, 7, -7, 7, 8, -8, 0, 1, -1, 100, -100, 2**31 - 1, -(2**31), -(2**31)], I32)
    b = np.array([2, -2, -2, 2, 3, 3, 5, -1, 1, 7, -7, -1, 1, 2], I32)
    yield tensor("floor", lambda x, y: x // y, a, b, want=lambda x, y: x // y)
    yield tensor("mod", lambda x, y: x % y, a, b, want=lambda x, y: x % y)
    cut = [abs(int(x)) // abs(int(y)) * (1 if (x < 0) == (y < 0) else -1) for x, y in zip(a, b)]
    yield tensor("cut", lambda x, y: x.div(y, rounding_mode="trunc"), a, b, want=np.array(cut, I32))
    for c in (1, 2, 3, 5, 8, 10, -2, -7, 1000):
        yield tensor(
            f"floor by {c}", lambda x, c=c: x // c, ints(1, 21, low=-999, high=1000), want=lambda x, c=c: x // I32(c)
        )
        yield tensor(f"mod {c}", lambda x, c=c: x % c, ints(2, 21, low=-999, high=1000), want=lambda x, c=c: x % I32(c))
    x, y = words(3, 50), ints(4, 50, low=1, high=9999)
    yield tensor("floor of any int32", lambda x, y: x // y, x, y, want=lambda x, y: x // y)
    yield tensor("mod of any int32", lambda x, y: x % y, x, -y, want=lambda x, y: x % y)
    yield tensor("the least by -1", lambda x: x // -1, np.array([-(2**31), 5], I32), want=np.array([-(2**31), -5], I32))
    yield tensor(
        "uint32 by a tensor",
        lambda x, y: x // y,
        words(5, 50).view(np.uint32),
        y.view(np.uint32),
        want=lambda x, y: x // y,
    )
    yield tensor("uint32 mod 10", lambda x: x % 10, words(6, 50).view(np.uint32), want=lambda x: x % np.uint32(10))
    for dtype in (np.int8, np.int16):
        n = words(7, 10).view(dtype)
        d = np.where(n[::-1] == 0, dtype(3), n[::-1])
        yield tensor(f"floor of {dtype.__name__}", lambda x, y: x // y, n, d, want=lambda x, y: x // y)
        yield tensor(f"mod of {dtype.__name__}", lambda x, y: x % y, n, d, want=lambda x, y: x % y)


NAMES: dict[str, Any] = {"int8": np.int8, "uint8": np.uint8, "int16": np.int16, "uint16": np.uint16, "int32": I32,
                         "uint32": np.uint32}  # fmt: skip


def casts() -> Iterator[Check]:
    for (a, x), (b, y) in product(NAMES.items(), NAMES.items()):
        if a != b:
            values = np.concatenate([INT_EDGES, words(1, 10)]).astype(x)
            yield tensor(
                f"{a} to {b}", lambda t, b=b: t.cast(getattr(dtypes, b)), values, want=lambda v, y=y: v.astype(y)
            )
    for a, x in NAMES.items():
        values = np.concatenate([INT_EDGES, words(2, 10), [16777219, -16777219, 2147483647]]).astype(x)
        yield tensor(f"{a} to float", lambda t: t.float(), values, want=lambda v: v.astype(F32))
        yield tensor(f"{a} to bool", lambda t: t.bool(), values, want=lambda v: v != 0)
    flags = np.array([True, False] * 9)
    yield tensor("bool to int", lambda t: t.int(), flags, want=lambda v: v.astype(I32))
    yield tensor("bool to float", lambda t: t.float(), flags, want=lambda v: v.astype(F32))
    yield tensor("bool plus bool as int", lambda t: t.int() + t.int(), flags, want=lambda v: v * I32(2))
    inside = np.concatenate([uniform(3, -1e6, 1e6, 20), np.array([0.9, -0.9, 2.5, -2.5, 0.0, -0.0, 1e-40], F32)])
    yield tensor("float to int cuts", lambda t: t.int(), inside, want=lambda v: np.trunc(v).astype(I32))
    yield tensor("float to bool", lambda t: t.bool(), SPECIALS, want=lambda v: v != 0)
    yield tensor("float to int and back", lambda t: t.int().float(), inside, want=lambda v: np.trunc(v) + F32(0))
    yield tensor(
        "a large float to int",
        lambda t: t.int(),
        np.array([2147483520.0, -(2.0**31)], F32),
        want=np.array([2147483520, -(2**31)], I32),
    )
    for name, np_fn in (("trunc", np.trunc), ("floor", np.floor), ("ceil", np.ceil), ("round", np.round)):
        half = np.concatenate([inside, np.array([0.5, 1.5, -0.5, -1.5, 8388607.5, 3e9, -3e9], F32)])
        yield tensor(name, lambda t, name=name: getattr(t, name)(), half, want=np_fn)
    for dtype, target in ((np.int32, dtypes.float32), (np.float32, dtypes.int32), (np.uint32, dtypes.int32)):
        source = words(4, 20).view(dtype)
        other = {dtypes.float32: F32, dtypes.int32: I32}[target]
        yield tensor(
            f"bits of {dtype.__name__} as {target.name}",
            lambda t, target=target: t.bitcast(target),
            source,
            want=lambda v, o=other: v.view(o),
        )


TABLES: tuple[Table, ...] = (
    table("bits", "bits and shifts", bits()),
    table("int compare", "int32", comparisons(ints, I32, [0, 5, -3], INT_EDGES)),
    table("int compare", "other integers", unsigned()),
    table("float compare", "float32", comparisons(reals, F32, [0, 0.5, -1.25, 3], SPECIALS)),
    table("int division", "division and remainder", divisions()),
    table("casts", "casts", casts()),
)
