"""Arithmetic in a product's operands, as statements of their own: the array reads int8 and computes nothing before.

Decides which products are worth that: those whose operands stay near int8 where what they are made of is int8. It must
not know programs or cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kohakuaccel.graph import WORDS, Cast, Expr, Index, Op, Range, Read, Statement, Value
from kohakuaccel.graph.dtypes import WordFormat, kind_of
from kohakuaccel.graph.structure import as_contraction
from kohakuaccel.graph.verify import format_of
from tinytpu.lower.array.finish import HIGH, LOW
from tinytpu.lower.array.product import as_product, is_read
from tinytpu.lower.numbers.base import span
from tinytpu.lower.reach import Reach

NEAR = 2 * LOW, 2 * HIGH + 1
"""What an operand made of int8 may be: a sum of two is there, a product of two is not."""


def split(statement: Statement, names: Mapping[str, Value]) -> tuple[tuple[Statement, ...], Statement] | None:
    """Operands that are computed first, and the product of what they leave; None where there is none for the array."""
    found = as_contraction(statement)
    if found is None:
        return None
    made: list[Statement] = []
    sides: list[Expr] = []
    for expr, side in ((found.left, "left"), (found.right, "right")):
        if is_read(expr, names):
            sides.append(expr)
            continue
        operand = _operand(expr, f"{statement.name}_{side}", (*statement.ranges, *statement.reduced), names)
        if operand is None:
            return None
        made.append(operand[0])
        sides.append(operand[1])
    product = Statement(
        statement.name, statement.dtype, statement.ranges, Op("mul", (sides[0], sides[1])), statement.reduction
    )
    own = {**names, **{s.name: s for s in made}}
    return (tuple(made), product) if made and as_product(product, own) is not None else None


def _operand(
    expr: Expr, name: str, space: tuple[Range, ...], names: Mapping[str, Value]
) -> tuple[Statement, Expr] | None:
    """The part of an operand that is no cast, as a statement, and what is read instead of the operand."""
    casts: list[Callable[[Expr], Expr]] = []
    dtype = format_of(expr, names)
    while isinstance(expr, Cast) and dtype is not None:
        inner = format_of(expr.arg, names)
        if not isinstance(inner, WordFormat) or not dtype.is_exact_from(inner):
            break
        casts.append(lambda e, to=dtype: Cast(e, to))
        expr, dtype = expr.arg, inner
    if not isinstance(dtype, WordFormat) or dtype.bits > 32 or name in names:
        return None
    if any(kind_of(names[r.value].dtype) == "real" for r in expr.reads()):
        return None
    low, high = _near(expr, names)
    if low < NEAR[0] or high > NEAR[1]:
        return None
    ranges = tuple(r for r in space if r in expr.ranges())
    least, most = Reach(names).of(expr)
    body, read = expr, Read(name, tuple(Index.of(r) for r in ranges))
    wanted: Expr = read
    if dtype != WORDS["S8"] and least >= LOW and most <= HIGH:
        body, wanted = Cast(expr, WORDS["S8"]), Cast(read, dtype)
        dtype = WORDS["S8"]
    for cast in reversed(casts):
        wanted = cast(wanted)
    return Statement(name, dtype, ranges, body), wanted


def _near(expr: Expr, names: Mapping[str, Value]) -> tuple[int, int]:
    """What an expression can be where everything that it reads is an int8 at most."""
    reach = Reach(names)
    for read in expr.reads():
        value = names[read.value]
        low, high = span(value.dtype) if isinstance(value.dtype, WordFormat) else (0, 1)
        reach.known[read.value] = max(low, LOW), min(high, HIGH)
    return reach.of(expr)
