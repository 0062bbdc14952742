"""Expressions that are one instruction of the vector unit though the graph spells them with several operations.

Decides by structure which of them are signs, differences of truth, and sums or distances that the graph itself clamps
to int32 (datasheet 4: SIGN, FSIGN, CMPNE, SAT_ADD_I32, SAT_SUB_I32, ABS_DIFF_I32, ROTL). It must not
know lanes.
"""

from __future__ import annotations

from collections.abc import Callable

from kohakuaccel.graph import WORDS, Const, Expr, Op
from kohakuaccel.numerics import FP32
from tinytpu.isa.codes import VPU
from tinytpu.lower.forms.spelling import number_of, sign_of
from tinytpu.lower.numbers import Tile
from tinytpu.lower.numbers.base import HALF, bits_of, is_real
from tinytpu.lower.numbers.operations import truth
from tinytpu.lower.numbers.spans import holds
from tinytpu.lower.program.code import Code

INT = (-HALF, HALF - 1)
_SATURATED = {"add": VPU.SAT_ADD_I32, "sub": VPU.SAT_SUB_I32}
Value = Callable[[Expr], Tile]
"""The tile of an expression, which is made where it is asked for."""


def compound(code: Code, expr: Op, value: Value) -> Tile | None:
    """The tile of an expression that is one of these, else None."""
    match expr.name:
        case "where":
            return _sign(code, expr, value)
        case "not":
            return _different(code, expr.args[0], value)
        case "min" | "max":
            return _saturated(code, expr, value)
        case "or" | "xor" | "add":
            return _rotated(code, expr, value)
        case _:
            return None


def _sign(code: Code, expr: Op, value: Value) -> Tile | None:
    x = sign_of(expr)
    if x is not None:
        a = value(x)
        return None if is_real(a.dtype) or a.top is not None else Tile(code.vpu(VPU.SIGN, a.value), a.dtype, -1, 1)
    x = _sign_of_real(expr)
    if x is None or value(x).dtype != FP32:
        return None
    a = value(x)  # a NaN, which is neither zero nor negative, becomes the greatest number first
    seen = a.value if a.number else code.vpu(VPU.FMIN, a.value, code.fill(bits_of(float("inf"))))
    return Tile(code.vpu(VPU.FSIGN, seen), FP32, number=True)


def _real(expr: Expr) -> float | None:
    return float(expr.value) if isinstance(expr, Const) and expr.kind == "real" else None


def _sign_of_real(expr: Op) -> Expr | None:
    """x, where an expression is where(~(x == 0.0), where(x < 0.0, -1.0, 1.0), 0.0)."""
    condition, other, zero = expr.args
    if not (isinstance(condition, Op) and condition.name == "not" and isinstance(other, Op) and other.name == "where"):
        return None
    equal, (below, least, most) = condition.args[0], other.args
    if not (isinstance(equal, Op) and equal.name == "equal" and isinstance(below, Op) and below.name == "less"):
        return None
    x = equal.args[0]
    numbers = [*map(_real, (zero, equal.args[1], below.args[1], least, most))]
    positive = isinstance(zero, Const) and str(zero.value) == "0.0"
    return x if positive and below.args[0] == x and numbers == [0.0, 0.0, 0.0, -1.0, 1.0] else None


def _different(code: Code, expr: Expr, value: Value) -> Tile | None:
    """~(a == b) of words."""
    if not (isinstance(expr, Op) and expr.name == "equal"):
        return None
    a, b = map(value, expr.args)
    if is_real(a.dtype) or a.top is not None or b.top is not None:
        return None
    return truth(code.vpu(VPU.CMPNE, a.value, b.value))


def _rotated(code: Code, expr: Op, value: Value) -> Tile | None:
    """The bits of a U32 shifted left and right by 32 places together, put together."""
    for left, right in (expr.args, expr.args[::-1]):
        if not (isinstance(right, Op) and right.name == "shr"):
            continue
        if not (isinstance(left, Op) and left.name in ("shl", "mul") and left.args[0] == right.args[0]):
            continue
        up, down = number_of(left.args[1]), number_of(right.args[1])
        if left.name == "mul" and up is not None:
            up = up.bit_length() - 1 if up.bit_count() == 1 else None
        if up is None or down is None or up + down != 32 or not 0 < up < 32:
            continue
        a = value(right.args[0])
        if a.dtype == WORDS["U32"]:
            return Tile(code.vpu(VPU.ROTL, a.value, code.fill(up)), a.dtype, 0, 2 * HALF - 1)
    return None


def _saturated(code: Code, expr: Op, value: Value) -> Tile | None:
    """A sum, a difference or a distance of words that fit int32, which is cut to int32."""
    inner: Expr = expr
    bounds: dict[str, int | None] = {"max": None, "min": None}
    while isinstance(inner, Op) and inner.name in bounds and bounds[inner.name] is None:
        x, y = inner.args
        number = number_of(y)
        if number is None:
            x, number = y, number_of(x)
        bounds[inner.name], inner = number, x
        if number is None:
            return None
    if bounds["min"] != INT[1] or not isinstance(inner, Op):
        return None
    distance = inner.name == "abs"
    total = inner.args[0] if distance else inner
    if not (isinstance(total, Op) and total.name in _SATURATED) or (distance and total.name != "sub"):
        return None
    if bounds["max"] != (None if distance else INT[0]):
        return None
    a, b = map(value, total.args)
    if a.dtype != WORDS["S64"] or any(t.top is not None or not holds(INT, (t.low, t.high)) for t in (a, b)):
        return None
    op = VPU.ABS_DIFF_I32 if distance else _SATURATED[total.name]
    return Tile(code.vpu(op, a.value, b.value), a.dtype, 0 if distance else INT[0], INT[1])
