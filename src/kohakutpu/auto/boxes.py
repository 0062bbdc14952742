"""A guarded statement in boxes: parts of its ranges in which every guard and every comparison of positions is decided.

Decides where a concatenation, a padding or a shifted window changes from one source to another. It must not know
stages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kohakuaccel.graph import Const, Expr, Guard, Index, Iota, Op, Range, Read, Statement
from kohakuaccel.graph.expr import rebuild

MOST = 64
"""Boxes of one statement; each is a stage of its own."""


@dataclass(frozen=True)
class Box:
    """Ranges of the statement from `first` on; `body` is over `ranges`, which count from 0."""

    first: tuple[int, ...]
    ranges: tuple[Range, ...]
    body: Expr


def boxes(statement: Statement) -> list[Box] | None:
    """The statement cut where its guards change; None for a fold, without guards, or where pieces are many."""
    if statement.reduction or not any(True for _ in _conditions(statement.body)):
        return None
    found: list[Box] = []
    stack = [Box((0,) * len(statement.ranges), statement.ranges, _decided(statement.body))]
    while stack:
        box = stack.pop()
        if len(found) + len(stack) > MOST:
            return None
        condition = next(_conditions(box.body), None)
        if condition is None:
            found.append(box)
            continue
        cut = _cut(condition)
        if cut is None:
            return None
        stack += reversed(_halves(box, *cut))
    return found


def _conditions(body: Expr) -> Iterator[Guard]:
    """Guards of reads, and comparisons of positions, as guards."""
    for e in body.walk():
        if isinstance(e, Read):
            yield from e.guards
        elif isinstance(e, Op) and e.name == "less":
            sides = _position(e.args[0]), _position(e.args[1])
            if sides[0] is not None and sides[1] is not None:
                apart = sides[0] - sides[1]
                yield Guard(apart, min(apart.interval()[0], -1), 0)


def _position(e: Expr) -> Index | None:
    if isinstance(e, Iota):
        return e.index
    return Index.of(e.value) if isinstance(e, Const) and e.kind == "int" and isinstance(e.value, int) else None


def _cut(guard: Guard) -> tuple[Range, int] | None:
    """A range, and the value of it from which on the condition is another one."""
    ranges = sorted((r for r in guard.index.ranges() if r.extent > 1), key=lambda r: r.extent)
    if not ranges or any(True for _ in guard.index.lookups()):
        return None
    if len(ranges) > 1:
        return ranges[0], 1
    (r,) = ranges

    def holds(n: int) -> bool:
        index = guard.index.substitute({r: Index.of(n)})
        assert index.constant is not None
        return guard.low <= index.constant < guard.high

    start = holds(0)
    return next(((r, n) for n in range(1, r.extent) if holds(n) != start), None)


def _halves(box: Box, r: Range, at: int) -> list[Box]:
    made: list[Box] = []
    for first, count in ((0, at), (at, r.extent - at)):
        part = Range(r.name, count)
        place = Index.of(first) + part if count > 1 else Index.of(first)
        firsts = tuple(f + first if own == r else f for f, own in zip(box.first, box.ranges))
        ranges = tuple(part if own == r else own for own in box.ranges)
        made.append(Box(firsts, ranges, _decided(box.body.substitute({r: place}))))
    return made


def _decided(body: Expr) -> Expr:
    """The body with every condition that is always or never true put in its place."""
    return rebuild(body, _simple)


def _simple(e: Expr) -> Expr:
    if isinstance(e, Read) and e.guards:
        if any(g.never for g in e.guards) and e.pad is not None:
            return e.pad
        guards = tuple(g for g in e.guards if not g.always)
        return Read(e.value, e.indices, guards, e.pad if guards else None)
    if isinstance(e, Iota) and e.index.constant is not None:
        return Const(e.index.constant)
    if not isinstance(e, Op):
        return e
    if e.name == "less":
        a, b = _position(e.args[0]), _position(e.args[1])
        if a is not None and b is not None:
            low, high = (a - b).interval()
            return Const(True) if high < 0 else Const(False) if low >= 0 else e
    if e.name == "where" and isinstance(e.args[0], Const):
        return e.args[1] if e.args[0].value else e.args[2]
    if e.name == "not" and isinstance(e.args[0], Const):
        return Const(not e.args[0].value)
    if e.name in ("and", "or"):
        for one, other in (e.args, e.args[::-1]):
            if isinstance(one, Const) and one.kind == "bool":
                return other if bool(one.value) == (e.name == "and") else one
    return e
