"""Operands of products that are read through windows: padded once, then one row of channels for every tap and place.

Decides how a convolution's image becomes matrices, from index maps alone, as a rewrite of the graph. It must not know
tiles or buffers.
"""

from __future__ import annotations

from dataclasses import dataclass

from kohakuaccel.graph import Expr, Graph, Guard, Index, Op, Range, Read, Statement
from kohakuaccel.graph.model import Value
from kohakuaccel.graph.rewrite import Rewrite
from kohakuaccel.graph.rewrite.base import with_body
from kohakuaccel.graph.structure import as_contraction


@dataclass(frozen=True, kw_only=True)
class Windows(Rewrite):
    """A product over windows reads rows of taps.

    before  o[b, o, y, x] = sum[c, ky, kx] guard(i[b, c, y + ky - 1, x + kx - 1], 0.0, ...) * w[o, c, ky, kx]
    after   padded[b, Y, X, c] = guard(i[b, c, Y - 1, X - 1], 0.0, ...)
            seen[b, ky, kx, y, x, c] = padded[b, y + ky, x + kx, c]
            o[b, o, y, x] = sum[c, ky, kx] seen[b, ky, kx, y, x, c] * w[o, c, ky, kx]

    Holds where each axis of the image is followed by one range, or is a window: affine in ranges of the result and of
    the fold. Channels come last, so that a copy moves rows.
    """

    def rewrite(self, graph: Graph) -> Graph:
        values: list[Value] = []
        for value in graph.values:
            found = as_contraction(value) if isinstance(value, Statement) else None
            if isinstance(value, Statement) and found is not None and found.m and found.n:
                sides: list[Expr] = []
                for side in (found.left, found.right):
                    made, seen = _seen(graph.with_values((*graph.values, *values)), side, value)
                    values += made
                    sides.append(seen)
                if sides != [found.left, found.right]:
                    value = with_body(value, Op("mul", tuple(sides)))
            values.append(value)
        return graph.with_values(values)


def _seen(graph: Graph, side: Expr, statement: Statement) -> tuple[list[Statement], Expr]:
    """The statements that bring an operand into rows of taps, and the read of them; else the operand itself."""
    if not isinstance(side, Read):
        return [], side
    fold = set(statement.reduced)
    windows = {n: i for n, i in enumerate(side.indices) if len(i.ranges()) > 1 and not _parted(i)}
    plain = {n: i for n, i in enumerate(side.indices) if n not in windows}
    lawful = all(i.affine and i.ranges() & fold and not i.ranges() <= fold for i in windows.values())
    lawful = lawful and all(i.constant is not None or i.range is not None for i in plain.values())
    if not windows or not lawful or any(g.index not in side.indices for g in side.guards):
        return [], side
    made: list[Statement] = []
    deep = [i.range for i in plain.values() if i.range in fold]
    lead = [i.range for i in plain.values() if i.range is not None and i.range not in fold]
    source, places = side.value, dict(enumerate(side.indices))
    order: list[int] = []
    if side.guards:
        source, order = graph.fresh("padded"), _order(side, fold, windows)
        made.append(_padded(graph, side, windows, order, source))
        places = {n: i - i.interval()[0] if n in windows else i for n, i in places.items()}
    taps = [r for r in statement.reduced if any(r in i.ranges() for i in windows.values())]
    out = [r for r in statement.ranges if any(r in i.ranges() for i in windows.values())]
    every = tuple(r for r in (*lead, *taps, *out, *deep) if r is not None)
    fresh = {r: Range(f"i{n}", r.extent) for n, r in enumerate(every)}
    new = {old: Index.of(r) for old, r in fresh.items()}
    indices = [places[n] for n in order] if order else list(side.indices)
    body = Read(source, tuple(i.substitute(new) for i in indices))
    name = graph.with_values((*graph.values, *made)).fresh("seen")
    made.append(Statement(name, graph[side.value].dtype, tuple(fresh.values()), body))
    return made, Read(name, tuple(Index.of(r) for r in every))


def _parted(index: Index) -> bool:
    """Whether an index numbers the points of its ranges, each once: parts of an axis, such as heads, no window."""
    count = 1
    for r in sorted(index.ranges(), key=index.coefficient):
        if index.coefficient(r) != count:
            return False
        count *= r.extent
    return index.affine and index.offset == 0


def _order(side: Read, fold: set[Range], windows: dict[int, Index]) -> list[int]:
    """Axes of the padded image: those that only the result follows, the windows, then the channels."""
    kept = [n for n, i in enumerate(side.indices) if n not in windows and i.constant is None]
    return [
        *(n for n in kept if side.indices[n].range not in fold),
        *windows,
        *(n for n in kept if side.indices[n].range in fold),
    ]


def _padded(graph: Graph, side: Read, windows: dict[int, Index], order: list[int], name: str) -> Statement:
    """The image with what its guards pad, counted from the first place that a window sees."""
    ranges: dict[int, Range] = {}
    indices = list(side.indices)
    for at, n in enumerate(order):
        low, high = side.indices[n].interval()
        ranges[n] = Range(f"i{at}", high - low + 1)
        indices[n] = Index.of(ranges[n]) + low
    guards = tuple(Guard(indices[side.indices.index(g.index)], g.low, g.high) for g in side.guards)
    body = Read(side.value, tuple(indices), guards, side.pad)
    return Statement(name, graph[side.value].dtype, tuple(ranges[n] for n in order), body)
