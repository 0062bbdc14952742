"""A schedule under construction: buffers by tensor and byte order, stages as they are added, copies as needed.

It decides which buffer a stage reads or writes, and inserts a relayout where a value is wanted in another order than
the one it is in. It does not know how bands compute.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal, SourceLine, Unsupported
from kohakuaccel.lang.dims import Dim, DimExpr
from kohakuaccel.lang.indices import Index, IndexExpr, Known, evaluate
from kohakuaccel.lang.ports import Port
from kohakuaccel.lang.trace import Trace
from kohakuaccel.machine import Machine
from kohakuaccel.schedule import Band, BufferSpec, Stage
from kohakutpu.lang.memory import Table, Temp
from kohakutpu.layouts import FP16, FP32, Element, Layout, OperandPack, RowMajor, Streamable, WordRuns, canonical
from kohakutpu.lower import reorder
from kohakutpu.lower.binding import Binding
from kohakutpu.lower.body import Body, Node
from kohakutpu.lower.elements import base_of, stored_elements
from kohakutpu.lower.elementwise import ElementwiseBand

Ints = NDArray[np.int64]
NOT_TURNED = "FP32 lies in rows: it is not turned or tiled on the device"
Env = Mapping[Index | Dim, int]
"""Numbers of the loops around a stage, and of all dims."""


Form = tuple[Layout, "tuple[int, ...] | None"]
Window = tuple[int, int, bool, "tuple[int, ...]"]


@dataclass(slots=True)
class Tensor:
    """A port, temporary or table with its concrete shape. home: the buffer that a stage wrote (temporaries, outputs);
    copies: other byte orders of its present contents."""

    port: Port
    shape: tuple[int, ...]
    lead: tuple[int, ...]
    home: int = -1
    matrices: int = 1
    element: Element = FP16
    copies: dict[Form, int] = field(default_factory=dict[Form, int])
    windows: dict[Window, int] = field(default_factory=dict[Window, int])
    """Columns (first, end) of all rows (of the transpose) in buffers of their own."""
    narrow: list[Tensor] = field(default_factory=list["Tensor"])
    """Of FP32, the same contents as FP16 once a stage has made them."""

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    def form(self, layout: Layout, transpose: bool) -> Form:
        """What tells copies apart: a byte order, and which matrices were turned."""
        return canonical(layout), self.shape if transpose else None

    def shaped(self, shape: tuple[int, ...]) -> Tensor:
        """The same contents and copies under another shape."""
        matrices = math.prod(shape[:-2]) if len(shape) > 2 else 1
        return Tensor(self.port, shape, (), self.home, matrices, self.element, self.copies, self.windows, self.narrow)


class Work:
    """hints: per input, a layout its value has on the device and whether it is only there, or None."""

    def __init__(
        self, trace: Trace, machine: Machine, binding: Binding, hints: Sequence[tuple[Layout, bool] | None]
    ) -> None:
        self.trace = trace
        self.machine = machine
        self.binding = binding
        self.relax = trace.relax
        self.stages: list[Stage] = []
        self.buffers: list[BufferSpec] = []
        self.tensors: list[Tensor] = []
        self.notes: list[str] = []
        """What the reader should know of the whole schedule."""
        inputs = [p for p in trace.ports if p.direction == "in"]
        self._input_number = {id(p): n for n, p in enumerate(inputs)}
        self._hints = {id(p): hint for p, hint in zip(inputs, hints)}
        self._by_port: dict[int, Tensor] = {}
        elements = stored_elements(trace, binding.stored)
        for port in (*trace.ports, *trace.internal):
            lead = binding.batch if port.batched else ()
            shape = (*lead, *(self.extent(a) for a in port.axes))
            matrices = math.prod(shape[:-2]) if len(shape) > 2 else 1
            made = Tensor(port, shape, lead, matrices=matrices, element=elements.get(id(port), FP16))
            self.tensors.append(made)
            self._by_port[id(port)] = made

    def extent(self, axis: DimExpr | int) -> int:
        """The number a declared axis stands for."""
        return int(axis.value(self.binding.sizes)) if isinstance(axis, DimExpr) else axis

    @property
    def batch(self) -> int:
        """Elements of the implicit batch."""
        return math.prod(self.binding.batch) if self.binding.batch else 1

    def tensor(self, port: Port, source: SourceLine) -> Tensor:
        """The tensor behind a handle; a handle of another kernel is refused."""
        own = port if port.turned_from is None else port.turned_from
        base = base_of(port)
        found = self._by_port.get(id(base))
        if found is not None and base is not own:
            return found.shaped(tuple(self.extent(a) for a in own.axes))
        if found is None:
            raise Refusal(
                "a port belongs to one kernel", where=str(port), hint="use this kernel's own ports", source=source
            )
        return found

    def hint(self, tensor: Tensor) -> Streamable | None:
        """A byte order the tensor can be walked in without moving it, if one is known."""
        known = self._hints.get(id(tensor.port))
        layout = self.buffers[tensor.home].layout if tensor.home >= 0 else known[0] if known else None
        return layout if isinstance(layout, Streamable) else None

    def device_only(self, tensor: Tensor) -> bool:
        """Whether the value has to be moved on the device: a temporary, or an input that only a kernel wrote."""
        known = self._hints.get(id(tensor.port))
        return tensor.port.direction in ("temp", "out") or (known is not None and known[1])

    # buffers

    def _add(
        self,
        name: str,
        role: str,
        shape: tuple[int, ...],
        layout: Layout,
        port: int = -1,
        contents: NDArray[np.float16] | None = None,
        transposed: bool = False,
    ) -> int:
        self.buffers.append(BufferSpec(name, role, shape, layout, port, contents, transposed))
        return len(self.buffers) - 1

    def temporary(self, stem: str, shape: tuple[int, ...], layout: Layout, role: str = "temp") -> int:
        """A buffer the compiler adds; role "l1" for one that lives in vector cores' L1 and has no address."""
        number = sum(spec.role in ("temp", "l1") for spec in self.buffers)
        return self._add(f"{stem}.{number}", role, shape, layout)

    def read(self, tensor: Tensor, layout: Layout, source: SourceLine, transpose: bool = False) -> int:
        """The buffer that holds a tensor in a byte order (or its transpose in one): an input's own image, what a stage
        wrote, or a relayout of either. FP32 that is wanted in FP16 passes a stage that narrows it, or is narrowed where
        the host packs it."""
        port = tensor.port
        if tensor.element != layout.element:
            if self.device_only(tensor):
                return self.read(self._narrowed(tensor, source), layout, source, transpose)
            note = f"{port} is FP32 on the host: packed as FP16, beyond 65504 saturated"
            if note not in self.notes:
                self.notes.append(note)
        key = tensor.form(layout, transpose)
        if port.direction == "in":
            if key not in tensor.copies and self.device_only(tensor):
                moved = self._from_device(tensor, layout, transpose, source)
                if moved is not None:
                    tensor.copies[key] = moved
            if key not in tensor.copies:
                shape = tensor.shape if not transpose else (*tensor.shape[:-2], *tensor.shape[:-3:-1])
                tensor.copies[key] = self._add(
                    port.name + ("^T" if transpose else ""),
                    "in",
                    shape,
                    layout,
                    self._input_number[id(port)],
                    transposed=transpose,
                )
            return tensor.copies[key]
        if isinstance(port, Table):
            if key not in tensor.copies:
                contents = port.contents(self.binding.sizes)
                contents = contents.T if transpose else contents
                tensor.copies[key] = self._add(port.name, "table", contents.shape, layout, -1, contents)
            return tensor.copies[key]
        if tensor.home < 0:
            raise Refusal(
                "a temporary or output is read before a stage wrote it",
                where=str(port),
                hint="store into it in an earlier stage",
                source=source,
            )
        home = self.buffers[tensor.home].layout
        assert isinstance(home, Layout)
        if not transpose and canonical(home) == canonical(layout):
            return tensor.home
        if key not in tensor.copies:
            tensor.copies[key] = self._relayout(tensor, tensor.home, home, layout, transpose, source)
        return tensor.copies[key]

    def _narrowed(self, tensor: Tensor, source: SourceLine) -> Tensor:
        """A tensor of FP32 as FP16, in the same rows: a stage of its own, once."""
        if not tensor.narrow:
            known = self._hints.get(id(tensor.port))
            held = self.buffers[tensor.home].layout if tensor.home >= 0 else known[0] if known else None
            if not isinstance(held, RowMajor):
                held = RowMajor.of_shape(tensor.shape, FP32)
            buffer = self.read(tensor, held, source)
            made = Tensor(Temp(*(max(n, 1) for n in tensor.shape)), tensor.shape, (), matrices=tensor.matrices)
            made.port.name = f"{tensor.port.name}.fp16"
            out = self.write(made, held.stored_as(FP16), source)
            body = Body([Node("input", (0,), 0.0, "", False, source)], 0)
            names = (tensor.port.name,)
            self.stage(
                ElementwiseBand(
                    self.machine,
                    (buffer,),
                    out,
                    held.stored_as(FP16),
                    body,
                    names,
                    0,
                    source,
                    note=f"{tensor.port} as FP16, which products and accumulators' operands are; saturation is counted",
                    elements=(FP32,),
                )
            )
            tensor.narrow.append(made)
        return tensor.narrow[0].shaped(tensor.shape)

    def _from_device(self, tensor: Tensor, layout: Layout, transpose: bool, source: SourceLine) -> int | None:
        """An input that only the device has, moved there; None where it is in this order already, or cannot be."""
        known = self._hints[id(tensor.port)]
        assert known is not None
        held = known[0]
        if canonical(held) == canonical(layout) and not transpose:
            return None
        if self._steps(tensor, held, layout, transpose) is None:
            return None
        key = tensor.form(held, False)
        if key not in tensor.copies:
            tensor.copies[key] = self._add(
                tensor.port.name, "in", tensor.shape, held, self._input_number[id(tensor.port)]
            )
        return self._relayout(tensor, tensor.copies[key], held, layout, transpose, source)

    def _steps(self, tensor: Tensor, held: Layout, layout: Layout, transpose: bool) -> list[reorder.Step] | None:
        rows, cols = (1, *tensor.shape)[-2:] if tensor.shape else (1, 1)
        return reorder.steps(self.machine, held, layout, transpose, tensor.matrices, rows, cols)

    def _relayout(
        self,
        tensor: Tensor,
        buffer: int,
        home: Layout,
        layout: Layout,
        transpose: bool,
        source: SourceLine,
        into: Tensor | None = None,
    ) -> int:
        """Append the stages that bring a buffer into another order; the last one's result, `into` another tensor where
        that is given."""
        steps = self._steps(tensor, home, layout, transpose)
        if steps is None:
            raise Unsupported(
                NOT_TURNED if tensor.element == FP32 else "no relayout on the device between these byte orders",
                where=f"{tensor.port}: {home} -> {layout}{' transposed' if transpose else ''}",
                hint="use the same tiling in both places, or two kernels",
                source=source,
            )
        for step, trip in enumerate(steps):
            last = step == len(steps) - 1
            shape = (*tensor.shape[:-2], *tensor.shape[:-3:-1]) if transpose and last else tensor.shape
            if into is not None and last:
                made = self.write(into, trip.target, source)
            else:
                made = self.temporary(f"{tensor.port.name}'{step if len(steps) > 1 else ''}", shape, trip.target)
            self.stage(reorder.band(trip, self.machine, buffer, made, source))
            buffer = made
        return buffer

    def relayout_into(
        self, tensor: Tensor, target: Tensor, layout: Layout, source: SourceLine, transpose: bool
    ) -> bool:
        """Whether a relayout of the whole tensor makes what the target is to hold; if so, it is appended."""
        if not self.device_only(tensor) or tensor.element != target.element:
            return False
        home = self.buffers[tensor.home].layout if tensor.home >= 0 else None
        known = self._hints.get(id(tensor.port))
        if known is not None:
            home = known[0]
        if not isinstance(home, Layout) or (canonical(home) == canonical(layout) and not transpose):
            return False
        steps = self._steps(tensor, home, layout, transpose)
        if steps is None or tensor.form(layout, transpose) in tensor.copies:
            return False
        buffer = tensor.home
        if tensor.port.direction == "in":
            buffer = self.read(tensor, home, source)
        self._relayout(tensor, buffer, home, layout, transpose, source, target)
        return True

    def write(self, tensor: Tensor, layout: Layout, source: SourceLine) -> int:
        """The buffer that a stage writes; a tensor has one byte order for all its writers."""
        if tensor.home < 0:
            outputs = [p for p in self.trace.ports if p.direction == "out"]
            if tensor.port.direction == "out":
                tensor.home = self._add(tensor.port.name, "out", tensor.shape, layout, outputs.index(tensor.port))
            else:
                tensor.home = self._add(tensor.port.name, "temp", tensor.shape, layout)
        have = self.buffers[tensor.home].layout
        assert isinstance(have, Layout)
        if canonical(have) != canonical(layout):
            raise Unsupported(
                "all stages write a tensor in one byte order",
                where=f"{tensor.port}: {have} and {layout}",
                hint="use the same tiling in both places, or a temporary",
                source=source,
            )
        tensor.copies.clear()
        tensor.windows.clear()
        tensor.narrow.clear()
        return tensor.home

    def stage(self, band: Band) -> None:
        """Append a band as a stage of its own."""
        self.need(band.engine, band.source)
        self.stages.append(Stage((band,)))

    def need(self, engine: str, source: SourceLine) -> None:
        """Refuse work for a kind of unit ("MG" or "VC") that mesh 0, where kernels run, has none of."""
        if not self.machine.units_of(engine, mesh=0):
            raise Unsupported(
                "products run on matmul clusters (MG), everything else on vector cores (VC)",
                where=f"kernel {self.trace.name} on {self.machine.name}",
                got=f"no {engine} on mesh 0",
                hint="use a machine that has one",
                source=source,
            )

    # indices

    def lead_position(
        self,
        tensor: Tensor,
        lead: Sequence[IndexExpr | int],
        known: Known,
        batch: Ints,
        source: SourceLine,
        port: Port | None = None,
    ) -> Ints:
        """Which matrix (or vector, or row) of a tensor each instance sees: the implicit batch, then explicit leading
        indices. batch: int64[instances]; port: the handle, where its axes are exchanged."""
        if port is None:
            axes = tensor.shape[len(tensor.lead) :][: len(lead)]
        else:
            axes = tuple(self.extent(a) for a in port.axes[: len(lead)])
        at = batch.copy() if tensor.port.batched else np.zeros_like(batch)
        for extent, index in zip(axes, lead):
            value = np.broadcast_to(np.asarray(evaluate(index, known), np.int64), batch.shape)
            if len(value) and (int(value.min()) < 0 or int(value.max()) >= extent):
                raise Refusal(
                    "an index stays inside its axis",
                    where=f"{tensor.port if port is None else port}[... {index} ...]",
                    got=f"{int(value.min())}..{int(value.max())}",
                    limit=f"0..{extent - 1}",
                    hint="check the grid's extent and the index arithmetic",
                    source=source,
                )
            at = at * extent + value
        return at


def data_words(layout: Layout) -> Ints:
    """int64[n, 2] of the (first word, count) that hold data."""
    runs = WordRuns(layout.nbytes // 32, 0, 1) if isinstance(layout, OperandPack) else layout.runs
    first = np.arange(runs.count, dtype=np.int64) * runs.pitch
    return np.stack([first, np.full_like(first, runs.words)], axis=1)
