"""Operands whose rows span more powers of two than digits hold: whether a product would lose that, and a way out.

Decides it from magnitudes alone. It must not know digits' products nor devices. Host arithmetic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
ERROR = 2.0**-24
"""What a digit's end is off, of its row's greatest element, about."""
FINE = 2.0**-12
"""An element may be off by this part of the greatest sum of magnitudes in its row or column."""
COARSE = 2.0**-8
"""An element may be off by this part of its own sum of magnitudes."""


def loses(left: Array, right: Array) -> bool:
    """Whether digits of left [batch, M, K] and right [batch, K, N], cut by rows of the one and columns of the other,
    give an element that is worse than FINE or COARSE. The error expected is that of errors of either sign."""
    a, b = _scaled(left, -1), _scaled(right, -2)
    sums = a @ b
    held = sums > 0  # a row of zeros is exact
    expected = ERROR * (np.linalg.norm(a, axis=-1)[..., :, None] + np.linalg.norm(b, axis=-2)[..., None, :])
    seen = np.maximum(sums.max(axis=-1, keepdims=True, initial=0), sums.max(axis=-2, keepdims=True, initial=0))
    return bool((held & ((expected > FINE * seen) | (expected > COARSE * sums))).any())


def balanced(left: Array, right: Array) -> tuple[Array, Array]:
    """The same product: each column of left and the row of right that it meets are about as large, by a power of two.
    In float64, exact."""
    tops = np.abs(left).max(axis=-2, initial=0), np.abs(right).max(axis=-1, initial=0)
    first, second = (np.frexp(top.astype(np.float64))[1] for top in tops)
    steps = np.where((tops[0] > 0) & (tops[1] > 0), (first - second) // 2, 0)
    wide = left.astype(np.float64), right.astype(np.float64)
    return np.ldexp(wide[0], -steps[..., None, :]), np.ldexp(wide[1], steps[..., :, None])


def _scaled(values: Array, axis: int) -> NDArray[np.float32]:
    """Magnitudes, of which the greatest along an axis is in [0.5, 1)."""
    wide = np.abs(values.astype(np.float64))
    top = wide.max(axis=axis, keepdims=True, initial=0.0)
    return np.ldexp(wide, -np.frexp(top)[1]).astype(np.float32)
