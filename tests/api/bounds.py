"""How far a result may be from float64, derived from the formats alone (datasheet 2): no number here was
measured.

One FP16 rounding is 2^-11 of the value (2^-25 absolute below the normal range), one E8M15 rounding 2^-16, a
table seed 0.82 ulp of E8M15. A quantised operand is off by half a step, and a step is at most peak/63 *
9/8.13 of its block of 32 (c = ceil(P/126) over P >= 1024).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

FP16 = 2.0**-11
TINY = 2.0**-25
STEP = 2.0**-16
HALF_STEP_OF_PEAK = 0.5 * (1 / 63) * (9 / (1024 / 126))


def check(got: NDArray[Any], want: Any, steps: float, absolute: Any = 0.0) -> None:
    """`got` is an FP16 rounding of `want` after `steps` E8M15 roundings, plus `absolute`; NaN and Inf
    agree."""
    ref = np.asarray(want, np.float64)
    assert got.shape == ref.shape, (got.shape, ref.shape)
    finite = np.isfinite(ref)
    assert np.array_equal(np.isnan(got), np.isnan(ref))
    assert np.array_equal(got[~finite], ref[~finite], equal_nan=True)
    room = np.abs(ref) * (FP16 + steps * STEP) * (1 + 2.0**-10) + TINY + absolute
    with np.errstate(invalid="ignore"):
        error = np.abs(got.astype(np.float64) - ref)
    over = np.where(finite, error - room, -1.0)
    if over.size and over.max() > 0:
        at = np.unravel_index(int(np.argmax(over)), over.shape)
        raise AssertionError(f"at {at}: got {got[at]}, float64 {ref[at]}, error {error[at]}, allowed {room[at]}")


def quantiser_error(values: Doubles) -> Doubles:
    """Largest error of each element when its rows of the last axis are quantised in blocks of 32."""
    depth = values.shape[-1]
    padded = np.zeros((*values.shape[:-1], -(-depth // 32) * 32))
    padded[..., :depth] = np.abs(values)
    blocks = padded.reshape(*values.shape[:-1], -1, 32)
    peak = np.broadcast_to(blocks.max(-1, keepdims=True), blocks.shape).reshape(padded.shape)[..., :depth]
    return peak * HALF_STEP_OF_PEAK


def matmul_bound(a: Doubles, b: Doubles) -> Doubles:
    """Largest error of `a @ b.T` (last two axes): both quantisers, FP22 per block of 32, FP16 out."""
    ea, eb = quantiser_error(a), quantiser_error(b)
    blocks = -(-a.shape[-1] // 32)
    turn = np.swapaxes
    room = np.abs(a) @ turn(eb, -1, -2) + ea @ turn(np.abs(b) + eb, -1, -2)
    size = np.abs(a) @ turn(np.abs(b), -1, -2)
    return room + (size + room) * (blocks * 2.0**-14 + FP16) + TINY


def check_matmul(got: NDArray[Any], a: Any, b: Any) -> None:
    """`got` against float64 `a @ b.T` over the last two axes, with broadcast batches."""
    left, right = np.asarray(a, np.float64), np.asarray(b, np.float64)
    want = left @ np.swapaxes(right, -1, -2)
    assert got.shape == want.shape, (got.shape, want.shape)
    over = np.abs(got.astype(np.float64) - want) - matmul_bound(left, right)
    assert not over.size or over.max() <= 0, f"{over.max()} beyond the bound, largest value {np.abs(want).max()}"
