"""Statements as rows: values that are one number, or a vector of terms, for each point of a common space.

Decides whether neighbouring statements have such a space (the rows of a softmax, the tokens of a norm) and what each
is in it: a number of every point, terms that lie side by side in lanes, a fold of them, or a fold that is taken term
by term. It must not know lanes, tiles or instructions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from kohakuaccel.graph import Cast, Expr, Index, Range, Read, Reduction, Statement
from kohakuaccel.graph.index import Lookup
from kohakuaccel.graph.model import Shape

MOST = 64
"""Terms of a fold that is taken term by term."""


class Apart(Exception):
    """Why statements are not rows of one space."""


@dataclass(frozen=True)
class Row:
    """A statement over the points. terms: extents of what lies in lanes, () for a number of each point. folded: whether
    the terms are folded to a number. bodies: over points and terms; several where a fold is taken term by term.

    lead, rest: the axes of the statement's value that are points, and that are terms.
    """

    statement: Statement
    terms: Shape
    folded: bool
    bodies: tuple[Expr, ...]
    lead: tuple[int, ...]
    rest: tuple[int, ...]

    @property
    def vector(self) -> Shape:
        """Extents of the terms that the value has."""
        return () if self.folded else self.terms

    def canonical(self, points: tuple[Range, ...], body: Expr) -> Statement:
        """A body as a statement over the points; its terms are what it folds, also where nothing is folded."""
        s = self.statement
        op = s.reduction.op if s.reduction else "sum"
        return Statement(s.name, s.dtype, points, body, Reduction(op, term_ranges(self.terms)))


@dataclass(frozen=True)
class Rows:
    """points: ranges of the common space."""

    points: tuple[Range, ...]
    rows: tuple[Row, ...]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @property
    def count(self) -> int:
        return prod(r.extent for r in self.points)


def term_ranges(terms: Shape) -> tuple[Range, ...]:
    """The ranges of terms of such extents; one of extent 1 where there are none."""
    return tuple(Range(f"term_{k}", n) for k, n in enumerate(terms)) or (Range("term_0", 1),)


def as_rows(statements: Sequence[Statement]) -> Rows:
    """Statements in order as rows of one space: the space of the one with the fewest points. Raises Apart."""
    members = {s.name: s for s in statements}
    for s in statements:
        if any(r.value in members for r in _gathering(s.body)):
            raise Apart(f"{s.name} gathers")
    least = min(statements, key=lambda s: prod(s.shape))
    axes = tuple(a for a, r in enumerate(least.ranges) if r.extent > 1)
    points = tuple(Range(f"point_{k}", least.ranges[a].extent) for k, a in enumerate(axes))
    lead = _leads(members, least.name, axes)
    rows: list[Row] = []
    known: dict[str, Row] = {}
    for s in statements:
        row = _row(s, lead[s.name], points, known)
        for body in row.bodies:
            for read in body.reads():
                if read.value in known:
                    source(read, known[read.value], points, row.terms)
        rows.append(row)
        known[s.name] = row
    return Rows(points, tuple(rows))


def _gathering(body: Expr) -> list[Read]:
    """Reads inside of indices."""
    found: list[Read] = []
    for e in body.walk():
        indices = (*e.indices, *(g.index for g in e.guards)) if isinstance(e, Read) else ()
        index = getattr(e, "index", None)
        indices = (*indices, index) if isinstance(index, Index) else indices
        lookups: list[Lookup] = [lookup for i in indices for lookup in i.lookups()]
        found += [read for lookup in lookups for read in lookup.value.reads()]
    return found


def _leads(members: Mapping[str, Statement], first: str, axes: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Which axes of every value are the points: what a read of one says about the other."""
    lead = {first: axes}
    moved = True
    while moved:
        moved = False
        for s in members.values():
            for read in s.body.reads():
                if read.value not in members or (s.name in lead) == (read.value in lead):
                    continue
                moved = True
                if s.name in lead:
                    own = [Index.of(s.ranges[a]) for a in lead[s.name]]
                    if any(read.indices.count(index) != 1 for index in own):
                        raise Apart(f"{s.name} does not read {read.value} at its own points")
                    lead[read.value] = tuple(read.indices.index(index) for index in own)
                else:
                    found = [read.indices[a].range for a in lead[read.value]]
                    if any(r not in s.ranges for r in found) or len(set(found)) != len(found):
                        raise Apart(f"{s.name} does not read {read.value} at its own points")
                    lead[s.name] = tuple(s.ranges.index(r) for r in found if r is not None)
    if len(lead) < len(members):
        raise Apart("statements that have nothing to do with each other")
    return lead


def _row(s: Statement, lead: tuple[int, ...], points: tuple[Range, ...], known: Mapping[str, Row]) -> Row:
    if tuple(s.shape[a] for a in lead) != tuple(r.extent for r in points):
        raise Apart(f"{s.name} has other points")
    rest = tuple(a for a, r in enumerate(s.ranges) if r.extent > 1 and a not in lead)
    reduced = tuple(r for r in s.reduced if r.extent > 1)
    new = {r: Index.of(0) for r in (*s.ranges, *s.reduced)}
    new |= {s.ranges[a]: Index.of(p) for a, p in zip(lead, points)}
    across = [s.ranges[a] for a in rest] or reduced
    terms = tuple(r.extent for r in across)
    new |= {r: Index.of(t) for r, t in zip(across, term_ranges(terms))}
    serial = reduced if rest else ()
    folds = prod(r.extent for r in serial)
    if folds > MOST:
        raise Apart(f"{s.name} folds {folds} terms one by one")
    bodies: list[Expr] = []
    for n in range(folds):
        at: dict[Range, Index] = {}
        left = n
        for r in reversed(serial):
            at[r] = Index.of(left % r.extent)
            left //= r.extent
        bodies.append(s.body.substitute(new | at))
    folded = bool(reduced) and not rest
    first = bodies[0]
    if folded and isinstance(first, Read) and first.value in known:
        # Not a plain read: lanes without a term hold whatever the value has there, and are masked.
        bodies = [Cast(first, known[first.value].statement.dtype)]
    return Row(s, terms, folded, tuple(bodies), lead, rest)


def source(read: Read, of: Row, points: tuple[Range, ...], terms: Shape) -> int | None:
    """How a row's body reads another row's value: None at its own point and term, or the number of one term that all
    lanes of a point want. Raises Apart."""
    if read.guards:
        raise Apart(f"{of.statement.name} is read under a condition")
    if any(read.indices[a] != Index.of(p) for a, p in zip(of.lead, points)):
        raise Apart(f"{of.statement.name} is read at another point")
    if not of.vector:
        return None
    at = [read.indices[a] for a in of.rest]
    if of.vector == terms and at == [Index.of(t) for t in term_ranges(terms)]:
        return None
    number = 0
    for index, extent in zip(at, of.vector):
        if index.constant is None:
            raise Apart(f"{of.statement.name} is read at another term")
        number = number * extent + index.constant
    return number
