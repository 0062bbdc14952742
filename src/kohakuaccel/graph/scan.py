"""Running folds (cumsum and its kind): the direct form, quadratic in the axis, and the form by blocks.

Decides which statements a scan is. When blocks pay is for a rewrite or a caller to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kohakuaccel.graph.blocks import count_of, inside
from kohakuaccel.graph.dtypes import DType
from kohakuaccel.graph.expr import Expr, Iota, Read, literal, op
from kohakuaccel.graph.index import Index, Indexable, Range
from kohakuaccel.graph.model import Reduction, Statement, Value
from kohakuaccel.graph.scalar import JOIN, identity
from kohakuaccel.graph.structure import Scan


def direct(name: str, dtype: DType, ranges: tuple[Range, ...], scan: Scan) -> Statement:
    """y[i] = fold[k] where(i < k, identity, x[k]): every element looks at the whole axis."""
    body = _masked(scan, Index.of(scan.axis), Index.of(scan.fold), scan.element, dtype)
    return Statement(name, dtype, ranges, body, Reduction(scan.op, (scan.fold,)))


def blocked(
    statement: Statement,
    scan: Scan,
    block: int,
    values: Mapping[str, Value],
    fresh: Callable[[str], str],
    ranges: Callable[[int, int, int, int], tuple[Range, ...]],
) -> tuple[Statement, ...]:
    """The direct form by blocks of `block` elements; the last statement has the name of `statement`.

    fold[t]    = fold[b] x[t * B + b]                         each block
    before[t]  = fold[u] where(u < t, fold[u], identity)      the blocks in front of it (behind it: reverse)
    within[t, b] = fold[c] where(b < c, identity, x[t * B + c])
    y[i]       = before[i // B] joined with within[i // B, i % B]

    ranges: makes four ranges of the given extents under free names. n * B + (n / B)^2 steps in place of n^2.
    """
    count = count_of(scan.axis.extent, block)
    t, u, b, c = ranges(count, count, block, block)
    out, dtype = statement.ranges, statement.dtype
    place, neutral = out.index(scan.axis), literal(identity(scan.op, dtype), dtype)

    def at(*own: Indexable) -> tuple[Index, ...]:
        return tuple(Index.of(i) for i in (*out[:place], *own, *out[place + 1 :]))

    def over(*own: Range) -> tuple[Range, ...]:
        return (*out[:place], *own, *out[place + 1 :])

    def element(inner: Range) -> Expr:
        return inside(scan.element, scan.fold, t * block + inner, neutral, values)

    whole = Statement(fresh("scan_fold"), dtype, over(t), element(b), Reduction(scan.op, (b,)))
    near, far = (t, u) if scan.reverse else (u, t)
    mask = op("less", Iota(Index.of(near)), Iota(Index.of(far)))
    body = op("where", mask, Read(whole.name, at(u)), neutral)
    before = Statement(fresh("scan_before"), dtype, over(t), body, Reduction(scan.op, (u,)))
    body = _masked(scan, Index.of(b), Index.of(c), element(c), dtype)
    within = Statement(fresh("scan_within"), dtype, over(t, b), body, Reduction(scan.op, (c,)))
    mine, rest = scan.axis // block, scan.axis % block
    body = op(JOIN[scan.op], Read(before.name, at(mine)), Read(within.name, at(mine, rest)))
    return whole, before, within, Statement(statement.name, dtype, out, body)


def _masked(scan: Scan, here: Index, there: Index, element: Expr, dtype: DType) -> Expr:
    first, second = (there, here) if scan.reverse else (here, there)
    return op("where", op("less", Iota(first), Iota(second)), literal(identity(scan.op, dtype), dtype), element)
