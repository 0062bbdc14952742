"""Cutting a folded range into blocks, of which the last may be short.

Decides what the new ranges are called and what stands where the range has ended. It must not know what is folded.
"""

from __future__ import annotations

from collections.abc import Mapping

from kohakuaccel.graph.dtypes import kind_of
from kohakuaccel.graph.expr import Cast, Const, Expr, Iota, Op, Read, Scalar, op, rebuild
from kohakuaccel.graph.index import Guard, Index, Range
from kohakuaccel.graph.model import Graph, Value

ZERO: Mapping[str, Scalar] = {"real": 0.0, "int": 0, "bool": False, "word": 0}


def new_ranges(graph: Graph, *extents: int) -> tuple[Range, ...]:
    """Ranges with names that no value and no range of the graph has: t0, t1, ..."""
    taken = set(graph.by_name) | {r.name for s in graph.statements for r in (*s.ranges, *s.reduced)}
    names = (f"t{n}" for n in range(len(taken) + len(extents)))
    free = [name for name in names if name not in taken]
    return tuple(Range(name, extent) for name, extent in zip(free, extents))


def count_of(extent: int, block: int) -> int:
    """How many blocks cover a range."""
    return -(-extent // block)


def may_end(*exprs: Expr) -> bool:
    """Whether `inside` may be asked of expressions whose range ends inside a block.

    Behind the end they are computed from pads: an integer division by what was read, a cast to an integer or a gathered
    index as a value could be refused by a run there.
    """
    for e in (e for expr in exprs for e in expr.walk()):
        if isinstance(e, Op) and e.name in ("idiv", "mod") and not isinstance(e.args[1], Const):
            return False
        if isinstance(e, Cast) and kind_of(e.dtype) == "int":
            return False
        if isinstance(e, Iota) and any(True for _ in e.index.lookups()):
            return False
    return True


def inside(expr: Expr, k: Range, at: Index, pad: Expr | Scalar, values: Mapping[str, Value]) -> Expr:
    """`expr` with k = at, and `pad` where `at` has left the range.

    before  x[i, k] - m[i]                                      k<10
    after   where(4 * t + b < 10, guard(x[i, 4 * t + b], 0.0, 0 <= 4 * t + b < 10) - m[i], pad)     t<3, b<4

    A read alone is guarded with `pad` itself; where the blocks divide the range nothing is guarded at all.
    """
    end = Guard(at, 0, k.extent)
    moved = expr.substitute({k: at})
    if end.always:
        return moved
    new = at.ranges()

    def change(e: Expr) -> Expr:
        # What follows one of the two alone is the same for a whole block, or for all of them, and so is in bounds.
        if not isinstance(e, Read) or not new <= e.ranges():
            return e
        guards = (*e.guards, end)
        for index, extent in zip(e.indices, values[e.value].shape):
            low, high = index.interval(guards)
            if low < 0 or high >= extent:
                guards = (*guards, Guard(index, 0, extent))
        return Read(e.value, e.indices, guards, e.pad or Const(ZERO[kind_of(values[e.value].dtype)]))

    made = rebuild(moved, change)
    pad = pad if isinstance(pad, Expr) else Const(pad)
    if isinstance(made, Read) and isinstance(expr, Read) and not expr.guards and new <= moved.ranges():
        plain = pad.arg if isinstance(pad, Cast) else pad  # a read of words is padded with the integer
        assert isinstance(plain, Const)
        return Read(made.value, made.indices, made.guards, plain)
    return op("where", op("less", Iota(at), k.extent), made, pad)
