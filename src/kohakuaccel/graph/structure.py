"""Structural questions about a statement, answered from its index maps and its body.

Decides what a statement *is* (a contraction, a map, a row reduction, a copy, a gather, a scan), for whoever lowers it.
Nothing here knows the name or the shape of an operator: a 1x1 convolution is a contraction because its ranges say so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

from kohakuaccel.graph.expr import Expr, Iota, Op, Read, literal
from kohakuaccel.graph.index import Index, Lookup, Range
from kohakuaccel.graph.model import ReduceOp, Shape, Statement
from kohakuaccel.graph.scalar import identity


@dataclass(frozen=True)
class Contraction:
    """sum over k of left * right.

    batch: output ranges both operands follow; m: only the left; n: only the right; k: folded ranges, which both follow.
    An output range that no operand follows is in `broadcast`. Ranges keep the statement's order.
    """

    left: Expr
    right: Expr
    batch: tuple[Range, ...]
    m: tuple[Range, ...]
    n: tuple[Range, ...]
    k: tuple[Range, ...]
    broadcast: tuple[Range, ...]
    output: tuple[Range, ...]

    @property
    def plain(self) -> bool:
        """Whether both operands are unguarded reads at distinct plain ranges, as a matrix in memory is read."""
        return all(isinstance(e, Read) and is_plain(e) for e in (self.left, self.right))

    @property
    def shared(self) -> str | None:
        """The operand that every step of the outermost output range reads again: "left", "right" or None."""
        outer = self.output[0] if self.output else None
        return "right" if outer in self.m else "left" if outer in self.n else None


@dataclass(frozen=True)
class RowReduction:
    """`op` over `columns` for every point of `rows`, of plain reads. `innermost`: columns are the last axes read."""

    op: ReduceOp
    rows: tuple[Range, ...]
    columns: tuple[Range, ...]
    reads: tuple[Read, ...]
    innermost: bool


@dataclass(frozen=True)
class Copy:
    """Element r of the output is element offset + sum(strides * r) of the flat source.

    permutation: the axis of the source that each output axis is, where the copy is one; else None.
    """

    source: str
    offset: int
    strides: tuple[int, ...]
    permutation: tuple[int, ...] | None


@dataclass(frozen=True)
class Gather:
    """A read of `source` whose index of `axis` is looked up; `exact` where the index is the lookup itself."""

    source: str
    axis: int
    lookup: Lookup
    exact: bool


@dataclass(frozen=True)
class Scan:
    """A running fold: `op` of `element` over `fold`, from 0 up to the place on `axis` (reverse: from it to the end).

    `element` follows `fold`, of `axis`' extent, and not `axis`.
    """

    op: ReduceOp
    axis: Range
    fold: Range
    element: Expr
    reverse: bool


def is_plain(read: Read) -> bool:
    """Whether a read is unguarded and each of its indices is a range of its own, or a constant."""
    found = [i.range for i in read.indices if i.constant is None]
    return not read.guards and None not in found and len(set(found)) == len(found)


def factors(expr: Expr) -> Iterator[Expr]:
    """The factors of a product, from left to right."""
    if isinstance(expr, Op) and expr.name == "mul":
        for arg in expr.args:
            yield from factors(arg)
    else:
        yield expr


def as_contraction(statement: Statement) -> Contraction | None:
    """The statement as a sum of products, or None.

    Every folded range must be followed by both operands, and each operand must read something. Of more than two factors
    the right operand is the last that can be, and the left is the product of the others. A sum of squares has one
    operand only: it is a row reduction.
    """
    reduction = statement.reduction
    pair = _pair(statement) if reduction and reduction.op == "sum" else None
    if reduction is None or pair is None:
        return None
    left, right = pair
    first, second = left.ranges(), right.ranges()

    def those(in_left: bool, in_right: bool) -> tuple[Range, ...]:
        return tuple(r for r in statement.ranges if (r in first) == in_left and (r in second) == in_right)

    return Contraction(
        left,
        right,
        those(True, True),
        those(True, False),
        those(False, True),
        reduction.ranges,
        those(False, False),
        statement.ranges,
    )


def _pair(statement: Statement) -> tuple[Expr, Expr] | None:
    """A product cut in two so that both parts follow every folded range and read something."""

    def can(expr: Expr) -> bool:
        return expr.ranges().issuperset(statement.reduced) and any(True for _ in expr.reads())

    body = statement.body
    if not (isinstance(body, Op) and body.name == "mul"):
        return None
    left, right = body.args
    if not (can(left) and can(right)):
        parts = list(factors(body))
        place = next((n for n in reversed(range(len(parts))) if can(parts[n])), None)
        if place is None:
            return None
        right = parts.pop(place)
        left = reduce(lambda a, b: Op("mul", (a, b)), parts)
    return (left, right) if can(left) and left != right else None


def is_map(statement: Statement) -> bool:
    """Whether every element follows from the elements at the same place: no fold, and plain reads in output order.

    A read may leave ranges out (a broadcast); it may not reorder them, and the body may use its own place.
    """
    order = {r: n for n, r in enumerate(statement.ranges)}
    if statement.reduction is not None:
        return False
    for read in statement.body.reads():
        places = [order[i.range] for i in read.indices if i.range is not None]
        if not is_plain(read) or places != sorted(places):
            return False
    return True


def as_row_reduction(statement: Statement) -> RowReduction | None:
    """The statement as a fold of rows, or None. A contraction with ranges of its own on both sides is none."""
    reduction = statement.reduction
    reads = tuple(dict.fromkeys(statement.body.reads()))
    if reduction is None or not reads or not all(is_plain(r) for r in reads):
        return None
    contraction = as_contraction(statement)
    if contraction and contraction.m and contraction.n:
        return None
    columns = set(reduction.ranges)
    if not any(columns <= read.ranges() for read in reads):
        return None

    def last(read: Read) -> bool:
        found = [i.range in columns for i in read.indices if i.range is not None]
        return found == sorted(found)

    return RowReduction(reduction.op, statement.ranges, reduction.ranges, reads, all(last(r) for r in reads))


def as_copy(statement: Statement, shape: Shape) -> Copy | None:
    """The statement as a permutation or a strided copy of a source of `shape`, or None."""
    body = statement.body
    if statement.reduction or not isinstance(body, Read) or body.guards or len(body.indices) != len(shape):
        return None
    flat = linear(body.indices, shape)
    if not flat.affine:
        return None
    strides = tuple(flat.coefficient(r) for r in statement.ranges)
    return Copy(body.value, flat.offset, strides, _permutation(body, statement, shape))


def _permutation(read: Read, statement: Statement, shape: Shape) -> tuple[int, ...] | None:
    axes = {i.range: n for n, i in enumerate(read.indices) if i.range is not None}
    found = tuple(axes.get(r, -1) for r in statement.ranges)
    whole = len(found) == len(shape) and sorted(found) == list(range(len(shape)))
    return found if whole and all(shape[a] == r.extent for a, r in zip(found, statement.ranges)) else None


def linear(indices: tuple[Index, ...], shape: Shape) -> Index:
    """The place in the flat row-major value that `indices` name."""
    flat = Index.of(0)
    for index, extent in zip(indices, shape):
        flat = flat * extent + index
    return flat


def as_gather(statement: Statement) -> Gather | None:
    """The statement as a read with one looked-up index, the others without gathers, or None."""
    body = statement.body
    if statement.reduction or not isinstance(body, Read):
        return None
    found = [(n, i, tuple(i.lookups())) for n, i in enumerate(body.indices) if any(i.lookups())]
    if len(found) != 1 or len(found[0][2]) != 1:
        return None
    axis, index, (lookup,) = found[0]
    return Gather(body.value, axis, lookup, index == Index.of(lookup))


def as_scan(statement: Statement) -> Scan | None:
    """The statement as a running fold along one output axis, or None: where(i < k, identity, element) folded over k."""
    body, fold = statement.body, statement.reduction
    if not fold or len(fold.ranges) != 1 or not (isinstance(body, Op) and body.name == "where"):
        return None
    order, neutral, element = body.args
    if not (isinstance(order, Op) and order.name == "less") or neutral != literal(
        identity(fold.op, statement.dtype), statement.dtype
    ):
        return None
    first, second = (e.index.range if isinstance(e, Iota) else None for e in order.args)
    (k,) = fold.ranges
    axis = second if first == k else first
    if axis is None or axis not in statement.ranges or k not in (first, second) or axis.extent != k.extent:
        return None
    if k not in element.ranges() or axis in element.ranges():
        return None
    return Scan(fold.op, axis, k, element, first == k)
