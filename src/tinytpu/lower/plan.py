"""A graph as a plan: stages of programs in order, values between stages in host memory.

Decides which statements share a stage, and that a fold too long for a program is cut in parts. Every value that goes
through the host is a stage's output, and counted. It must not know instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph import (
    BOOL,
    Constant,
    Expr,
    Graph,
    Input,
    Iota,
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
from kohakuaccel.machine import Machine
from tinytpu import machines
from tinytpu.lower.body import host_filled
from tinytpu.lower.chain import Chain, chain
from tinytpu.lower.data import Data
from tinytpu.lower.joined import Joined, join
from tinytpu.lower.multiply import run_chain, run_product
from tinytpu.lower.packed import Packed, pack
from tinytpu.lower.product import Product, as_product, beyond, certain, choose_product
from tinytpu.lower.run import Counts, run_joined, run_packed, run_stage
from tinytpu.lower.stage import Stage, choose, in_parts


@dataclass(frozen=True)
class Addresses:
    """A value of indices alone that no lane can hold (places of 64 bits): the host's, as all addresses are."""

    statement: Statement

    def text(self) -> str:
        return f"{self.statement.name}: addresses, {prod(self.statement.shape)} of {self.statement.dtype}"


@dataclass(frozen=True)
class Multiplied:
    """A product for the array. certain: whether its operands cannot be anything but int8; where they are not and
    nobody demanded the array, `otherwise` computes it on the vector unit."""

    product: Product | Joined | Chain
    certain: bool
    otherwise: Callable[[], tuple[tuple[Step, ...], Mapping[str, Value]]] | None

    def text(self) -> str:
        if self.certain:
            return self.product.text()
        way = "refused" if self.otherwise is None else "on the vector unit"
        return f"{self.product.text()}\n  operands beyond int8: {way}"


@dataclass(frozen=True)
class Shared:
    """Steps in one program. alone: the steps by themselves, where operands of a product turn out to be beyond int8."""

    packed: Packed
    alone: tuple[Step, ...]

    @property
    def cycles(self) -> int:
        return self.packed.cycles

    def text(self) -> str:
        return self.packed.text()


Step = Stage | Joined | Multiplied | Addresses | Shared


@dataclass(frozen=True)
class Ran:
    """What a run gave: outputs by label, what it took, and the cycles of each step."""

    outputs: dict[str, Array]
    counts: Counts
    cycles: tuple[int, ...]
    notes: tuple[str, ...] = ()
    """What went another way than the plan's first: products whose operands are beyond int8."""


@dataclass(frozen=True)
class Plan:
    """A verified graph and the steps that compute it. values: by name, those that the plan made for parts too."""

    graph: Graph
    machine: Machine
    steps: tuple[Step, ...]
    values: Mapping[str, Value]

    def text(self) -> str:
        """A line a step, and one a program."""
        return "\n".join(step.text() for step in self.steps)

    def run(self, inputs: Mapping[str, ArrayLike]) -> Ran:
        """inputs: by name, of the value's shape; they are cast to the format's own dtype, which must change nothing.

        Raises Refusal for wrong inputs, and where a value is beyond what a function is right for.
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
            _run(step, known, self.values, total, notes)
            cycles.append(total.cycles - before)
        return Ran({label: known[name] for label, name in self.graph.outputs}, total, tuple(cycles), tuple(notes))


def _run(step: Step, known: dict[str, Array], values: Mapping[str, Value], total: Counts, notes: list[str]) -> None:
    """One step: its outputs are known afterwards."""
    if isinstance(step, Addresses):
        s = step.statement
        found = Data(s.body, s.dtype, s.ranges, (), by_point=True, by_fold=False).exact(values)
        known[s.name] = np.ascontiguousarray(np.broadcast_to(found, s.shape).astype(stored_in(s.dtype)))
    elif isinstance(step, Multiplied):
        operands = step.product.operands(known, values)
        why = beyond(operands, f"statement {step.product.statements[0].name}")
        if why is None:
            known.update(_multiplied(step.product, known, values, total, operands))
            return
        if step.otherwise is None:
            raise why
        notes.append(f"{why.where}: on the vector unit, {why.rule}; got {why.got}")
        steps, more = step.otherwise()
        for other in steps:
            _run(other, known, more, total, notes)
    elif isinstance(step, Shared):
        product = step.packed.product
        operands = None if product is None else product.operands(known, values)
        if operands is None or beyond(operands, "") is None:
            known.update(run_packed(step.packed, known, values, total, operands))
            return
        for other in step.alone:
            _run(other, known, values, total, notes)
    elif isinstance(step, Joined):
        known.update(run_joined(step, known, values, total))
    else:
        for name, array in run_stage(step, known, values, total).items():
            known[name] = array
            if step.layout.chunks > 1:
                known[_part_name(name)] = array.reshape(-1, *values[name].shape)


def _multiplied(
    product: Product | Joined | Chain, known: Mapping[str, Array], values: Mapping[str, Value], total: Counts,
    operands: tuple[Array, ...],
) -> dict[str, Array]:  # fmt: skip
    """The outputs of a product whose operands are int8."""
    if isinstance(product, Chain):
        return run_chain(product, known, values, total, operands)
    run = run_joined if isinstance(product, Joined) else run_product
    return run(product, known, values, total, operands)  # pyright: ignore[reportArgumentType] - the function is the step's


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

    join: whether stages share programs where that takes fewer cycles; results are the same to the bit.
    functions: exp2, log2 and sine as polynomials, right to 6e-7, or the vector unit's own, right to 3e-2 (see
    lower.numbers.serial), which work in the background of the array.
    """
    machine = machine or machines.load()
    verify(graph)
    values: dict[str, Value] = dict(graph.by_name)
    lowering = _Lowering(graph, values, machine, mxu, functions == "unit", [])
    lowering.groups(_grouped(graph.statements), joined=join)
    return Plan(graph, machine, tuple(lowering.steps), values)


def _grouped(statements: Sequence[Statement]) -> list[list[Statement]]:
    """Runs of statements over one output space that read each other at their own element only."""
    groups: list[list[Statement]] = []
    for statement in statements:
        last = groups[-1] if groups else None
        if last is not None and _joins(statement, last):
            last.append(_renamed(statement, last[0].ranges))
        else:
            groups.append([statement])
    return groups


def _renamed(statement: Statement, ranges: tuple[Range, ...]) -> Statement:
    """The statement with other output ranges of the same extents, so that equal reads of a group are one."""
    taken = {r.name for r in ranges}
    if statement.ranges == ranges or any(r.name in taken for r in statement.reduced):
        return statement
    body = statement.body.substitute({old: Index.of(new) for old, new in zip(statement.ranges, ranges)})
    return Statement(statement.name, statement.dtype, ranges, body, statement.reduction)


def _folds(statement: Statement) -> int:
    return prod(r.extent for r in statement.reduced)


def _joins(statement: Statement, group: Sequence[Statement]) -> bool:
    if statement.shape != group[0].shape or _addresses(statement) or _addresses(group[0]):
        return False
    folds = {_folds(s) for s in (*group, statement) if s.reduction}
    if len(folds) > 1:
        return False
    members = {s.name for s in group}
    own = tuple(Index.of(r) for r in statement.ranges)
    inside = {id(r) for e in statement.body.walk() for i in _indices(e) for r in _looked(i)}
    return all(
        r.value not in members or (not r.guards and r.indices == own and id(r) not in inside)
        for r in statement.body.reads()
    )


def _indices(expr: Expr) -> tuple[Index, ...]:
    """The indices that an expression itself names."""
    if isinstance(expr, Read):
        return (*expr.indices, *(g.index for g in expr.guards))
    return (expr.index,) if isinstance(expr, Iota) else ()


def _looked(index: Index) -> list[Read]:
    return [read for lookup in index.lookups() for read in lookup.value.reads()]


def _addresses(statement: Statement) -> bool:
    """Whether a value is integers of indices alone, in a format that no lane holds."""
    wide = statement.dtype != BOOL and getattr(statement.dtype, "bits", 0) > 32
    return statement.reduction is None and wide and kind_of(statement.dtype) != "real" and host_filled(statement.body)


MOST_JOINED = 8
"""Groups of statements that are tried as one."""


def _cycles(step: Step) -> int:
    if isinstance(step, Multiplied):
        return step.product.cycles
    return 0 if isinstance(step, Addresses) else step.cycles


def _alone(step: Step) -> tuple[Step, ...]:
    return step.alone if isinstance(step, Shared) else (step,)


def _statements(step: Step) -> tuple[Statement, ...]:
    match step:
        case Shared():
            return step.packed.statements
        case Multiplied():
            return step.product.statements
        case Addresses():
            return (step.statement,)
        case _:
            return step.statements


def _part_name(name: str) -> str:
    return f"{name}_parts"


def _left(group: Sequence[Statement], graph: Graph) -> list[str]:
    """The values of a group that something outside of it wants."""
    members = {s.name for s in group}
    wanted = {name for _, name in graph.outputs}
    return [s.name for s in group if s.name in wanted or any(r.name not in members for r in graph.readers(s.name))]


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
            both = _alone(last) + _alone(step) if last is not None else ()
            own = [s.product if isinstance(s, Multiplied) else s for s in both]
            whole = [s for s in own if not isinstance(s, Addresses | Shared)]
            names = {s.name for s in _statements(last)} if last is not None else set[str]()
            if (
                last is None
                or len(whole) < len(own)
                or any(r.value in names for s in _statements(step) for r in s.body.reads())
            ):
                found.append(step)
                continue
            packed = pack(whole, self.machine)
            if packed is not None and packed.cycles < _cycles(last) + _cycles(step):
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
            found = chain(part, _left(statements, self.graph), self.values, self.machine, unit=self.unit)
            if found is not None and found.cycles < sum(_cycles(step) for step in steps):
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
            left, budget = _left(statements, self.graph), sum(_cycles(step) for step in steps)
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
        if len(group) == 1 and _addresses(group[0]):
            self.steps.append(Addresses(group[0]))
        elif not self._product(group):
            self._stages(group)

    def _product(self, group: list[Statement]) -> bool:
        """Whether the group begins with a product that goes to the array; what does not fit behind it follows."""
        found = as_product(group[0], self.values)
        if self.mxu == "never" or found is None:
            return False
        for length in range(len(group), 0, -1):
            part = group[:length]
            made = choose_product(part, _left(part, self.graph), self.values, self.machine, unit=self.unit)
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
        for alike in _grouped(group):
            other.group(alike)
        return tuple(other.steps), other.values

    def _stages(self, group: list[Statement]) -> None:
        depth = next((self.depths[s.name] for s in group if s.name in self.depths), None)
        stage = choose(group, _left(group, self.graph), self.values, self.machine, depth, unit=self.unit)
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
        first = in_parts(statement, self.values, self.machine, unit=self.unit)
        self.steps.append(first)
        taken = {r.name for r in statement.ranges}
        name = next(n for n in ("part", *(f"part_{k}" for k in range(len(taken)))) if n not in taken)
        part = Range(name, first.layout.chunks)
        parts = _part_name(statement.name)
        self.values[parts] = Input(parts, (part.extent, *statement.shape), statement.dtype)
        body = Read(parts, (Index.of(part), *(Index.of(r) for r in statement.ranges)))
        fold = Reduction(statement.reduction.op, (part,))
        self.group([Statement(statement.name, statement.dtype, statement.ranges, body, fold)])
