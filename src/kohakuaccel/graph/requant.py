"""Requantisation as an expression: made by one function, recognised by its structure by another.

    clamp((value * factor + half) >> shift, low, high)        in S64; half is 2**(shift - 1), or 0

Decides the form only; whoever lowers it decides whether an instruction or arithmetic of several words computes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph.dtypes import WORDS
from kohakuaccel.graph.expr import Cast, Const, Expr, Op
from kohakuaccel.numerics import INT32

WIDE = WORDS["S64"]
SHIFTS = range(1, 63)


@dataclass(frozen=True)
class Requantised:
    """value: an integer expression of up to 32 bits. factor: a number, or an expression of up to 32 bits. rounded:
    whether half of the last place is added before the shift (ties go up). low, high: bounds of the result."""

    value: Expr
    factor: int | Expr
    shift: int
    rounded: bool
    low: int
    high: int


def requantised(value: Expr, factor: int | Expr, shift: int, low: int = -128, high: int = 127) -> Expr:
    """The expression, rounded, in S64. value and factor: words or integers of up to 32 bits. Raises Refusal."""
    if shift not in SHIFTS:
        raise Refusal("a requantisation shifts right", where="requantise", got=shift, limit=f"1..{SHIFTS[-1]}")
    if isinstance(factor, int) and not INT32.lowest <= factor <= INT32.max:  # else the product may leave 64 bits
        raise Refusal(
            "a factor is an int32", where="requantise", got=factor, limit=f"{INT32.lowest:.0f}..{INT32.max:.0f}",
            hint="halve it, and shift by one less",
        )  # fmt: skip

    def word(number: int) -> Expr:
        return Cast(Const(number), WIDE)

    product = Op("mul", (Cast(value, WIDE), word(factor) if isinstance(factor, int) else Cast(factor, WIDE)))
    shifted = Op("shr", (Op("add", (product, word(1 << (shift - 1)))), word(shift)))
    return Op("min", (Op("max", (shifted, word(low))), word(high)))


def _number(expr: Expr) -> int | None:
    if isinstance(expr, Cast) and expr.dtype == WIDE:
        return _number(expr.arg)
    return expr.value if isinstance(expr, Const) and expr.kind == "int" else None  # pyright: ignore[reportReturnType] - an int by its kind


def _with_number(expr: Expr, name: str) -> tuple[Expr, int] | None:
    """An operation with a number on either side: what else it is of, and the number."""
    if not (isinstance(expr, Op) and expr.name == name):
        return None
    for one, other in (expr.args, expr.args[::-1]):
        number = _number(other)
        if number is not None:
            return one, number
    return None


def as_requantised(expr: Expr) -> Requantised | None:
    """An S64 expression as a requantisation, or None. Its numbers stand on either side, its bounds in either order."""
    bounds: dict[str, int] = {}
    for _ in range(2):
        name = expr.name if isinstance(expr, Op) else ""
        found = _with_number(expr, name) if name in ("min", "max") and name not in bounds else None
        if found is None:
            return None
        expr, bounds[name] = found
    if bounds["max"] > bounds["min"] or not (isinstance(expr, Op) and expr.name == "shr"):
        return None
    inner, shift = expr.args[0], _number(expr.args[1])
    if shift not in SHIFTS:
        return None
    assert shift is not None
    added = _with_number(inner, "add")
    rounded = added is not None and added[1] == 1 << (shift - 1)
    if added is not None and rounded:
        inner = added[0]
    if not (isinstance(inner, Op) and inner.name == "mul"):
        return None
    factor: int | Expr | None = None
    scaled = _with_number(inner, "mul")
    if scaled is not None:
        value, factor = _narrow(scaled[0]), scaled[1]
        if not -(1 << 31) <= factor < 1 << 31:
            return None
    else:
        value, factor = (_narrow(arg) for arg in inner.args)
    if value is None or factor is None:
        return None
    return Requantised(value, factor, shift, rounded, bounds["max"], bounds["min"])


def _narrow(expr: Expr) -> Expr | None:
    """What is cast to S64."""
    return expr.arg if isinstance(expr, Cast) and expr.dtype == WIDE else None
