"""An expression in fewer operations of the vector cores: numbers brought together, products and sums fused.

Decides which reassociations of numbers pay; results may differ from the statements' own order in their last bits. It
must not know what an operand is.
"""

from __future__ import annotations

from collections import Counter
from math import isfinite

from kohakuaccel.graph import Cast, Const, Expr, Op, kind_of
from kohakutpu.auto.expressions import nodes


def simplified(expr: Expr) -> Expr:
    """The same expression in fewer operations.

    before  x * 0.5 * ((recip(exp2(fma(x * (x * x), 0.044715, x) * c) + 1.0) * 2.0 - 1.0) + 1.0)
    after   x * recip(exp2(x * fma(x * x, 0.044715 * c, c)) + 1.0)

    Casts from one real format to another go: a vector core computes in one.
    """
    uses = Counter(id(c) for e in nodes(expr) for c in e.children)
    done: dict[int, Expr] = {}
    kept: list[Expr] = []  # keeps ids alive

    def visit(e: Expr) -> Expr:
        if id(e) not in done:
            kept.append(e)
            children = tuple(visit(c) for c in e.children)
            made = e if all(a is b for a, b in zip(children, e.children)) else e.with_children(children)
            alone = tuple(uses[id(c)] == 1 or isinstance(c, Const) for c in e.children)
            if isinstance(made, Cast) and kind_of(made.dtype) == "real":
                made = made.arg
            done[id(e)] = _simpler(made, alone) if isinstance(e, Op) and isinstance(made, Op) else made
        return done[id(e)]

    return visit(expr)


def _number(e: Expr) -> float | None:
    """The finite real that an expression is, or None."""
    found = float(e.value) if isinstance(e, Const) and e.kind == "real" else None
    return found if found is not None and isfinite(found) else None


def _factor(e: Expr) -> tuple[Expr, float]:
    """An expression as another one times a number."""
    if isinstance(e, Op) and e.name == "mul" and (number := _number(e.args[1])) is not None:
        return e.args[0], number
    if isinstance(e, Op) and e.name == "neg":
        return e.args[0], -1.0
    return e, 1.0


def _simpler(e: Op, alone: tuple[bool, ...]) -> Expr:
    """One node over simplified children. alone: per child, whether nobody else needs it."""
    match e.name:
        case "sub" if (number := _number(e.args[1])) is not None:
            return _sum((e.args[0], Const(-number)), alone)
        case "add":
            return _sum((e.args[0], e.args[1]), alone)
        case "mul":
            return _product((e.args[0], e.args[1]), alone)
        case "fma":
            return _fma(*e.args) if alone[0] else e
        case "recip" if isinstance(root := e.args[0], Op) and root.name == "sqrt":
            return Op("rsqrt", root.args)  # the machine's square root is recip(rsqrt(x))
        case _:
            return e


def _sum(args: tuple[Expr, Expr], alone: tuple[bool, ...]) -> Expr:
    inner, number = args[0], _number(args[1])
    if number is not None and isinstance(inner, Op) and inner.name in ("add", "fma") and alone[0]:
        before = _number(inner.args[-1])
        if before is not None and inner.name == "add":
            total = before + number
            return inner.args[0] if total == 0 else Op("add", (inner.args[0], Const(total)))
        if before is not None:
            return _fma(inner.args[0], inner.args[1], Const(before + number))
    for product, other, sole in ((*args, alone[0]), (*args[::-1], alone[1])):
        if sole and isinstance(product, Op) and product.name == "mul":
            return _fma(product.args[0], product.args[1], other)
    return Op("add", args)


def _fma(a: Expr, b: Expr, c: Expr) -> Expr:
    if _number(c) == 0:
        return Op("mul", (a, b))
    if isinstance(a, Op) and a.name == "mul" and _number(b) is not None:
        for own, rest in (a.args, a.args[::-1]):
            if own is c:  # x * p * n + x
                return Op("mul", (c, Op("fma", (rest, b, Const(1.0)))))
    return Op("fma", (a, b, c))


def _product(args: tuple[Expr, Expr], alone: tuple[bool, ...]) -> Expr:
    (a, n), (b, m) = (_factor(e) if sole else (e, 1.0) for e, sole in zip(args, alone))
    if (number := _number(b)) is not None:
        return _scaled(a, n * m * number) if alone[0] else Op("mul", (a, Const(n * m * number)))
    product = Op("mul", (a, b))
    return product if n * m == 1 else _scaled(product, n * m)


def _scaled(e: Expr, number: float) -> Expr:
    """An expression times a number; the number goes into a polynomial's own numbers."""
    if number == 1:
        return e
    if isinstance(e, Op) and e.name == "fma":
        first, second = (_number(c) for c in e.args[1:])
        if first is not None and second is not None:
            return Op("fma", (e.args[0], Const(first * number), Const(second * number)))
    if isinstance(e, Op) and e.name == "mul" and isinstance(inner := e.args[1], Op) and inner.name == "fma":
        scaled = _scaled(inner, number)
        if isinstance(scaled, Op) and scaled.name == "fma":
            return Op("mul", (e.args[0], scaled))
    return Op("mul", (e, Const(number)))
