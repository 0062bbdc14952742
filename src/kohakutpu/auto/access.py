"""How a read meets memory: the view of a value (a reshape, possibly turned) in which its ranges are whole axes.

Decides whether a row, a number per row or a matrix can be read in place, from the read's index map alone. It must not
know stages, layouts or which unit reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import gcd, prod

from kohakuaccel.graph import Index, Range, Read
from kohakuaccel.graph.index import Atom
from kohakuaccel.graph.structure import linear

Shape = tuple[int, ...]
Ranges = tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class View:
    """A value as an array of `shape` (its last two axes exchanged where `turned`), and where in it a read lies.

    index: the leading axes' indices; what follows them is the row, the matrix or nothing. window: the columns (first,
    end) of a row that is only part of the last axis. moved: (shape, permutation) that bring the value into this order
    first, where it is known before anything runs.
    """

    shape: Shape
    index: tuple[Index, ...]
    turned: bool = False
    window: tuple[int, int] | None = None
    moved: tuple[Shape, tuple[int, ...]] | None = None

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape)) + (".T" if self.turned else "")
        window = "" if self.window is None else f", {self.window[0]}:{self.window[1]}"
        return f"({shape})[{', '.join(map(str, self.index))}{window}]"


def flat(read: Read, shape: Shape, order: tuple[int, ...]) -> Index:
    """The place of what is read in its value's elements, whose axes lie in `order`, slowest first."""
    return linear(tuple(read.indices[a] for a in order), tuple(shape[a] for a in order))


def over(ranges: Iterable[Range]) -> Index:
    """The place of a point of some ranges among all of them, row after row."""
    found = Index.of(0)
    for r in ranges:
        found = found * r.extent + (r if r.extent > 1 else 0)
    return found


def digits(ranges: Iterable[Range], place: Index) -> dict[Range, Index]:
    """What each range is at a place among all points of some ranges, row after row."""
    found: dict[Range, Index] = {}
    below = 1
    for r in reversed(tuple(ranges)):
        found[r] = place // below % r.extent
        below *= r.extent
    return found


def long(ranges: Iterable[Range]) -> Ranges:
    """The ranges with more than one value."""
    return tuple(r for r in ranges if r.extent > 1)


def size(ranges: Iterable[Range]) -> int:
    """How many points some ranges span."""
    return prod(r.extent for r in ranges)


def step_of(index: Index, group: Ranges) -> int | None:
    """The stride of a group of ranges that lie row after row: that of its last one; None where they do not.

    0 for a group that the index does not follow at all.
    """
    wanted = long(group)
    factors = [index.coefficient(r) for r in wanted]
    if not any(factors):
        return 0
    step = factors[-1] if factors else 0
    count = 1
    for r, factor in zip(reversed(wanted), reversed(factors)):
        if factor != step * count:
            return None
        count *= r.extent
    return step if step > 0 else None


def without(index: Index, *groups: Ranges) -> Index | None:
    """The rest of an index besides some ranges' own terms; None where a quotient or a gather follows one of them."""
    gone = {r for group in groups for r in group}
    rest = Index(index.offset, tuple((atom, n) for atom, n in index.terms if atom not in gone))
    return None if rest.ranges() & gone else rest


def row(index: Index, total: int, columns: Ranges) -> View | None:
    """A read along `columns`, fastest last, of a value of `total` elements; None where its elements are no row.

    A read that does not follow the columns is one number per row: the view then has one index an axis.
    """
    rest = without(index, columns)
    step = step_of(index, columns)
    if rest is None or step is None:
        return None
    if step == 0:
        return View((total,), (rest,))
    count = size(long(columns))
    if step == 1:
        return _straight(rest, total, count)
    block = count * step
    outer, inner = _cut(rest, block)
    if total % block or inner.interval()[0] < 0 or inner.interval()[1] >= step:
        return None
    return View((total // block, count, step), (outer, inner), turned=True)


def _straight(rest: Index, total: int, count: int) -> View | None:
    if total % count == 0 and _divides(rest, count):
        return View((total // count, count), (_quotient(rest, count),))
    pitch = gcd(total, *(n for _, n in rest.terms))
    first = rest.offset % pitch
    if first + count > pitch:
        return None
    index = _quotient(rest - first, pitch)
    window = (first, first + count) if count < pitch else None
    return View((total // pitch, pitch), (index,), window=window)


def matrix(index: Index, total: int, rows: Ranges, columns: Ranges) -> View | None:
    """A read of whole matrices `rows` x `columns`, stored either way round; None where they are not whole."""
    rest = without(index, rows, columns)
    down, across = step_of(index, rows), step_of(index, columns)
    if rest is None or not across or down is None:
        return None
    high, wide = size(long(rows)), size(long(columns))
    block = high * wide
    if (down == 0 and high > 1) or total % block or not _divides(rest, block):
        return None
    where = (_quotient(rest, block),)
    if across == 1 and down in (0, wide):
        return View((total // block, high, wide), where)
    if down == 1 and across == high:
        return View((total // block, wide, high), where, turned=True)
    return None


def moved(index: Index, total: int, lead: Ranges, rows: Ranges, columns: Ranges) -> View | None:
    """A whole value brought into the order (lead, rows, columns) before it is used; None where it is read otherwise."""
    ranges = [r for r in long((*lead, *rows, *columns)) if index.coefficient(r)]
    rest = without(index, tuple(ranges))
    if rest is None or rest.constant != 0:
        return None
    followed = sorted(ranges, key=index.coefficient, reverse=True)
    count = 1
    for r in reversed(followed):
        if index.coefficient(r) != count:
            return None
        count *= r.extent
    first = tuple(r for r in long(lead) if r in followed)
    if count != total or any(r not in followed for r in long((*rows, *columns))):
        return None
    shape = (size(first), size(rows), size(columns))
    order = tuple(followed.index(r) for r in ranges)
    return View(shape, (over(first),), moved=(tuple(r.extent for r in followed), order))


def _divides(index: Index, by: int) -> bool:
    return index.offset % by == 0 and all(n % by == 0 for _, n in index.terms)


def _quotient(index: Index, by: int) -> Index:
    return Index(index.offset // by, tuple((atom, n // by) for atom, n in index.terms))


def _cut(index: Index, block: int) -> tuple[Index, Index]:
    """An index as block * first + second."""
    outer: list[tuple[Atom, int]] = []
    inner: list[tuple[Atom, int]] = []
    for atom, n in index.terms:
        if n % block == 0:
            outer.append((atom, n // block))
        else:
            inner.append((atom, n))
    return Index(index.offset // block, tuple(outer)), Index(index.offset % block, tuple(inner))


__all__ = ["View", "digits", "flat", "long", "matrix", "moved", "over", "row", "size", "step_of", "without"]
