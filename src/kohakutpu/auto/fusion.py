"""The search for the largest stage that ends in a statement: which statements it may take in, and in which form.

Decides what belongs to one pass over memory, by asking the graph who else reads a value. It must not know the kernel
language, tiles' sizes or buffers.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod
from typing import TYPE_CHECKING

from kohakuaccel.diagnostics import Unsupported
from kohakuaccel.graph import Constant, Expr, Graph, Index, Input, Read, Statement, kind_of
from kohakuaccel.graph.structure import Contraction, as_contraction
from kohakuaccel.machine import Machine
from kohakutpu.auto import access
from kohakutpu.auto.access import long
from kohakutpu.auto.boxes import boxes
from kohakutpu.auto.expressions import expanded, reads, why_not
from kohakutpu.auto.stages import PartsStage, Stage

if TYPE_CHECKING:
    from kohakutpu.auto.one_row import OneRow


@lru_cache(maxsize=1024)
def _contraction(statement: Statement) -> Contraction | None:
    return as_contraction(statement)


@dataclass
class Sources:
    """What a search asks of the graph. single: statements that stay alone, and why. short: statements whose rows are
    their last axis, as no operand reaches the order of longer ones. wide: values that are stored in FP32 where a stage
    can, and are not computed from accumulators."""

    graph: Graph
    machine: Machine
    single: Mapping[str, str] = field(default_factory=dict[str, str])
    short: Container[str] = ()
    wide: Container[str] = ()

    @cached_property
    def readers(self) -> dict[str, frozenset[str]]:
        """Per value, the statements that read it."""
        found: dict[str, set[str]] = {v.name: set() for v in self.graph.values}
        for s in self.graph.statements:
            for r in s.body.reads():
                found[r.value].add(s.name)
        return {name: frozenset(names) for name, names in found.items()}

    @cached_property
    def outputs(self) -> frozenset[str]:
        return frozenset(name for _, name in self.graph.outputs)

    def contraction(self, statement: Statement) -> Contraction | None:
        """The statement as a product of any shape, or None."""
        return _contraction(statement) if statement.reduction else None

    @cached_property
    def contractions(self) -> dict[str, Contraction]:
        """Products that clusters compute: each side has long ranges of its own, or one side has and that pays."""
        found = {s.name: self.contraction(s) for s in self.graph.statements}
        return {
            name: c
            for name, c in found.items()
            if c
            and ((long(c.m) and long(c.n) and long(c.k)) or (name in self.one_rows and self.one_rows[name].clusters))
        }

    @cached_property
    def one_rows(self) -> dict[str, OneRow]:
        """What was decided for products with one row."""
        from kohakutpu.auto.one_row import one_row

        found = {s.name: one_row(self, s, c) for s in self.graph.statements if (c := self.contraction(s))}
        return {name: decided for name, decided in found.items() if decided}

    def known(self, name: str) -> bool:
        """Whether a value is there before anything runs."""
        return isinstance(self.graph[name], Input | Constant)

    def flat(self, read: Read) -> Index:
        """The place a read names in its value."""
        shape = self.graph[read.value].shape
        return access.flat(read, shape, tuple(range(len(shape))))

    def total(self, read: Read) -> int:
        """Elements of the value read."""
        return prod(self.graph[read.value].shape)

    def candidates(self, body: Expr, members: Mapping[str, Statement]) -> Iterator[Statement]:
        """Statements read by `body` that nobody else needs and the machine can compute."""
        for name in dict.fromkeys(r.value for r in reads(body)):
            value = self.graph[name]
            if not isinstance(value, Statement) or name in self.outputs or name in self.single:
                continue
            if self.readers[name] <= members.keys() and not self.problem(value):
                yield value

    def problem(self, statement: Statement) -> str:
        """Why the machine's units cannot compute a statement; empty when they can."""
        if kind_of(statement.dtype) == "int":
            return "the machine's units compute no whole numbers"
        if statement.reduction and statement.reduction.op == "prod":
            return "the vector cores fold with sums and extremes, not with products"
        for read in statement.body.reads():
            if kind_of(self.graph[read.value].dtype) == "int" and not self._looked_up(read, statement):
                return f"the machine's units read no whole numbers: {read}"
            looked = [r for r in read.reads() if r is not read]
            if not all(isinstance(self.graph[r.value], Constant) for r in looked):
                return f"{read} is gathered by numbers known only at run time"
        return why_not(statement.body)

    @staticmethod
    def _looked_up(read: Read, statement: Statement) -> bool:
        """Whether a read only serves as an index."""
        return read not in reads(statement.body)


def stage_of(sources: Sources, root: Statement) -> Stage:
    """The largest stage that ends in `root`. Raises Unsupported where none does."""
    from kohakutpu.auto.rows import boxed_stage, folded_stage, row_stage
    from kohakutpu.auto.tiles import tile_stage

    alone = root.name in sources.single
    cut = boxes(root)
    problem = sources.problem(root)
    if cut is not None and problem:
        found = boxed_stage(sources, root, cut, alone)
        if found is not None:
            return found
    if problem:
        raise Unsupported(problem, where=f"statement {root.name}")
    found = tile_stage(sources, root, alone) or folded_stage(sources, root, alone)
    if found is not None:
        return found
    parts = parts_stage(sources, root, alone)
    if parts is not None and (alone or not any(sources.candidates(parts.body, dict.fromkeys(parts.members, root)))):
        return parts
    # What parts cannot hold, a broadcast for one, may be part of rows: one pass instead of two.
    rows = row_stage(sources, root, alone)
    found = rows if parts is None or (rows and len(rows.members) > len(parts.members)) else parts
    if found is not None:
        return found
    raise Unsupported("no way through memory suits all operands", where=f"statement {root.name}")


def parts_stage(sources: Sources, root: Statement, alone: bool) -> PartsStage | None:
    """Everything lies where the result does."""
    if root.reduction:
        return None
    here = access.over(root.ranges)
    members, body = {root.name: root}, root.body

    def lies(e: Read) -> bool:
        return sources.flat(e) == here and sources.total(e) == prod(root.shape)

    grown = not alone
    while grown:
        grown = False
        for value in sources.candidates(body, members):
            if value.reduction or value.name in sources.contractions:
                continue
            trial = {**members, value.name: value}
            larger = expanded(root.body, trial, ())
            if all(lies(r) for r in set(reads(larger)) - set(reads(body))):
                members, body, grown = trial, larger, True
                break
    if not all(lies(r) for r in reads(body)):
        return None
    why = "every operand lies as the result does"
    return PartsStage(root=root, members=tuple(members), body=body, why=why)
