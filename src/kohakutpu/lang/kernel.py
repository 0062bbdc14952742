"""The kernel object: a traced function that compiles for the machine of its arguments and runs like a call.

It decides caching and binding; what a kernel becomes is decided under `kohakutpu.lower`.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.lang.ports import Port
from kohakuaccel.lang.trace import Trace, recording
from kohakutpu.lang.ports import In, Out
from kohakutpu.recording import current

if TYPE_CHECKING:
    from kohakuaccel.machine import Machine
    from kohakutpu.device import Device
    from kohakutpu.layouts import Element, Layout
    from kohakutpu.lower.plan import Plan
    from kohakutpu.tensor import Tensor

PLANS_KEPT = 256
TRACES_KEPT = 64
Hint = tuple["Layout", bool]
Tune = Callable[["Machine", Mapping[str, int]], Mapping[str, object]]


class Kernel:
    """A kernel: call it with tensors (or arrays) for its In ports, knobs and optional ports as keywords; it returns its
    outputs.

    `tune(machine, sizes)` may supply knobs that the caller leaves out; sizes has the dims, and the product of "...".
    `relax`: see `kernel`.
    """

    def __init__(self, fn: Callable[..., None], tune: Tune | None = None, relax: bool = True) -> None:
        self.fn = fn
        self.__name__ = fn.__name__
        self.__doc__ = fn.__doc__
        self.__module__ = fn.__module__
        self._tune = tune
        self.relax = relax
        self._ports, self._knobs = _signature(fn)
        self._outside = _outside_names(fn.__code__)
        self._traces: OrderedDict[tuple[object, ...], Trace] = OrderedDict()
        self._plans: OrderedDict[tuple[object, ...], Plan] = OrderedDict()

    def __repr__(self) -> str:
        return f"<kernel {self.__name__}({', '.join(p.declaration for p in self._ports)})>"

    def preset(self, name: str, **knobs: object) -> Kernel:
        """The same kernel under another name, with these knobs as its defaults."""
        made = Kernel(self.fn, self._tune, self.relax)
        made.__name__ = name
        made._knobs = self._with_defaults(knobs)
        return made

    @property
    def knobs(self) -> Mapping[str, object]:
        """Knobs and their defaults."""
        return self._knobs

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of its In ports in the order of a call, optional ones included."""
        return tuple(p.name for p in self._ports if p.direction == "in")

    # tracing and planning

    def trace(self, *optional: str, **knobs: object) -> Trace:
        """The kernel's structure under these knobs, before any shape is known; `optional` names the optional ports that
        are passed."""
        unknown = [name for name in optional if not any(p.optional and p.name == name for p in self._ports)]
        if unknown:
            raise self._unknown(unknown[0])
        return self._trace(tuple(p.name for p in self._ports if p.optional and p.name not in optional), knobs)

    def _trace(self, absent: tuple[str, ...], knobs: Mapping[str, object]) -> Trace:
        chosen = self._with_defaults(knobs)
        key = (self._environment(), absent, tuple(sorted((name, _knob_key(value)) for name, value in chosen.items())))
        found = self._traces.get(key)
        if found is None:
            handles = tuple(p.named(p.name) for p in self._ports if p.name not in absent)
            with recording() as active:
                self.fn(**dict.fromkeys(absent), **{p.name: p for p in handles}, **chosen)
            found = Trace(self.__name__, handles, chosen, active.body, tuple(active.internal), self.relax)
            self._traces[key] = found
            if len(self._traces) > TRACES_KEPT:
                self._traces.popitem(last=False)
        return found

    def plan(self, *arguments: Any, **knobs: object) -> Plan:
        """Compile without running. Arguments: tensors, arrays, or shapes as tuples of integers.

        Shapes alone compile for the default device's machine.
        """
        from kohakutpu.device import default

        operands, chosen = self._operands(arguments, knobs)
        shapes = [tuple(a) if isinstance(a, tuple) else None if a is None else tuple(np.shape(a)) for a in operands]
        tensors = [a for a in operands if hasattr(a, "storage")]
        machine = tensors[0].device.machine if tensors else default().machine
        present = [a for a in operands if a is not None]
        return self._plan(machine, shapes, hints_of(present), chosen, present, stored_of(present))

    def clear(self) -> None:
        """Forget every trace and plan."""
        self._traces.clear()
        self._plans.clear()

    def cached(self) -> list[str]:
        """What is remembered: one line per plan."""
        return [plan.schedule.pretty().splitlines()[0] for plan in self._plans.values()]

    def _environment(self) -> tuple[object, ...]:
        """Numbers, texts and arrays that the body takes from outside: with another constant it is another kernel."""
        space = self.fn.__globals__
        found = [_knob_key(space[name]) for name in self._outside if isinstance(space.get(name), _PLAIN)]
        for cell in self.fn.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:  # a name bound later in the enclosing function
                continue
            if isinstance(value, _PLAIN):
                found.append(_knob_key(value))
        return tuple(found)

    def _with_defaults(self, knobs: Mapping[str, object]) -> dict[str, object]:
        unknown = [name for name in knobs if name not in self._knobs]
        if unknown:
            raise self._unknown(unknown[0])
        return {**self._knobs, **knobs}

    def _unknown(self, name: str) -> Refusal:
        optional = [p.name for p in self._ports if p.optional]
        return Refusal(
            "a knob is a keyword parameter of the kernel",
            where=f"kernel {self.__name__}",
            got=name,
            limit=", ".join((*self._knobs, *optional)) or "none",
            hint="check its spelling",
        )

    def _operands(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[list[Any], dict[str, object]]:
        """One value per In port (None where an optional one is left out), and the knobs."""
        inputs = [p for p in self._ports if p.direction == "in"]
        operands: list[Any] = [*arguments, *(None for _ in inputs[len(arguments) :])]
        knobs = dict(keywords)
        for n, port in enumerate(inputs):
            if port.optional and port.name in knobs:
                if operands[n] is not None:
                    raise Refusal(
                        "an operand is passed once",
                        where=f"kernel {self.__name__}, port {port.declaration}",
                        got="one by position and one by name",
                    )
                operands[n] = knobs.pop(port.name)
        if any(a is None and not p.optional for a, p in zip(operands, inputs)):
            given = [a for a in operands if a is not None]
            needed = [p.name for p in inputs if not p.optional]
            raise Refusal(
                "a call passes one tensor per In port",
                where=f"kernel {self.__name__}",
                got=f"{len(given)} tensors",
                limit=f"{len(needed)}: {', '.join(needed)}",
                hint="outputs are allocated by the call, knobs are keywords",
            )
        return operands, knobs

    def _plan(
        self,
        machine: Machine,
        shapes: Sequence[tuple[int, ...] | None],
        hints: tuple[Hint | None, ...],
        knobs: Mapping[str, object],
        arguments: Sequence[object] = (),
        stored: tuple[Element, ...] = (),
    ) -> Plan:
        key = (
            machine.fingerprint,
            tuple(shapes),
            hints,
            stored,
            tuple(sorted((name, _knob_key(value)) for name, value in knobs.items())),
            self._environment(),
        )
        found = self._plans.get(key)
        if found is not None:
            self._plans.move_to_end(key)
            return found
        for shape, port in zip(shapes, (p for p in self._ports if p.direction == "in")):
            if shape is not None and 0 in shape:
                raise Refusal(
                    "a kernel works on at least one element",
                    where=f"kernel {self.__name__}, port {port.declaration}",
                    got=f"shape {shape}",
                    hint="the tensor level answers for empty tensors",
                )
        from kohakutpu.lower.binding import bind
        from kohakutpu.lower.plan import Plan
        from kohakutpu.lower.scheduling import build_schedule

        inputs = [p for p in self._ports if p.direction == "in"]
        given = [*shapes, *(None for _ in inputs[len(shapes) :])]
        absent = tuple(p.name for p, shape in zip(inputs, given) if p.optional and shape is None)
        present = [shape for shape in given if shape is not None]
        chosen = dict(knobs)
        if self._tune is not None:
            known = self._with_defaults(chosen)
            probe = Trace(self.__name__, tuple(p for p in self._ports if p.name not in absent), known, [])
            bound = bind(probe, present)
            sizes = bound.sizes | {"...": prod(bound.batch)}
            for name, value in self._tune(machine, sizes).items():
                chosen.setdefault(name, value)
        trace = self._trace(absent, chosen)
        schedule = build_schedule(trace, machine, bind(trace, present, stored), hints)
        found = Plan(machine, schedule, _operand_notes(arguments, schedule.buffers), trace)
        self._plans[key] = found
        if len(self._plans) > PLANS_KEPT:
            self._plans.popitem(last=False)
        return found

    # running

    def __call__(self, *arguments: Any, **knobs: object) -> Any:
        """Run on the device of the arguments: solve dims, compile (cached), pack operands, allocate, dispatch."""
        from kohakutpu.tensor import Tensor, as_tensor

        operands, chosen = self._operands(arguments, knobs)
        recorder = current()
        if recorder is not None:
            return recorder.kernel(self, operands, chosen)
        home = next((a.device for a in operands if isinstance(a, Tensor)), None)
        given = [
            a if a is None or isinstance(a, Tensor) else as_tensor(a, device=home, where=f"kernel {self.__name__}")
            for a in operands
        ]
        tensors = [t for t in given if t is not None]
        if not tensors:
            raise Refusal("a kernel call has at least one tensor", where=f"kernel {self.__name__}")
        device = tensors[0].device
        for t in tensors:
            if t.device is not device:
                raise Refusal(
                    "operands live on one device",
                    where=f"kernel {self.__name__}",
                    got=f"{device.machine.name} and {t.device.machine.name}",
                    hint="move one with ktpu.tensor(x.numpy(), device=...)",
                )
        for t in tensors:
            t.storage.settle()
        shapes = [None if t is None else t.shape for t in given]
        plan = self._plan(device.machine, shapes, hints_of(tensors), chosen, stored=stored_of(tensors))
        results = launch(plan, tensors, device)
        return results[0] if len(results) == 1 else tuple(results)


def launch(plan: Plan, tensors: Sequence[Tensor], device: Device) -> list[Tensor]:
    """Run a plan: bring its inputs (one tensor per In port) into the orders it reads, allocate, dispatch."""
    from kohakutpu.storage import allocate
    from kohakutpu.tensor import Tensor

    held: dict[int, Any] = {}
    for number, spec in enumerate(plan.buffers):
        if spec.role == "in":
            source = tensors[spec.port]
            if spec.transposed:
                source = source.transpose(*range(source.ndim - 2), source.ndim - 1, source.ndim - 2)
            held[number] = source.buffer(plan.layout(number))
        elif spec.role == "table":
            held[number] = _table(plan, number, device).buffer(plan.layout(number))
    given = tuple(b.address for b in held.values())
    before = plan.placed.get(given, {})
    for number, spec in enumerate(plan.buffers):
        if spec.role == "out":
            held[number] = allocate(device, spec.layout.nbytes, before.get(number))
    workspace = allocate(device, plan.workspace.nbytes, before.get(-1)) if plan.workspace.nbytes else None
    addresses = {n: b.address for n, b in held.items()}
    device.run(plan.image(plan.addresses(addresses, workspace.address if workspace else 0)))
    plan.remember(given, addresses | ({-1: workspace.address} if workspace else {}))
    device.counters.device_relayouts += plan.relayouts
    dtype = np.result_type(*(t.dtype for t in tensors)) if tensors else np.dtype(np.float16)
    return [
        Tensor.on_device(device, spec.shape, dtype, plan.layout(number), held[number])
        for number, spec in plan.schedule.outputs()
    ]


def _table(plan: Plan, number: int, device: Device) -> Tensor:
    """A table of a plan as a tensor of one device, uploaded once per byte order."""
    from kohakutpu.tensor import as_tensor

    tables = plan.tables.setdefault(device, {})
    if number not in tables:
        tables[number] = as_tensor(plan.buffers[number].contents, device=device, where="table")
    return tables[number]


def _signature(fn: Callable[..., None]) -> tuple[tuple[Port, ...], dict[str, object]]:
    ports: list[Port] = []
    knobs: dict[str, object] = {}
    code = fn.__code__
    source = SourceLine(code.co_filename, code.co_firstlineno)
    for name, parameter in inspect.signature(fn).parameters.items():
        default = parameter.default
        if isinstance(default, In | Out):
            ports.append(default.named(name))
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY and default is not inspect.Parameter.empty:
            knobs[name] = default
        else:
            raise Refusal(
                "a kernel's parameters are ports (L.In, L.Out as defaults) and keyword knobs with defaults",
                where=f"kernel {fn.__name__}",
                got=f"parameter {name}",
                hint="write x=L.In(M, N), or put knobs behind *",
                source=source,
            )
    if not any(p.direction == "out" for p in ports):
        raise Refusal(
            "a kernel has an output",
            where=f"kernel {fn.__name__}",
            hint="declare y=L.Out(...)",
            source=source,
        )
    return tuple(ports), knobs


_PLAIN = (bool, int, float, str, tuple, np.ndarray)


def _outside_names(code: CodeType) -> tuple[str, ...]:
    """Names a function's code (and code inside it) may look up in its module."""
    found = dict.fromkeys(code.co_names)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found.update(dict.fromkeys(_outside_names(inner)))
    return tuple(found)


def _knob_key(value: object) -> object:
    """A hashable identity of a knob's value: 1, 1.0 and True are different knobs."""
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, tuple):
        return ("tuple", *(_knob_key(v) for v in value))
    return (type(value).__name__, repr(value) if isinstance(value, float) else value)


def stored_of(arguments: Sequence[object]) -> tuple[Element, ...]:
    """How each argument is stored: FP16 but for tensors that are FP32; empty where there are none of those."""
    from kohakutpu.layouts import FP16, FP32
    from kohakutpu.tensor import Tensor

    found = tuple(a.storage.element if isinstance(a, Tensor) else FP16 for a in arguments)
    return found if FP32 in found else ()


def hints_of(arguments: Sequence[object]) -> tuple[Hint | None, ...]:
    """Per argument, a byte order its value has on the device, and whether it exists in that order only: a value
    that only a kernel wrote is moved on the device rather than through the host."""
    from kohakutpu.layouts import Streamable
    from kohakutpu.tensor import Tensor

    found: list[Hint | None] = []
    for a in arguments:
        layouts = a.layouts() if isinstance(a, Tensor) else ()
        own = a.storage.element if isinstance(a, Tensor) else None
        walkable = [layout for layout in layouts if isinstance(layout, Streamable) and layout.element == own]
        born = isinstance(a, Tensor) and a.storage.device_only
        found.append((walkable[0], born) if walkable else None)
    if any(hint is not None and hint[1] for hint in found):
        return tuple(hint if hint is not None and hint[1] else None for hint in found)
    return tuple(found)


def _operand_notes(arguments: Sequence[object], buffers: Sequence[Any]) -> list[str]:
    """What bringing each argument into its layout costs: nothing, an upload, or a relayout through the host."""
    from kohakutpu.layouts import canonical
    from kohakutpu.tensor import Tensor

    notes: list[str] = []
    inputs = [spec for spec in buffers if spec.role == "in"]
    for a, spec in zip(arguments, inputs):
        if not isinstance(a, Tensor):
            continue
        if canonical(spec.layout) in a.storage.layouts:
            notes.append(f"{spec.name}: on the device in this order")
        elif a.storage.pending:
            notes.append(f"{spec.name}: derived from another value, on the device if only the device has that")
        elif a.storage.device_born:
            held = ", ".join(str(layout) for layout in a.layouts())
            notes.append(f"{spec.name}: relayout through the host, {held} -> {spec.layout}")
        else:
            notes.append(f"{spec.name}: packed and uploaded from the host")
    return notes


def kernel(fn: Callable[..., None] | None = None, *, tune: Tune | None = None, relax: bool = True) -> Any:
    """Decorator: `@kernel`, or `@kernel(tune=...)` to let the compiler choose knobs the caller leaves out.

    relax: whether an epilogue that does not fit a vector core's L1 may be staged through memory (else it is refused).
    """
    if fn is not None:
        return Kernel(fn, tune, relax)
    return lambda f: Kernel(f, tune, relax)
