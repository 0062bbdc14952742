"""The steps of a plan, and how each is run: programs, or addresses that the host computes.

Decides which way a product takes whose operands turn out to be beyond int8. It must not know how steps came about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from kohakuaccel.graph import Statement, Value
from kohakuaccel.graph.native import stored_in
from kohakuaccel.graph.points import Array
from tinytpu.lower.array.chain import Chain
from tinytpu.lower.array.multiply import run_chain, run_product
from tinytpu.lower.array.product import Product, beyond
from tinytpu.lower.data import Data
from tinytpu.lower.joined import Joined
from tinytpu.lower.packed import Packed
from tinytpu.lower.run import Beyond, Counts, run_joined, run_packed, run_stage
from tinytpu.lower.stage import Stage, exactly


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


def cycles_of(step: Step) -> int:
    """Cycles of a step as it is planned."""
    if isinstance(step, Multiplied):
        return step.product.cycles
    return 0 if isinstance(step, Addresses) else step.cycles


def alone_of(step: Step) -> tuple[Step, ...]:
    """The steps that share a program, or the one."""
    return step.alone if isinstance(step, Shared) else (step,)


def statements_of(step: Step) -> tuple[Statement, ...]:
    """What a step computes."""
    match step:
        case Shared():
            return step.packed.statements
        case Multiplied():
            return step.product.statements
        case Addresses():
            return (step.statement,)
        case _:
            return step.statements


def part_name(name: str) -> str:
    """The name of a fold's parts."""
    return f"{name}_parts"


def run_step(step: Step, known: dict[str, Array], values: Mapping[str, Value], total: Counts, notes: list[str]) -> None:
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
            run_step(other, known, more, total, notes)
    elif isinstance(step, Shared):
        product = step.packed.product
        operands = None if product is None else product.operands(known, values)
        if operands is None or beyond(operands, "") is None:
            known.update(run_packed(step.packed, known, values, total, operands))
            return
        for other in step.alone:
            run_step(other, known, values, total, notes)
    elif isinstance(step, Joined):
        known.update(run_joined(step, known, values, total))
    else:
        for name, array in _stage(step, known, values, total, notes).items():
            known[name] = array
            if step.layout.chunks > 1:
                known[part_name(name)] = array.reshape(-1, *values[name].shape)


def _stage(
    stage: Stage, known: Mapping[str, Array], values: Mapping[str, Value], total: Counts, notes: list[str]
) -> dict[str, Array]:
    """A stage's outputs; where it saw an argument beyond what it is right for, it is run again as one that is right."""
    try:
        return run_stage(stage, known, values, total)
    except Beyond as why:
        notes.append(f"statement {stage.statements[-1].name}: run again for {why}")
        return run_stage(exactly(stage, values), known, values, total)


def _multiplied(
    product: Product | Joined | Chain, known: Mapping[str, Array], values: Mapping[str, Value], total: Counts,
    operands: tuple[Array, ...],
) -> dict[str, Array]:  # fmt: skip
    """The outputs of a product whose operands are int8."""
    if isinstance(product, Chain):
        return run_chain(product, known, values, total, operands)
    run = run_joined if isinstance(product, Joined) else run_product
    return run(product, known, values, total, operands)  # pyright: ignore[reportArgumentType] - the function is the step's
