"""The search for stages of whole rows: reductions with what feeds and follows them, broadcasts, pieces of a result.

Decides which ranges run along a row and how much one pass computes there. It must not know buffers or cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import gcd, prod

from kohakuaccel.graph import Expr, Index, Range, Read, Statement
from kohakutpu.auto import access
from kohakutpu.auto.access import Ranges, View, long
from kohakutpu.auto.boxes import Box
from kohakutpu.auto.expressions import expanded, reads, why_not
from kohakutpu.auto.fusion import Sources
from kohakutpu.auto.stages import RowPart, RowStage

Members = dict[str, Statement]
SHORT = 16
"""Columns fewer than the lanes of a vector core are the last resort."""
SINGLE = 1 << 14
"""Elements of a result that may be computed one by one, where no row of several is in reach."""


def folded_stage(sources: Sources, root: Statement, alone: bool) -> RowStage | None:
    """Rows that hold a reduction: of the result's own columns, or one that leaves a number a row."""
    if root.reduction:
        made, decided = _single(sources, root, _fresh(long(root.reduced)), alone), sources.one_rows.get(root.name)
        return replace(made, why=f"{made.why} ({decided.why})") if made and decided else made
    if alone:
        return None
    found = [_single(sources, root, c, alone) for c in _fold_columns(sources, root)]
    best = max((s for s in found if s), key=lambda s: len(s.members), default=None)
    if best is None or not any(sources.graph.statement(m).reduction for m in best.members):
        return None
    return best


def row_stage(sources: Sources, root: Statement, alone: bool) -> RowStage | None:
    """Rows without reductions: of the columns that every operand allows those that take in most, then the longest."""
    if root.reduction:
        return None
    ranges = long(root.ranges)
    best: RowStage | None = None
    for begin in range(max(0, len(ranges) - 1) if root.name in sources.short else 0, len(ranges) + 1):
        if best and access.size(ranges[begin:]) < SHORT:
            break
        if begin and begin == len(ranges) and prod(root.shape) > SINGLE:
            break
        found = _single(sources, root, ranges[begin:], alone)
        if found and (best is None or len(found.members) > len(best.members)):
            best = found
        if best and (alone or not any(sources.candidates(best.parts[0].body, dict.fromkeys(best.members, root)))):
            break
    return best


def boxed_stage(sources: Sources, root: Statement, cut: list[Box], alone: bool) -> RowStage | None:
    """A result in pieces, each from its own sources: rows of the longest columns that no cut goes through."""
    if any(why_not(box.body) for box in cut):
        return None
    axes = [n for n, r in enumerate(root.ranges) if r.extent > 1]
    for begin in range(len(axes)):
        inner = axes[max(begin + 1, len(axes) - 1) if root.name in sources.short else begin + 1 :]
        if any(box.ranges[n].extent != root.ranges[n].extent for box in cut for n in inner):
            continue
        for by_itself in (alone, True):
            found = _boxed(sources, root, cut, axes[begin], inner, by_itself)
            if found:
                return found
    return None


def _fresh(ranges: Ranges) -> Ranges:
    """Folded ranges under names that no result's range has."""
    return tuple(Range(f"c{n}", r.extent) for n, r in enumerate(ranges))


def _fold_columns(sources: Sources, root: Statement) -> list[Ranges]:
    """Columns over which some producer folds: the ranges of the result that its read leaves out, or its own."""
    found: list[Ranges] = []
    seen: set[str] = set()
    stack: list[Expr] = [root.body]
    while stack:
        body = stack.pop()
        for read in reads(body):
            value = sources.graph[read.value]
            if not isinstance(value, Statement) or read.value in sources.contractions or read.guards:
                continue
            followed = read.ranges()
            left = tuple(r for r in long(root.ranges) if r not in followed)
            if value.reduction and access.size(left) == access.size(value.reduced):
                found.append(left)
            elif value.reduction and not left:
                found.append(_fresh(long(value.reduced)))
            if value.reduction is None and value.name not in seen:
                seen.add(value.name)
                stack.append(value.body.substitute(dict(zip(value.ranges, read.indices))))
    return list(dict.fromkeys(found))


def _single(sources: Sources, root: Statement, columns: Ranges, alone: bool) -> RowStage | None:
    """One part that is the whole result."""
    ranges = long(root.ranges)
    number = not columns or columns[0] not in ranges
    if not number and columns != ranges[len(ranges) - len(columns) :]:
        return None  # the result's rows are its last axes
    rows = tuple(r for r in ranges if r not in columns)
    start = Read(root.name, tuple(Index.of(r if r.extent > 1 else 0) for r in root.ranges))
    count = access.size(rows)
    found = _grown(sources, start, {root.name: root}, columns, count, alone)
    if found is None and not alone:
        found = _grown(sources, start, {root.name: root}, columns, count, True)
    if found is None:
        return None
    members, body = found
    if number and any(r.ranges() & set(columns) for r in _outside(body)):
        return None
    views = _views(sources, body, columns)
    assert views is not None
    width = access.size(columns)
    part = RowPart(rows=rows, columns=columns, body=body, views=views, place=access.over(rows))
    why = f"{count} row{'s' * (count > 1)} of {width}"
    return RowStage(
        root=root, members=tuple(members), count=count, width=0 if number else width, parts=(part,), why=why
    )


def _outside(body: Expr) -> list[Read]:
    """Reads of an expression that stand in no fold."""
    from kohakutpu.auto.expressions import Fold

    found: list[Read] = []
    stack = [body]
    while stack:
        e = stack.pop()
        if isinstance(e, Read):
            found.append(e)
        elif not isinstance(e, Fold):
            stack.extend(e.children)
    return found


def _boxed(
    sources: Sources, root: Statement, cut: list[Box], outer: int, inner: list[int], alone: bool
) -> RowStage | None:
    """Pieces as rows: columns are whole `inner` axes and as much of axis `outer` as all pieces are multiples of."""
    deep = prod(root.ranges[n].extent for n in inner)
    unit = gcd(*(x for box in cut for x in (box.first[outer], box.ranges[outer].extent)), root.ranges[outer].extent)
    unit = 1 if inner and root.name in sources.short else unit
    members: Members = {root.name: root}
    parts: list[RowPart] = []
    for box in cut:
        r = box.ranges[outer]
        high, low = Range(f"{r.name}_high", r.extent // unit), Range(f"{r.name}_low", unit)
        new = {r: (high * unit if high.extent > 1 else Index.of(0)) + (low if unit > 1 else 0)}
        body = box.body.substitute(new)
        columns = long((low, *(box.ranges[n] for n in inner)))
        found = _grown(sources, body, dict(members), columns, prod(root.shape), alone)
        if found is None:
            return None
        grown, body = found
        views = _views(sources, body, columns)
        assert views is not None
        own = [high if n == outer else x for n, x in enumerate(box.ranges) if n not in inner]
        place = Index.of(0)
        for n, (x, first) in enumerate(zip(root.ranges, box.first)):
            if n in inner:
                continue
            if n == outer:
                place = place * (x.extent // unit) + first // unit + (high if high.extent > 1 else 0)
            else:
                place = place * x.extent + first + (box.ranges[n] if box.ranges[n].extent > 1 else 0)
        parts.append(RowPart(rows=long(own), columns=columns, body=body, views=views, place=place))
        members = {**members, **grown}
    width = unit * deep
    count = prod(root.shape) // width
    why = f"{len(parts)} pieces of {count} rows of {width}"
    single = width == 1
    return RowStage(
        root=root,
        members=tuple(members),
        count=count,
        width=0 if single else width,
        parts=tuple(parts),
        why=why,
    )


def _grown(
    sources: Sources, start: Expr, members: Members, columns: Ranges, count: int, alone: bool
) -> tuple[Members, Expr] | None:
    """Members and expression, as much as one pass over `count` rows can take in; None where an operand is no row."""
    body = expanded(start, members, columns)
    grown = not alone
    refused: set[str] = set()
    while grown:
        grown = False
        for value in sources.candidates(body, members):
            if value.name in refused or not _joins(sources, value, body, columns, count):
                continue
            trial = {**members, value.name: value}
            larger = expanded(start, trial, columns)
            if _reachable(sources, larger, columns, count, trial):
                members, body, grown = trial, larger, True
                break
            refused.add(value.name)
    return (members, body) if _views(sources, body, columns) is not None else None


def _views(sources: Sources, body: Expr, columns: Ranges) -> Mapping[Read, View] | None:
    found: dict[Read, View] = {}
    for read in reads(body):
        view = access.row(sources.flat(read), sources.total(read), columns)
        if view is None:
            return None
        found[read] = view
    return found


def _joins(sources: Sources, value: Statement, body: Expr, columns: Ranges, count: int) -> bool:
    """Whether a statement may be computed inside `count` rows along `columns`, a reduction no more often than once."""
    if value.name in sources.contractions:
        return False
    if value.reduction is None:
        return True
    if access.size(value.reduced) != access.size(columns) or prod(value.shape) < count:
        return False
    return not any(r.ranges() & set(columns) for r in reads(body) if r.value == value.name)


def _reachable(sources: Sources, body: Expr, columns: Ranges, count: int, members: Mapping[str, Statement]) -> bool:
    """Whether every operand can be read, or may still be taken in."""
    for read in reads(body):
        if access.row(sources.flat(read), sources.total(read), columns):
            continue
        value = sources.graph[read.value]
        if not isinstance(value, Statement) or read.value in sources.outputs:
            return False
        if not sources.readers[read.value] <= members.keys() or not _joins(sources, value, body, columns, count):
            return False
    return True
