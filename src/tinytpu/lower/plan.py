"""A graph as a plan: stages of programs in order, values between stages in host memory.

Decides which statements share a stage, and that a fold too long for a program is cut in parts. Every value that goes
through the host is a stage's output, and counted. It must not know instructions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph import (
    BOOL,
    Constant,
    Graph,
    Input,
    Range,
    Read,
    Reduction,
    Statement,
    Value,
    kind_of,
    verify,
)
from kohakuaccel.graph.index import Index
from kohakuaccel.graph.native import stored_in
from kohakuaccel.graph.points import Array
from kohakuaccel.graph.rewrite.axes import cut_axes
from kohakuaccel.graph.verify import format_of
from kohakuaccel.machine import Machine
from kohakuaccel.numerics import FP32, INT32
from tinytpu.lower.array.chain import chain
from tinytpu.lower.array.product import as_product, certain, choose_product
from tinytpu.lower.array.prologue import split
from tinytpu.lower.errors import NotLowered
from tinytpu.lower.forms.minima import Minima
from tinytpu.lower.forms.spelling import PlainWords
from tinytpu.lower.groups import addresses, grouped, left_of
from tinytpu.lower.joined import join
from tinytpu.lower.packed import pack
from tinytpu.lower.run import Counts
from tinytpu.lower.stage import choose, in_parts
from tinytpu.lower.steps import (
    Addresses,
    Multiplied,
    Shared,
    Step,
    alone_of,
    cycles_of,
    part_name,
    run_step,
    statements_of,
)
from tinytpu.machines.choice import chosen


@dataclass(frozen=True)
class Ran:
    """What a run gave: outputs by label, what it took, and the cycles of each step."""

    outputs: dict[str, Array]
    counts: Counts
    cycles: tuple[int, ...]
    notes: tuple[str, ...] = ()
    """What went another way than the plan's first: products whose operands are beyond int8, large sines."""


@dataclass(frozen=True)
class Plan:
    """A verified graph and the steps that compute it. values: by name, as steps have them: with finer axes than the
    graph's, and those that the plan made for parts too."""

    graph: Graph
    machine: Machine
    steps: tuple[Step, ...]
    values: Mapping[str, Value]

    def text(self) -> str:
        """A line a step, and one a program."""
        return "\n".join(step.text() for step in self.steps)

    def run(self, inputs: Mapping[str, ArrayLike]) -> Ran:
        """inputs: by name, of the value's shape; they are cast to the format's own dtype, which must change nothing.

        Raises Refusal for wrong inputs, and where a value is beyond what a function of the vector unit is right for.
        """
        known: dict[str, Array] = {}
        for value in self.graph.values:
            if isinstance(value, Input):
                known[value.name] = _given(value, inputs)
            elif isinstance(value, Constant):
                known[value.name] = np.ascontiguousarray(value.array.astype(stored_in(value.dtype)))
        total = Counts()
        notes: list[str] = []
        cycles: list[int] = []
        for step in self.steps:
            before = total.cycles
            run_step(step, known, self.values, total, notes)
            cycles.append(total.cycles - before)
        outputs = {label: known[name].reshape(self.graph[name].shape) for label, name in self.graph.outputs}
        return Ran(outputs, total, tuple(cycles), tuple(notes))


def _given(value: Input, inputs: Mapping[str, ArrayLike]) -> Array:
    where = f"input {value.name}"
    if value.name not in inputs:
        raise Refusal("every input is given", where=where, got="nothing")
    array = np.asarray(inputs[value.name])
    if array.shape != value.shape:
        raise Refusal("an input has its shape", where=where, got=array.shape, limit=value.shape)
    held = np.ascontiguousarray(array.astype(stored_in(value.dtype))).reshape(value.shape)
    if held.dtype != array.dtype and kind_of(value.dtype) != "real" and not np.array_equal(held, array):
        raise Refusal(f"an input of {value.dtype} holds such numbers", where=where, got=array.dtype)
    return held


Array8 = Literal["where it fits", "demanded", "never"]
"""When products of integers go to the array: where operands are int8, always (others are refused), or never."""


Functions = Literal["polynomials", "unit"]


def compile_graph(
    graph: Graph,
    machine: Machine | None = None,
    *,
    mxu: Array8 = "where it fits",
    join: bool = True,
    functions: Functions = "polynomials",
) -> Plan:
    """The plan of a graph. Raises NotLowered (a NotImplementedError) for what the machine has no program for.

    machine: without it, the one that was chosen (`machines.choice`), else the datasheet's.
    join: whether stages share programs where that takes fewer cycles; results are the same to the bit.
    functions: exp2, log2 and sine as polynomials, right to 6e-7, or the vector unit's own, right to 3e-2 (see
    lower.numbers.serial), which work in the background of the array.
    """
    machine = machine or chosen()
    verify(graph)
    finer = cut_axes(Minima().rewrite(PlainWords().rewrite(graph)))
    values: dict[str, Value] = dict(finer.by_name)
    lowering = _Lowering(finer, values, machine, mxu, functions == "unit", [])
    lowering.groups(grouped(finer.statements), joined=join)
    return Plan(graph, machine, tuple(lowering.steps), values)


MOST_JOINED = 8
"""Groups of statements that are tried as one."""


@dataclass
class _Lowering:
    graph: Graph
    values: dict[str, Value]
    machine: Machine
    mxu: Array8
    unit: bool
    steps: list[Step]
    depths: dict[str, int] = field(default_factory=dict[str, int])
    """Of folds that were joined with others: how many lanes hold terms of one element, which rounding follows."""

    def groups(self, groups: Sequence[list[Statement]], *, joined: bool) -> None:
        """Steps for groups in order, neighbours in one where that takes fewer cycles. Not joined, each group is a step
        of its own, and its folds are rounded as they were if they were."""
        alone: list[tuple[Step, ...]] = []
        for group in groups:
            before = len(self.steps)
            self.group(group)
            alone.append(tuple(self.steps[before:]))
            del self.steps[before:]
        at = 0
        while at < len(groups):
            length, found = self._chained(groups, alone, at) if joined else (1, None)
            if found is None:
                length, found = self._joined(groups, alone, at)
            if found is None:
                self.steps += alone[at]
            elif joined:
                self.steps.append(found)
            else:
                for group in groups[at : at + length]:
                    self.group(group)
            at += length
        if joined:
            self.steps = self._packed(self.steps)

    def _packed(self, steps: Sequence[Step]) -> list[Step]:
        """Neighbouring steps that do not read each other, in one program where that takes fewer cycles."""
        found: list[Step] = []
        for step in steps:
            last = found[-1] if found else None
            both = alone_of(last) + alone_of(step) if last is not None else ()
            own = [s.product if isinstance(s, Multiplied) else s for s in both]
            whole = [s for s in own if not isinstance(s, Addresses | Shared)]
            names = {s.name for s in statements_of(last)} if last is not None else set[str]()
            if (
                last is None
                or len(whole) < len(own)
                or any(r.value in names for s in statements_of(step) for r in s.body.reads())
            ):
                found.append(step)
                continue
            packed = pack(whole, self.machine)
            if packed is not None and packed.cycles < cycles_of(last) + cycles_of(step):
                found[-1] = Shared(packed, both)
            else:
                found.append(step)
        return found

    def _chained(
        self, groups: Sequence[list[Statement]], alone: Sequence[tuple[Step, ...]], at: int
    ) -> tuple[int, Step | None]:
        """The most groups from `at` on that are layers of one chain and take fewer cycles so, and that step."""
        for length in range(min(MOST_JOINED, len(groups) - at), 0, -1):
            part = groups[at : at + length]
            steps = [step for some in alone[at : at + length] for step in some]
            if not all(isinstance(some[0], Multiplied) for some in alone[at : at + length]):
                continue
            statements = [s for group in part for s in group]
            found = chain(part, left_of(statements, self.graph), self.values, self.machine, unit=self.unit)
            if found is not None and found.cycles < sum(cycles_of(step) for step in steps):
                sure = all(step.certain for step in steps if isinstance(step, Multiplied))
                otherwise = None if sure or self.mxu == "demanded" else partial(self._otherwise, statements)
                return length, Multiplied(found, sure, otherwise)
        return 1, None

    def _joined(
        self, groups: Sequence[list[Statement]], alone: Sequence[tuple[Step, ...]], at: int
    ) -> tuple[int, Step | None]:
        """The most groups from `at` on that are one step and take fewer cycles so, and that step."""
        for length in range(min(MOST_JOINED, len(groups) - at), 1, -1):
            statements = [s for group in groups[at : at + length] for s in group]
            steps = [step for some in alone[at : at + length] for step in some]
            products = [step for step in steps if isinstance(step, Multiplied)]
            if any(isinstance(step, Addresses) for step in steps) or products not in ([], steps[:1]):
                continue
            left, budget = left_of(statements, self.graph), sum(cycles_of(step) for step in steps)
            found = join(statements, left, self.values, self.machine, budget, product=bool(products), unit=self.unit)
            if found is not None:
                self.depths |= found.depths
                if not products:
                    return length, found
                (first,) = products
                otherwise = None if first.otherwise is None else partial(self._otherwise, statements)
                return length, Multiplied(found, first.certain, otherwise)
        return 1, None

    def group(self, group: list[Statement]) -> None:
        """Steps for a group of statements."""
        if len(group) == 1 and addresses(group[0]):
            self.steps.append(Addresses(group[0]))
        elif not self._product(group):
            self._stages(group)

    def _product(self, group: list[Statement]) -> bool:
        """Whether the group begins with a product that goes to the array; what does not fit behind it follows."""
        if self.mxu == "never":
            return False
        if as_product(group[0], self.values) is not None:
            return self._multiplied(group, group[0])
        made = split(group[0], self.values)
        if made is None:
            return False
        # Operands with arithmetic are stages of their own, where the whole is faster so.
        before, kept = len(self.steps), dict(self.values)
        self.values |= {s.name: s for s in made[0]}
        stages = [choose([s], [s.name], self.values, self.machine, unit=self.unit) for s in made[0]]
        self.steps += [stage for stage in stages if stage is not None]
        if None not in stages and self._multiplied(group, made[1]):
            steps, _ = self._otherwise(group)
            if self.mxu == "demanded" or sum(map(cycles_of, self.steps[before:])) < sum(map(cycles_of, steps)):
                return True
        del self.steps[before:]
        self.values.clear()
        self.values |= kept
        return False

    def _multiplied(self, group: list[Statement], product: Statement) -> bool:
        """A group's first statement as a product for the array, with as much of what follows as fits."""
        found = as_product(product, self.values)
        assert found is not None
        for length in range(len(group), 0, -1):
            part = group[:length]
            left = left_of(part, self.graph)
            made = choose_product([product, *part[1:]], left, self.values, self.machine, unit=self.unit)
            if made is not None:
                sure = certain(found, self.values)
                otherwise = None if sure or self.mxu == "demanded" else partial(self._otherwise, part)
                self.steps.append(Multiplied(made, sure, otherwise))
                if length < len(group):
                    self.group(group[length:])
                return True
        return False

    def _otherwise(self, group: list[Statement]) -> tuple[tuple[Step, ...], Mapping[str, Value]]:
        other = _Lowering(self.graph, dict(self.values), self.machine, "never", self.unit, [], self.depths)
        for alike in grouped(group):
            other.group(alike)
        return tuple(other.steps), other.values

    def _stages(self, group: list[Statement]) -> None:
        depth = next((self.depths[s.name] for s in group if s.name in self.depths), None)
        stage = choose(group, left_of(group, self.graph), self.values, self.machine, depth, unit=self.unit)
        if stage is not None:
            self.steps.append(stage)
        elif len(group) > 1:
            # The last fold begins a stage of its own, else each statement does.
            at = max((n for n, s in enumerate(group) if s.reduction and n), default=1)
            self.group(group[:at])
            self.group(group[at:])
        else:
            self._parts(group[0])

    def _parts(self, statement: Statement) -> None:
        """A fold in parts, and the fold of the parts."""
        assert statement.reduction is not None
        try:
            first = in_parts(statement, self.values, self.machine, unit=self.unit)
        except NotLowered:
            if isinstance(statement.body, Read):
                raise
            self._terms(statement)
            return
        self.steps.append(first)
        taken = {r.name for r in statement.ranges}
        name = next(n for n in ("part", *(f"part_{k}" for k in range(len(taken)))) if n not in taken)
        part = Range(name, first.layout.chunks)
        parts = part_name(statement.name)
        self.values[parts] = Input(parts, (part.extent, *statement.shape), statement.dtype)
        body = Read(parts, (Index.of(part), *(Index.of(r) for r in statement.ranges)))
        fold = Reduction(statement.reduction.op, (part,))
        self.group([Statement(statement.name, statement.dtype, statement.ranges, body, fold)])

    def _terms(self, statement: Statement) -> None:
        """The terms of a fold, of which not even one fits a program, as values of their own, and the fold of those."""
        ranges = (*statement.ranges, *statement.reduced)
        known = format_of(statement.body, self.values)
        dtype = known or {"real": FP32, "int": INT32, "bool": BOOL}[kind_of(statement.dtype)]
        terms = Statement(f"{statement.name}_terms", dtype, ranges, statement.body)
        self.values[terms.name] = terms
        stage = choose([terms], [terms.name], self.values, self.machine, unit=self.unit)
        assert stage is not None, "a statement without a fold is always a stage"
        self.steps.append(stage)
        body = Read(terms.name, tuple(Index.of(r) for r in ranges))
        self.group([Statement(statement.name, statement.dtype, statement.ranges, body, statement.reduction)])
