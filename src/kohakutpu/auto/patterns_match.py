"""Comparing a pattern with what a program computes: over expressions, wherever the program's statements begin and end.

Decides when they are the same computation: operations that commute in either order, ranges by their role, movement read
through, a quotient and a product with a reciprocal alike. It must not know which kernels there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count, permutations

from kohakuaccel.graph import Graph, Statement
from kohakuaccel.graph.expr import COMMUTATIVE, Cast, Const, Expr, Iota, Op, Read
from kohakuaccel.graph.index import Guard, Index, Range
from kohakuaccel.graph.model import Input, Value
from kohakuaccel.graph.rewrite.base import inlined
from kohakutpu.auto.patterns import Instance


@dataclass(frozen=True)
class State:
    """What is known so far. ranges: a pattern's range to the program's. operands: by the pattern's input, an expression
    over `operand_ranges(input)`. inside: statements of the program that are part of what was compared."""

    ranges: Mapping[Range, Range] = field(default_factory=dict[Range, Range])
    operands: Mapping[str, Expr] = field(default_factory=dict[str, Expr])
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    inside: frozenset[str] = frozenset()


def operand_ranges(value: Input) -> tuple[Range, ...]:
    """One range an axis of an operand, under names of its own."""
    return tuple(Range(f"axis{n}", extent) for n, extent in enumerate(value.shape))


@dataclass
class Matcher:
    """One comparison of an instance with a graph. loose: extents, places and numbers are not compared, but what the
    extents of the folds tell of the free sizes is kept; else everything is compared."""

    instance: Instance
    graph: Graph
    loose: bool
    _fresh: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self._mine: Mapping[str, Value] = self.instance.graph.by_name
        self._theirs: Mapping[str, Value] = self.graph.by_name

    def matches(self, root: Statement) -> Iterator[State]:
        """Every way in which the pattern is what `root` computes, its axes in order."""
        mine = self.instance.statement
        pairs = list(zip(mine.ranges, root.ranges))
        sizes: dict[str, int] = {}
        for a, b in pairs:
            name = self.instance.unknown(a.extent) if self.loose else None
            if name is not None:
                sizes[name] = b.extent
            elif not self.loose and a.extent != b.extent:
                return
        start = State(dict(pairs), sizes=sizes)
        here = Read(mine.name, tuple(Index.of(r) if r.extent > 1 else Index.of(0) for r in mine.ranges))
        there = Read(root.name, tuple(Index.of(r) if r.extent > 1 else Index.of(0) for r in root.ranges))
        yield from self._expr(here, there, start)

    def _expr(self, p: Expr, t: Expr, s: State) -> Iterator[State]:
        p = _spelled(p)
        if isinstance(p, Read):
            source = self._mine[p.value]
            if isinstance(source, Input):
                yield from self._operand(source, p, t, s)
                return
            if isinstance(source, Statement) and not source.reduction and not p.guards:
                yield from self._expr(inlined(source, p.indices), t, s)
                return
            through = moved(p, self._mine) if p.guards else None
            if through is not None:
                yield from self._expr(through, t, s)
                return
        t, s = self._opened(t, s)
        if isinstance(p, Read):
            yield from self._read(p, t, s)
        elif isinstance(p, Const):
            yield from self._number(p, t, s)
        elif isinstance(p, Iota):
            if isinstance(t, Iota) and (self.loose or self._index(p.index, s) == t.index):
                yield s
        elif isinstance(p, Cast):
            if isinstance(t, Cast) and t.dtype == p.dtype:
                yield from self._expr(p.arg, t.arg, s)
        elif isinstance(p, Op):
            yield from self._operation(p, t, s)

    def _opened(self, t: Expr, s: State) -> tuple[Expr, State]:
        """What is read, as far as it is no fold, and the statements gone through."""
        while isinstance(t, Read) and not t.guards:
            source = self._theirs[t.value]
            if not isinstance(source, Statement) or source.reduction:
                break
            s = replace(s, inside=s.inside | {source.name})
            t = inlined(source, t.indices)
        return _spelled(t), s

    def _operation(self, p: Op, t: Expr, s: State) -> Iterator[State]:
        name, default = self._free(p.args[-1])
        absent = default == {"mul": 1.0, "add": 0.0}.get(p.name, math.nan)
        if name is not None and default is not None and absent and s.numbers.get(name, default) == default:
            yield from self._expr(p.args[0], t, replace(s, numbers={**s.numbers, name: default}))
        if not isinstance(t, Op):
            return
        if t.name != p.name:
            yield from self._respelled(p, t, s)
            return
        orders = [t.args]
        if p.name in COMMUTATIVE and p.args[0] != p.args[1] and t.args[0] != t.args[1]:
            orders.append((t.args[1], t.args[0]))
        for args in orders:
            yield from self._all(tuple(zip(p.args, args)), s)

    def _respelled(self, p: Op, t: Op, s: State) -> Iterator[State]:
        """A quotient as a product with a reciprocal of its own, a reciprocal square root in two steps."""
        if p.name == "div" and t.name == "mul":
            for one, other in (t.args, t.args[::-1]):
                opened, found = self._opened(other, s)
                if isinstance(opened, Op) and opened.name == "recip":
                    yield from self._all(((p.args[0], one), (p.args[1], opened.args[0])), found)
        elif p.name == "rsqrt" and t.name == "recip":
            opened, found = self._opened(t.args[0], s)
            if isinstance(opened, Op) and opened.name == "sqrt":
                yield from self._expr(p.args[0], opened.args[0], found)

    def _all(self, pairs: tuple[tuple[Expr, Expr], ...], s: State) -> Iterator[State]:
        if not pairs:
            yield s
            return
        (p, t), *rest = pairs
        for found in self._expr(p, t, s):
            yield from self._all(tuple(rest), found)

    def _number(self, p: Const, t: Expr, s: State) -> Iterator[State]:
        if not isinstance(t, Const):
            return
        name, _ = self._free(p)
        if name is None:
            if self.loose or p == t:
                yield s
        elif t.kind == "real" and s.numbers.get(name, t.value) == t.value:
            yield replace(s, numbers={**s.numbers, name: float(t.value)})

    def _free(self, p: Expr) -> tuple[str | None, float | None]:
        """The name of a free number, and what it is where it is absent."""
        if isinstance(p, Const) and p.kind == "real":
            return self.instance.numbers.get(float(p.value), (None, None))
        return None, None

    def _read(self, p: Read, t: Expr, s: State) -> Iterator[State]:
        """A fold, or a constant of the pattern."""
        if not isinstance(t, Read) or t.guards or p.guards:
            return
        mine, theirs = self._mine[p.value], self._theirs[t.value]
        if not isinstance(mine, Statement) or not isinstance(theirs, Statement):
            if type(mine) is type(theirs) and self._same_constant(mine, theirs):
                places = tuple(self._index(i, s) for i in p.indices)
                if self.loose or places == t.indices:
                    yield s
            return
        if mine.reduction is None or theirs.reduction is None or mine.reduction.op != theirs.reduction.op:
            return
        if len(mine.reduced) != len(theirs.reduced):
            return
        own = {r: Range(f"p{next(self._fresh)}", r.extent) for r in mine.reduced}
        body = mine.body.substitute(_at(mine, p) | {r: Index.of(new) for r, new in own.items()})
        for order in permutations(theirs.reduced):
            sizes = self._folds(mine.reduced, order, s)
            if sizes is None:
                continue
            new = {r: Range(f"t{next(self._fresh)}", r.extent) for r in order}
            found = theirs.body.substitute(_at(theirs, t) | {r: Index.of(made) for r, made in new.items()})
            ranges = {**s.ranges, **{own[a]: new[b] for a, b in zip(mine.reduced, order)}}
            inside = s.inside | {theirs.name}
            yield from self._expr(body, found, replace(s, ranges=ranges, sizes=sizes, inside=inside))

    def _same_constant(self, mine: Value, theirs: Value) -> bool:
        return mine.shape == theirs.shape and getattr(mine, "data", None) == getattr(theirs, "data", None)

    def _folds(self, mine: tuple[Range, ...], theirs: tuple[Range, ...], s: State) -> Mapping[str, int] | None:
        """What is known of sizes when these folds are the same; None where they are not."""
        if not self.loose:
            return s.sizes if all(a.extent == b.extent for a, b in zip(mine, theirs)) else None
        sizes = dict(s.sizes)
        for a, b in zip(mine, theirs):
            name = self.instance.unknown(a.extent)
            if name is not None and sizes.setdefault(name, b.extent) != b.extent:
                return None
        return sizes

    # operands

    def _operand(self, source: Input, p: Read, t: Expr, s: State) -> Iterator[State]:
        """Whatever the program has in an operand's place, if it follows the operand's own axes."""
        if self.loose:
            yield s
            return
        axes = operand_ranges(source)
        found = self._by_axes(p, t, s, axes) if _plain(p) else self._by_place(p, t, s, axes)
        if found is None or (source.name not in self.instance.stretched and _repeats(found, axes)):
            return
        before = s.operands.get(source.name)
        if before is None or before == found or self._deep(before) == self._deep(found):
            yield replace(s, operands={source.name: found, **s.operands})

    def _by_axes(self, p: Read, t: Expr, s: State, axes: tuple[Range, ...]) -> Expr | None:
        new: dict[Range, Index] = {}
        for index, axis in zip(p.indices, axes):
            if index.range is not None:
                new[s.ranges[index.range]] = Index.of(axis)
        return t.substitute(new) if t.ranges() <= frozenset(new) else None

    def _by_place(self, p: Read, t: Expr | None, s: State, axes: tuple[Range, ...]) -> Expr | None:
        """An operand read at places that are no plain ranges: the program reads something at the same places."""
        places = [self._index(i, s) for i in p.indices]
        guards = {Guard(self._index(one.index, s), one.low, one.high) for one in p.guards}
        while isinstance(t, Read):
            if (
                set(t.guards) == guards
                and (t.pad == p.pad or not guards)
                and all(i in places or i.constant is not None for i in t.indices)
            ):
                return Read(t.value, tuple(Index.of(axes[places.index(i)]) if i in places else i for i in t.indices))
            t = moved(t, self._theirs)
        return None

    def _deep(self, t: Expr) -> Expr:
        opened, _ = self._opened(t, State())
        return opened.with_children(tuple(self._deep(c) for c in opened.children))

    def _index(self, index: Index, s: State) -> Index:
        return index.substitute({mine: Index.of(theirs) for mine, theirs in s.ranges.items()})


def _repeats(found: Expr, axes: tuple[Range, ...]) -> bool:
    """Whether an operand is the same along one of its axes: a kernel would be given copies."""
    return not frozenset(r for r in axes if r.extent > 1) <= found.ranges()


def moved(read: Read, values: Mapping[str, Value]) -> Read | None:
    """What a read of something moved reads; None where nothing is moved."""
    source = values[read.value]
    if not isinstance(source, Statement) or source.reduction or not isinstance(source.body, Read):
        return None
    found = inlined(source, read.indices)
    assert isinstance(found, Read)
    if found.guards and read.guards and found.pad != read.pad:
        return None
    guards = tuple(one for one in dict.fromkeys((*read.guards, *found.guards)) if not one.always)
    return Read(found.value, found.indices, guards, (read.pad if read.guards else found.pad) if guards else None)


def _at(statement: Statement, read: Read) -> dict[Range, Index]:
    return dict(zip(statement.ranges, read.indices))


def _plain(read: Read) -> bool:
    found = [i.range for i in read.indices if i.constant is None]
    return not read.guards and None not in found and len(set(found)) == len(found)


def _spelled(e: Expr) -> Expr:
    """One spelling of the outermost operation: a product with a reciprocal is a quotient, a fused sum is a sum."""
    if isinstance(e, Op) and e.name == "fma":
        return Op("add", (Op("mul", e.args[:2]), e.args[2]))
    if isinstance(e, Op) and e.name == "mul":
        for one, other in (e.args, e.args[::-1]):
            if isinstance(other, Op) and other.name == "recip":
                return Op("div", (one, other.args[0]))
    if isinstance(e, Op) and e.name == "recip" and isinstance(inner := e.args[0], Op) and inner.name == "sqrt":
        return Op("rsqrt", inner.args)
    return e
