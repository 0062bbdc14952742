"""Movement folding: what only moves elements becomes part of its readers' index maps, or of its source's.

Decides when a read through a permute, reshape, slice, flip, pad or expand may become a read of what was moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from kohakuaccel.graph.expr import Expr, Iota, Read, rebuild
from kohakuaccel.graph.index import Index, Quotient, Range, Remainder
from kohakuaccel.graph.model import Graph, Reduction, Statement, Value
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


@dataclass(frozen=True, kw_only=True)
class SinkMovement(Rewrite):
    """What is computed only to be moved is computed where it goes.

    before  t[i<4, j<3] = sum[k<8] x[i, k] * w[j, k];  y[j<3, i<4] = t[i, j]
    after   y[j<3, i<4] = sum[k<8] x[i, k] * w[j, k]

    Holds where the moved value is a statement of the same format that nobody else reads, no output itself, with
    at least as many elements as are moved (a repeated value is computed once).
    quotients: whether index maps may stop being affine (else a reshape across axes stays).
    """

    quotients: bool = False

    def rewrite(self, graph: Graph) -> Graph:
        for name in [s.name for s in graph.statements]:
            made = self._sunk(graph, graph.statement(name))
            if made and (self.quotients or _affine(made)):
                changed = graph.with_values(made if v.name == name else v for v in graph.values)
                graph = changed if not list(_wrong(made, changed)) else graph
        return graph

    def _sunk(self, graph: Graph, moved: Statement) -> Statement | None:
        if (
            moved.reduction
            or not isinstance(moved.body, Read)
            or moved.body.guards
            or len(list(moved.body.reads())) > 1
        ):
            return None
        source = graph[moved.body.value]
        if not isinstance(source, Statement) or source.dtype != moved.dtype or prod(moved.shape) > prod(source.shape):
            return None
        if any(source.name == name for _, name in graph.outputs) or len(graph.readers(source.name)) > 1:
            return None
        taken = {r.name for r in moved.ranges}
        names = (f"k{n}" for n in range(len(taken) + len(source.reduced)))
        free = [name for name in names if name not in taken]
        fold = tuple(Range(name, r.extent) for name, r in zip(free, source.reduced))
        new = dict(zip(source.ranges, moved.body.indices)) | {r: Index.of(f) for r, f in zip(source.reduced, fold)}
        reduction = Reduction(source.reduction.op, fold) if source.reduction else None
        return Statement(moved.name, moved.dtype, moved.ranges, source.body.substitute(new), reduction)


def _affine(statement: Statement) -> bool:
    reads = list(statement.body.reads())
    places = [i for e in statement.body.walk() if isinstance(e, Iota) for i in (e.index,)]
    places += [i for r in reads for i in (*r.indices, *(g.index for g in r.guards))]
    return all(not isinstance(atom, Quotient | Remainder) for i in places for atom, _ in i.terms)


def _wrong(statement: Statement, graph: Graph) -> Iterator[str]:
    for read in statement.body.reads():
        yield from read_problems(read, graph.by_name)
