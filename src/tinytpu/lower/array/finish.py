"""What follows a product at each element, as code of every tile of it.

Decides what can stand in a tile's bucket before the sums do. It must not know how the array is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from kohakuaccel.graph import Cast, Expr, Op, Range, Read, Statement, Value
from tinytpu.lower.body import Body, Plans, leave
from tinytpu.lower.numbers import Tile
from tinytpu.lower.numbers.base import integer
from tinytpu.lower.program.code import Code, Leaf

LOW, HIGH = -128, 127
"""What the array multiplies."""


def _parents(expr: Expr, name: str) -> list[Expr]:
    """Every expression of which a read of `name` is an operand; the read itself where it is the whole."""
    found: list[Expr] = [expr] if isinstance(expr, Read) and expr.value == name else []
    for child in expr.children:
        below = _parents(child, name)
        found += [expr] if below == [child] and isinstance(child, Read) else below
    return found


class Finish:
    """What `blocks.Dispatches.code` takes. added: the sum that stands in the buckets, where there is one to find."""

    def __init__(
        self, statements: Sequence[Statement], outputs: Sequence[str], names: Mapping[str, Value], plans: Plans
    ) -> None:
        self.statements, self.outputs, self.names, self.plans = statements, outputs, names, plans
        self.depth = prod(r.extent for r in statements[0].reduced)
        self.checked = False
        self.added = self._added()
        self._began: dict[int, Tile] = {}

    def _added(self) -> tuple[Statement, Op, Expr] | None:
        """The only use of the product, where it is a sum with something else: the statement, the sum and the other."""
        first = self.statements[0]
        uses = [(s, e) for s in self.statements[1:] for e in _parents(s.body, first.name)]
        if len(uses) != 1 or first.name in self.outputs:
            return None
        (statement, expr) = uses[0]
        if not (isinstance(expr, Op) and expr.name == "add"):
            return None
        other = next(a for a in expr.args if not (isinstance(a, Read) and a.value == first.name))
        own = {s.name for s in self.statements}
        return None if any(r.value in own for r in other.reads()) else (statement, expr, other)

    def _sums(self) -> Tile:
        dtype = self.statements[0].dtype
        most = self.depth * LOW * LOW
        signed = dtype.lowest < 0
        return Tile(-1, dtype, -most if signed else 0, most if signed else int(dtype.max))

    def begin(self, code: Code, tile: int) -> int:
        """The value that is added to a tile's sums."""
        assert self.added is not None
        statement, _, other = self.added
        value = Body(code, self.plans, statement, self.names, {}, tile, [], {}).value(other, 0)
        self._began[tile] = value
        return value.value

    def __call__(self, code: Code, value: int, tile: int) -> None:
        first = self.statements[0]
        sums = self._sums()._replace(value=value)
        known = {first.name: sums}
        checks: list[int] = []
        for statement in self.statements[1:]:
            body = Body(code, self.plans, statement, self.names, known, tile, checks, {})
            if tile in self._began and self.added is not None and self.added[0] is statement:
                more = self._began[tile]
                total = integer(value, first.dtype, sums.low + more.low, sums.high + more.high, statement.name)
                body.known_already(self.added[1], total)
            known[statement.name] = body.value(statement.body, 0)
        for number, name in enumerate(self.outputs):
            leave(code, known[name], number, tile)
        self.checked = self.checked or bool(checks)

    def by_column(self, code: Code, value: int, columns: Sequence[Range]) -> bool:
        """Whether a given value is the same in every row of a tile, whose columns are the elements of `columns`."""
        source = code.given.get(value)
        if isinstance(source, Leaf):
            expr = self.plans.found[source.data].expr
            return isinstance(expr, Read | Cast | Op) and expr.ranges() <= set(columns)
        return code.constant(value) is not None
