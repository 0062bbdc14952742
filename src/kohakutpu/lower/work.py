"""A schedule under construction: buffers by number, layouts as they are decided, stages as they are added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kohakuaccel.diagnostics import SourceLine, Unsupported
from kohakuaccel.lang.ports import Port
from kohakuaccel.lang.trace import Trace
from kohakuaccel.machine import Machine
from kohakuaccel.schedule import Stage
from kohakutpu.layouts import Layout
from kohakutpu.lower.binding import Binding


@dataclass(slots=True)
class Work:
    """A schedule under construction. layouts: port or temporary number -> layout once something decided it."""

    trace: Trace
    machine: Machine
    binding: Binding
    hints: Sequence[Layout | None]
    names: list[str]
    roles: list[str]
    shapes: list[tuple[int, ...]]
    layouts: dict[int, Layout] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)

    def number(self, port: Port) -> int:
        return self.trace.ports.index(port)

    def temporary(self, stem: str, shape: tuple[int, ...], layout: Layout) -> int:
        self.names.append(f"{stem}{len(self.names) - len(self.trace.ports)}")
        self.roles.append("temp")
        self.shapes.append(shape)
        self.layouts[len(self.names) - 1] = layout
        return len(self.names) - 1

    def settle(self, number: int, layout: Layout, source: SourceLine) -> Layout:
        """Give a buffer its layout; a buffer has one."""
        have = self.layouts.setdefault(number, layout)
        if have != layout:
            raise Unsupported(
                "a tensor is used in two byte orders by one kernel",
                where=f"{self.names[number]}: {have} and {layout}",
                hint="use the same tiling in both places, or two kernels",
                source=source,
            )
        return have
