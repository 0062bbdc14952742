"""A row that is an expression of tinygrad on the device, beside numpy on the same data.

No step of the host is taken: a kernel that the machine has no plan for fails the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tinygrad.helpers import Context
from tinygrad.tensor import Tensor

import tinytpu.tinygrad as tinytpu
from tinytpu_acceptance.table import Check

Array = NDArray[Any]
F32 = np.float32
I32 = np.int32


def shown(array: Array, at: Any) -> str:
    value = array[at]
    if array.dtype == np.float32:
        return f"{value} ({int(np.float32(value).view(np.uint32)):08X})"
    return str(value)


def same(got: Array, want: Array, rtol: float, atol: float) -> None:
    """Equal dtypes, shapes and values: all bits but a NaN's payload and the sign of a zero, or within tolerances."""
    assert got.dtype == want.dtype, f"{got.dtype}, not {want.dtype}"
    assert got.shape == want.shape, f"shape {got.shape}, not {want.shape}"
    near = got == want
    if want.dtype.kind == "f":
        with np.errstate(all="ignore"):
            near = near | (np.isnan(got) & np.isnan(want))
            near = near | (np.abs(got.astype(float) - want) <= atol + rtol * np.abs(want.astype(float)))
    if not np.all(near):
        at = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(~near)))
        count = int((~near).sum())
        values = f"{shown(np.atleast_1d(got), at)}, not {shown(np.atleast_1d(want), at)}"
        raise AssertionError(f"{count} of {near.size} wrong, first at {at}: {values}")


def on(array: Any) -> Tensor:
    return Tensor(array, device="TINYTPU")


def results(fn: Callable[..., Any], *arrays: Array) -> list[Array]:
    """What an expression, or several, of tensors on the device gives."""
    with tinytpu.numerics(host="refuse"), Context(DEV="TINYTPU"):
        found: Any = fn(*[on(a) for a in arrays])
        several: list[Tensor] = list(found) if isinstance(found, (list, tuple)) else [found]
        if len(several) > 1:
            Tensor.realize(*several)
        return [each.numpy() for each in several]


def tensor(
    name: str, fn: Callable[..., Any], *arrays: Array, want: Any, rtol: float = 0.0, atol: float = 0.0, open: str = "",
) -> Check:  # fmt: skip
    """A row. want: an array, or a function of `arrays` that gives it; a list of them for several outputs."""

    def check() -> None:
        before = tinytpu.report().host_kernels
        got = results(fn, *arrays)
        with np.errstate(all="ignore"):
            expected = want(*arrays) if callable(want) else want
        every: Iterable[Any] = expected if isinstance(expected, list) else [expected]
        for g, w in zip(got, every, strict=True):
            same(g, np.asarray(w), rtol, atol)
        assert tinytpu.report().host_kernels == before, "a step of the host"

    return Check(name, check, open)


def ints(seed: int, *shape: int, low: int = -50, high: int = 51) -> Array:
    return np.random.default_rng(seed).integers(low, high, shape).astype(I32)


def words(seed: int, *shape: int) -> Array:
    """int32 over its whole range."""
    return np.random.default_rng(seed).integers(-(2**31), 2**31, shape).astype(I32)


def reals(seed: int, *shape: int, scale: float = 4.0) -> Array:
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(F32)


def uniform(seed: int, low: float, high: float, *shape: int) -> Array:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(F32)


INT_MIN, INT_MAX = -(2**31), 2**31 - 1
INT_EDGES = np.array([INT_MIN, INT_MIN + 1, INT_MAX, INT_MAX - 1, 0, 1, -1, 2, -2, 7, -7, 1 << 16, -(1 << 16), 46341,
                      -46341, 123456789, 1 << 30, -(1 << 30)], I32)  # fmt: skip
SPECIALS = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1e-45, -1e-45, 3e38, -3e38, 1.5, -2.5,
                     1.1754944e-38, 16777217.0], F32)  # fmt: skip


def crossed(values: Array) -> tuple[Array, Array]:
    """Every value with every value."""
    n = len(values)
    return np.repeat(values, n), np.tile(values, n)
