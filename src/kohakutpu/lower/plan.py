"""A compiled kernel call: its schedule, its programs, and the images linked for particular addresses.

It decides what is computed once and kept; every level can be printed, verified and run from here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import astuple
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import SourceLine
from kohakuaccel.image import Image
from kohakuaccel.machine import Machine
from kohakuaccel.program import Program, UnitProgram
from kohakuaccel.schedule import Array, BufferSpec, Schedule
from kohakutpu.layouts import Layout
from kohakutpu.lower.contraction import ContractionBand
from kohakutpu.lower.elementwise import ElementwiseBand
from kohakutpu.lower.rows import RowBand

IMAGES_KEPT = 8  # address assignments remembered per plan


class Plan:
    """One kernel for one machine and one set of shapes. `notes` are facts for the reader (relayouts, choices)."""

    def __init__(self, machine: Machine, schedule: Schedule, notes: Sequence[str] = ()) -> None:
        self.machine = machine
        self.schedule = schedule
        self.notes = tuple(notes)
        self._images: OrderedDict[tuple[int, ...], Image] = OrderedDict()

    @property
    def buffers(self) -> tuple[BufferSpec, ...]:
        return self.schedule.buffers

    def layout(self, number: int) -> Layout:
        """The byte order of a buffer."""
        layout = self.schedule.buffers[number].layout
        assert isinstance(layout, Layout)
        return layout

    @cached_property
    def program(self) -> Program:
        """L1: the unit programs."""
        sources: list[SourceLine] = []
        stages: list[tuple[UnitProgram, ...]] = []
        for stage in self.schedule.stages:
            streams: list[UnitProgram] = []
            for band in stage.bands:
                assert isinstance(band, ContractionBand | ElementwiseBand | RowBand)
                if band.source not in sources:
                    sources.append(band.source)
                streams.extend(band.programs(sources.index(band.source)))
            stages.append(tuple(streams))
        return Program(self.schedule.kernel, self.machine.name, tuple(stages), tuple(sources))

    def image(self, addresses: Sequence[int]) -> Image:
        """L0: the program linked for buffers at these device addresses (remembered for the latest few)."""
        key = tuple(addresses)
        found = self._images.get(key)
        if found is None:
            found = self.program.link(key)
            self._images[key] = found
            if len(self._images) > IMAGES_KEPT:
                self._images.popitem(last=False)
        else:
            self._images.move_to_end(key)
        return found

    def nominal_addresses(self) -> list[int]:
        """Addresses as an empty device would give them: buffers one after another, on 256-byte boundaries."""
        addresses: list[int] = []
        at = 0
        for spec in self.buffers:
            addresses.append(at)
            at += -(-max(spec.layout.nbytes, 1) // 4096) * 4096
        return addresses

    # reading

    def pretty(self) -> str:
        """Stages, units, reasons, buffers, and what moving the operands costs."""
        lines = [self.schedule.pretty()]
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
        from kohakutpu.device import Device
        from kohakutpu.layouts import OperandPack

        device = Device(self.machine)
        given = iter(inputs)
        buffers = [device.alloc(spec.layout.nbytes) for spec in self.buffers]
        for number, spec in enumerate(self.buffers):
            if spec.role == "in":
                layout = self.layout(number)
                values = np.ascontiguousarray(next(given), np.float16).reshape(-1)
                quantise = layout.side if isinstance(layout, OperandPack) and layout.preq else None
                device.upload(buffers[number], layout.pack(values), quantise)
        device.run(self.image([b.address for b in buffers]))
        results: list[Array] = []
        for number, spec in enumerate(self.buffers):
            if spec.role == "out":
                layout = self.layout(number)
                runs = None if isinstance(layout, OperandPack) else astuple(layout.runs)
                data = device.download(buffers[number], layout.nbytes, runs=runs)
                results.append(layout.unpack(data).reshape(spec.shape))
        return results
