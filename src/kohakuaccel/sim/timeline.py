"""A timeline: what every unit and resource of a machine did when, and what it waited for.

It decides how recorded spans are summed up, and proves that they make sense. It must not know any machine.
Everything here is modelled time; no text it makes calls a number measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kohakuaccel.diagnostics import Refusal

IDLE = "idle"
SERVE = "serve"


class Span(NamedTuple):
    """`track` is busy with `text` from cycle `start` up to `end`. on: what a span of waiting waits for."""

    track: int
    start: int
    end: int
    kind: str
    text: str
    on: str = ""


@dataclass(frozen=True, slots=True)
class Track:
    """One row. group: the unit or resource it belongs to. A resource's spans are of kind SERVE."""

    name: str
    group: str


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of what was run: its cycles and how many dispatch rounds it took."""

    name: str
    start: int
    end: int
    rounds: int


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
    """

    name: str
    machine: str
    clock_mhz: int
    kinds: tuple[str, ...]
    work: tuple[str, ...]
    tracks: list[Track] = field(default_factory=list[Track])
    spans: list[Span] = field(default_factory=list[Span])
    stages: list[Stage] = field(default_factory=list[Stage])
    cycles: int = 0
    host: dict[str, int] = field(default_factory=dict[str, int])
    counters: dict[str, int] = field(default_factory=dict[str, int])
    assumed: tuple[str, ...] = ()

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
        end = self.cycles if end is None else end
        groups = self.groups
        number = {group: n for n, group in enumerate(groups)}
        order = {kind: n for n, kind in enumerate(self.kinds)}
        found: list[list[list[tuple[int, int]]]] = [[[] for _ in self.kinds] for _ in groups]
        for span in self.spans:
            low, high = max(span.start, start), min(span.end, end)
            if low < high:
                found[number[self.tracks[span.track].group]][order[span.kind]].append((low, high))
        shares: list[Share] = []
        for group, by_kind in zip(groups, found):
            covered, seen = 0, list[tuple[int, int]]()
            kinds: dict[str, int] = {}
            for kind, intervals in zip(self.kinds, by_kind):
                if intervals:
                    seen = merged([*seen, *intervals])
                    length = sum(b - a for a, b in seen)
                    kinds[kind] = length - covered
                    covered = length
            kinds[IDLE] = end - start - covered
            busy = sum(n for kind, n in kinds.items() if kind in self.work)
            shares.append(Share(group, end - start, kinds, busy))
        return shares

    def waits(self, start: int = 0, end: int | None = None) -> dict[str, int]:
        """Cycles that units waited, by what they waited for, longest first."""
        end = self.cycles if end is None else end
        total: dict[str, int] = {}
        for span in self.spans:
            length = min(span.end, end) - max(span.start, start)
            if span.on and length > 0:
                total[span.on] = total.get(span.on, 0) + length
        return dict(sorted(total.items(), key=lambda item: -item[1]))

    def top(self, start: int = 0, end: int | None = None) -> dict[str, tuple[int, int]]:
        """(cycles, times) by text of what units and resources worked at, longest first; waiting is left out."""
        end = self.cycles if end is None else end
        total: dict[str, tuple[int, int]] = {}
        for span in self.spans:
            length = min(span.end, end) - max(span.start, start)
            if length > 0 and not span.on and span.kind != SERVE:
                cycles, times = total.get(span.text, (0, 0))
                total[span.text] = cycles + length, times + 1
        return dict(sorted(total.items(), key=lambda item: -item[1][0]))

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

    def report(self) -> str:
        """The text report: per stage what limits it, how full resources are, what was waited for."""
        from kohakuaccel.sim.report import text

        return text(self)

    def perfetto(self, path: str | Path) -> None:
        """Write a trace for the Perfetto UI (JSON trace events; a microsecond there is a cycle here)."""
        from kohakuaccel.sim.perfetto import write

        write(self, Path(path))


def merged(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Intervals as disjoint ones, in order."""
    result: list[tuple[int, int]] = []
    for low, high in sorted(intervals):
        if result and low <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], high))
        else:
            result.append((low, high))
    return result


def joined(timelines: Sequence[Timeline], name: str) -> Timeline:
    """Timelines of one machine one after the other, without gaps between them."""
    if not timelines:
        raise Refusal("at least one timeline is joined", where=name)
    first = timelines[0]
    whole = Timeline(name, first.machine, first.clock_mhz, first.kinds, first.work, assumed=first.assumed)
    numbers: dict[str, int] = {}
    for launch, one in enumerate(timelines):
        title = one.name or f"launch {launch}"
        if (one.machine, one.clock_mhz, one.kinds) != (first.machine, first.clock_mhz, first.kinds):
            raise Refusal("joined timelines are of one machine", where=name, got=one.machine, limit=first.machine)
        for track in one.tracks:
            if track.name not in numbers:
                numbers[track.name] = whole.track(track.name, track.group)
        place, at = [numbers[track.name] for track in one.tracks], whole.cycles
        whole.spans += [Span(place[s.track], s.start + at, s.end + at, s.kind, s.text, s.on) for s in one.spans]
        whole.stages += [Stage(f"{title} {s.name}", s.start + at, s.end + at, s.rounds) for s in one.stages]
        for total, part in ((whole.host, one.host), (whole.counters, one.counters)):
            for key, value in part.items():
                total[key] = total.get(key, 0) + value
        whole.cycles += one.cycles
    return whole
