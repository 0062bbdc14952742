"""Elementwise functions and row reductions of the vector core, as traced operations.

The set is the machine's (datasheet 6.3): exp2 is the transcendental, not exp; division is a multiplication by recip.
"""

from __future__ import annotations

from kohakuaccel.lang.dims import DimExpr
from kohakuaccel.lang.values import Apply, Join, Reduce, Value, as_value

Arg = Value | DimExpr | float


def _apply(op: str, *args: Arg) -> Value:
    return Apply(op, tuple(as_value(a) for a in args))


def exp2(x: Arg) -> Value:
    """2**x (seed table, datasheet 2.9)."""
    return _apply("exp2", x)


def log2(x: Arg) -> Value:
    """log2(x); +-0 gives -Inf, negatives NaN."""
    return _apply("log2", x)


def recip(x: Arg) -> Value:
    """1/x; +-0 gives +-Inf."""
    return _apply("recip", x)


def rsqrt(x: Arg) -> Value:
    """1/sqrt(x); +-0 gives +Inf, negatives NaN."""
    return _apply("rsqrt", x)


def sqrt(x: Arg) -> Value:
    """recip(rsqrt(x)): right at 0 and Inf, where x*rsqrt(x) would be NaN."""
    return _apply("recip", rsqrt(x))


def abs(x: Arg) -> Value:
    """|x|."""
    return _apply("abs", x)


def maximum(a: Arg, b: Arg) -> Value:
    """a < b ? b : a (a NaN in a stays, a NaN in b gives a; datasheet 2.6)."""
    return _apply("max", a, b)


def minimum(a: Arg, b: Arg) -> Value:
    """a > b ? b : a."""
    return _apply("min", a, b)


def fma(a: Arg, b: Arg, c: Arg) -> Value:
    """a*b + c with one rounding."""
    return _apply("fma", a, b, c)


def where(condition: Arg, a: Arg, b: Arg) -> Value:
    """condition != 0 ? a : b (NaN counts as nonzero)."""
    return _apply("select", condition, a, b)


def less(a: Arg, b: Arg) -> Value:
    """1.0 where a < b, else 0; NaN compares false."""
    return _apply("less", a, b)


def greater(a: Arg, b: Arg) -> Value:
    """1.0 where a > b, else 0."""
    return _apply("greater", a, b)


def equal(a: Arg, b: Arg) -> Value:
    """1.0 where a == b, else 0."""
    return _apply("equal", a, b)


def join(*rows: Value) -> Value:
    """Rows set one behind another: `y[r] <<= L.join(a[r], b[r, 3:7])`. It is what a store takes, not an operand."""
    return Join(tuple(as_value(row) for row in rows))


def row_sum(x: Arg) -> Value:
    """Sum of the row: lane-wise over chunks of 128, then the machine's reduction tree (datasheet 2.7)."""
    return Reduce("sum", as_value(x))


def row_max(x: Arg) -> Value:
    """Largest element of the row (machine MAX semantics)."""
    return Reduce("max", as_value(x))


def row_min(x: Arg) -> Value:
    """Smallest element of the row."""
    return Reduce("min", as_value(x))


def row_sumsq(x: Arg) -> Value:
    """Sum of squares of the row: each product is rounded, then summed as row_sum does."""
    value = as_value(x)
    return Reduce("sum", value * value)


class _RowLength(Value):
    """1 / (elements in a row), a constant once shapes are known."""

    def __str__(self) -> str:
        return "1/len"


INVERSE_LENGTH = _RowLength()


def row_mean(x: Arg) -> Value:
    """row_sum(x) * (1/len): E8M15 has float32's range, so the sum does not overflow."""
    return Apply("mul", (Reduce("sum", as_value(x)), INVERSE_LENGTH))
