"""A compiled graph: its steps in order, how they run on a device and level by level, and how they read.

Decides which value is where between steps. It must not know how steps were found.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kohakuaccel.diagnostics import Refusal, did_you_mean
from kohakuaccel.graph import Constant, Graph, Input, kind_of
from kohakuaccel.machine import Machine
from kohakutpu.auto.host import HostStep
from kohakutpu.auto.stages import TileStage
from kohakutpu.auto.steps import KernelStep, LibraryStep, Step

if TYPE_CHECKING:
    from kohakutpu.device import Device
    from kohakutpu.tensor import Tensor

Real = NDArray[np.floating[Any]]


class GraphPlan:
    """A graph's steps on one machine. graph: as rewritten; what a library's kernel makes is an input of it, what it
    takes is an output under one of the labels `inner`. notes: what was decided about fusion and storage. wide: values
    that are stored in FP32."""

    def __init__(
        self,
        graph: Graph,
        machine: Machine,
        steps: tuple[Step, ...],
        notes: tuple[str, ...] = (),
        inner: frozenset[str] = frozenset(),
        wide: frozenset[str] = frozenset(),
    ) -> None:
        self.graph = graph
        self.machine = machine
        self.steps = steps
        self.notes = notes
        self.wide = wide
        made = {name for s in steps if isinstance(s, LibraryStep) for name in s.outputs}
        self.inputs = tuple(v for v in graph.inputs if v.name not in made)
        self.outputs = tuple((label, name) for label, name in graph.outputs if label not in inner)
        self._shapes = {v.name: v.shape for v in graph.values}
        self._constants: WeakKeyDictionary[Device, dict[str, Any]] = WeakKeyDictionary()

    @property
    def host_steps(self) -> tuple[HostStep, ...]:
        return tuple(s for s in self.steps if isinstance(s, HostStep))

    @property
    def kernel_steps(self) -> tuple[KernelStep, ...]:
        """The kernels that the scheduler wrote."""
        return tuple(s for s in self.steps if isinstance(s, KernelStep))

    @cached_property
    def narrowed(self) -> frozenset[str]:
        """Inputs of FP32 that clusters take, or kernels of a library, which therefore have to fit FP16."""
        taken = {name for s in self.steps if isinstance(s, LibraryStep) for name in s.inputs}
        taken |= {n for s in self.kernel_steps for one in s.stages if isinstance(one, TileStage) for n in one.reads}
        return frozenset(v.name for v in self.inputs if v.name in taken and v.name in self.wide)

    def pretty(self, detail: bool = False) -> str:
        """Every step in order: stages with what they took in and why. detail: their kernels and schedules as well."""
        count = len(self.graph.statements)
        lines = [f"plan on {self.machine.name}: {count} statements in {len(self.steps)} steps"]
        for step in self.steps:
            lines += step.pretty().splitlines()
            if detail and isinstance(step, KernelStep):
                lines += ["", step.emitted.trace.pretty(), "", step.plan.pretty(), ""]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    # on a device

    def run(self, inputs: Mapping[str, Tensor | ArrayLike], *, device: Device | None = None) -> dict[str, Any]:
        """Outputs by label, as tensors (arrays of whole numbers for integers). inputs: tensors or arrays by name."""
        from kohakutpu.tensor import Tensor

        self._check(inputs)
        if device is None:
            found = next((t.device for t in inputs.values() if isinstance(t, Tensor)), None)
            device = found if found is not None else _default()
        if device.machine.fingerprint != self.machine.fingerprint:
            raise Refusal(
                "a plan runs on the machine it was made for",
                where="plan",
                got=device.machine.name,
                limit=self.machine.name,
                hint="compile the graph for the device's machine",
            )
        values: dict[str, Any] = dict(self._kept(device))
        for value in self.inputs:
            values[value.name] = self._given(value, inputs[value.name], device)
        for step in self.steps:
            if isinstance(step, HostStep):
                values.update(step.launch(self.graph, values, device))
            else:
                values.update(step.launch({name: values[name] for name in step.inputs}, self._shapes))
        return {label: values[name] for label, name in self.outputs}

    def _check(self, inputs: Mapping[str, Any]) -> None:
        names = {v.name: v.shape for v in self.inputs}
        for name in inputs:
            if name not in names:
                raise Refusal(f"inputs are the graph's{did_you_mean(name, names)}", where="plan", got=name)
        for name, shape in names.items():
            if name not in inputs:
                raise Refusal("every input is given", where="plan", got=f"nothing for {name}")
            got = tuple(np.shape(inputs[name]))
            if got != shape:
                raise Refusal("an input has its shape", where=f"input {name}", got=got, limit=shape)

    def _given(self, value: Input, given: Any, device: Device) -> Any:
        from kohakutpu.tensor import Tensor, as_tensor

        if kind_of(value.dtype) == "int":
            return np.asarray(given).astype(np.int64)
        if isinstance(given, Tensor):
            return as_tensor(given, device=device, where=f"input {value.name}")
        return as_tensor(given, device=device, dtype=self._dtype(value.name), where=f"input {value.name}")

    def _dtype(self, name: str) -> str | None:
        return "float32" if name in self.wide else None

    def _kept(self, device: Device) -> dict[str, Any]:
        """Constants as tensors of one device: packed once per byte order, kept with the plan."""
        from kohakutpu.tensor import as_tensor

        if device not in self._constants:
            self._constants[device] = {
                v.name: v.array
                if kind_of(v.dtype) == "int"
                else as_tensor(v.array, device=device, dtype=self._dtype(v.name), where=v.name)
                for v in self.graph.values
                if isinstance(v, Constant)
            }
        return self._constants[device]

    # level by level

    def run_schedule(self, inputs: Mapping[str, ArrayLike]) -> dict[str, Any]:
        """L2: what the schedules compute in the machine's formats, without any unit."""
        return self._level("schedule", inputs)

    def run_program(self, inputs: Mapping[str, ArrayLike]) -> dict[str, Any]:
        """L1: the unit models execute the instruction rows."""
        return self._level("program", inputs)

    def run_image(self, inputs: Mapping[str, ArrayLike]) -> dict[str, Any]:
        """L0: fresh devices execute the encoded images."""
        return self._level("image", inputs)

    def _level(self, level: str, inputs: Mapping[str, ArrayLike]) -> dict[str, Any]:
        self._check(inputs)
        values: dict[str, NDArray[Any]] = {}
        for v in self.graph.values:
            if v in self.inputs or isinstance(v, Constant):
                given = np.asarray(inputs[v.name]) if isinstance(v, Input) else v.array
                values[v.name] = given if kind_of(v.dtype) == "int" else given.astype(self._dtype(v.name) or "float16")
        for step in self.steps:
            some = {name: values[name] for name in step.inputs}
            if isinstance(step, HostStep):
                values.update(step.run(self.graph, some))
            elif isinstance(step, LibraryStep):
                values.update(self._library(step, some))
            else:
                values.update(step.compute(level, some, self._shapes))
        return {label: values[name] for label, name in self.outputs}

    def _library(self, step: LibraryStep, values: Mapping[str, NDArray[Any]]) -> dict[str, Real]:
        """A library's kernel has its own levels; here it runs on a fresh device."""
        from kohakutpu.device import Device
        from kohakutpu.tensor import as_tensor

        device = Device(self.machine)
        tensors = {name: as_tensor(a, device=device, dtype=a.dtype) for name, a in values.items()}
        return {name: t.storage.host().reshape(t.shape) for name, t in step.launch(tensors, self._shapes).items()}


def _default() -> Device:
    from kohakutpu.device import default

    return default()
