"""Sums, extrema and products over any axis: whole, rows, columns, kept dimensions, many tiles, what follows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from tinytpu_acceptance.table import Check, Table, table
from tinytpu_acceptance.tensors import F32, I32, INT_MAX, INT_MIN, Array, ints, reals, tensor, uniform, words

Axis = int | tuple[int, ...] | None
FOLDS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sum": (lambda x, **at: x.sum(**at), np.sum), "max": (lambda x, **at: x.max(**at), np.max),
    "min": (lambda x, **at: x.min(**at), np.min), "prod": (lambda x, **at: x.prod(**at), np.prod),
}  # fmt: skip
TILED = [(8, 4), (4, 8), (6, 6), (5, 7), (7, 5), (2, 16), (3, 8)]


def size(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def fold(name: str, x: Array, axis: Axis, *, keepdim: bool = False, rtol: float = 0.0, label: str = "") -> Check:
    fn, reference = FOLDS[name]

    def want(x: Array) -> Array:
        done = np.asarray(reference(x.astype(float) if x.dtype == F32 else x, axis=axis, keepdims=keepdim))
        return done.astype(x.dtype)

    where = f"{'all' if axis is None else axis}{' kept' if keepdim else ''}"
    kwargs = {"axis": axis, "keepdim": keepdim}
    return tensor(f"{name} {size(x.shape)} {where}{label}", lambda x: fn(x, **kwargs), x, want=want, rtol=rtol)


def whole_numbers() -> Iterator[Check]:
    for name in FOLDS:
        small = {"low": -2, "high": 3} if name == "prod" else {}

        def make(seed: int, *shape: int, small: dict[str, int] = small) -> Array:
            return ints(seed, *shape, **small)

        for n in (1, 3, 16, 17, 48):
            yield fold(name, make(1, n), None)
        for shape in ((4, 4), (2, 3), *(TILED if name == "sum" else TILED[2:5])):
            for axis in (None, 0, 1):
                yield fold(name, make(2, *shape), axis)
        for axis, keepdim in product((0, 1), (True,)):
            yield fold(name, make(3, 4, 4), axis, keepdim=keepdim)
            yield fold(name, make(3, 5, 3), axis, keepdim=keepdim)
        for axis in (None, 0, 1, 2, (0, 2), (0, 1, 2), -1):
            yield fold(name, make(4, 2, 3, 5), axis)
        yield fold(name, make(5, 1, 5), 0)
        yield fold(name, make(5, 5, 1), 1)
        yield fold(name, make(5, 1, 1), None)
        yield fold(name, make(5, 2, 3, 2, 4), (1, 3))


def behind() -> Iterator[Check]:
    for (name, (fn, reference)), axis in product(FOLDS.items(), (None, 0, 1)):
        x = ints(1, 4, 6, low=-2, high=3) if name == "prod" else ints(1, 4, 6)
        yield tensor(f"{name} {axis}, plus 7", lambda x, fn=fn, axis=axis: fn(x, axis=axis) + 7, x,
                     want=lambda x, r=reference, axis=axis: np.asarray(r(x, axis=axis) + 7, I32))  # fmt: skip
        yield tensor(f"{name} {axis}, times -3", lambda x, fn=fn, axis=axis: fn(x, axis=axis) * -3, x,
                     want=lambda x, r=reference, axis=axis: np.asarray(r(x, axis=axis) * -3, I32))  # fmt: skip


def sizes_and_ends() -> Iterator[Check]:
    """Longer than a program holds, sums that wrap, truth values, the datasheet's reproducers."""
    for n in (144, 256, 497, 512, 1000, 4096):
        x = np.arange(n, dtype=I32)
        yield fold("sum", x, None, label=" of places")
        yield fold("max", words(2, n), None)
    rows = np.arange(144, dtype=I32).reshape(4, 36)
    yield tensor("sums of 4x36", lambda x: x.sum(1), rows, want=np.array([630, 1926, 3222, 4518], I32))
    yield fold("sum", words(3, 64), None, label=" wraps")
    yield fold("prod", words(4, 20), None, label=" wraps")
    yield fold("min", np.array([INT_MAX, INT_MIN, 0], I32), None, label=" at the ends")
    yield fold("max", np.array([INT_MIN, INT_MIN], I32), None, label=" at the ends")
    flags = np.random.default_rng(5).random((5, 9)) < 0.6
    for axis in (None, 0, 1):
        yield tensor(f"flags counted {axis}", lambda f, axis=axis: f.sum(axis), flags,
                     want=lambda f, axis=axis: np.asarray(f.sum(axis), I32))  # fmt: skip
        yield tensor(f"any {axis}", lambda f, axis=axis: f.any(axis), flags, want=lambda f, axis=axis: f.any(axis))
        yield tensor(f"all {axis}", lambda f, axis=axis: f.all(axis), flags, want=lambda f, axis=axis: f.all(axis))
    for dtype in (np.int8, np.uint8, np.int16, np.uint16):
        narrow = words(6, 9).view(dtype)
        wide = I32 if np.iinfo(dtype).min else np.uint32
        yield tensor(
            f"sum of {dtype.__name__}",
            lambda x: x.sum(),
            narrow,
            want=lambda x, wide=wide: np.asarray(x.sum(dtype=wide)),
        )
        yield tensor(f"max of {dtype.__name__}", lambda x: x.max(), narrow, want=lambda x: np.asarray(x.max()))
    whole = words(7, 50).view(np.uint32)
    yield tensor("sum of uint32", lambda x: x.sum(), whole, want=lambda x: np.asarray(x.sum(dtype=np.uint32)))
    yield tensor("max of uint32", lambda x: x.max(), whole, want=lambda x: np.asarray(x.max()))
    x = words(8, 7, 9)
    for axis in (0, 1):
        yield tensor(
            f"argmax {axis}",
            lambda x, axis=axis: x.argmax(axis),
            x,
            want=lambda x, axis=axis: x.argmax(axis).astype(I32),
        )
        yield tensor(
            f"argmin {axis}",
            lambda x, axis=axis: x.argmin(axis),
            x,
            want=lambda x, axis=axis: x.argmin(axis).astype(I32),
        )
    for text, fn, want in FUSED:
        yield tensor(text, fn, ints(9, 4, 6), want=want)


FUSED: list[tuple[str, Callable[..., Any], Callable[..., Any]]] = [
    ("sum of squares", lambda x: (x * x).sum(), lambda x: np.asarray((x * x).sum(), I32)),
    ("sum of negatives", lambda x: (-x).sum(), lambda x: np.asarray((-x).sum(), I32)),
    ("max of negatives", lambda x: (-x).max(), lambda x: np.asarray((-x).max(), I32)),
    ("sums of squares by row", lambda x: (x * x).sum(1), lambda x: (x * x).sum(1).astype(I32)),
    ("sum of magnitudes", lambda x: x.abs().sum(), lambda x: np.asarray(abs(x).sum(), I32)),
    ("a tile and its row sums", lambda x: x + x.sum(axis=1, keepdim=True),
        lambda x: (x + x.sum(1, keepdims=True)).astype(I32)),
    ("a column and row sums", lambda x: x[:, :1] * 0 + 1 + x.sum(axis=1, keepdim=True),
        lambda x: (1 + x.sum(1, keepdims=True)).astype(I32)),
    ("centred by the maximum", lambda x: x - x.max(axis=1, keepdim=True), lambda x: x - x.max(1, keepdims=True)),
]  # fmt: skip


def real_numbers() -> Iterator[Check]:
    for name, shape, axis in product(FOLDS, ((16,), (4, 4), (5, 7)), (None, 0, 1)):
        if axis is None or len(shape) > 1:
            x = uniform(1, 0.5, 2, *shape)
            if name != "prod":
                x = x * np.where(np.arange(x.size) % 3 == 1, F32(-1), F32(1)).reshape(shape)
            exact = name in ("max", "min")
            yield fold(name, x, axis, rtol=0 if exact else 2e-6)
    for name in FOLDS:
        yield fold(name, -uniform(2, 0.5, 2, 3, 5), None, rtol=2e-6, label=", all negative")
    for axis in (None, 0, 1):
        yield tensor(f"mean {axis}", lambda x, axis=axis: x.mean(axis), uniform(3, 1, 2, 5, 7), rtol=1e-6,
                     want=lambda x, axis=axis: np.asarray(x.astype(float).mean(axis)).astype(F32))  # fmt: skip
    yield tensor("means of whole numbers", lambda x: x.float().mean(1), np.arange(144, dtype=I32).reshape(4, 36),
                 want=np.array([17.5, 53.5, 89.5, 125.5], F32), rtol=1e-6)  # fmt: skip
    for n in (500, 2000):
        yield fold("sum", uniform(4, 0, 1, n), None, rtol=1e-5)
        yield fold("max", reals(5, n), None)
    for bad in (np.nan, np.inf, -np.inf):
        x = uniform(6, 0.5, 2, 4, 6)
        x[1, 2] = bad
        for name in ("sum", "max", "min"):
            yield fold(name, x, 1, rtol=1e-6, label=f" of {bad}")
    yield fold("sum", np.full((3, 4), -0.0, F32), 1, label=" of -0.0")
    yield fold("sum", reals(7, 20, scale=1e-40), None, rtol=1e-6, label=" of subnormals")
    yield tensor(
        "standard deviation",
        lambda x: x.std(1),
        reals(8, 4, 9),
        want=lambda x: x.astype(float).std(1, ddof=1).astype(F32),
        rtol=2e-6,
    )
    for text, fn, want in REAL_FUSED:
        yield tensor(
            text,
            fn,
            uniform(9, 0.5, 2, 4, 6),
            want=lambda x, want=want: np.asarray(want(x.astype(float))).astype(F32),
            rtol=3e-6,
        )


REAL_FUSED: list[tuple[str, Callable[..., Any], Callable[..., Any]]] = [
    ("sum of squares", lambda x: (x * x).sum(), lambda x: (x * x).sum()),
    ("sum of reciprocals", lambda x: (1 / x).sum(), lambda x: (1 / x).sum()),
    ("sum of exp", lambda x: x.exp().sum(), lambda x: np.exp(x).sum()),
    ("root of the mean square", lambda x: (x * x).mean(1).sqrt(), lambda x: np.sqrt((x * x).mean(1))),
    ("log of a sum of exp", lambda x: x.logsumexp(1), lambda x: np.log(np.exp(x).sum(1))),
    ("softmax", lambda x: x.softmax(1), lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
    ("layernorm", lambda x: x.layernorm(),
        lambda x: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)),
]  # fmt: skip

TABLES: tuple[Table, ...] = (
    table("int reductions", "int32", whole_numbers(), slow=True),
    table("int reductions", "what follows a fold", behind()),
    table("int reductions", "sizes, ends, flags, other integers", sizes_and_ends(), slow=True),
    table("float reductions", "float32", real_numbers(), slow=True),
)
