"""Tensors of int8 and uint8, four elements to a word: numpy's values, and cycles of 64 elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from tinygrad.dtype import dtypes
from tinygrad.tensor import Tensor

import tinytpu.tinygrad as tt

Array = NDArray[np.int8]
RNG = np.random.default_rng(8)
A, B = (RNG.integers(-128, 128, 64, np.int8) for _ in range(2))
A[:4], B[:4] = (127, -128, -128, 0), (1, -1, -128, -128)


def clamped(x: Array, y: Array) -> Array:
    return np.clip(x.astype(np.int16) + y, -128, 127).astype(np.int8)


@pytest.mark.parametrize(
    ("name", "cycles", "tensors", "arrays"),
    [
        ("maximum", 33, lambda x, y: x.maximum(y), np.maximum),
        ("minimum", 33, lambda x, y: x.minimum(y), np.minimum),
        ("relu", 26, lambda x, y: x.relu(), lambda x, y: np.maximum(x, 0)),
        ("add", 70, lambda x, y: x + y, np.add),
        ("sub", 65, lambda x, y: x - y, np.subtract),
        ("mul", 33, lambda x, y: x * y, np.multiply),
        ("abs", 31, lambda x, y: x.abs(), lambda x, y: np.abs(x)),
        ("sign", 26, lambda x, y: x.sign(), lambda x, y: np.sign(x)),
        ("clip", 45, lambda x, y: x.clip(-5, 100), lambda x, y: np.clip(x, -5, 100)),
        ("less", 33, lambda x, y: x < y, np.less),
        ("where", 33, lambda x, y: (x < y).where(x, y), np.minimum),
        ("clamped", 33, lambda x, y: (x.cast(dtypes.int16) + y).clip(-128, 127).cast(dtypes.int8), clamped),
    ],
)  # fmt: skip
def test_bytes(
    name: str, cycles: int, tensors: Callable[[Tensor, Tensor], Tensor], arrays: Callable[[Array, Array], Array]
) -> None:
    x, y = (Tensor(v, device="TINYTPU").realize() for v in (A, B))
    tt.reset()
    np.testing.assert_array_equal(tensors(x, y).numpy(), arrays(A, B), name)
    assert tt.report().took.cycles == cycles
