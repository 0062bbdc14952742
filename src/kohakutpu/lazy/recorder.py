"""Writing down what tensors are asked for, as statements of a graph, and which values cross its borders.

Decides names, inputs and outputs, and which calls stay calls of one kernel. It must not know how a graph is compiled or
run; whoever made the recorder answers when a value is wanted early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.graph import Graph, Input
from kohakuaccel.graph import build as g
from kohakuaccel.graph import rewrite as rw
from kohakuaccel.graph.build import Tensor as Value
from kohakuaccel.numerics import FP16
from kohakutpu import conversion
from kohakutpu.auto.patterns_forms import KERNELS, OPERATORS
from kohakutpu.callers import users_line
from kohakutpu.storage import Storage
from kohakutpu.tensor import Tensor, as_tensor, current_device

if TYPE_CHECKING:
    from kohakutpu.device import Device
    from kohakutpu.lang.kernel import Kernel

Shape = tuple[int, ...]
Demand = Callable[[int], Storage]
"""From the number of a recorded value to where it is: computed now, or refused."""


@dataclass(frozen=True)
class GraphPart:
    """A graph whose inputs and outputs are values of the program, by number."""

    graph: Graph
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    lines: Mapping[str, SourceLine]


@dataclass(frozen=True)
class CallPart:
    """One call of a kernel on values of the program, each as (number, shape); None where a port is left out."""

    kernel: Kernel
    operands: tuple[tuple[int, Shape] | None, ...]
    knobs: Mapping[str, object]
    results: tuple[int, ...]
    source: SourceLine | None


Part = GraphPart | CallPart


@dataclass
class _Open:
    """The graph that is being written."""

    builder: g.Builder = field(default_factory=g.Builder)
    values: dict[int, Value] = field(default_factory=dict[int, Value])
    inputs: dict[str, int] = field(default_factory=dict[str, int])
    views: dict[tuple[int, Shape], Value] = field(default_factory=dict[tuple[int, Shape], Value])
    lines: dict[str, SourceLine] = field(default_factory=dict[str, SourceLine])
    made: set[int] = field(default_factory=set[int])


class Recorder:
    """One recording. `demand` is asked for a value that is read before the recording ended."""

    def __init__(self, demand: Demand, device: Device | None = None) -> None:
        self.device = device
        self._demand = demand
        self._parts: list[_Open | CallPart] = [_Open()]
        self._numbers: WeakKeyDictionary[Storage, int] = WeakKeyDictionary()
        self._shapes: dict[int, Shape] = {}
        self._names: dict[int, str] = {}
        self._taken: dict[str, int] = {}
        self.given: dict[int, Tensor] = {}
        self._promised: set[int] = set()

    # values

    def give(self, value: Tensor, name: str) -> int:
        """A value from outside, under a name; its number."""
        found = self._numbers.get(value.storage)
        if found is None:
            found = self._numbers[value.storage] = len(self._shapes)
            self._shapes[found] = value.shape
            self._names[found] = self._fresh(name)
            self.given[found] = value
        return found

    def promise(self, shape: Shape, dtype: np.dtype[Any], device: Device, name: str) -> tuple[int, Tensor]:
        """A value that comes later, and its number."""
        number = len(self._shapes)
        demand = self._demand
        size = int(np.prod(shape, dtype=np.int64))
        storage = Storage(
            device, size, derive=lambda: demand(number).host(), remake=lambda: demand(number), device_born=True
        )
        self._numbers[storage] = number
        self._shapes[number] = shape
        self._names[number] = self._fresh(name)
        self._promised.add(number)
        return number, Tensor(storage, shape, dtype)

    def number(self, storage: Storage) -> int | None:
        """The number of a value of this recording."""
        return self._numbers.get(storage)

    def alive(self) -> dict[int, Storage]:
        """The recorded values that somebody still holds."""
        return {n: s for s, n in list(self._numbers.items()) if n in self._promised and s.pending}

    def _fresh(self, name: str) -> str:
        made, count = name, self._taken.get(name, 0)
        while made in self._taken:
            count += 1
            made = f"{name}_{count}"
        self._taken[name] = count
        self._taken.setdefault(made, 0)
        return made

    @property
    def _open(self) -> _Open:
        last = self._parts[-1]
        if isinstance(last, CallPart):
            last = _Open()
            self._parts.append(last)
        return last

    def _value(self, x: Tensor) -> Value:
        """The graph's value behind a tensor, in the tensor's shape."""
        self._same_device(x.device)
        number = self._numbers.get(x.storage)
        if number is None:
            number = self.give(x, "c")
        here = self._open
        base = here.values.get(number)
        if base is None:
            name = self._names[number]
            while name in here.builder.names:
                name += "_"
            base = here.builder.input(name, self._shapes[number], FP16)
            here.values[number] = base
            here.inputs[name] = number
        if base.shape == x.shape:
            return base
        key = number, x.shape
        if key not in here.views:
            here.views[key] = g.reshape(base, x.shape)
        return here.views[key]

    def _same_device(self, device: Device) -> None:
        if self.device is None:
            self.device = device
        if device is not self.device:
            raise Refusal(
                "what is recorded together runs on one device",
                where="graph",
                got=f"{self.device.machine.name} and {device.machine.name}",
                hint="move one with ktpu.tensor(x.numpy(), device=...)",
            )

    def _written(self, form: Callable[..., Value], operands: Sequence[Tensor | None], how: Mapping[str, Any]) -> Tensor:
        """`form` of the operands' values as new statements; its result."""
        given = [x for x in operands if x is not None]
        values = [None if x is None else self._value(x) for x in operands]
        here = self._open
        before = len(here.builder.names)
        made = form(*values, **how)
        for x, value in zip(operands, values):
            if value is not None and x is not None and made.name == value.name:
                return Tensor(x.storage, x.shape, conversion.result_dtype(*(t.dtype for t in given)))
        line = users_line()
        if line is not None:
            here.lines.update(dict.fromkeys(list(here.builder.names)[before:], line))
        dtype = conversion.result_dtype(*(t.dtype for t in given))
        number, result = self.promise(made.shape, dtype, given[0].device, "v")
        here.values[number] = made
        here.made.add(number)
        return result

    # what a recorder answers

    def moves(self, storage: Storage) -> bool:
        """Whether a movement of this value is written down: what is not on the host is."""
        return storage in self._numbers or storage.device_only

    def permuted(self, x: Tensor, order: tuple[int, ...]) -> Tensor:
        """Axes in another order."""
        return self._written(lambda v: g.permute(v, order), [x], {})

    def expanded(self, x: Tensor, shape: Shape) -> Tensor:
        """Stretched by numpy's rule."""
        return self._written(lambda v: g.expand(v, shape), [x], {})

    def operator(self, name: str, *operands: Any, **how: Any) -> Tensor:
        """An operator of the tensor level or a function of the library."""
        return self._written(OPERATORS[name], self._tensors(operands, name), how)

    def kernel(self, kernel: Kernel, operands: Sequence[Any], knobs: Mapping[str, object]) -> Any:
        """A call of a kernel: the expression it stands for, or, where there is none, one call between two graphs."""
        given = self._tensors(operands, f"kernel {kernel.__name__}")
        known = KERNELS.get(kernel.fn.__name__) if kernel.__module__.startswith("kohakutpu.kernels.") else None
        empty = any(x is not None and x.size == 0 for x in given)
        if known is not None and (known.knobs | known.free).issuperset(knobs) and not empty:
            how = {name: kernel.knobs[name] for name in known.knobs}
            return self._written(known.form, given, how | dict(knobs))
        return self._called(kernel, given, knobs)

    def _tensors(self, operands: Sequence[Any], where: str) -> list[Tensor | None]:
        home = self.device or next((x.device for x in operands if isinstance(x, Tensor)), None)
        return [x if x is None or isinstance(x, Tensor) else as_tensor(x, device=home, where=where) for x in operands]

    def _called(self, kernel: Kernel, operands: Sequence[Tensor | None], knobs: Mapping[str, object]) -> Any:
        given = [x for x in operands if x is not None]
        plan = kernel.plan(*operands, **knobs)
        refs: list[tuple[int, Shape] | None] = []
        for x in operands:
            if x is None:
                refs.append(None)
                continue
            self._same_device(x.device)
            number = self._numbers.get(x.storage)
            refs.append((self.give(x, "c") if number is None else number, x.shape))
        dtype = conversion.result_dtype(*(t.dtype for t in given))
        device = self.device or current_device()
        made = [self.promise(tuple(s.shape), dtype, device, kernel.__name__) for _, s in plan.schedule.outputs()]
        self._parts.append(CallPart(kernel, tuple(refs), dict(knobs), tuple(n for n, _ in made), users_line()))
        results = tuple(t for _, t in made)
        return results[0] if len(results) == 1 else results

    # the end

    def parts(self, wanted: Iterable[int]) -> tuple[Part, ...]:
        """What has to run, in order, for these values; what none of them needs is left out."""
        needed = set(wanted)
        found: list[Part] = []
        for part in reversed(self._parts):
            if isinstance(part, CallPart):
                if needed.intersection(part.results):
                    needed.difference_update(part.results)
                    needed.update(ref[0] for ref in part.operands if ref is not None)
                    found.append(part)
                continue
            made = sorted(part.made & needed)
            if not made:
                continue
            needed.difference_update(made)
            names = {n: self._names[n] for n in made}
            graph = rw.DeadCode().apply(part.builder.graph(**{names[n]: part.values[n] for n in made}))
            read = {r.value for s in graph.statements for r in s.body.reads()}
            graph = graph.with_values(v for v in graph.values if not isinstance(v, Input) or v.name in read)
            inputs = {v.name: part.inputs[v.name] for v in graph.inputs}
            needed.update(inputs.values())
            found.append(GraphPart(graph, inputs, {names[n]: n for n in made}, part.lines))
        return tuple(reversed(found))

    def restart(self, values: Mapping[int, Tensor]) -> None:
        """Forget what was written: `values` are computed, and are given from now on."""
        self._parts = [_Open()]
        self.given.update(values)
        self._promised.difference_update(values)
