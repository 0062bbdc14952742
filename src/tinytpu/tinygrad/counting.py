"""What ran where: programs and cycles of the machine by kernel, and steps of the host by reason.

Decides how they are counted and shown.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

from kohakuaccel.frontends.tinygrad.counting import Steps
from kohakuaccel.machine import Machine
from tinytpu.lower import Plan, Ran
from tinytpu.lower.run import Counts
from tinytpu.trace.planned import took

SHOWN = 20


@dataclass
class Kernel:
    """One kernel: how often it ran, and what all its runs took."""

    name: str
    plan: Plan
    count: int = 0
    took: Counts = field(default_factory=Counts)

    @cached_property
    def busy(self) -> dict[str, float]:
        """Parts of the cycles in which each unit works, as planned."""
        return took(self.plan.machine, self.plan.steps).shares()

    def __str__(self) -> str:
        each = self.took.cycles // self.count
        head = f"{self.name}: {self.count} times, {each:,} cycles each, {self.took.programs // self.count} programs"
        units = ", ".join(f"{name} {part:.0%}" for name, part in self.busy.items() if part)
        return "\n".join([head, *([f"  busy: {units}"] if units else []), *_indented(self.plan.text())])


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]


@dataclass
class Report(Steps):
    """Counts since the last reset. took: of all programs, what they took. notes: products that went another way than
    the array, and why. cycles: of programs by device, which is a core of one system. copies: between those."""

    took: Counts = field(default_factory=Counts)
    notes: Counter[str] = field(default_factory=Counter)
    cycles: Counter[str] = field(default_factory=Counter)
    copies: int = 0
    copied_bytes: int = 0
    copy_cycles: int = 0
    kernels: dict[int, Kernel] = field(default_factory=dict[int, Kernel])
    """By plan; `by_kernel` shows them."""

    def copied(self, nbytes: int, cycles: int, machine: Machine) -> None:
        """Count a copy from one core to another."""
        self.copies += 1
        self.copied_bytes += nbytes
        self.copy_cycles += cycles
        self.seconds += cycles / (machine.params.clock_mhz * 1e6)

    def device(self, name: str, plan: Plan, ran: Ran, device: str = "TINYTPU") -> float:
        """Count a kernel that the machine ran; its seconds."""
        seconds = ran.counts.cycles / (plan.machine.params.clock_mhz * 1e6)
        self.device_kernels += 1
        self.seconds += seconds
        self.took.add(ran.counts)
        self.cycles[device] += ran.counts.cycles
        self.notes.update(ran.notes)
        found = self.kernels.setdefault(id(plan), Kernel(name, plan))
        found.count += 1
        found.took.add(ran.counts)
        return seconds

    def by_kernel(self, shown: int = SHOWN) -> str:
        """Each kernel with its cycles and its programs; the longest first."""
        found = sorted(self.kernels.values(), key=lambda one: -one.took.cycles)
        rest = len(found) - shown
        return "\n".join([*map(str, found[:shown]), *([f"and {rest} more"] if rest > 0 else [])])

    def __str__(self) -> str:
        took = self.took
        lines = self.head(self.device_kernels + self.host_kernels)
        if self.device_kernels:
            lines.append(
                f"  {took.programs} programs, {took.cycles:,} cycles, {took.records:,} records; {took.filled} tiles and"
                f" vectors in, {took.taken} out, {took.carried} carried, {took.bytes:,} bytes"
            )
        if len(self.cycles) > 1:
            each = ", ".join(f"{device} {cycles:,}" for device, cycles in sorted(self.cycles.items()))
            lines.append(f"  cycles by device, which work side by side: {each}")
        if self.copies:
            lines.append(
                f"  {self.copies} copies between devices over the network: {self.copied_bytes:,} bytes, "
                f"{self.copy_cycles:,} cycles"
            )
        lines += [f"  {count:6} {note}" for note, count in self.notes.most_common()]
        return "\n".join([*lines, *self.tail()])


total = Report()


def report() -> Report:
    """What ran since the start or the last `reset`; `print` it."""
    return total


def reset() -> None:
    """Count from zero again."""
    total.__init__()
