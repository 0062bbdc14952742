"""Values in the order in which products read them: heads apart from the start, or a copy where that cannot be.

Decides the axes of a value between two stages, as a rewrite of the graph. It must not know byte orders.
"""

from __future__ import annotations

from kohakuaccel.graph import Expr, Graph, Index, Range, Read, Statement
from kohakuaccel.graph.expr import rebuild
from kohakuaccel.graph.index import Atom
from kohakuaccel.graph.model import Reduction, Value
from kohakuaccel.graph.rewrite.base import with_body
from kohakuaccel.machine import Machine
from kohakutpu.auto import access
from kohakutpu.auto.access import Ranges, long
from kohakutpu.auto.fusion import Sources
from kohakutpu.auto.tiles import fits

MOST_POINTS = 1 << 24
"""Elements of a value that may be made only to be folded."""


def in_reach(sources: Sources, statement: Statement) -> Graph | None:
    """The graph changed so that a statement that no stage can hold is nearer to one; None where nothing helps."""
    if statement.name in sources.contractions:
        return _operand_in_reach(sources, statement)
    if sources.problem(statement) and not any(r.guards for r in statement.body.reads()):
        return None
    if statement.reduction:
        return _unfolded(sources.graph, statement) if _points(statement) <= MOST_POINTS else None
    return _turned(sources, statement)


def operands_in_reach(graph: Graph, machine: Machine) -> Graph:
    """The graph with every operand of a product in an order that its products can read."""
    sources = Sources(graph, machine)
    left = list(sources.contractions)
    while left:
        statement = sources.graph.by_name.get(left[-1])
        changed = _operand_in_reach(sources, statement) if isinstance(statement, Statement) else None
        if changed is None:
            left.pop()
        else:
            sources = Sources(changed, machine)
    return sources.graph


def _operand_in_reach(sources: Sources, contraction: Statement) -> Graph | None:
    """One operand of a contraction in an order that its products can read."""
    found = sources.contractions[contraction.name]
    for side, own in ((found.left, found.m), (found.right, found.n)):
        if not isinstance(side, Read) or side.guards:
            continue
        if not fits(sources, side, long(own), long(found.k)):
            groups = _groups(side, contraction, long(own), long(found.k))
            made = None if sources.known(side.value) else _reordered(sources, side, groups)
            return made if made is not None else _copied(sources, side, contraction, groups)
    return None


def _points(statement: Statement) -> int:
    return access.size((*statement.ranges, *statement.reduced))


def _unfolded(graph: Graph, statement: Statement) -> Graph | None:
    """What is folded as a value of its own, the folded ranges last, then the fold of its rows."""
    assert statement.reduction is not None
    every = (*statement.ranges, *statement.reduced)
    fresh = {r: Range(f"i{n}", r.extent) for n, r in enumerate(every)}
    name = graph.fresh("folded")
    body = statement.body.substitute({old: Index.of(r) for old, r in fresh.items()})
    there = Read(name, tuple(Index.of(r) for r in every))
    if isinstance(statement.body, Read) and not statement.body.guards and statement.body.indices == there.indices:
        return None  # it is one already
    apart = Statement(name, statement.dtype, tuple(fresh.values()), body)
    return _with(graph, apart, with_body(statement, there))


def _turned(sources: Sources, statement: Statement) -> Graph | None:
    """A value computed along another of its axes, then brought into its own order."""
    for last in long(statement.ranges)[:-1]:
        order = (*(r for r in statement.ranges if r != last), last)
        reads = list(statement.body.reads())
        if all(access.row(sources.flat(r), sources.total(r), (last,)) for r in reads) and not any(
            r.guards for r in reads
        ):
            fresh = {r: Range(f"i{n}", r.extent) for n, r in enumerate(order)}
            name = sources.graph.fresh("turned")
            body = statement.body.substitute({old: Index.of(r) for old, r in fresh.items()})
            made = Statement(name, statement.dtype, tuple(fresh.values()), body)
            return _with(sources.graph, made, with_body(statement, Read(name, tuple(Index.of(r) for r in order))))
    return None


def _with(graph: Graph, first: Statement, then: Statement) -> Graph:
    """The graph with a statement in two."""
    values: list[Value] = []
    for v in graph.values:
        values += [first, then] if v.name == then.name else [v]
    return graph.with_values(values)


def _groups(read: Read, statement: Statement, own: Ranges, fold: Ranges) -> tuple[Atom, ...]:
    """What a read's indices are made of, in the order of its matrices: what leads, then rows and columns."""
    found = list(dict.fromkeys(atom for index in read.indices for atom, _ in index.terms))
    space = {r: n for n, r in enumerate((*statement.ranges, *statement.reduced))}
    rows = [a for a in found if a in own]
    deep = [a for a in found if a in fold]
    # Of several folded ranges, one product for each point of the outer ones.
    lead = [a for a in found if a not in (*rows, *deep)]
    lead.sort(key=lambda a: min((space[r] for r in Index.of(a).ranges()), default=0))
    return (*lead, *deep[:-1], *sorted(rows, key=lambda a: own.index(a) if isinstance(a, Range) else 0), *deep[-1:])


def _extent(atom: Atom) -> int:
    return Index.of(atom).interval()[1] + 1


def _cuts(read: Read, shape: tuple[int, ...]) -> list[list[Atom]] | None:
    """Per axis of the value, what its index is made of, slowest first; None where that does not cover it once."""
    found: list[list[Atom]] = []
    for index, extent in zip(read.indices, shape):
        if index.offset or any(True for _ in index.lookups()):
            return None
        terms = sorted(index.terms, key=lambda term: term[1], reverse=True)
        count = 1
        for atom, factor in reversed(terms):
            if factor != count:
                return None
            count *= _extent(atom)
        if count != extent:
            return None
        found.append([atom for atom, _ in terms])
    every = [atom for atoms in found for atom in atoms]
    return found if len(set(every)) == len(every) else None


def _reordered(sources: Sources, read: Read, order: tuple[Atom, ...]) -> Graph | None:
    """The graph with the value computed in another order of (parts of) its axes, where every reader can follow."""
    graph = sources.graph
    value = graph.statement(read.value)
    cuts = _cuts(read, value.shape)
    if cuts is None or value.name in sources.outputs:
        return None
    fresh = {atom: Range(f"i{n}", _extent(atom)) for n, atom in enumerate(order)}
    new: dict[Range, Index] = {}
    for own, atoms in zip(value.ranges, cuts):
        new[own] = access.over(fresh[atom] for atom in atoms)
    folded = {r: Range(f"k{n}", r.extent) for n, r in enumerate(value.reduced)}
    body = value.body.substitute(new | {r: Index.of(f) for r, f in folded.items()})
    reduction = Reduction(value.reduction.op, tuple(folded.values())) if value.reduction else None
    name = graph.fresh(f"{value.name}_ordered")
    made = Statement(name, value.dtype, tuple(fresh.values()), body, reduction)
    followed = True

    def change(e: Expr) -> Expr:
        nonlocal followed
        if not isinstance(e, Read) or e.value != value.name:
            return e
        at: dict[Range, Index] = {}
        for index, atoms in zip(e.indices, cuts):
            at |= access.digits([fresh[atom] for atom in atoms], index)
        moved = tuple(at[r] for r in fresh.values())
        before = {atom for i in e.indices for atom, _ in i.terms}
        followed &= all(isinstance(atom, Range) or atom in before for i in moved for atom, _ in i.terms)
        return Read(name, moved, e.guards, e.pad)

    values: list[Value] = []
    for v in graph.values:
        if v.name == value.name:
            v = made
        elif isinstance(v, Statement):
            v = with_body(v, rebuild(v.body, change))
        values.append(v)
    return graph.with_values(values) if followed else None


def _copied(sources: Sources, read: Read, contraction: Statement, order: tuple[Atom, ...]) -> Graph:
    """The graph with the operand copied into the order of its matrices first."""
    graph = sources.graph
    ranges: list[Range] = []
    for atom in order:
        ranges += [r for r in (*contraction.ranges, *contraction.reduced) if r in Index.of(atom).ranges()]
    every = tuple(dict.fromkeys(ranges))
    fresh = {r: Range(f"i{n}", r.extent) for n, r in enumerate(every)}
    name = graph.fresh(f"{read.value}_copy")
    body = read.substitute({r: Index.of(f) for r, f in fresh.items()})
    made = Statement(name, graph[read.value].dtype, tuple(fresh.values()), body)
    there = Read(name, tuple(Index.of(r) for r in every))
    return _with(graph, made, with_body(contraction, rebuild(contraction.body, lambda e: there if e == read else e)))
