"""float64 results with the error the formats predict (datasheet 2), for kernels that chain several products.

A bound of every single error would say little after two products, so errors are followed as root mean squares: a
quantised element is off by a uniform error of one step of its block, independent of all others; products and smooth
functions carry errors on by their derivative. No number here was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from api.bounds import FP16, TINY, quantiser_error

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Value:
    """x: what exact arithmetic gives; rms: the expected error of the machine's value of it."""

    x: Doubles
    rms: Doubles

    @staticmethod
    def exact(x: Any) -> Value:
        values = np.asarray(x, np.float64)
        return Value(values, np.zeros_like(values))

    def stored(self) -> Value:
        """Rounded to FP16."""
        return Value(self.x, np.hypot(self.rms, np.abs(self.x) * FP16 + TINY))

    def map(self, f: Callable[[Doubles], Doubles]) -> Value:
        """A function of each element; its slope is taken over the width of the errors to be expected."""
        width = 4 * self.rms + 1e-6
        slope = np.abs(f(self.x + width) - f(self.x - width)) / (2 * width)
        return Value(f(self.x), slope * self.rms)

    def __add__(self, other: Value) -> Value:
        return Value(self.x + other.x, np.hypot(self.rms, other.rms))

    def __mul__(self, other: Value) -> Value:
        return Value(self.x * other.x, np.hypot(self.rms * other.x, other.rms * self.x))


def product(a: Value, b: Value) -> Value:
    """a @ b.T over the last axes: both operands quantised, the sum stored as FP16."""
    turn = np.swapaxes
    ea = np.hypot(a.rms, quantiser_error(a.x) * 2 / np.sqrt(12))
    eb = np.hypot(b.rms, quantiser_error(b.x) * 2 / np.sqrt(12))
    variance = ea**2 @ turn(b.x**2 + eb**2, -1, -2) + a.x**2 @ turn(eb**2, -1, -2)
    return Value(a.x @ turn(b.x, -1, -2), np.sqrt(variance)).stored()


def attention(
    q: Any, k: Any, v: Any, keep: Any = None, bias: Any = None, causal: bool = False, scale: float | None = None
) -> Value:
    """softmax(scale * q @ k.T + bias) @ v; rows without a key are 0; `causal` aligns the ends."""
    group = q.shape[1] // k.shape[1]
    values = Value.exact(np.repeat(np.asarray(v, np.float64), group, 1).swapaxes(-1, -2))
    score = product(Value.exact(q), Value.exact(np.repeat(np.asarray(k, np.float64), group, 1)))
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    logit, error = score.x * factor, score.rms * factor
    if bias is not None:
        logit = logit + np.asarray(bias, np.float64)
    seen = np.ones(logit.shape, bool)
    if causal:
        rows, keys = (int(n) for n in logit.shape[-2:])
        seen &= np.arange(keys)[None, :] <= np.arange(rows)[:, None] + keys - rows
    if keep is not None:
        seen &= (np.asarray(keep) != 0)[:, None, None, :]
    top = np.where(seen, logit, -np.inf).max(-1, keepdims=True)
    e = np.where(seen, np.exp(np.where(seen, logit - np.where(np.isfinite(top), top, 0.0), 0.0)), 0.0)
    total = e.sum(-1, keepdims=True)
    p = e / np.where(total == 0, 1.0, total)
    # dp_j = p_j (d_j - sum_i p_i d_i)
    spread = p * np.sqrt(error**2 + np.sum((p * error) ** 2, -1, keepdims=True))
    return product(Value(p, spread).stored(), values)


def close(got: Any, want: Value) -> None:
    """The error's root mean square is what was predicted, and no single error is beyond 8 of its own.

    A few elements average over little: the allowance over the prediction shrinks with their number.
    """
    values = np.asarray(got, np.float64)
    assert values.shape == want.x.shape, (values.shape, want.x.shape)
    error = np.abs(values - want.x)
    room = want.stored().rms
    over = error - 8 * room
    at = np.unravel_index(int(np.argmax(over)), over.shape)
    assert over.max() <= 0, f"at {at}: got {values[at]}, float64 {want.x[at]}, predicted error {room[at]}"
    ratio = np.linalg.norm(error) / np.linalg.norm(room)
    assert ratio <= 1.25 + 1.5 / np.sqrt(values.size), f"errors are {ratio:.2f} times the predicted ones"
