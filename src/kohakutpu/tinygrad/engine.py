"""Kernels of tinygrad on a KohakuTPU: through the scheduler where the machine has units, else as counted host steps.

Decides what may go to the device and what may not, and in which form values wait there. It must not know tinygrad's
kernels, nor how stages are found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import KohakuError, Refusal
from kohakuaccel.frontends.tinygrad.joined.running import Apart
from kohakuaccel.frontends.tinygrad.kernel import Kernel
from kohakuaccel.frontends.tinygrad.memory import View
from kohakuaccel.frontends.tinygrad.program import Engine, Prepared
from kohakuaccel.graph import Cast, Expr, Graph, Op, Read, kind_of
from kohakuaccel.graph.structure import as_contraction
from kohakuaccel.machine import Machine
from kohakutpu import machines
from kohakutpu.tinygrad import counting, selection, split
from kohakutpu.tinygrad.inside import Inside, Size, size_of
from kohakutpu.tinygrad.numerics import Numerics, current

if TYPE_CHECKING:
    from kohakuaccel.sim.timeline import Timeline
    from kohakutpu.auto import GraphPlan
    from kohakutpu.device import Device
    from kohakutpu.storage import Storage

T = TypeVar("T")
HALF = "half"
"""The form of a float32 buffer for kernels that take halves."""
FLAT = "flat"
"""The form in which the device holds a buffer: a flat tensor, of FP32 for float32 unless a product left it."""
STORED = {"FP16": np.dtype(np.float16), "FP32": np.dtype(np.float32)}
LARGEST = 65504.0
NORMAL = 2.0**-14
"""The smallest half with all its bits."""
_STEEP = ("recip", "rsqrt", "sqrt", "log2", "pow")
CLOSE = 2.0**-10
"""A float32 operand of a product may become halves if no element moves by more than this part of the greatest."""
LEAST = 2.0**-25 / CLOSE
"""A product's results may be halves if the greatest is at least this: they move by 2^-25 at most."""


@lru_cache(maxsize=32)
def machine_of(arch: str) -> Machine:
    """The machine an arch string names: a preset, then changes (`ship_3x2,L=10,clusters=8`)."""
    from kohakuaccel.whatif import named
    from kohakutpu.machines.sizes import SIZES, sized

    return named(arch, machines.load, machines.DEFAULT, SIZES, sized)


class Plans:
    """What is known of one kernel: why it cannot go to a device, or its plan there."""

    def __init__(self, prepared: Prepared) -> None:
        graph = prepared.kernel.graph
        self.products = any(_product(s) for s in graph.statements)
        self.float32 = any(v.dtype.name == "FP32" for v in graph.inputs) or any(
            graph[s.value].dtype.name == "FP32" for s in prepared.kernel.stores
        )
        self.updates = prepared.updates
        self.relative = _relative(graph)
        self.why = _unfit(prepared)
        self.selects = selection.reason(prepared.kernel)
        self.elements = selection.elements(prepared.kernel)
        self.copied = selection.copied(prepared.kernel)
        self.split = split.SplitKernel(prepared) if split.fits(graph) else None
        self.plans: dict[Machine, GraphPlan | str] = {}
        self.inside: dict[Machine, Inside] = {}

    def reason(self, allowed: Numerics, *, inner: bool = False) -> str:
        """Why the kernel stays on the host under these numerics; empty where it does not. inner: nobody else sees what
        it makes."""
        if self.why:
            return self.why
        if self.selects and not inner:
            return self.selects
        if self.products and allowed.matmul == "split":
            return 'matmul="split" computes products kernel by kernel'
        if self.float32 and (allowed.float32 == "host" or allowed.matmul == "split"):
            return "float32 is asked for, the device computes in E8M15"
        if self.float32 and self.updates and allowed.float32 != "update":
            return "a float32 buffer is updated in place; in E8M15 small updates would be lost"
        return ""


def _relative(graph: Graph) -> frozenset[str]:
    """The inputs under a division, a root or a logarithm: small ones matter as much as large ones there."""
    found: set[str] = set()

    def visit(expr: Expr, inside: bool) -> None:
        if isinstance(expr, Read):
            if inside:
                found.add(expr.value)
            return
        for n, child in enumerate(expr.children):
            under = isinstance(expr, Op) and (expr.name in _STEEP or (expr.name == "div" and n == 1))
            visit(child, inside or under)

    for statement in reversed(graph.statements):
        visit(statement.body, statement.name in found)
    return frozenset(v.name for v in graph.inputs if v.name in found)


def _product(statement: Any) -> bool:
    found = as_contraction(statement)
    return bool(found and found.m and found.n)


def _unfit(prepared: Prepared) -> str:
    """Why no unit computes a kernel, from its formats and forms alone."""
    graph = prepared.kernel.graph
    if any(s.place is not None for s in prepared.kernel.stores):
        return "elements are stored to places of their own"
    for value in graph.values:
        if kind_of(value.dtype) == "word":
            return "integers"
        if value.dtype.name not in (*STORED, "BOOL"):
            return f"values of {value.dtype}"
    for one in (e for s in graph.statements for e in s.body.walk()):
        if isinstance(one, Cast) and kind_of(one.dtype) == "real" and one.dtype.name not in STORED:
            return f"values of {one.dtype}"
        if _rounds_between(graph, one):
            return "float32 values rounded to FP16 on the way"
    if any(kind_of(v.dtype) == "bool" for v in graph.inputs):
        return "truth values as operands"
    if any(kind_of(graph[s.value].dtype) == "bool" for s in prepared.kernel.stores):
        return "truth values as results"
    if any(any(True for i in r.indices for _ in i.lookups()) for s in graph.statements for r in s.body.reads()):
        return "a gather by value"
    return "" if any(isinstance(e, Read) for s in graph.statements for e in s.body.walk()) else "constants alone"


def _rounds_between(graph: Graph, expr: Expr) -> bool:
    """Whether float32 operands are asked to take FP16's bits and range for more float32 arithmetic, in E8M15 here."""
    inner = expr.arg if isinstance(expr, Cast) and expr.dtype.name == "FP32" else None
    if not isinstance(inner, Cast) or inner.dtype.name != "FP16":
        return False
    return isinstance(inner.arg, Read) and any(
        v.name == inner.arg.value and v.dtype.name == "FP32" for v in graph.inputs
    )


def joins(kernel: Kernel) -> bool:
    """Whether a kernel may become a part of a larger one: by its form a unit computes it, in whatever numbers."""
    prepared = Prepared(kernel, sorted({*kernel.reads, *(s.slot for s in kernel.stores)}))
    return not Plans(prepared).reason(Numerics(), inner=True)


class KTPUEngine(Engine):
    """One device. timed: whether simulated seconds are taken."""

    def __init__(self, arch: str, timed: bool) -> None:
        self.arch, self.timed = arch, timed
        self._checked: WeakSet[Storage] = WeakSet()
        """FP32 values that are known to fit FP16."""
        self._sizes: WeakKeyDictionary[Storage, Size] = WeakKeyDictionary()
        self.machine = machine_of(arch)
        self._device: Device | None = None

    @property
    def device(self) -> Device:
        """The machine, opened when the first kernel needs it."""
        if self._device is None:
            from kohakutpu.device import Device

            self._device = Device(self.machine)
        return self._device

    def run(self, prepared: Prepared, buffers: Sequence[View]) -> float | None:
        """On the device where it can be, else a counted step of the host."""
        try:
            products = self._plans(prepared).split if current().matmul == "split" else None
            if products is not None:
                return products.run(buffers, self.device, self.timed, self._host)
            return self._attempt(prepared, buffers)
        except _Unfit as why:
            self._host(prepared.kernel.name, str(why), prepared.nbytes(buffers), current())
        prepared.on_host(buffers)
        return 0.0 if self.timed else None

    def run_whole(self, prepared: Prepared, buffers: Sequence[View]) -> float | None:
        """A kernel that stands for several: on the device, or not at all."""
        try:
            return self._attempt(prepared, buffers)
        except _Unfit as why:
            raise Apart(str(why), lasting=isinstance(prepared.machine.plans.get(self.machine), str)) from None

    def takes(self, prepared: Prepared) -> bool:
        """Whether a plan runs a kernel on the device alone."""
        plans = self._plans(prepared)
        return not plans.reason(current()) and not isinstance(self._planned(plans, prepared), str)

    def apart(self, name: str, parts: int, reason: str) -> None:
        """Several kernels that could have been one."""
        counting.total.apart(name, parts, reason)

    @staticmethod
    def _plans(prepared: Prepared) -> Plans:
        if prepared.machine is None:
            prepared.machine = Plans(prepared)
        return prepared.machine

    def _attempt(self, prepared: Prepared, buffers: Sequence[View]) -> float | None:
        plans = self._plans(prepared)
        reason = plans.reason(current())
        if reason:
            raise _Unfit(reason)
        plan = self._planned(plans, prepared)
        if isinstance(plan, str):
            raise _Unfit(plan)
        return self._on_device(prepared, plans, plan, buffers)

    def loops(self, name: str, nbytes: int) -> None:
        """A kernel that is no graph."""
        self._host(name, "a kernel that is no graph, interpreted loop by loop", nbytes, current())

    @staticmethod
    def _host(name: str, reason: str, nbytes: int, allowed: Numerics) -> None:
        if allowed.host == "refuse":
            raise Refusal(
                "every kernel is computed by the machine",
                where=f"kernel {name}",
                got=reason,
                hint='allow steps of the host: KTPU_HOST=allow, or numerics(host="allow")',
            )
        counting.total.host(reason, name, nbytes)

    def _planned(self, plans: Plans, prepared: Prepared) -> GraphPlan | str:
        """The kernel's plan here; one with a search is made once, for what the device runs whole."""
        if self.machine not in plans.plans:
            from kohakutpu.auto import compile_graph

            graph, storage = prepared.kernel.graph, "graph" if plans.float32 else "half"
            try:
                plan = compile_graph(graph, self.machine, storage=storage)
                steps = plan.host_steps
                if prepared.search and not steps:
                    plan = compile_graph(graph, self.machine, storage=storage, search=prepared.search)
                plans.plans[self.machine] = steps[0].reason if steps else plan
            except KohakuError as why:
                plans.plans[self.machine] = f"the scheduler refuses it: {why}"
        return plans.plans[self.machine]

    def _on_device(self, prepared: Prepared, plans: Plans, plan: GraphPlan, buffers: Sequence[View]) -> float | None:
        given = {v.name: self._operand(buffers[at], STORED[v.dtype.name]).reshape(v.shape) for v, at in prepared.inputs}
        for name in plan.narrowed:
            self._check_halves(given[name].storage, name in plans.relative)
        for name in sorted(plans.elements | plans.copied):
            if not given[name].storage.device_born and selection.rounded(given[name].storage.peek()):
                one = "a maximum is one of its elements" if name in plans.elements else "a copy is its source"
                raise _Unfit(f"{one}, and E8M15 would round it")
        self._check_inside(plans, plan, given)
        _make_room(prepared, buffers)
        before = self.device.counters.saturations
        try:
            made, timeline = self._clocked(prepared.kernel.name, lambda: plan.run(given, device=self.device))
        except KohakuError as why:
            raise _Unfit(f"refused while it ran: {getattr(why, 'rule', why)}") from why
        if self.device.counters.saturations != before:
            raise _Unfit("a result is beyond FP16")
        for store in prepared.kernel.stores:
            dtype = STORED[prepared.kernel.graph[store.value].dtype.name]
            tensor = made[store.value].reshape((-1,))
            if dtype == np.float32 and tensor.stored == np.float16 and np.abs(tensor.storage.peek()).max() < LEAST:
                raise _Unfit("a product's float32 results are too small for FP16")
            buffers[prepared.at[store.slot]].keep(FLAT + str(dtype), tensor, _fetcher(tensor, dtype), ahead=True)
        counting.total.device(prepared.kernel.name, plan, timeline)
        return None if timeline is None else timeline.seconds

    def _clocked(self, name: str, work: Callable[[], T]) -> tuple[T, Timeline | None]:
        """What some work on the device gives, once it is done, and its simulated time where it is taken."""
        device = self.device
        device.sync()
        if not self.timed:
            made = work()
            device.sync()
            return made, None
        from kohakutpu.sim.session import timed

        made, timeline = timed(device, work, name)
        device.sync()
        return made, timeline

    def own(self, name: str, record: Mapping[str, Any]) -> Callable[[Sequence[View]], float | None]:
        """A kernel of the kernel language. It has no form for the host: operands that the device cannot take are
        refused."""
        from kohakutpu.tinygrad.custom import Call

        call = Call(record)

        def run(buffers: Sequence[View]) -> float | None:
            given: list[Any] = []
            for n, shape in enumerate(call.shapes[call.outputs :], call.outputs):
                try:
                    given.append(self._half(buffers[n], STORED[call.formats[n]]).reshape(shape))
                except _Unfit as why:
                    raise Refusal(
                        "a kernel's operands are numbers that the device stores",
                        where=f"kernel {name}, operand {n - call.outputs}",
                        got=str(why),
                        hint="scale the operand, or compute the function in tinygrad's words",
                    ) from None
            before = self.device.counters.saturations
            made, timeline = self._clocked(name, lambda: call(given))
            seconds = None if timeline is None else timeline.seconds
            for n, tensor in enumerate(made):
                dtype, flat = STORED[call.formats[n]], tensor.reshape((-1,))
                buffers[n].keep(FLAT + str(dtype), flat, _fetcher(flat, dtype), ahead=True)
            counting.total.custom(self.device.counters.saturations - before, seconds)
            return seconds

        return run

    def _operand(self, buffer: View, dtype: np.dtype[Any]) -> Any:
        """A buffer as a flat tensor, stored as its type."""
        from kohakutpu.tensor import as_tensor

        form = FLAT + str(dtype)
        found = buffer.kept(form)
        if found is not None and found.device is self.device:
            return found
        raw = buffer.read().copy().view(dtype)
        if not np.isfinite(raw).all():
            raise _Unfit("operands with NaN or Inf")
        tensor = as_tensor(raw, device=self.device, dtype=dtype, where="tinygrad")
        buffer.keep(form, tensor, _fetcher(tensor, dtype), ahead=False)
        return tensor

    def _half(self, buffer: View, dtype: np.dtype[Any]) -> Any:
        """A buffer as a flat tensor of halves, for kernels that know no other."""
        from kohakutpu.tensor import as_tensor

        whole = self._operand(buffer, dtype)
        if whole.stored == np.float16:
            return whole
        narrow = buffer.kept(HALF)
        if narrow is None or narrow.device is not self.device:
            self._check_halves(whole.storage, False)
            values = whole.numpy().astype(np.float16)
            narrow = as_tensor(values, device=self.device, dtype=np.float16, where="tinygrad")
            buffer.keep(HALF, narrow, _fetcher(narrow, dtype), ahead=False)
        return narrow

    def _check_halves(self, storage: Storage, relative: bool) -> None:
        """Raise `_Unfit` where FP16, which clusters take, would lose float32 values. relative: small ones have to keep
        all their bits."""
        if storage.element.dtype == np.float16 or storage in self._checked:
            return
        values = storage.peek()
        if not np.isfinite(values).all():
            raise _Unfit("operands with NaN or Inf")
        if relative and ((np.abs(values) < NORMAL) & (values != 0)).any():
            raise _Unfit("small float32 operands of a product under a division, a root or a logarithm")
        top = float(np.abs(values).max(initial=0.0))
        if top > LARGEST:
            raise _Unfit("a product's float32 operand beyond FP16")
        half = values.astype(np.float16)
        if top and float(np.abs(half.astype(np.float32) - values).max()) > CLOSE * top:
            raise _Unfit("a product's float32 operands are too small for FP16")
        if not relative:
            self._checked.add(storage)

    def _check_inside(self, plans: Plans, plan: GraphPlan, given: Mapping[str, Any]) -> None:
        """Raise `_Unfit` where halves that only the kernel sees would lose float32 values."""
        if not plans.products:
            return
        inside = plans.inside.get(self.machine)
        if inside is None:
            inside = plans.inside[self.machine] = Inside(plan)
        if not inside.names:
            return
        storages = {v.name: given[v.name].storage for v in plan.inputs}
        for storage in storages.values():
            if storage not in self._sizes:
                self._sizes[storage] = size_of(storage.peek())

        def values() -> dict[str, NDArray[Any]]:
            return {v.name: storages[v.name].peek().astype(STORED[v.dtype.name]).reshape(v.shape) for v in plan.inputs}

        if inside.too_small(LEAST, [self._sizes[one] for one in storages.values()], values):
            raise _Unfit("products inside a float32 kernel are too small for FP16")


def _make_room(prepared: Prepared, buffers: Sequence[View]) -> None:
    """Old values of what the kernel makes are forgotten, so that results find the places free that they had before."""
    read = [buffers[at] for _, at in prepared.inputs]
    for store in prepared.kernel.stores:
        made_in = buffers[prepared.at[store.slot]]
        if not any(made_in.overlaps(one) for one in read):
            made_in.drop()


class _Unfit(Exception):
    """Values that the device cannot take or give."""


def _fetcher(tensor: Any, dtype: np.dtype[Any]) -> Any:
    def fetch() -> NDArray[np.uint8]:
        return np.ascontiguousarray(tensor.numpy().astype(dtype)).reshape(-1).view(np.uint8)

    return fetch
