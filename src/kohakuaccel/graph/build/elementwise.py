"""Elementwise functions, written as bodies of one statement each.

Decides how a function is made of the closed set of scalar operations (base 2 throughout: exp(x) = exp2(x * log2 e)).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph.build.core import Tensor, number, pointwise, result_dtype
from kohakuaccel.graph.dtypes import BOOL, WORDS, DType, kind_of
from kohakuaccel.graph.expr import Cast, Expr, Scalar, literal, op
from kohakuaccel.graph.requant import requantised
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


def not_equal(a: Operand, b: Operand) -> Tensor:
    """~(a == b)."""
    return pointwise(lambda p, q: op("not", op("equal", p, q)), a, b, dtype=BOOL, name="t_not_equal")


def greater(a: Operand, b: Operand) -> Tensor:
    """a > b."""
    return binary("less", b, a)


def less_equal(a: Operand, b: Operand) -> Tensor:
    """a <= b; False beside a NaN."""
    return pointwise(lambda p, q: op("or", op("less", p, q), op("equal", p, q)), a, b, dtype=BOOL, name="t_less_equal")


def greater_equal(a: Operand, b: Operand) -> Tensor:
    """a >= b; False beside a NaN."""
    return less_equal(b, a)


def logical_and(a: Tensor, b: Tensor) -> Tensor:
    """Both (BOOL), or the bits of both (integers)."""
    return binary("and", a, b)


def logical_or(a: Tensor, b: Tensor) -> Tensor:
    """Either (BOOL), or the bits of either (integers)."""
    return binary("or", a, b)


def isnan(x: Tensor) -> Tensor:
    """Whether an element is no number."""
    return pointwise(lambda a: op("not", op("equal", a, a)), x, dtype=BOOL, name="isnan")


def clamp(x: Tensor, low: Operand | None = None, high: Operand | None = None) -> Tensor:
    """Between low and high, where they are given; a NaN stays, and high wins over low."""
    x = x if low is None else maximum(x, low)
    return x if high is None else minimum(x, high)


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
        return op("where", c, *(next(found) if isinstance(x, Tensor) else literal(x, dtype) for x in (p, q)))

    return pointwise(body, condition, *parts, dtype=dtype, name="t_where")


def cast(x: Tensor, dtype: DType) -> Tensor:
    """The elements in another format: to an integer cut towards zero, to BOOL whether they are not zero."""
    return pointwise(lambda a: Cast(a, dtype), x, dtype=dtype, name="t_cast")


def requantise(
    x: Tensor, factor: Tensor | int, shift: int, low: int = -128, high: int = 127, dtype: DType = WORDS["S8"]
) -> Tensor:
    """clamp((x * factor + 2**(shift - 1)) >> shift, low, high), exact in 64 bits: ties go up.

    x: integers of up to 32 bits. factor: one number, or a tensor that broadcasts (one per channel). Raises Refusal for
    a shift that is not 1..62, a factor that is no int32, and bounds that `dtype` does not hold.
    """
    if not dtype.lowest <= low <= high <= dtype.max:
        raise Refusal("the bounds of a requantisation are in its format", where="requantise", got=f"{low}..{high}")
    if not isinstance(factor, Tensor) and factor != int(factor):
        raise Refusal("a factor is an integer", where="requantise", got=factor, hint="double it, and shift by one more")

    def body(a: Expr, *rest: Expr) -> Expr:
        return Cast(requantised(a, rest[0] if rest else int(factor), shift, low, high), dtype)  # pyright: ignore[reportArgumentType] - a number where no tensor is given

    parts = (factor,) if isinstance(factor, Tensor) else ()
    return pointwise(body, x, *parts, dtype=dtype, name="requantised")


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


def gelu(x: Tensor, exact: bool = False) -> Tensor:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))); exact: x / 2 * (1 + erf(x / sqrt(2))), see `erf`."""

    def body(a: Expr) -> Expr:
        cubic = op("fma", op("mul", a, op("mul", a, a)), 0.044715, a)
        bent = _erf(op("mul", a, math.sqrt(0.5))) if exact else _tanh(op("mul", cubic, math.sqrt(2 / math.pi)))
        return op("mul", op("mul", a, 0.5), op("add", bent, 1.0))

    return pointwise(body, x, name="gelu")


def erf(x: Tensor) -> Tensor:
    """The error function, within 1.5e-7 (Abramowitz and Stegun 7.1.26): below what FP16 and E8M15 can tell."""
    return pointwise(_erf, x, name="erf")


def cos(x: Tensor) -> Tensor:
    """Cosine of radians: sin(x + pi / 2)."""
    return pointwise(lambda a: op("sin", op("add", a, math.pi / 2)), x, name="cos")


def ceil(x: Tensor) -> Tensor:
    """The smallest whole number not below x."""
    return pointwise(lambda a: op("neg", op("floor", op("neg", a))), x, name="ceil")


def trunc(x: Tensor) -> Tensor:
    """The whole number next to x on the side of zero."""
    return pointwise(
        lambda a: op("where", op("less", a, 0.0), op("neg", op("floor", op("neg", a))), op("floor", a)), x, name="trunc"
    )


def round_(x: Tensor) -> Tensor:
    """The nearest whole number, ties to even."""

    def body(a: Expr) -> Expr:
        low = op("floor", a)
        rest = op("sub", a, low)
        even = op("mul", op("floor", op("fma", a, 0.5, 0.25)), 2.0)
        near = op("where", op("less", rest, 0.5), low, op("add", low, 1.0))
        return op("where", op("equal", rest, 0.5), even, near)

    return pointwise(body, x, name="rounded")


def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1."""
    less, zero, greater = (literal(number(n, x.kind), x.dtype) for n in (-1, 0, 1))

    def body(a: Expr) -> Expr:
        return op("where", op("less", a, zero), less, op("where", op("less", zero, a), greater, zero))

    return pointwise(body, x, name="sign")


def power(x: Tensor, exponent: Operand) -> Tensor:
    """x to a power: products for whole exponents up to 16, roots for halves, else exp2(log2(x) * exponent), x >= 0."""
    if isinstance(exponent, Tensor):
        return pointwise(lambda a, b: op("exp2", op("mul", op("log2", a), b)), x, exponent, name="power")
    count = abs(exponent)

    def body(a: Expr) -> Expr:
        if count == 0.5:
            return op("sqrt" if exponent > 0 else "rsqrt", a)
        if count != int(count) or count > 16:
            return op("exp2", op("mul", op("log2", a), float(exponent)))
        made: Expr | None = None
        square, left = a, int(count)
        while left:
            if left & 1:
                made = square if made is None else op("mul", made, square)
            square, left = op("mul", square, square), left >> 1
        made = made or op("where", op("equal", a, a), 1.0, 1.0)
        return made if exponent >= 0 else op("recip", made)

    return pointwise(body, x, name="power")


def leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    """x, times `slope` below 0."""
    return pointwise(lambda a: op("where", op("less", a, 0.0), op("mul", a, slope), a), x, name="leaky_relu")


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x, or alpha * (exp(x) - 1) below 0."""

    def body(a: Expr) -> Expr:
        low = op("mul", op("sub", _exp(op("min", a, 0.0)), 1.0), alpha)
        return op("where", op("less", a, 0.0), low, a)

    return pointwise(body, x, name="elu")


def hardsigmoid(x: Tensor) -> Tensor:
    """x / 6 + 1 / 2, between 0 and 1."""
    return pointwise(_hard, x, name="hardsigmoid")


def hardswish(x: Tensor) -> Tensor:
    """x * hardsigmoid(x)."""
    return pointwise(lambda a: op("mul", a, _hard(a)), x, name="hardswish")


def relu(x: Tensor) -> Tensor:
    """The greater of x and 0."""
    return pointwise(lambda a, zero: op("max", a, zero), x, 0, name="relu")


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


def _hard(a: Expr) -> Expr:
    return op("min", op("max", op("fma", a, 1 / 6, 0.5), 0.0), 1.0)


def _erf(a: Expr) -> Expr:
    size = op("abs", a)
    t = op("recip", op("fma", size, 0.3275911, 1.0))
    total: Expr = op("mul", t, 1.061405429)
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        total = op("mul", op("add", total, factor), t)
    part = op("sub", 1.0, op("mul", total, op("exp2", op("mul", op("mul", a, a), -LOG2E))))
    return op("where", op("less", a, 0.0), op("neg", part), part)


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
