"""Rewrites as values: each takes a valid graph and returns a valid graph of the same meaning; they add up to pipelines.

Decides how rules are switched, repeated and watched. It must not know any rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from kohakuaccel.diagnostics import Refusal, did_you_mean
from kohakuaccel.graph.expr import Expr, Read, rebuild
from kohakuaccel.graph.index import Index
from kohakuaccel.graph.model import Graph, Statement, Value
from kohakuaccel.graph.verify import verify

Watch = Callable[["Rewrite", Graph], None]
"""Called after every rule that changed the graph: to print, to verify against a run, to time."""


@dataclass(frozen=True, kw_only=True)
class Rewrite(ABC):
    """One rule. Its fields are its options; `enabled` is its switch. Outputs keep their labels, inputs stay."""

    enabled: bool = True

    @property
    def name(self) -> str:
        """What the rule is called."""
        return type(self).__name__

    @abstractmethod
    def rewrite(self, graph: Graph) -> Graph:
        """The rule applied wherever its condition holds; the same graph where it holds nowhere."""

    def apply(self, graph: Graph) -> Graph:
        """`rewrite`, verified where it changed something; the graph itself when switched off."""
        made = self.rewrite(graph) if self.enabled else graph
        return graph if made == graph else verify(made)

    def __add__(self, other: Rewrite | Rewrites) -> Rewrites:
        return Rewrites((self,)) + other


@dataclass(frozen=True)
class Rewrites:
    """Rules in order, gone through again until none changes anything (at most `rounds` times)."""

    rules: tuple[Rewrite, ...]
    rounds: int = 16

    def __add__(self, other: Rewrite | Rewrites) -> Rewrites:
        return replace(self, rules=self.rules + (other.rules if isinstance(other, Rewrites) else (other,)))

    def without(self, *names: str) -> Rewrites:
        """The same rules with some switched off, by name."""
        known = {rule.name for rule in self.rules}
        for name in names:
            if name not in known:
                raise Refusal(f"a rule of the pipeline{did_you_mean(name, known)}", where="rewrites", got=name)
        return replace(self, rules=tuple(replace(r, enabled=r.enabled and r.name not in names) for r in self.rules))

    def apply(self, graph: Graph, watch: Watch | None = None) -> Graph:
        """The graph after all rules; `watch` sees each change."""
        for _ in range(self.rounds):
            before = graph
            for rule in self.rules:
                after = rule.apply(graph)
                if watch and after != graph:
                    watch(rule, after)
                graph = after
            if graph == before:
                break
        return graph


def with_reads(expr: Expr, names: Mapping[str, str]) -> Expr:
    """The expression reading other values: names that are keys become what they map to."""

    def change(e: Expr) -> Expr:
        if isinstance(e, Read) and e.value in names:
            return Read(names[e.value], e.indices, e.guards, e.pad)
        return e

    return rebuild(expr, change) if names else expr


def with_body(statement: Statement, body: Expr) -> Statement:
    """The statement with another body; itself where that is the same."""
    if body == statement.body:
        return statement
    return Statement(statement.name, statement.dtype, statement.ranges, body, statement.reduction)


def inlined(producer: Statement, indices: Iterable[Index]) -> Expr:
    """The body of an unfolded statement at `indices` of its value."""
    return producer.body.substitute(dict(zip(producer.ranges, indices)))


def looked_through(expr: Expr, values: Mapping[str, Value]) -> Expr:
    """What an unguarded read of an unfolded statement stands for, as far down as reads follow reads."""
    while isinstance(expr, Read) and not expr.guards:
        producer = values[expr.value]
        if not isinstance(producer, Statement) or producer.reduction:
            break
        expr = inlined(producer, expr.indices)
    return expr


def replaced(
    graph: Graph, new: Mapping[str, tuple[Statement, ...]], change: Callable[[Expr], Expr] | None = None
) -> Graph:
    """The graph with some statements replaced by several, and `change` applied to the bodies of the others."""
    values: list[Value] = []
    for value in graph.values:
        if value.name in new:
            values += new[value.name]
        elif change and isinstance(value, Statement):
            values.append(with_body(value, rebuild(value.body, change)))
        else:
            values.append(value)
    return graph.with_values(values)


def same_row(producer: Statement, read: Read, statement: Statement) -> Expr | None:
    """The body of a fold that `read` reads, over the folded ranges of `statement`; None where the extents differ."""
    mine, theirs = statement.reduced, producer.reduced
    if [r.extent for r in mine] != [r.extent for r in theirs] or read.guards:
        return None
    new = dict(zip(producer.ranges, read.indices)) | {old: Index.of(r) for old, r in zip(theirs, mine)}
    return producer.body.substitute(new)


def alike(found: Expr | None, element: Expr) -> bool:
    """Whether two expressions are one, a range of extent 1 being 0."""
    if found is None:
        return False
    a, b = (e.substitute({r: Index.of(0) for r in e.ranges() if r.extent == 1}) for e in (found, element))
    return a == b
