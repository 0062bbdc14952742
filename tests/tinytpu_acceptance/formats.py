"""Formats beyond a lane's own: float16 and bfloat16 as stored, words of 64 bits in pairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tinytpu_acceptance.table import Check, Table, table
from tinytpu_acceptance.tensors import F32, I32, Array, reals, tensor

H: Any = np.float16
HALF = np.array([1.5, 65504, 2049, 1e-7, -0.1, 0, -0.0, np.inf, -np.inf, np.nan, 6e-8, 3], H)
LONG = np.array([2**62, -(2**63), 2**63 - 1, 2**33 + 1, 2**40, -1, 0, -3, 2**31, -(2**31)])


def brain(x: Array) -> Array:
    """The nearest bfloat16, ties to even, of finite numbers."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(F32)


def halves() -> Iterator[Check]:
    back = HALF[::-1].copy()
    yield tensor("doubled", lambda x: x * 2, HALF, want=lambda x: x * H(2))
    yield tensor("added", lambda x, y: x + y, HALF, back, want=np.add)
    yield tensor("the larger", lambda x, y: x.maximum(y), HALF, back, want=np.maximum)
    yield tensor("compared", lambda x, y: x < y, HALF, back, want=np.less)
    yield tensor("to float32", lambda x: x.float(), HALF, want=lambda x: x.astype(F32))
    yield tensor("and float32", lambda x: x.float() * 2 + 1, HALF, want=lambda x: x.astype(F32) * 2 + 1)
    yield tensor("from float32", lambda x: x.half(), reals(1, 40, scale=1000), want=lambda x: x.astype(H))
    ends = np.array([65519, 65520, 1e-8, 3e-8, 1e30, -1e-30, 2049, 2051, -0.0, np.nan, np.inf], F32)
    yield tensor("from float32 at the ends", lambda x: x.half(), ends, want=lambda x: x.astype(H))
    yield tensor("from int32", lambda x: x.half(), np.array([1, -2, 2049, 70000], I32), want=lambda x: x.astype(H))
    yield tensor("to int32", lambda x: x.int(), np.array([1.7, -2.5, 100], H), want=np.array([1, -2, 100], I32))
    yield tensor("summed", lambda x: x.sum(), np.arange(20).astype(H), want=np.asarray(190, H))
    yield tensor("a product", lambda a, w: a @ w, np.ones((4, 4), H), np.full((4, 4), 2, H), want=np.full((4, 4), 8, H))
    yield tensor("through bfloat16", lambda x: x.bfloat16().float(), reals(2, 40), want=brain)


def longs() -> Iterator[Check]:
    back = LONG[::-1].copy()
    yield tensor("int64 added", lambda x, y: x + y, LONG, back, want=np.add)
    yield tensor("int64 less", lambda x, y: x - y, LONG, back, want=np.subtract)
    yield tensor("int64 multiplied", lambda x, y: x * y, LONG, back, want=np.multiply)
    yield tensor("int64 by 7", lambda x: x // 7, LONG, want=lambda x: x // 7)
    yield tensor("int64 shifted", lambda x: x >> 5, LONG, want=lambda x: x >> 5)
    yield tensor("int64 bits", lambda x, y: (x & y) ^ 5, LONG, back, want=lambda x, y: (x & y) ^ 5)
    yield tensor("int64 compared", lambda x, y: x < y, LONG, back, want=np.less)
    yield tensor("uint64 compared", lambda x, y: x < y, LONG.view(np.uint64), back.view(np.uint64), want=np.less)
    yield tensor("int64 summed", lambda x: x.sum(), LONG, want=lambda x: np.asarray(x.sum()))
    yield tensor("int64's largest", lambda x: x.max(), LONG, want=lambda x: np.asarray(x.max()))
    yield tensor("int64 as float32", lambda x: x.float(), LONG, want=lambda x: x.astype(F32))
    yield tensor("int64 as int32", lambda x: x.int(), LONG, want=lambda x: x.astype(I32))
    yield tensor("int32 as int64", lambda x: x.long() * 3, LONG.astype(I32), want=lambda x: x.astype(np.int64) * 3)


TABLES: tuple[Table, ...] = (
    table("formats", "halves", halves()),
    table("formats", "words of 64 bits", longs()),
)
