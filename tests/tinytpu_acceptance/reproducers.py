"""The datasheet's silent bugs (13), each by its smallest reproducer through tinygrad, with the right answer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tinytpu_acceptance.table import Check, Table, table
from tinytpu_acceptance.tensors import F32, I32, tensor

inf, nan = np.inf, np.nan


def f32(*bits: int) -> np.ndarray:
    return np.array(bits, np.uint32).view(F32)


def sizes() -> Iterator[Check]:
    a = np.arange(192, dtype=I32)
    yield tensor("13.1 192 sums", lambda a, b: a + b, a, 1000 - a, want=np.full(192, 1000, I32))
    a = np.arange(256, dtype=I32)
    yield tensor("13.1 256 sums", lambda a, b: a + b, a, 1000 - a, want=np.full(256, 1000, I32))
    yield tensor("13.2 relu of 272", lambda x: (x - 136).relu(), np.arange(272, dtype=I32),
                 want=np.maximum(np.arange(272) - 136, 0).astype(I32))  # fmt: skip
    for number, (m, k, n) in (("13.3", (8, 20, 4)), ("13.3", (4, 132, 4)), ("13.4", (16, 16, 16))):
        yield tensor(f"{number} ones {m}x{k}x{n}", lambda a, w: a @ w, np.ones((m, k), I32), np.ones((k, n), I32),
                     want=np.full((m, n), k, I32))  # fmt: skip
    yield tensor("13.5 32 tiles out", lambda x: x + 1, np.arange(512, dtype=I32), want=np.arange(1, 513, dtype=I32))
    for n, total in ((256, 32640), (144, 10296)):
        yield tensor(f"13.6 sum of {n}", lambda x: x.sum(), np.arange(n, dtype=I32), want=np.asarray(total, I32))
    rows = np.arange(144, dtype=I32).reshape(4, 36)
    yield tensor("13.6 sums of rows", lambda x: x.sum(1), rows, want=np.array([630, 1926, 3222, 4518], I32))
    yield tensor("13.6 means of rows", lambda x: x.float().mean(1), rows, want=np.array([17.5, 53.5, 89.5, 125.5], F32))


def integers() -> Iterator[Check]:
    yield tensor("13.7 -8 >> 1", lambda x: x >> 1, np.array([-8], I32), want=np.array([-4], I32))
    yield tensor("13.8 int to float", lambda x: x.float(), np.array([16777219, -16777219, 2147483647], I32),
                 want=np.array([16777220, -16777220, 2147483648], F32))  # fmt: skip
    yield tensor("13.10 int8", lambda x, y: x + y, np.array([2, 3], np.int8), np.array([5, 6], np.int8),
                 want=np.array([7, 9], np.int8))  # fmt: skip
    yield tensor("13.10 uint8 wraps", lambda x, y: x + y, np.array([200], np.uint8), np.array([100], np.uint8),
                 want=np.array([44], np.uint8))  # fmt: skip
    yield tensor("13.11 uint32", lambda x: x < 1, np.array([2147483648], np.uint32), want=np.array([False]))
    yield tensor("13.11 int64", lambda x: x + 1, np.array([2**33]), want=np.array([8589934593]))
    yield tensor("13.11 float16", lambda x: x * 2, np.array([1.5], np.float16), want=np.array([3], np.float16))
    yield tensor("13.21 int8 wraps", lambda x: x + 1, np.array([127], np.int8), want=np.array([-128], np.int8))
    yield tensor("13.21 int8 negated", lambda x: -x, np.array([-128], np.int8), want=np.array([-128], np.int8))
    yield tensor("13.21 int8 magnitude", lambda x: x.abs(), np.array([-128], np.int8), want=np.array([-128], np.int8))
    a, b = np.array([-7, 7, -(2**31)], I32), np.array([2, -2, -1], I32)
    yield tensor("13.22 quotients", lambda x, y: x // y, a, b, want=np.array([-4, -4, -(2**31)], I32))
    yield tensor("13.22 remainders", lambda x: x % 2, np.array([-7], I32), want=np.array([1], I32))


def products() -> Iterator[Check]:
    eyes = (np.eye(4)[None] * np.arange(1, 5)[:, None, None]).astype(I32)
    yield tensor("13.12 a batch", lambda a, w: a @ w, eyes, np.ones((4, 4, 4), I32), want=np.matmul)
    yield tensor("13.13 a transposed operand", lambda a, w: (a @ w.T)[0], np.eye(4, dtype=I32),
                 np.arange(16, dtype=I32).reshape(4, 4), want=np.array([0, 4, 8, 12], I32))  # fmt: skip
    yield tensor("13.14 flags", lambda a, w: a.int() @ w, np.array([[True, False, True, False]]),
                 np.ones((4, 4), I32), want=np.full((1, 4), 2, I32))  # fmt: skip
    weights = np.array([[1, 2, 0, 0], [3, 4, 0, 0], [0] * 4, [0] * 4], I32)
    yield tensor("13.15 a relu", lambda a, w: (a @ w).relu(), np.array([[1, -1, 0, 0]], I32), weights,
                 want=np.zeros((1, 4), I32))  # fmt: skip
    column = np.array([[1], [2], [3], [4]], I32)
    yield tensor("13.23 no product", lambda a, w: a + w, column, np.ones((4, 4), I32), want=np.add)
    tile = np.arange(16, dtype=I32)
    yield tensor("13.23 a slice summed", lambda x: x[4:8].sum(), tile, want=np.asarray(22, I32))
    yield tensor("13.23 clamp", lambda x: x.clamp(max_=3), tile - 8, want=lambda x: np.minimum(x, 3).astype(I32))
    yield tensor("13.23 softplus", lambda x: x.softplus(), np.array([-1, 0, 2], F32), rtol=1e-6,
                 want=lambda x: np.log1p(np.exp(x.astype(float))).astype(F32))  # fmt: skip
    yield tensor("13.24 a fold in a chain", lambda x, y: x + y.sum(1, keepdim=True), np.ones((4, 1), I32),
                 tile.reshape(4, 4), want=np.array([[7], [23], [39], [55]], I32))  # fmt: skip


def reals() -> Iterator[Check]:
    a, b = np.array([-0.0, nan], F32), np.array([0.0, nan], F32)
    yield tensor("13.9 equal", lambda x, y: x == y, a, b, want=np.array([True, False]))
    yield tensor("13.9 unequal", lambda x, y: x != y, a, b, want=np.array([False, True]))
    x = np.array([0.0, -0.0, inf, 1e-40], F32)
    yield tensor("13.16 reciprocals", lambda x: 1 / x, x, want=np.array([inf, -inf, 0, inf], F32))
    yield tensor(
        "13.16 0 by 0", lambda x, y: x / y, np.array([0.0], F32), np.array([0.0], F32), want=np.array([nan], F32)
    )
    yield tensor("13.16 of the largest", lambda x: 1 / x, f32(0x7EC00000), want=f32(0x00555555), atol=1.5e-45)
    x = np.array([-inf, inf, 2.0**32, 3e9, nan], F32)
    yield tensor("13.17 exp2", lambda x: x.exp2(), x, want=np.array([0, inf, inf, inf, nan], F32))
    x = np.array([0, -1, inf, nan], F32)
    yield tensor("13.18 log2", lambda x: x.log2(), x, want=np.array([-inf, nan, inf, nan], F32))
    x = np.array([-4, inf, 0], F32)
    yield tensor("13.18 sqrt", lambda x: x.sqrt(), x, want=np.array([nan, inf, 0], F32))
    yield tensor("13.19 cos of pi", lambda x: x.cos(), np.array([np.pi], F32), want=np.array([-1], F32), atol=1e-6)
    yield tensor("13.19 sin beyond 1e4", lambda x: x.sin(), np.array([25000.5, -12345.678], F32), atol=3e-7,
                 want=lambda x: np.sin(x.astype(float)).astype(F32))  # fmt: skip
    a, b = np.array([nan, 1, nan], F32), np.array([1, nan, nan], F32)
    yield tensor("13.20 maximum", lambda x, y: x.maximum(y), a, b, want=np.array([nan, nan, nan], F32))
    yield tensor("13.20 minimum", lambda x, y: x.minimum(y), a, b, want=np.array([nan, nan, nan], F32))
    row = np.array([[3, 2, nan, 1]], F32)
    yield tensor("13.20 reductions", lambda x: [x.max(1), x.min(1)], row, want=[np.array([nan], F32)] * 2)


TABLES: tuple[Table, ...] = (
    table("silent bugs", "sizes", sizes()),
    table("silent bugs", "integers", integers()),
    table("silent bugs", "products", products()),
    table("silent bugs", "reals", reals()),
)
