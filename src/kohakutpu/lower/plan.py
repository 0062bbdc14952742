"""A compiled kernel call: its schedule, its programs, and the images linked for particular addresses.

It decides what is computed once and kept; every level can be printed, verified and run from here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary, ref

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import OutOfMemory, SourceLine
from kohakuaccel.image import Image
from kohakuaccel.lang.trace import Trace
from kohakuaccel.machine import Machine
from kohakuaccel.program import Program, UnitProgram
from kohakuaccel.schedule import Array, BufferSpec, Schedule
from kohakutpu.layouts import Layout
from kohakutpu.lower.lifetimes import Workspace, place
from kohakutpu.lower.relayout import RelayoutBand
from kohakutpu.lower.row_moves import MoveBand

IMAGES_KEPT = 8  # address assignments remembered per plan at least, and as many as fit IMAGES_BYTES:
IMAGES_BYTES = 16 << 20  # the layers of a model run one plan at as many addresses, pass after pass
PLACES_KEPT = 64  # calls whose addresses a plan remembers
EXCERPT = 12  # instructions of a unit and stage that a program's excerpt shows


@runtime_checkable
class Programmed(Protocol):
    """A band of this machine: it can emit its instruction streams."""

    @property
    def source(self) -> SourceLine: ...

    def programs(self, source: int) -> list[UnitProgram]: ...


def _only_moves(band: object) -> bool:
    return isinstance(band, RelayoutBand) or (isinstance(band, MoveBand) and band.relayout)


class Plan:
    """One kernel for one machine and one set of shapes. `notes` are facts for the reader (relayouts, choices); `trace`
    is what it was made from."""

    def __init__(
        self, machine: Machine, schedule: Schedule, notes: Sequence[str] = (), trace: Trace | None = None
    ) -> None:
        self.machine = machine
        self.schedule = schedule
        self.notes = tuple(notes)
        self.trace = trace
        self._check_footprint()
        self.tables: WeakKeyDictionary[Any, dict[int, Any]] = WeakKeyDictionary()
        """Per device, the tensors that hold this plan's tables there (kept by whoever runs the plan)."""
        self.placed: OrderedDict[tuple[int, ...], Mapping[int, int]] = OrderedDict()
        """By the addresses of inputs and tables, where the latest such call had its outputs, and its workspace as -1:
        there an image is linked already."""
        self._images: OrderedDict[tuple[int, ...], Image] = OrderedDict()

    @property
    def buffers(self) -> tuple[BufferSpec, ...]:
        return self.schedule.buffers

    def layout(self, number: int) -> Layout:
        """The byte order of a buffer."""
        layout = self.schedule.buffers[number].layout
        assert isinstance(layout, Layout)
        return layout

    @property
    def footprint(self) -> int:
        """Bytes of device memory a call needs at once: inputs, tables and outputs apart, temporaries by lifetime."""
        apart = sum(s.layout.nbytes for s in self.buffers if s.role not in ("temp", "l1"))
        return apart + self.workspace.nbytes

    def _check_footprint(self) -> None:
        """Refuse what no order of allocations can fit."""
        limit = self.machine.memories[0].size
        if self.footprint > limit:
            largest = max(self.buffers, key=lambda s: s.layout.nbytes)
            raise OutOfMemory(
                "a call's inputs, outputs and live temporaries fit the device memory",
                where=f"kernel {self.schedule.kernel} on {self.machine.name}",
                got=f"{self.footprint:,} bytes",
                limit=f"{limit:,} bytes",
                hint=f"split the call; its largest buffer is {largest}",
            )

    @cached_property
    def program(self) -> Program:
        """L1: the unit programs."""
        sources: list[SourceLine] = []
        stages: list[tuple[UnitProgram, ...]] = []
        for stage in self.schedule.stages:
            streams: list[UnitProgram] = []
            for band in stage.bands:
                assert isinstance(band, Programmed)
                if band.source not in sources:
                    sources.append(band.source)
                streams.extend(band.programs(sources.index(band.source)))
            stages.append(tuple(streams))
        return Program(self.schedule.kernel, self.machine.name, tuple(stages), tuple(sources))

    def image(self, addresses: Sequence[int]) -> Image:
        """L0: the program linked for buffers at these device addresses (remembered for the latest)."""
        key = tuple(addresses)
        found = self._images.get(key)
        if found is None:
            plan = ref(self)  # an image does not keep its plan alive

            def levels() -> Mapping[str, str]:
                made = plan()
                return {} if made is None else made.levels()

            found = replace(self.program.link(key), levels=levels)
            self._images[key] = found
            size = sum(one.payloads.nbytes for stage in found.stages for one in stage)
            if len(self._images) > max(IMAGES_KEPT, IMAGES_BYTES // max(size, 1)):
                self._images.popitem(last=False)
        else:
            self._images.move_to_end(key)
        return found

    def remember(self, given: tuple[int, ...], addresses: Mapping[int, int]) -> None:
        """Note where a call had its buffers, for the next one with the same inputs."""
        self.placed[given] = addresses
        self.placed.move_to_end(given)
        if len(self.placed) > PLACES_KEPT:
            self.placed.popitem(last=False)

    @cached_property
    def relayouts(self) -> int:
        """Stages that only change a byte order."""
        return sum(_only_moves(band) for stage in self.schedule.stages for band in stage.bands)

    @cached_property
    def workspace(self) -> Workspace:
        """Where temporaries lie in one block of memory: those that never live together share it."""
        return place(self.schedule)

    def addresses(self, outside: Mapping[int, int], workspace: int) -> list[int]:
        """One address per buffer: those given for inputs, tables and outputs, and the temporaries' in the workspace."""
        return [
            workspace + self.workspace.offsets[n] if spec.role == "temp" else outside.get(n, 0)
            for n, spec in enumerate(self.buffers)
        ]

    def nominal_addresses(self) -> list[int]:
        """Addresses as an empty device would give them: buffers one after another, then the workspace."""
        outside: dict[int, int] = {}
        at = 0
        for number, spec in enumerate(self.buffers):
            if spec.role not in ("temp", "l1"):
                outside[number] = at
                at += -(-max(spec.layout.nbytes, 1) // 4096) * 4096
        return self.addresses(outside, at)

    # reading

    def pretty(self) -> str:
        """Stages, units, reasons, buffers, and what moving the operands costs."""
        lines = [self.schedule.pretty()]
        if self.workspace.nbytes:
            lines.append(f"  workspace {self.workspace.nbytes:,} B for temporaries of {self.workspace.total:,} B")
        if self.notes:
            lines += ["  operands", *(f"    {note}" for note in self.notes)]
        return "\n".join(lines)

    def disassemble(self, limit: int | None = None) -> str:
        """The instructions of every unit, at most `limit` per unit, with addresses of an empty device."""
        base = np.array(self.nominal_addresses(), np.int64)
        stages = tuple(
            tuple(
                UnitProgram(one.unit, one.codec, one.linked(base), one.buffer, one.source, one.passes, one.acks)
                for one in stage
            )
            for stage in self.program.stages
        )
        return Program(self.program.kernel, self.machine.name, stages, self.program.sources).pretty(limit)

    def levels(self) -> Mapping[str, str]:
        """The levels above the image as text, highest first: the first instructions of each unit stand for the rest."""
        trace = {} if self.trace is None else {"your lines": self.trace.lines(), "trace": self.trace.pretty()}
        return {**trace, "schedule": self.pretty(), "program": self.disassemble(EXCERPT)}

    # running, level by level

    def run_schedule(self, *inputs: NDArray[np.float16]) -> list[Array]:
        """L2 run: what the schedule computes, in the machine's formats, without any unit."""
        return self.schedule.run(inputs)

    def run_program(self, *inputs: NDArray[np.float16]) -> list[Array]:
        """L1 run: the unit models execute the instruction rows, without encoding, staging or dispatch."""
        from kohakutpu.lower.execute import execute

        return execute(self, inputs)

    def run_image(self, *inputs: NDArray[np.float16]) -> list[Array]:
        """L0 run: a fresh device executes the encoded image."""
        from kohakuaccel.device import Buffer
        from kohakutpu.device import Device
        from kohakutpu.layouts import OperandPack

        device = Device(self.machine)
        held: dict[int, Buffer] = {}
        for number, spec in enumerate(self.buffers):
            if spec.role in ("temp", "l1"):
                continue
            held[number] = device.alloc(spec.layout.nbytes)
            values = self.schedule.source_values(spec, inputs)
            if values is not None:
                layout = self.layout(number)
                quantise = layout.side if isinstance(layout, OperandPack) and layout.preq else None
                device.upload(held[number], layout.pack(values.reshape(-1)), quantise)
        workspace = device.alloc(max(self.workspace.nbytes, 1), 4096)
        device.run(self.image(self.addresses({n: b.address for n, b in held.items()}, workspace.address)))
        results: list[Array] = []
        for number, spec in self.schedule.outputs():
            layout = self.layout(number)
            runs = None if isinstance(layout, OperandPack) else astuple(layout.runs)
            data = device.download(held[number], layout.nbytes, runs=runs)
            results.append(layout.unpack(data).reshape(spec.shape))
        return results
