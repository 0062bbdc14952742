"""Kernels by themselves: how often each ran, in what simulated time, of which stages, and what limits them.

Decides how that is kept and shown. The first run of a kernel on a clock is looked into; the others are added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kohakuaccel.sim.summary import StageSummary
    from kohakuaccel.sim.timeline import Timeline
    from kohakutpu.auto import GraphPlan

SHOWN = 20


@dataclass(frozen=True, slots=True)
class SplitRun:
    """What one run of a kernel of split products took on the device: products, passes over digits, bytes of digits and
    sums. No product, where all of them were the host's."""

    products: int
    passes: int
    nbytes: int


@dataclass
class Ran:
    """One kernel. seconds: simulated, of all its runs; 0 without a clock. lines: its stages, each with what limits it,
    and what kept them apart."""

    name: str
    lines: tuple[str, ...]
    count: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        each = f", {self.seconds / self.count * 1e6:.1f} us each" if self.seconds else ""
        return "\n".join([f"{self.name}: {self.count} times{each}", *(f"  {line}" for line in self.lines)])


def described(plan: GraphPlan, timeline: Timeline | None) -> tuple[str, ...]:
    """The stages of a plan, with their cycles where a run was timed, and why statements were not fused."""
    stages = timeline.summary().stages if timeline is not None else ()
    forms = [line.strip() for step in plan.kernel_steps for line in step.pretty().splitlines()[1:]]
    lines = [f"{len(plan.steps)} launches, {len(forms)} stages"] if len(plan.steps) > 1 else []
    for n, form in enumerate(forms):
        lines.append(form.partition(", takes in")[0])
        if len(stages) == len(forms):
            lines.append(f"  {_limited(stages[n])}")
    if len(stages) != len(forms):  # products whose accumulators are read back are stages of the clock, too
        lines += [f"stage {n}: {_limited(stage)}" for n, stage in enumerate(stages)]
    return (*lines, *plan.notes)


def of_split(took: SplitRun, reasons: Sequence[str], timeline: Timeline | None) -> tuple[str, ...]:
    """What a kernel of split products took, the cycles of its stages and of the link where a run was timed, and what
    of it is the host's."""
    lines = [f"split products: {took.products}, {took.passes} passes, {took.nbytes:,} bytes of digits and sums"]
    if timeline is not None:
        stages = timeline.summary().stages
        lines += [f"stage {n}: {_limited(stage)}" for n, stage in enumerate(stages[:SHOWN])]
        lines += [f"and {len(stages) - SHOWN} more stages"] if len(stages) > SHOWN else []
        lines.append(f"the link: {timeline.host_cycles:,} cycles")
    return (*lines, *(f"host: {reason}" for reason in reasons))


def _limited(stage: StageSummary) -> str:
    """A stage's cycles, its fullest unit, and what that one waited for longest."""
    if stage.limiter is None:
        return f"{stage.cycles:,} cycles"
    text = f"{stage.cycles:,} cycles, {stage.limiter.group} {stage.limiter.busy / max(stage.cycles, 1):.0%} full"
    waited = next(iter(stage.own.items()), None)
    return text if waited is None else f"{text}, {waited[1] / max(stage.cycles, 1):.0%} behind {waited[0]}"


def table(kernels: Iterable[Ran], shown: int = SHOWN) -> str:
    """The kernels that took longest, or ran most often where no clock ran."""
    found = sorted(kernels, key=lambda one: (-one.seconds, -one.count))
    rest = len(found) - shown
    return "\n".join([*map(str, found[:shown]), *([f"and {rest} more"] if rest > 0 else [])])
