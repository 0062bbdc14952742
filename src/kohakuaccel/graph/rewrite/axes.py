"""Ranges that are read by quotient and remainder become several: the axes of what was flattened.

Decides where a range is cut, and what its value's readers name instead. It must not know who asked for finer axes; a
value keeps its elements in their row-major order, and gets more axes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from kohakuaccel.graph.expr import Expr, Read, rebuild
from kohakuaccel.graph.index import Guard, Index, Lookup, Quotient, Range, Remainder
from kohakuaccel.graph.model import Graph, Reduction, Statement, Value
from kohakuaccel.graph.verify import verify

Cuts = tuple[int, ...]
"""Where a range is cut: strides of its parts but the last, which is 1; the greatest first, each divides the one before
and all the extent."""
_ROUNDS = 8


def wanted(index: Index) -> Iterator[tuple[Range, int]]:
    """Ranges, and strides that quotients and remainders in an index divide them by. Gathers are not looked into."""
    for atom, _ in index.terms:
        if isinstance(atom, Quotient | Remainder):
            yield from _divided(atom.index, atom.divisor)
            yield from wanted(atom.index)


def _divided(index: Index, divisor: int) -> Iterator[tuple[Range, int]]:
    """Strides at which ranges are cut where `index` is divided."""
    for atom, factor in index.terms:
        if isinstance(atom, Lookup) or factor == 0 or divisor % factor:
            continue
        step = abs(divisor // factor)
        if isinstance(atom, Range):
            yield atom, step
        elif isinstance(atom, Quotient):
            yield from _divided(atom.index, atom.divisor * step)
        elif atom.divisor % step == 0:
            yield from _divided(atom.index, step)


def chain(extent: int, strides: Iterable[int]) -> Cuts:
    """The strides that a range of so many elements can be cut at, together, from the greatest on."""
    found: list[int] = []
    over = extent
    for stride in sorted(set(strides), reverse=True):
        if 1 < stride < over and over % stride == 0:
            found.append(stride)
            over = stride
    return tuple(found)


def extents(extent: int, cuts: Cuts) -> tuple[int, ...]:
    """The extents of a range's parts."""
    return tuple(high // low for high, low in zip((extent, *cuts), (*cuts, 1)))


def whole(parts: Iterable[Range]) -> Index:
    """The index that parts, the slowest first, make up."""
    found = Index.of(0)
    for part in parts:
        found = found * part.extent + part
    return found


def partly_followed(
    cuts: Mapping[Range, Cuts], folded: Container[Range], reads: Iterable[Sequence[Index]]
) -> list[Range]:
    """Ranges whose cut would leave a part without operand: of a folded range a part that one read of it does not
    follow, of another range a part that no read follows. reads: of a fold, the index maps of each."""
    reads = tuple(reads)
    found: list[Range] = []
    for r, some in cuts.items():
        parts = _named(r, extents(r.extent, some), set())
        new = {r: whole(parts)}
        each = [
            frozenset[Range]().union(*(i.substitute(new).ranges() for i in read))
            for read in reads
            if any(r in i.ranges() for i in read)
        ]
        together = each if r in folded else [frozenset[Range]().union(*each)] if each else []
        if any(not seen.issuperset(parts) for seen in together):
            found.append(r)
    return found


def cut_axes(graph: Graph) -> Graph:
    """The same values with finer axes, where that makes index maps affine; outputs hold their elements in the same
    order.

    before  y[i<4, r<64] = sum[k<8] x[i, r % 4, k] * w[r // 4, k]
    after   y[i<4, r_0<16, r_1<4] = sum[k<8] x[i, r_1, k] * w[r_0, k]

    Statements that read a value at its own element are cut as it is, in both directions. A fold keeps a range of which
    an operand would follow a part only: y[i] = sum[k] x[i, k // 4] * w[k].
    """
    return _Axes(graph).made()


class _Axes:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.strides: dict[tuple[str, Range], set[int]] = defaultdict(set)
        """By statement and range of it: where it would be cut."""
        self.fixed: set[tuple[str, Range]] = set()
        """Ranges whose value is read in a way that finer axes do not allow."""

    def made(self) -> Graph:
        for s in self.graph.statements:
            self._own(s)
        if not self._all():
            return self.graph
        while True:
            self._spread()
            if not self._all():
                return self.graph
            before = len(self.fixed)
            self._whole_operands()
            values = tuple(self._value(v) for v in self.graph.values)
            if len(self.fixed) == before:
                return verify(self.graph.with_values(values))

    def cuts(self, name: str, r: Range) -> Cuts:
        return () if (name, r) in self.fixed else chain(r.extent, self.strides.get((name, r), ()))

    def _axis(self, name: str, axis: int) -> Cuts:
        """The cuts of a value's axis."""
        value = self.graph[name]
        return self.cuts(name, value.ranges[axis]) if isinstance(value, Statement) else ()

    def _own(self, s: Statement) -> None:
        """Note the cuts that a statement's own indices ask for."""
        for read in s.body.reads():
            for index in (*read.indices, *(g.index for g in read.guards)):
                for r, stride in wanted(index):
                    self.strides[s.name, r].add(stride)

    def _spread(self) -> None:
        """Cuts of a value for its readers, and of all readers for the value."""
        for _ in range(_ROUNDS):
            before = self._all()
            for s in self.graph.statements:
                for read in s.body.reads():
                    for axis, index in enumerate(read.indices):
                        for stride in self._axis(read.value, axis):
                            for r, step in wanted(index // stride):
                                self.strides[s.name, r].add(step)
            for s in reversed(self.graph.statements):
                for axis, r in enumerate(s.ranges):
                    found = {
                        self._parts(reader.name, read.indices[axis], r.extent)
                        for reader in self.graph.readers(s.name)
                        for read in reader.body.reads()
                        if read.value == s.name
                    }
                    if len(found) == 1:
                        self.strides[s.name, r] |= set(found.pop())
            if before == self._all():
                return

    def _whole_operands(self) -> None:
        """Ranges of folds that stay whole, see `partly_followed`."""
        for s in self.graph.statements:
            cuts = {r: found for r in (*s.ranges, *s.reduced) if (found := self.cuts(s.name, r))}
            if s.reduction and cuts:
                reads = [(*read.indices, *(g.index for g in read.guards)) for read in s.body.reads()]
                self.fixed |= {(s.name, r) for r in partly_followed(cuts, s.reduced, reads)}

    def _all(self) -> dict[tuple[str, Range], Cuts]:
        return {key: cuts for key in self.strides if (cuts := self.cuts(*key))}

    def _parts(self, reader: str, index: Index, extent: int) -> Cuts:
        """The strides of an index that counts all of an axis, each element once; none for another index."""
        if not index.affine or index.offset:
            return ()
        terms: list[tuple[int, int]] = []
        for r, factor in index.terms:
            assert isinstance(r, Range)
            cuts = self.cuts(reader, r)
            terms += [(factor * stride, n) for stride, n in zip((*cuts, 1), extents(r.extent, cuts))]
        count = 1
        for factor, n in sorted(terms):
            if factor != count:
                return ()
            count *= n
        return tuple(sorted((f for f, _ in terms if f > 1), reverse=True)) if count == extent else ()

    def _value(self, value: Value) -> Value:
        if not isinstance(value, Statement):
            return value
        taken = {r.name for r in (*value.ranges, *value.reduced)}
        parts: dict[Range, tuple[Range, ...]] = {}
        for r in (*value.ranges, *value.reduced):
            cuts = self.cuts(value.name, r)
            parts[r] = _named(r, extents(r.extent, cuts), taken) if cuts else (r,)
        new = {r: whole(some) for r, some in parts.items() if len(some) > 1}
        cut = value.body.substitute(new) if new else value.body
        for r in self._unproven(cut, parts):
            self.fixed.add((value.name, r))
        body = rebuild(cut, self._read)
        fold = value.reduction
        if fold is not None:
            fold = Reduction(fold.op, tuple(p for r in fold.ranges for p in parts[r]))
        return replace(value, ranges=tuple(p for r in value.ranges for p in parts[r]), body=body, reduction=fold)

    def _unproven(self, body: Expr, parts: Mapping[Range, tuple[Range, ...]]) -> Iterator[Range]:
        """Cut ranges of an index of which its guards, with the parts in it, no longer show that it is in bounds."""
        for read in body.reads():
            for axis, index in enumerate(read.indices):
                extent = self.graph[read.value].shape[axis]
                if not self._axis(read.value, axis) and not _inside(index, extent, read.guards):
                    yield from (r for r, some in parts.items() if len(some) > 1 and index.ranges() & set(some))

    def _read(self, e: Expr) -> Expr:
        """A read of a value with finer axes."""
        if not isinstance(e, Read):
            return e
        value = self.graph[e.value]
        places: list[Index] = []
        for axis, index in enumerate(e.indices):
            cuts = self._axis(e.value, axis)
            if not cuts:
                places.append(index)
                continue
            assert isinstance(value, Statement)
            r = value.ranges[axis]
            each = [(index // stride, n) for stride, n in zip((*cuts, 1), extents(r.extent, cuts))]
            own = [each[0][0], *(place % n for place, n in each[1:])]
            if not all(_inside(place, n, e.guards) for place, (_, n) in zip(own, each)):
                self.fixed.add((e.value, r))
            places += own
        return Read(e.value, tuple(places), e.guards, e.pad)


def _inside(index: Index, extent: int, guards: tuple[Guard, ...]) -> bool:
    low, high = index.interval(guards)
    return low > high or (low >= 0 and high < extent)


def _named(r: Range, sizes: tuple[int, ...], taken: set[str]) -> tuple[Range, ...]:
    """Ranges for parts, with names that the statement does not have yet."""
    found: list[Range] = []
    for n, size in enumerate(sizes):
        name = f"{r.name}_{n}"
        while name in taken:
            name += "_"
        taken.add(name)
        found.append(Range(name, size))
    return tuple(found)
