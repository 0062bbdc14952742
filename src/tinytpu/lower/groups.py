"""Which statements share a stage: runs over one output space that read each other at their own element.

It must not know steps, nor the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kohakuaccel.graph import BOOL, Expr, Graph, Iota, Range, Read, Statement, kind_of
from kohakuaccel.graph.index import Index
from tinytpu.lower.facts import host_filled


def grouped(statements: Sequence[Statement]) -> list[list[Statement]]:
    """Runs of statements over one output space that read each other at their own element only."""
    groups: list[list[Statement]] = []
    for statement in statements:
        last = groups[-1] if groups else None
        if last is not None and _joins(statement, last):
            last.append(_renamed(statement, last[0].ranges))
        else:
            groups.append([statement])
    return groups


def _renamed(statement: Statement, ranges: tuple[Range, ...]) -> Statement:
    """The statement with other output ranges of the same extents, so that equal reads of a group are one."""
    taken = {r.name for r in ranges}
    if statement.ranges == ranges or any(r.name in taken for r in statement.reduced):
        return statement
    body = statement.body.substitute({old: Index.of(new) for old, new in zip(statement.ranges, ranges)})
    return Statement(statement.name, statement.dtype, ranges, body, statement.reduction)


def _folds(statement: Statement) -> int:
    return prod(r.extent for r in statement.reduced)


def _joins(statement: Statement, group: Sequence[Statement]) -> bool:
    if statement.shape != group[0].shape or addresses(statement) or addresses(group[0]):
        return False
    folds = {_folds(s) for s in (*group, statement) if s.reduction}
    if len(folds) > 1:
        return False
    members = {s.name for s in group}
    own = tuple(Index.of(r) for r in statement.ranges)
    inside = {id(r) for e in statement.body.walk() for i in _indices(e) for r in _looked(i)}
    return all(
        r.value not in members or (not r.guards and r.indices == own and id(r) not in inside)
        for r in statement.body.reads()
    )


def _indices(expr: Expr) -> tuple[Index, ...]:
    """The indices that an expression itself names."""
    if isinstance(expr, Read):
        return (*expr.indices, *(g.index for g in expr.guards))
    return (expr.index,) if isinstance(expr, Iota) else ()


def _looked(index: Index) -> list[Read]:
    return [read for lookup in index.lookups() for read in lookup.value.reads()]


def addresses(statement: Statement) -> bool:
    """Whether a value is integers of indices alone, in a format that no lane holds."""
    wide = statement.dtype != BOOL and getattr(statement.dtype, "bits", 0) > 32
    return statement.reduction is None and wide and kind_of(statement.dtype) != "real" and host_filled(statement.body)


def left_of(group: Sequence[Statement], graph: Graph) -> list[str]:
    """The values of a group that something outside of it wants."""
    members = {s.name for s in group}
    wanted = {name for _, name in graph.outputs}
    return [s.name for s in group if s.name in wanted or any(r.name not in members for r in graph.readers(s.name))]
