"""Words spelt with the operations that machines have: what was written with others, because a language lacks them.

Decides, by structure alone, what a minimum, a difference, a negation or a sign is; the meaning is the same to the bit,
for words that wrap and truth values. Reals stay as they are: a NaN or a zero's sign would not. It must not know
instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from kohakuaccel.graph import Cast, Const, Expr, Graph, Op, Statement, Value, WordFormat
from kohakuaccel.graph.rewrite.base import Rewrite, with_body
from kohakuaccel.graph.verify import format_of


def number_of(expr: Expr) -> int | None:
    """The integer that an expression is."""
    if isinstance(expr, Cast) and isinstance(expr.dtype, WordFormat):
        number, half = number_of(expr.arg), (1 << expr.dtype.bits - 1) * expr.dtype.signed
        return None if number is None else (number + half) % (1 << expr.dtype.bits) - half
    return expr.value if isinstance(expr, Const) and expr.kind == "int" else None  # pyright: ignore[reportReturnType] - an int by its kind


def _either(expr: Expr, name: str) -> Iterator[tuple[Expr, Expr]]:
    """Both orders of the operands of an operation `name`."""
    if isinstance(expr, Op) and expr.name == name:
        a, b = expr.args
        yield a, b
        yield b, a


def _is(expr: Expr, number: int, dtype: WordFormat) -> bool:
    found = number_of(expr)
    return found is not None and (found - number) % (1 << dtype.bits) == 0


def sign_of(expr: Expr) -> Expr | None:
    """x, where an expression is the sign of x: where(x == 0, 0, where(x < 0, -1, 1))."""
    if not (isinstance(expr, Op) and expr.name == "where" and number_of(expr.args[1]) == 0):
        return None
    condition, _, other = expr.args
    for x, zero in _either(condition, "equal"):
        if number_of(zero) == 0 and isinstance(other, Op) and other.name == "where":
            below, least, most = other.args
            negative = isinstance(below, Op) and below.name == "less" and below.args[0] == x
            numbers = tuple(map(number_of, (least, most)))
            if negative and number_of(below.args[1]) == 0 and numbers == (-1, 1):  # pyright: ignore[reportAttributeAccessIssue] - an operation, see above
                return x
    return None


def _complement(expr: Expr, dtype: WordFormat) -> Expr | None:
    """x, where an expression is the complement of x."""
    return next((x for x, ones in _either(expr, "xor") if _is(ones, -1, dtype)), None)


def _xor(expr: Op, dtype: WordFormat) -> Expr | None:
    x = _complement(expr, dtype)
    if x is None:
        return None
    twice = _complement(x, dtype)
    if twice is not None:
        return twice
    if isinstance(x, Op) and x.name in ("max", "min"):
        inner = [_complement(arg, dtype) for arg in x.args]
        if all(inner):
            return Op("min" if x.name == "max" else "max", tuple(a for a in inner if a is not None))
    return None


def _add(expr: Op, dtype: WordFormat) -> Expr | None:
    for a, b in _either(expr, "add"):
        if isinstance(b, Op) and b.name == "neg":
            return Op("sub", (a, b.args[0]))
    return None


def _mul(expr: Op, dtype: WordFormat) -> Expr | None:
    for a, b in _either(expr, "mul"):
        if _is(b, -1, dtype) and number_of(a) is None:
            return Op("neg", (a,))
        if dtype.signed and sign_of(b) == a:
            return Op("abs", (a,))
    return None


def _where(expr: Op, dtype: WordFormat) -> Expr | None:
    condition, yes, no = expr.args
    if isinstance(condition, Op) and condition.name == "not":
        return Op("where", (condition.args[0], no, yes))
    if not (isinstance(condition, Op) and condition.name == "less"):
        return None
    x, y = condition.args
    for name, least, most in (("max", y, x), ("min", x, y)):
        if (yes, no) == (least, most):
            return Op(name, (x, y))
        if _narrowed(yes, no, least, most):
            return Cast(Op(name, (x, y)), dtype)
    return None


def _narrowed(yes: Expr, no: Expr, least: Expr, most: Expr) -> bool:
    """Whether what is chosen are the operands of the comparison, one of which is a number, brought into a format."""
    for one, other, x, y in ((yes, no, least, most), (no, yes, most, least)):
        number = number_of(y)
        if isinstance(one, Cast) and one.arg == x and number is not None and number_of(other) == number:
            return True
    return False


_RULES: Mapping[str, Callable[[Op, WordFormat], Expr | None]] = {
    "xor": _xor, "add": _add, "mul": _mul, "where": _where,
}  # fmt: skip


def _truth(expr: Op) -> Expr | None:
    """Truth values: complements of complements, and what is compared with a constant."""
    if expr.name == "not" and isinstance(expr.args[0], Op) and expr.args[0].name == "not":
        return expr.args[0].args[0]
    for x, known in _either(expr, "equal"):
        if isinstance(known, Const) and isinstance(known.value, bool):
            return x if known.value else plainer(Op("not", (x,)), {})
    return None


def plainer(expr: Op, names: Mapping[str, Value]) -> Expr:
    """An operation over plain operands in plain words."""
    if expr.name in ("not", "equal"):
        found = _truth(expr)
    else:
        dtype = format_of(expr, names) if expr.name in _RULES else None
        found = _RULES[expr.name](expr, dtype) if isinstance(dtype, WordFormat) else None
    if found is None:
        return expr
    return plainer(found, names) if isinstance(found, Op) else found


@dataclass(frozen=True, kw_only=True)
class PlainWords(Rewrite):
    """Words in plain words.

    before  ~max(~a, ~b);  a + b * -1;  where(a < b, b, a);  x * where(x == 0, 0, where(x < 0, -1, 1))
    after   min(a, b);     a - b;       max(a, b);           abs(x)

    A number on one side of a comparison may be written anew in the format of what is chosen.
    """

    def rewrite(self, graph: Graph) -> Graph:
        names = graph.by_name
        values = [with_body(v, _rebuilt(v.body, names, {})) if isinstance(v, Statement) else v for v in graph.values]
        return graph.with_values(values)


def _rebuilt(expr: Expr, names: Mapping[str, Value], done: dict[int, Expr]) -> Expr:
    """Every operation in plain words, from the leaves up; what stands in several places stays one."""
    if id(expr) not in done:
        children = tuple(_rebuilt(child, names, done) for child in expr.children)
        same = all(a is b for a, b in zip(children, expr.children))
        found = expr if same else expr.with_children(children)
        done[id(expr)] = plainer(found, names) if isinstance(found, Op) else found
    return done[id(expr)]
