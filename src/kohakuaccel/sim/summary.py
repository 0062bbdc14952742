"""What a report says about a timeline, as values: limiters, waits, roofline placement. Text and pages only show it.

It decides what limits a stage and what bounds it. It must not know any machine, nor how a number is printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kohakuaccel.sim.timeline import Share, Stage, Timeline

MAC, FLOP = "MAC", "FLOP"
_BANDWIDTH = " B/cycle"


@dataclass(frozen=True, slots=True)
class Roof:
    """What a machine can do with work of one unit ("MAC" or "FLOP"): peak per cycle, bandwidth in B/cycle and whose."""

    unit: str
    peak: float
    bandwidth: float
    memory: str

    @property
    def ridge(self) -> float:
        """Work per byte from which on compute is the bound."""
        return self.peak / self.bandwidth

    def at(self, intensity: float) -> float:
        """Most work per cycle at `intensity` work per byte."""
        return min(self.peak, self.bandwidth * intensity)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where work stands under a roof. intensity: work per byte, infinite without traffic; attained: work per cycle."""

    roof: Roof
    intensity: float
    attained: float

    @property
    def limit(self) -> float:
        """What the roof allows at this intensity."""
        return self.roof.at(self.intensity)

    @property
    def fraction(self) -> float:
        """Share of the roof that is reached."""
        return self.attained / self.limit

    @property
    def bound(self) -> str:
        """Which roof is above it: "compute" or "memory"."""
        return "compute" if self.intensity >= self.roof.ridge else "memory"


@dataclass(frozen=True, slots=True)
class StageSummary:
    """One stage. shares: groups that worked, fullest first; the first one is the limiter. own: what the limiter waited
    for; waits: what anybody waited for; top: (cycles, times) by instruction."""

    number: int
    stage: Stage
    shares: tuple[Share, ...]
    own: dict[str, int]
    waits: dict[str, int]
    top: dict[str, tuple[int, int]]
    placement: Placement | None

    @property
    def cycles(self) -> int:
        return self.stage.end - self.stage.start

    @property
    def limiter(self) -> Share | None:
        """The fullest unit or resource; None when nothing worked."""
        return self.shares[0] if self.shares else None


@dataclass(frozen=True, slots=True)
class Summary:
    """A timeline's report. whole: the run as one stage, numbered -1; roofs: by unit of work."""

    timeline: Timeline
    whole: StageSummary
    stages: tuple[StageSummary, ...]
    roofs: dict[str, Roof]


def roofs_of(peaks: dict[str, float]) -> dict[str, Roof]:
    """The roofs that `Timeline.peaks` describes: the lowest bandwidth bounds each kind of work."""
    bandwidths = {name.removesuffix(_BANDWIDTH): value for name, value in peaks.items() if name.endswith(_BANDWIDTH)}
    if not bandwidths:
        return {}
    memory = min(bandwidths, key=lambda name: bandwidths[name])
    units = [unit for unit in (MAC, FLOP) if peaks.get(f"{unit}/cycle")]
    return {unit: Roof(unit, peaks[f"{unit}/cycle"], bandwidths[memory], memory) for unit in units}


def place(stage: Stage, roofs: dict[str, Roof]) -> Placement | None:
    """A stage under the roof of its work: MACs where it has any, else operations. None without work or roof."""
    unit, work = (MAC, stage.macs) if stage.macs else (FLOP, stage.flops)
    roof, cycles = roofs.get(unit), stage.end - stage.start
    if roof is None or not work or not cycles:
        return None
    return Placement(roof, work / stage.nbytes if stage.nbytes else float("inf"), work / cycles)


def summarise(timeline: Timeline) -> Summary:
    """Sums over every stage, in one pass over the spans."""
    from kohakuaccel.sim.timeline import Stage
    from kohakuaccel.sim.windows import Windows

    t, roofs = timeline, roofs_of(timeline.peaks)

    def one(number: int, stage: Stage, windows: Windows, window: int) -> StageSummary:
        shares = tuple(sorted((s for s in windows.shares(window) if s.busy), key=lambda share: -share.busy))
        own = windows.waits(window, shares[0].group) if shares else {}
        return StageSummary(number, stage, shares, own, windows.waits(window), windows.top(window), place(stage, roofs))

    rounds, macs, flops, nbytes = (
        sum(column) for column in zip((0, 0, 0, 0), *((s.rounds, s.macs, s.flops, s.nbytes) for s in t.stages))
    )
    whole = Stage(t.name, 0, t.cycles, rounds, macs=macs, flops=flops, nbytes=nbytes)
    windows = t.windows([0, *(stage.end for stage in t.stages)])
    stages = tuple(one(number, stage, windows, number) for number, stage in enumerate(t.stages))
    return Summary(t, one(-1, whole, t.windows((0, t.cycles)), 0), stages, roofs)
