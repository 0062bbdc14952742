"""A timeline: what every unit and resource of a machine did when, and what it waited for.

It decides how recorded spans are summed up, and proves that they make sense. It must not know any machine.
Everything here is modelled time; no text it makes calls a number measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.sim.spans import Span

if TYPE_CHECKING:
    from kohakuaccel.sim.summary import Summary
    from kohakuaccel.sim.windows import Windows

Points = Sequence[tuple[int, float]]
IDLE = "idle"
SERVE = "serve"


class Flow(NamedTuple):
    """Something that left one track and was used by another: a fill that arrives and the sweep that reads it.

    Both ends lie within a span of their track.
    """

    text: str
    from_track: int
    from_cycle: int
    to_track: int
    to_cycle: int


@dataclass(frozen=True, slots=True)
class Track:
    """One row. group: the unit or resource it belongs to. A resource's spans are of kind SERVE."""

    name: str
    group: str


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of what was run: its cycles and how many dispatch rounds it took.

    source: the user's line behind it. macs: multiply-accumulates of matrix units; flops: operations of vector units,
    beside those; nbytes: bytes between the units and the device's memory. Zero where nobody counted.
    """

    name: str
    start: int
    end: int
    rounds: int
    source: SourceLine | None = None
    macs: int = 0
    flops: int = 0
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Share:
    """How full a group was over a window: cycles of each kind, which sum up to `total`; busy: those of work."""

    group: str
    total: int
    kinds: dict[str, int]
    busy: int


@dataclass(eq=False, slots=True)
class Timeline:
    """Modelled time of what a machine ran.

    kinds: kinds of span, most telling first; where spans of a group overlap, a cycle counts for the first of them.
    work: the kinds that use what the group is there for; the others are ways of waiting.
    cycles: of the device, from the first dispatch to the last completion. host: cycles of host transactions by
    purpose, in the device's clock; they are not part of `cycles`. assumed: what was assumed rather than taken from a
    measurement of the machine.
    flows: what fed what. series: values over time by name ("port 0 read B/cycle"), each a list of (cycle, value from
    there on). levels: bytes moved per memory level. peaks: what the whole machine can do per cycle: "MAC/cycle",
    "FLOP/cycle", and one or more bandwidths "<what> B/cycle", of which the lowest is the roof for `Stage.nbytes`.
    sources: the user's lines that spans name by number. texts: printed IR levels, by "<launch>/<level>".
    """

    name: str
    machine: str
    clock_mhz: int
    kinds: tuple[str, ...]
    work: tuple[str, ...]
    tracks: list[Track] = field(default_factory=list[Track])
    spans: Sequence[Span] = field(default_factory=list[Span])
    stages: list[Stage] = field(default_factory=list[Stage])
    cycles: int = 0
    host: dict[str, int] = field(default_factory=dict[str, int])
    counters: dict[str, int] = field(default_factory=dict[str, int])
    assumed: tuple[str, ...] = ()
    flows: Sequence[Flow] = field(default_factory=list[Flow])
    series: Mapping[str, Points] = field(default_factory=dict[str, Points])
    levels: dict[str, int] = field(default_factory=dict[str, int])
    peaks: dict[str, float] = field(default_factory=dict[str, float])
    sources: list[SourceLine] = field(default_factory=list[SourceLine])
    texts: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def seconds(self) -> float:
        """Device time at `clock_mhz`."""
        return self.cycles / (self.clock_mhz * 1e6)

    @property
    def host_cycles(self) -> int:
        return sum(self.host.values())

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(t.group for t in self.tracks))

    def track(self, name: str, group: str | None = None) -> int:
        """A new track's number."""
        self.tracks.append(Track(name, name if group is None else group))
        return len(self.tracks) - 1

    def shares(self, start: int = 0, end: int | None = None) -> list[Share]:
        """What each group did within a window (all of it by default), in the order of the tracks."""
        return self.windows((start, self.cycles if end is None else end)).shares(0)

    def waits(self, start: int = 0, end: int | None = None) -> dict[str, int]:
        """Cycles that units waited, by what they waited for, longest first."""
        return self.windows((start, self.cycles if end is None else end)).waits(0)

    def top(self, start: int = 0, end: int | None = None) -> dict[str, tuple[int, int]]:
        """(cycles, times) by text of what units and resources worked at, longest first; waiting is left out."""
        return self.windows((start, self.cycles if end is None else end)).top(0)

    def windows(self, edges: Sequence[int]) -> Windows:
        """Sums over the windows between neighbouring `edges`, all at once."""
        from kohakuaccel.sim.windows import Windows

        return Windows(self, edges)

    def check(self) -> None:
        """Prove the invariants. Raises Refusal with the span or group that breaks one.

        No span is negative or outside the run, stages follow each other and cover the run, every group's kinds are
        not negative and sum up to the whole.
        """
        for span in self.spans:
            if not 0 <= span.start <= span.end <= self.cycles:
                limit = (0, self.cycles)
                raise Refusal("a span lies within the run", where=span.text, got=(span.start, span.end), limit=limit)
        at = 0
        for stage in self.stages:
            if stage.start != at or stage.end < at:
                raise Refusal("stages follow each other", where=stage.name, got=(stage.start, stage.end), limit=at)
            at = stage.end
        if self.stages and at != self.cycles:
            raise Refusal("stages cover the run", where=self.name, got=at, limit=self.cycles)
        for share in self.shares():
            if min(share.kinds.values()) < 0 or sum(share.kinds.values()) != share.total:
                raise Refusal("a group's kinds sum up to the run", where=share.group, got=share.kinds)
        for flow in self.flows:
            for track, cycle in ((flow.from_track, flow.from_cycle), (flow.to_track, flow.to_cycle)):
                if not (0 <= track < len(self.tracks) and 0 <= cycle <= self.cycles):
                    limit = (len(self.tracks) - 1, self.cycles)
                    raise Refusal("a flow's ends lie within the run", where=flow.text, got=(track, cycle), limit=limit)
            if flow.from_cycle > flow.to_cycle:
                got = (flow.from_cycle, flow.to_cycle)
                raise Refusal("nothing is used before it has arrived", where=flow.text, got=got)
        for name, points in self.series.items():
            if any(a[0] > b[0] for a, b in pairwise(points)):
                raise Refusal("a series goes forward in time", where=name)

    def summary(self) -> Summary:
        """What the reports say, as values: per stage its limiter, waits, longest instructions, place under the roof."""
        from kohakuaccel.sim.summary import summarise

        return summarise(self)

    def report(self) -> str:
        """The text report: per stage what limits it and what that waited for; roofline, bytes moved, instructions."""
        from kohakuaccel.sim.report import text

        return text(self)

    def save(self, path: str | Path) -> None:
        """Write the timeline to a file that `load` and `kohaku report` read (.json, or .json.gz)."""
        from kohakuaccel.sim.files import save

        save(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> Timeline:
        """The timeline that `save` wrote. Raises Refusal for any other file."""
        from kohakuaccel.sim.files import load

        return load(Path(path))

    def html(self, path: str | Path) -> None:
        """Write one page for a browser that needs nothing else: timeline, stages, roofline, IR levels."""
        from kohakuaccel.sim.page import write

        write(self, Path(path))

    def perfetto(self, path: str | Path) -> None:
        """Write a trace for the Perfetto UI (JSON trace events; a microsecond there is a cycle here)."""
        from kohakuaccel.sim.perfetto import write

        write(self, Path(path))
