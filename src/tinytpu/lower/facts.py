"""What the lowering asks of expressions: kinds, formats, and what leaves they have, each expression once.

Decides which numbers the host fills because they follow from indices alone. It must not know code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohakuaccel.graph import DType, Expr, Iota, Op, Read, Value
from kohakuaccel.graph.expr import OPS
from kohakuaccel.graph.verify import Types
from tinytpu.lower.numbers.base import check_format


def leaves(expr: Expr) -> tuple[bool, bool]:
    """Whether an expression reads values, and whether it has indices."""
    return either((isinstance(e, Read), isinstance(e, Iota)) for e in expr.walk())


def either(parts: Iterable[tuple[bool, bool]]) -> tuple[bool, bool]:
    """Both sides, where any of the parts has it."""
    one = other = False
    for a, b in parts:
        one, other = one or a, other or b
    return one, other


def host_filled(expr: Expr) -> bool:
    """Whether an expression is integers that follow from indices alone: known before a program runs."""
    return leaves(expr) == (False, True)


def number_alone(expr: Expr) -> bool:
    """Whether an expression is made of numbers alone."""
    return leaves(expr) == (False, False)


class Facts(Types):
    """What bodies ask of expressions over `values`, each expression once."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        super().__init__(values)
        self._found: dict[int, tuple[Expr, bool, bool]] = {}
        self._widest: dict[int, tuple[Expr, DType | None]] = {}

    def leaves(self, expr: Expr) -> tuple[bool, bool]:
        """Whether an expression reads values, and whether it has indices."""
        found = self._found.get(id(expr))
        if found is None:
            below = leaves(expr) if isinstance(expr, Read | Iota) else either(map(self.leaves, expr.children))
            self._found[id(expr)] = found = expr, *below
        return found[1:]

    def host_filled(self, expr: Expr) -> bool:
        """See `host_filled`."""
        return self.leaves(expr) == (False, True)

    def number_alone(self, expr: Expr) -> bool:
        """See `number_alone`."""
        return self.leaves(expr) == (False, False)

    def widest(self, expr: Op) -> DType | None:
        """The format that an operation computes in. Raises NotLowered for operands that lanes cannot hold."""
        known = self._widest.get(id(expr))
        if known is None:
            self._widest[id(expr)] = known = expr, self._computes_in(expr)
        return known[1]

    def _computes_in(self, expr: Op) -> DType | None:
        formats = [f for f in map(self.format_of, expr.args) if f is not None]
        for found in formats:
            check_format(found, expr)
        if OPS[expr.name].result != "bool":
            return self.format_of(expr)
        found = self.map_formats(expr)
        return next((f for f in found if all(f.is_exact_from(g) for g in found)), found[0] if found else None)
