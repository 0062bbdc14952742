"""Minima that were written as maxima of what is turned round, because a language has no minimum.

Decides, by structure alone, what order is turned round: complements of words and truth values, negated reals. Values
are the same, the sign of a zero too; of a NaN only that it is one. It must not know instructions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kohakuaccel.graph import BOOL, Const, Expr, Graph, Op, Read, Reduction, Statement, Value, WordFormat, kind_of
from kohakuaccel.graph.expr import literal
from kohakuaccel.graph.rewrite.base import Rewrite
from kohakuaccel.graph.verify import Types
from tinytpu.lower.forms.spelling import number_of

OTHER: Mapping[str, str] = {"max": "min", "min": "max"}


@dataclass(frozen=True, kw_only=True)
class Minima(Rewrite):
    """Maps and folds of what is turned round, as their opposites.

    before  -max(-a, -b);  m = max[k] ~a[k], and only ~m is read
    after   min(a, b);     m = min[k] a[k], and m is read
    """

    def rewrite(self, graph: Graph) -> Graph:
        turns = _Turns(Types(graph.by_name))
        values: list[Value] = [
            replace(v, body=turns.plain(v.body)) if isinstance(v, Statement) else v for v in graph.values
        ]
        outputs = {name for _, name in graph.outputs}
        reads = Counter(r.value for v in values if isinstance(v, Statement) for r in v.body.reads())
        turned = Counter(name for v in values if isinstance(v, Statement) for name in turns.names(v.body))
        new: dict[str, Statement] = {}
        for v in values:
            if isinstance(v, Statement) and v.reduction is not None and v.reduction.op in OTHER:
                body = turns.other(v.body)
                if body is not None and v.name not in outputs and reads[v.name] == turned[v.name]:
                    fold = Reduction(OTHER[v.reduction.op], v.reduction.ranges)  # pyright: ignore[reportArgumentType] - one of the same two
                    new[v.name] = replace(v, body=body, reduction=fold)
        if not new:
            return graph.with_values(values)
        made = [new.get(v.name, v) for v in values]
        return graph.with_values(
            [replace(v, body=turns.read(v.body, new)) if isinstance(v, Statement) else v for v in made]
        )


class _Turns:
    """Expressions whose order is turned round."""

    def __init__(self, types: Types) -> None:
        self.types = types
        self._plain: dict[int, tuple[Expr, Expr]] = {}
        self._read: dict[int, tuple[Expr, Expr]] = {}

    def inside(self, expr: Expr) -> Expr | None:
        """x, where an expression is x turned round: its complement, or a real's negative."""
        if not isinstance(expr, Op):
            return None
        dtype = self.types.format_of(expr)
        if dtype is not None and kind_of(dtype) == "real" and expr.name == "neg":
            return expr.args[0]
        if dtype == BOOL and expr.name == "not":
            return expr.args[0]
        for one, other in (expr.args, expr.args[::-1]) if expr.name in ("mul", "xor") else ():
            if isinstance(dtype, WordFormat) and expr.name == "xor":
                number = number_of(other)
                if number is not None and (number + 1) % (1 << dtype.bits) == 0:
                    return one
            if expr.name == "mul" and isinstance(other, Const) and other.kind == "real" and other.value == -1.0:
                return one
        return None

    def other(self, expr: Expr) -> Expr | None:
        """x, where an expression is x turned round, everywhere in it; None for numbers alone."""
        found = self.inside(expr)
        if found is not None:
            return found
        if not (isinstance(expr, Op) and expr.name in (*OTHER, "where")):
            return None
        first = expr.args[:1] if expr.name == "where" else ()
        parts = expr.args[len(first) :]
        inner = [self.other(part) for part in parts]
        if not any(part is not None for part in inner):
            return None
        dtype = self.types.format_of(expr)
        whole = [self._number(part, dtype) if made is None else made for part, made in zip(parts, inner)]
        if any(part is None for part in whole):
            return None
        return Op(OTHER.get(expr.name, expr.name), (*first, *(part for part in whole if part is not None)))

    @staticmethod
    def _number(expr: Expr, dtype: object) -> Expr | None:
        """A number turned round."""
        if isinstance(dtype, WordFormat):
            number = number_of(expr)
            return None if number is None else literal(~number & int(dtype.max) if not dtype.signed else ~number, dtype)
        if isinstance(expr, Const) and expr.kind == "real":
            return Const(-expr.value)
        return None

    def plain(self, expr: Expr) -> Expr:
        """The expression with the opposite of what is turned round within and without."""
        found = self._plain.get(id(expr))
        if found is None:
            children = tuple(self.plain(child) for child in expr.children)
            same = all(a is b for a, b in zip(children, expr.children))
            made = expr if same else expr.with_children(children)
            inner = self.inside(made)
            turned = self.other(inner) if isinstance(inner, Op) and inner.name in OTHER else None
            self._plain[id(expr)] = found = expr, made if turned is None else turned
        return found[1]

    def names(self, expr: Expr) -> list[str]:
        """What is read where it is turned round, once for each time."""
        inner = (self.inside(part) for part in expr.walk())
        return [part.value for part in inner if isinstance(part, Read) and not part.guards]

    def read(self, expr: Expr, new: Mapping[str, Statement]) -> Expr:
        """The expression over new values, which are not turned round any more."""
        found = self._read.get(id(expr))
        if found is None:
            inner = self.inside(expr)
            made = inner if isinstance(inner, Read) and inner.value in new else None
            if made is None:
                children = tuple(self.read(child, new) for child in expr.children)
                same = all(a is b for a, b in zip(children, expr.children))
                made = expr if same else expr.with_children(children)
            self._read[id(expr)] = found = expr, made
        return found[1]
