"""The float64 meaning of a random kernel, with a bound on how far the machine's formats may take it.

An expression is a nested tuple (op, arguments...) over operand names and numbers. Values are float64; the error bound
follows each operation's own rounding (E8M15: 2^-16 relative; seeds: one ulp, datasheet 2.9) through its derivative.
Where a comparison is too close to call, the bound is infinite.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
UNIT = 2.0**-16  # half an ulp of E8M15, relative
SEED = 2.0**-15  # one ulp: what a seed may be off by (0.812 ulp is the worst in datasheet 2.9)
TINY = 2.0**-126  # results below are flushed
HALF_UNIT = 2.0**-11
HALF_TINY = 2.0**-25

Expr = Any


def rounded(v: F64, e: F64, unit: float) -> tuple[F64, F64]:
    return v, e + np.abs(v) * unit * 1.01 + TINY


def interpret(expr: Expr, operands: dict[str, F64]) -> tuple[F64, F64]:
    """(value, error bound) of an expression; both broadcast to the operands' shape."""
    if isinstance(expr, str):
        return operands[expr], np.zeros_like(operands[expr])
    if isinstance(expr, int | float):
        shape = next(iter(operands.values())).shape
        return np.full(shape, float(expr)), np.full(shape, abs(float(expr)) * UNIT)
    op, *rest = expr
    parts = [interpret(a, operands) for a in rest]
    (a, ea), *others = parts
    b, eb = others[0] if others else (a, ea)
    match op:
        case "add":
            return rounded(a + b, ea + eb, UNIT)
        case "sub":
            return rounded(a - b, ea + eb, UNIT)
        case "mul":
            return rounded(a * b, np.abs(a) * eb + np.abs(b) * ea + ea * eb, UNIT)
        case "fma":
            c, ec = others[1]
            return rounded(a * b + c, np.abs(a) * eb + np.abs(b) * ea + ea * eb + ec, UNIT)
        case "neg":
            return -a, ea
        case "abs":
            return np.abs(a), ea
        case "maximum":
            return np.maximum(a, b), np.maximum(ea, eb)
        case "minimum":
            return np.minimum(a, b), np.maximum(ea, eb)
        case "less":
            return (a < b).astype(float), np.where(np.abs(a - b) <= ea + eb, np.inf, 0.0)
        case "where":
            c, ec = others[1]
            unsure = (np.abs(a) <= ea) & (ea > 0)
            return np.where(a != 0, b, c), np.where(unsure, np.inf, np.where(a != 0, eb, ec))
        case "exp2":
            r = np.exp2(a)
            return rounded(r, r * (np.exp2(ea + 2.0**-17) - 1), SEED)
        case "recip":
            room = np.abs(a) - ea
            e = np.where(room > 0, ea / np.where(room > 0, room * np.abs(a), 1), np.inf)
            return rounded(1 / a, e, SEED)
        case _:  # rsqrt
            room = a - ea
            e = np.where(room > 0, 1 / np.sqrt(np.where(room > 0, room, 1)) - 1 / np.sqrt(np.abs(a)), np.inf)
            return rounded(1 / np.sqrt(a), e, SEED)


def stored(v: F64, e: F64) -> F64:
    """The bound after the FP16 store."""
    return e + np.abs(v) * HALF_UNIT * 1.01 + HALF_TINY


def quantised(x: F64) -> F64:
    """Bound on |x - quantised x| per element of float64[rows, K]: half a step of its block's scale, and the scale's own
    rounding up (at most 1/8 coarser than the peak needs), datasheet 2.2."""
    rows, k = x.shape
    padded = np.pad(np.abs(x), ((0, 0), (0, -k % 32))).reshape(rows, -1, 32)
    peak = np.max(padded, axis=2, keepdims=True)
    # Scale <= peak/63 * (1 + 1/8), and never below 2^-20; the reciprocal table adds at most 2^-12 relative.
    step = np.maximum(peak / 63 * 1.125, 2.0**-20)
    bound = step * 0.5 + padded * 2.0**-11
    return bound.reshape(rows, -1)[:, :k]


def product(a: F64, b: F64) -> tuple[F64, F64]:
    """(value, bound before the FP16 emit) of a[M, K] @ b[N, K].T on a cluster."""
    qa, qb = quantised(a), quantised(b)
    value = a @ b.T
    operand = qa @ np.abs(b).T + np.abs(a) @ qb.T + qa @ qb.T
    blocks = -(-a.shape[1] // 32)
    mass = (np.abs(a) + qa) @ (np.abs(b) + qb).T
    return value, operand + mass * blocks * 2.0**-14


def expected_square(a: F64, b: F64) -> F64:
    """Mean square error to expect of a product: each operand's error taken as uniform within its bound."""
    qa, qb = quantised(a) ** 2 / 3, quantised(b) ** 2 / 3
    return qa @ (b**2).T + (a**2) @ qb.T
