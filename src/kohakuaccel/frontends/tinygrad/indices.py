"""Integer expressions of a kernel's loops as index maps and guards.

Decides which of tinygrad's integer expressions are an `Index` of the graph (affine in loops, quotients and remainders
by constants), and which conditions are guards. What reads a buffer is neither; it is an expression.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tinygrad.dtype import DType as TinyType
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

from kohakuaccel.graph import Guard, Index, Range
from kohakuaccel.graph.index import Quotient, Remainder
from kohakuaccel.graph.rewrite.axes import Cuts, extents, whole

FAR = 1 << 62


class Untranslatable(Exception):
    """A kernel that the graph has no form for; the text says what in it."""


class Symbolic(Exception):
    """A kernel whose extents or indices follow variables that have no value yet."""


class Indices:
    """Loops as ranges of the graph, remembered by their UOp. cuts: of loops that become several ranges."""

    def __init__(self, cuts: Mapping[UOp, Cuts] | None = None) -> None:
        self.cuts = cuts or {}
        self.loops: dict[UOp, tuple[Range, ...]] = {}
        self._known: dict[UOp, Index | None] = {}

    def ranges(self, u: UOp) -> tuple[Range, ...]:
        """A loop as ranges, the slowest first; one, where it is not cut."""
        if u not in self.loops:
            extent = u.src[0]
            if extent.op is Ops.CAST:
                extent = extent.src[0]
            if extent.op is not Ops.CONST or u.arg[-1] is AxisType.DEVICE:
                raise Symbolic
            count = sum(len(parts) for parts in self.loops.values())
            sizes = extents(int(extent.arg), self.cuts.get(u, ()))
            self.loops[u] = tuple(Range(f"r{count + n}", size) for n, size in enumerate(sizes))
        return self.loops[u]

    def index(self, u: UOp) -> Index | None:
        """An integer expression as an index, None where it is none."""
        if u not in self._known:
            found = self._index(u)
            if found is not None and not _held(found, u.dtype):
                found = None
            self._known[u] = found
        return self._known[u]

    def _index(self, u: UOp) -> Index | None:
        match u.op:
            case Ops.RANGE:
                if u.dtype is dtypes.void:
                    raise Untranslatable("a loop without a count")
                return whole(r for r in self.ranges(u) if r.extent > 1)
            case Ops.CONST:
                return Index.of(int(u.arg)) if isinstance(u.arg, int) and not isinstance(u.arg, bool) else None
            case Ops.CAST:
                source = u.src[0]
                return self.index(source) if _integer(source.dtype) and _integer(u.dtype) else None
            case Ops.ADD | Ops.SUB | Ops.MUL | Ops.FLOORDIV | Ops.FLOORMOD | Ops.CDIV | Ops.CMOD:
                if not all(_integer(s.dtype) for s in u.src):
                    return None
                left, right = (self.index(s) for s in u.src)
                return None if left is None or right is None else self._binary(u.op, left, right)
            case Ops.NEG:
                inner = self.index(u.src[0])
                return None if inner is None else -inner
            case _:
                return None

    @staticmethod
    def _binary(op: Ops, left: Index, right: Index) -> Index | None:
        if op is Ops.ADD:
            return left + right
        if op is Ops.SUB:
            return left - right
        if op is Ops.MUL and left.constant is not None:
            left, right = right, left
        by = right.constant
        if by is None:
            return None
        if op is Ops.MUL:
            return left * by
        if by < 1 or (op in (Ops.CDIV, Ops.CMOD) and left.interval()[0] < 0):
            return None
        return left // by if op in (Ops.FLOORDIV, Ops.CDIV) else left % by

    def guards(self, cond: UOp, holds: bool = True) -> list[Guard] | None:
        """A condition on loops as guards that all have to hold, None where it is no such thing."""
        match cond.op:
            case Ops.CONST:
                return [] if bool(cond.arg) == holds else [Guard(Index.of(0), 1, 2)]
            case Ops.AND | Ops.MUL if holds and cond.dtype is dtypes.bool:
                return self._both(cond, True)
            case Ops.OR | Ops.ADD if not holds and cond.dtype is dtypes.bool:
                return self._both(cond, False)
            case Ops.CMPNE | Ops.CMPEQ if all(s.dtype is dtypes.bool for s in cond.src):
                for one, other in (cond.src, cond.src[::-1]):
                    if other.op is Ops.CONST:
                        same = bool(other.arg) if cond.op is Ops.CMPEQ else not other.arg
                        return self.guards(one, holds == same)
                return None
            case Ops.CMPLT | Ops.CMPNE | Ops.CMPEQ if all(_integer(s.dtype) for s in cond.src):
                left, right = (self.index(s) for s in cond.src)
                return None if left is None or right is None else _compared(cond.op, left - right, holds)
            case _:
                return None

    def _both(self, cond: UOp, holds: bool) -> list[Guard] | None:
        sides = [self.guards(s, holds) for s in cond.src]
        found: list[Guard] = []
        for side in sides:
            if side is None:
                return None
            found += side
        return found


def _compared(op: Ops, difference: Index, holds: bool) -> list[Guard] | None:
    """left - right compared with zero, the number on the right side."""
    offset = difference.offset
    index = difference - offset
    low, high = index.interval()
    if op is Ops.CMPLT:  # index < -offset
        return [Guard(index, low, -offset)] if holds else [Guard(index, -offset, high + 1)]
    if (op is Ops.CMPEQ) == holds:
        return [Guard(index, -offset, -offset + 1)]
    if -offset == low:
        return [Guard(index, low + 1, high + 1)]
    if -offset == high:
        return [Guard(index, low, high)]
    return [] if not low <= -offset <= high else None


def tidied(guards: list[Guard]) -> tuple[Guard, ...]:
    """Guards on one index brought together; those that always hold dropped."""
    found: dict[Index, tuple[int, int]] = {}
    for g in guards:
        low, high = found.get(g.index, (-FAR, FAR))
        found[g.index] = max(low, g.low), min(high, g.high)
    made = [Guard(index, low, max(high, low)) for index, (low, high) in found.items()]
    return tuple(g for g in made if not g.always)


def settled(index: Index, guards: Sequence[Guard]) -> Index:
    """The index where guards hold, without the quotients and remainders that they leave one period of."""
    found = Index.of(index.offset)
    for atom, factor in index.terms:
        part = Index.of(atom)
        if isinstance(atom, Quotient | Remainder):
            low, high = atom.index.interval(guards)
            period = low // atom.divisor
            if period == high // atom.divisor:
                part = Index.of(period) if isinstance(atom, Quotient) else atom.index - period * atom.divisor
        found = found + part * factor
    return found


def _integer(dtype: TinyType) -> bool:
    return dtypes.is_int(dtype) or dtype is dtypes.weakint


def _held(index: Index, dtype: TinyType) -> bool:
    """Whether a type holds every value that the index takes, so that nothing wraps."""
    if dtype is dtypes.weakint:
        return True
    low, high = index.interval()
    return int(dtype.min) <= low and high <= int(dtype.max)
