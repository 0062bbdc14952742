"""Movement folding: what only moves elements becomes part of its readers' index maps.

Decides when a read through a permute, reshape, slice, flip, pad or expand may become a read of what was moved.
"""

from __future__ import annotations

from dataclasses import dataclass

from kohakuaccel.graph.expr import Expr, Read, rebuild
from kohakuaccel.graph.model import Graph, Statement, Value
from kohakuaccel.graph.rewrite.base import Rewrite, inlined, with_body
from kohakuaccel.graph.verify import read_problems


@dataclass(frozen=True, kw_only=True)
class FoldMovement(Rewrite):
    """Readers of a moved value read its source.

    before  p[i<6] = guard(x[i - 1], 0.0, 0 <= i - 1 < 4);  f[i<6] = p[5 - i];  y[i<6] = f[i] * 2.0
    after   y[i<6] = guard(x[4 - i], 0.0, 0 <= 4 - i < 4) * 2.0        (p and f stay until dead code goes)

    Holds where the source has the format of the value, and a guard met by a guard has the same pad.
    quotients: whether a reader may get an index that is not affine (a reshape that cuts across axes).
    gathers:   whether looked-up reads fold too.
    """

    quotients: bool = True
    gathers: bool = False

    def rewrite(self, graph: Graph) -> Graph:
        values: dict[str, Value] = {}
        for value in graph.values:
            if isinstance(value, Statement):
                value = with_body(value, rebuild(value.body, lambda e: self._through(e, values)))
            values[value.name] = value
        return graph.with_values(values.values())

    def _through(self, expr: Expr, values: dict[str, Value]) -> Expr:
        if not isinstance(expr, Read):
            return expr
        producer = values[expr.value]
        if not isinstance(producer, Statement) or producer.reduction or not isinstance(producer.body, Read):
            return expr
        if producer.dtype != values[producer.body.value].dtype:
            return expr
        moved = inlined(producer, expr.indices)
        assert isinstance(moved, Read)
        if moved.guards and expr.guards and moved.pad != expr.pad:
            return expr
        pad = expr.pad if expr.guards else moved.pad
        found = Read(moved.value, moved.indices, tuple(dict.fromkeys((*expr.guards, *moved.guards))), pad)
        if not self.gathers and len(list(found.reads())) > 1:
            return expr
        if not self.quotients and not all(i.affine for i in (*found.indices, *(g.index for g in found.guards))):
            return expr
        # Bounds that held for two reads may be too wide for the one (a gather's own read is not under its reader's
        # guards, say); then the reader keeps the moved value.
        return expr if any(True for read in found.reads() for _ in read_problems(read, values)) else found
