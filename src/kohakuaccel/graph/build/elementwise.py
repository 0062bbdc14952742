"""Elementwise functions, written as bodies of one statement each.

Decides how a function is made of the closed set of scalar operations (base 2 throughout: exp(x) = exp2(x * log2 e)).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kohakuaccel.graph.build.core import Tensor, number, pointwise, result_dtype
from kohakuaccel.graph.dtypes import BOOL, DType, kind_of
from kohakuaccel.graph.expr import Cast, Expr, Scalar, op
from kohakuaccel.numerics import FP32, INT32

LOG2E = math.log2(math.e)
LN2 = math.log(2)
Operand = Tensor | Scalar


def unary(name: str, x: Tensor) -> Tensor:
    """Any one-argument operation of `graph.OPS`."""
    return pointwise(lambda a: op(name, a), x, name=f"t_{name}")


def binary(name: str, a: Operand, b: Operand, dtype: DType | None = None) -> Tensor:
    """Any two-argument operation of `graph.OPS`, broadcast; comparisons give BOOL."""
    if name in ("less", "equal"):
        dtype = BOOL
    return pointwise(lambda p, q: op(name, p, q), a, b, dtype=dtype, name=f"t_{name}")


def less(a: Operand, b: Operand) -> Tensor:
    """a < b."""
    return binary("less", a, b)


def equal(a: Operand, b: Operand) -> Tensor:
    """a == b."""
    return binary("equal", a, b)


def maximum(a: Operand, b: Operand) -> Tensor:
    """The greater; a NaN wins."""
    return binary("max", a, b)


def minimum(a: Operand, b: Operand) -> Tensor:
    """The smaller; a NaN wins."""
    return binary("min", a, b)


def where(condition: Tensor, a: Operand, b: Operand) -> Tensor:
    """`a` where the BOOL `condition` holds, else `b`; all three broadcast."""
    tensors = [t.dtype for t in (a, b) if isinstance(t, Tensor)]
    if tensors:
        dtype = result_dtype(tensors)
    else:
        dtype = INT32 if isinstance(a, int) and isinstance(b, int) else FP32

    def chosen(x: Operand) -> Operand:
        return x if isinstance(x, Tensor) else number(x, kind_of(dtype))

    p, q = chosen(a), chosen(b)
    parts = [x for x in (p, q) if isinstance(x, Tensor)]

    def body(c: Expr, *rest: Expr) -> Expr:
        found = iter(rest)
        return op("where", c, *(next(found) if isinstance(x, Tensor) else x for x in (p, q)))

    return pointwise(body, condition, *parts, dtype=dtype, name="t_where")


def cast(x: Tensor, dtype: DType) -> Tensor:
    """The elements in another format: to an integer cut towards zero, to BOOL whether they are not zero."""
    return pointwise(lambda a: Cast(a, dtype), x, dtype=dtype, name="t_cast")


def exp(x: Tensor) -> Tensor:
    """e ** x."""
    return pointwise(_exp, x, name="exp")


def log(x: Tensor) -> Tensor:
    """Natural logarithm."""
    return pointwise(lambda a: op("mul", op("log2", a), LN2), x, name="log")


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return pointwise(_sigmoid, x, name="sigmoid")


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return pointwise(lambda a: op("mul", a, _sigmoid(a)), x, name="silu")


def tanh(x: Tensor) -> Tensor:
    """2 * sigmoid(2 x) - 1."""
    return pointwise(_tanh, x, name="tanh")


def gelu(x: Tensor) -> Tensor:
    """The tanh form: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))."""

    def body(a: Expr) -> Expr:
        cubic = op("fma", op("mul", a, op("mul", a, a)), 0.044715, a)
        return op("mul", op("mul", a, 0.5), op("add", _tanh(op("mul", cubic, math.sqrt(2 / math.pi))), 1.0))

    return pointwise(body, x, name="gelu")


def relu(x: Tensor) -> Tensor:
    """The greater of x and 0."""
    return pointwise(lambda a: op("max", a, 0.0), x, name="relu")


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), without overflow: max(x, 0) + log(1 + exp(-|x|))."""

    def body(a: Expr) -> Expr:
        small = op("exp2", op("mul", op("abs", a), -LOG2E))
        return op("add", op("max", a, 0.0), op("mul", op("log2", op("add", small, 1.0)), LN2))

    return pointwise(body, x, name="softplus")


def _exp(a: Expr) -> Expr:
    return op("exp2", op("mul", a, LOG2E))


def _sigmoid(a: Expr) -> Expr:
    return op("recip", op("add", op("exp2", op("mul", a, -LOG2E)), 1.0))


def _tanh(a: Expr) -> Expr:
    return op("sub", op("mul", _sigmoid(op("mul", a, 2.0)), 2.0), 1.0)


def _unary(name: str, doc: str) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        return unary(name, x)

    function.__name__ = name
    function.__doc__ = doc
    return function


exp2 = _unary("exp2", "2 ** x.")
log2 = _unary("log2", "Base-2 logarithm.")
sqrt = _unary("sqrt", "Square root.")
rsqrt = _unary("rsqrt", "1 / sqrt(x).")
recip = _unary("recip", "1 / x.")
sin = _unary("sin", "Sine of radians.")
floor = _unary("floor", "The greatest whole number not above x.")
absolute = _unary("abs", "Magnitude.")
inverse = _unary("not", "The other truth value.")
