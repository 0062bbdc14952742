"""Rotary position embedding in its halves form: the first half of a head is rotated against the second."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang import dims, grid
from kohakutpu import lang as L
from kohakutpu.lang import kernel

M, P = dims("M P")


@kernel
def rotate(x=L.In(..., M, 2, P), cos=L.In(M, P), sin=L.In(M, P), y=L.Out(..., M, 2, P)):
    """`rope` on the halves of a head as two rows: y0 = x0 * cos - x1 * sin, y1 = x1 * cos + x0 * sin."""
    for m in grid(cos.rows()):
        y[m, 0] <<= x[m, 0] * cos[m] - x[m, 1] * sin[m]
    for m in grid(cos.rows()):
        y[m, 1] <<= x[m, 1] * cos[m] + x[m, 0] * sin[m]


def rope(x: Any, cos: Any, sin: Any) -> Any:
    """x * cos + rotate_half(x) * sin for x (..., L, D) and cos, sin (L, D/2), where rotate_half(x) = (-x1, x0) for the
    halves x0, x1 of the last axis. Every leading axis (batch, heads) shares the positions.

    The halves are two rows of D/2 to the vector cores. For D a multiple of 32 that is the same order of bytes as rows
    of D; for any other D it is not, and a value that is only on the device passes a relayout. The form with
    interleaved pairs is a permutation of D away; permute the rows of the weights that make q and k instead. Refused:
    an odd D.
    """
    from kohakutpu.tensor import as_tensor

    given = as_tensor(x, where="rope")
    if given.ndim < 2 or given.shape[-1] % 2:
        raise Refusal(
            "a rotary embedding turns pairs of elements",
            where="rope",
            got=f"shape {given.shape}",
            limit="(..., L, D) with an even D",
            hint="pad the head with a zero",
        )
    half = given.shape[-1] // 2
    return rotate(given.reshape(*given.shape[:-1], 2, half), cos, sin).reshape(given.shape)


def rope_tables(length: int, width: int, base: float = 10000.0, first: int = 0) -> tuple[NDArray[np.float16], ...]:
    """(cos, sin), each (length, width / 2): angle = (first + row) * base ** (-2 * column / width)."""
    angle = (first + np.arange(length))[:, None] * base ** (-2.0 * np.arange(width // 2) / width)
    return np.cos(angle).astype(np.float16), np.sin(angle).astype(np.float16)
