"""What ran where: kernels on the device, of which kinds, and steps of the host.

Decides how they are counted and shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kohakuaccel.frontends.tinygrad.counting import Steps
from kohakutpu.tinygrad.ran import SHOWN, Ran, SplitRun, described, of_split, table

if TYPE_CHECKING:
    from kohakuaccel.sim.timeline import Timeline
    from kohakutpu.auto import GraphPlan


@dataclass
class Report(Steps):
    """Counts since the last reset. seconds: simulated, of timed devices. reasons: of host steps."""

    split_kernels: int = 0
    """Of device_kernels, those whose products were computed from digits."""
    split_passes: int = 0
    split_bytes: int = 0
    """Products of digits on the clusters, and bytes of the host's arithmetic around them."""
    mixed: int = 0
    """Counts of kernels beyond their first: products on the device, what is around them as steps of the host."""
    saturations: int = 0
    """Results of kernels called by name that were beyond FP16 and became the largest half."""
    kernels: dict[object, Ran] = field(default_factory=dict[object, Ran])
    """Kernels of the scheduler, and those of split products, by themselves; `by_kernel` shows them."""

    def custom(self, saturations: int, seconds: float | None) -> None:
        """Count a kernel that was called by name."""
        self.device_kernels += 1
        self.seconds += seconds or 0.0
        self.saturations += saturations

    def split(
        self, kernel: object, name: str, took: SplitRun, reasons: Sequence[str], timeline: Timeline | None
    ) -> float | None:
        """Count a kernel of split products, whose steps of the host are counted already; its seconds with the link."""
        on_device = took.products > 0
        self.device_kernels += on_device
        self.split_kernels += on_device
        self.mixed += max(len(reasons) + on_device - 1, 0)
        self.split_passes += took.passes
        self.split_bytes += took.nbytes
        found = self.kernels.get(kernel)
        if found is None:
            found = self.kernels[kernel] = Ran(name, of_split(took, reasons, timeline))
        found.count += 1
        if timeline is None:
            return None
        seconds = timeline.seconds + timeline.host_cycles / (timeline.clock_mhz * 1e6)
        found.seconds += seconds
        self.seconds += seconds
        return seconds

    def device(self, name: str, plan: GraphPlan, timeline: Timeline | None) -> None:
        """Count a kernel that the device ran."""
        self.device_kernels += 1
        found = self.kernels.get(plan)
        if found is None:
            found = self.kernels[plan] = Ran(name, described(plan, timeline))
        found.count += 1
        if timeline is not None:
            found.seconds += timeline.seconds
            self.seconds += timeline.seconds

    def by_kernel(self, shown: int = SHOWN) -> str:
        """Each kernel with its simulated time, its stages and what limits them; the longest first."""
        return table(self.kernels.values(), shown)

    def __str__(self) -> str:
        lines = self.head(self.device_kernels + self.host_kernels - self.mixed)
        if self.split_kernels:
            lines.append(
                f"  {self.split_kernels} of them split products: {self.split_passes} passes, {self.split_bytes} bytes"
                f" of digits and sums, {self.mixed} with arithmetic around on the host"
            )
        if self.saturations:
            lines.append(f"  {self.saturations} results of custom kernels saturated at 65504")
        return "\n".join([*lines, *self.tail()])


total = Report()


def report() -> Report:
    """What ran since the start or the last `reset`; `print` it."""
    return total


def reset() -> None:
    """Count from zero again."""
    total.__init__()
