"""Steps of a plan: kernels that the scheduler wrote, kernels that stand for a pattern, and work of the host.

Decides how one step is compiled, run and printed. It must not know why a step is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import KohakuError
from kohakuaccel.machine import Machine
from kohakutpu.auto.emit import Emitted, Operand
from kohakutpu.auto.host import HostStep
from kohakutpu.auto.stages import Stage
from kohakutpu.layouts import FP16, FP32, Element, Streamable
from kohakutpu.lower.binding import Binding
from kohakutpu.lower.plan import Plan
from kohakutpu.lower.scheduling import build_schedule

if TYPE_CHECKING:
    from kohakutpu.lang.kernel import Hint
    from kohakutpu.tensor import Tensor

Real = NDArray[np.floating[Any]]
PLANS_KEPT = 8  # byte orders of operands that a step remembers its plans for


class KernelStep:
    """A kernel of several stages that the scheduler wrote. hints: per input, the byte order an earlier step leaves.
    wide: values that are stored in FP32."""

    def __init__(
        self,
        machine: Machine,
        emitted: Emitted,
        stages: Sequence[Stage],
        hints: tuple[Hint | None, ...],
        wide: frozenset[str] = frozenset(),
    ) -> None:
        self.machine = machine
        self.emitted = emitted
        self.stages = tuple(stages)
        self._plans: dict[object, Plan | KohakuError] = {}
        stored = tuple(FP32 if o.value in wide else FP16 for o in emitted.inputs)
        self.plan = self.planned(hints, stored if FP32 in stored else ())

    @property
    def name(self) -> str:
        return self.emitted.trace.name

    @property
    def inputs(self) -> tuple[str, ...]:
        """Values it reads."""
        return tuple(dict.fromkeys(o.value for o in self.emitted.inputs))

    @property
    def outputs(self) -> tuple[str, ...]:
        """Values it leaves."""
        return tuple(o.value for o in self.emitted.outputs)

    def planned(self, hints: tuple[Hint | None, ...], stored: tuple[Element, ...] = ()) -> Plan:
        """The plan for operands that lie in these orders on the device, and are stored so (FP16 where it ends).

        A refusal is remembered like a plan: whoever falls back at every call does not pay for the search again."""
        key = hints, stored
        found = self._plans.get(key)
        if found is None:
            trace = self.emitted.trace
            shapes = tuple(tuple(int(str(a)) for a in port.axes) for port in trace.ports)
            try:
                schedule = build_schedule(trace, self.machine, Binding({}, (), shapes, stored), hints)
                found = Plan(self.machine, schedule)
            except KohakuError as why:
                found = why.with_traceback(None)
            self._plans[key] = found
            if len(self._plans) > PLANS_KEPT:
                self._plans.pop(next(iter(self._plans)))
        if isinstance(found, KohakuError):
            raise found.with_traceback(None)
        return found

    def left_as(self, value: str) -> Hint | None:
        """The byte order in which it leaves a value, for whoever reads it next."""
        for (number, _), operand in zip(self.plan.schedule.outputs(), self.emitted.outputs):
            layout = self.plan.layout(number)
            if operand.value == value and isinstance(layout, Streamable):
                return layout, True
        return None

    def launch(self, values: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
        """Run on the device of the values: what it leaves, by name."""
        from kohakutpu.lang.kernel import hints_of, launch, stored_of

        tensors = [_shaped(values[o.value], o) for o in self.emitted.inputs]
        for t in tensors:
            t.storage.settle()
        hints = tuple(h if h is not None and h[1] else None for h in hints_of(tensors))
        device = next(iter(values.values())).device
        results = launch(self.planned(hints, stored_of(tensors)), tensors, device)
        return {o.value: t.reshape(shapes[o.value]) for o, t in zip(self.emitted.outputs, results)}

    def compute(self, level: str, values: Mapping[str, Real], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Real]:
        """Run one level ("schedule", "program", "image") on arrays."""
        arrays = [_arranged(values[o.value], o) for o in self.emitted.inputs]
        results = getattr(self.plan, f"run_{level}")(*arrays)
        return {o.value: r.reshape(shapes[o.value]) for o, r in zip(self.emitted.outputs, results)}

    def pretty(self) -> str:
        """One line a stage: its value, its form, what it took in, and why."""
        lines = [f"kernel {self.name}: {len(self.stages)} stage{'s' * (len(self.stages) != 1)}"]
        for stage in self.stages:
            form = type(stage).__name__.removesuffix("Stage").lower()
            inside = [m for m in stage.members if m != stage.root.name]
            fused = f", takes in {', '.join(inside)}" if inside else ""
            lines.append(f"  {form:<5} {stage.root.name}: {stage.why}{fused}")
        return "\n".join(lines)


@dataclass(frozen=True)
class LibraryStep:
    """A kernel of a library in the place of statements. call: its inputs' tensors to its outputs' tensors."""

    name: str
    call: Callable[..., Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    statements: tuple[str, ...]

    def launch(self, values: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
        """Run on the device of the values."""
        found = self.call(*(values[name] for name in self.inputs))
        results = found if isinstance(found, tuple) else (found,)
        return {name: t.reshape(shapes[name]) for name, t in zip(self.outputs, results)}

    def pretty(self) -> str:
        """Whose place it takes."""
        return f"library kernel {self.name} for {', '.join(self.statements)}"


Step = KernelStep | LibraryStep | HostStep


def _shaped(t: Tensor, operand: Operand) -> Tensor:
    if operand.moved:
        shape, order = operand.moved
        t = t.reshape(shape).transpose(order)
    return t.reshape(operand.shape)


def _arranged(values: Real, operand: Operand) -> Real:
    if operand.moved:
        shape, order = operand.moved
        values = values.reshape(shape).transpose(order)
    return np.ascontiguousarray(values).reshape(operand.shape)
