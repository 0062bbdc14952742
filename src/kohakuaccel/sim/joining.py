"""Timelines of launches as one: what each said, moved to when it ran.

It decides where things of a launch stand in the whole. Spans, flows, series and texts are joined when somebody looks at
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.sim.later import LaterDict, LaterList
from kohakuaccel.sim.spans import LaterSpans, SpanTable
from kohakuaccel.sim.timeline import Flow, Points, Timeline


def joined(timelines: Sequence[Timeline], name: str) -> Timeline:
    """Timelines of one machine one after the other, without gaps between them."""
    if not timelines:
        raise Refusal("at least one timeline is joined", where=name)
    first = timelines[0]
    whole = Timeline(name, first.machine, first.clock_mhz, first.kinds, first.work, assumed=first.assumed)
    whole.peaks = dict(first.peaks)
    numbers: dict[str, int] = {}
    lines: dict[SourceLine, int] = {}
    parts: list[_Part] = []
    for launch, one in enumerate(timelines):
        title = one.name or f"launch {launch}"
        if (one.machine, one.clock_mhz, one.kinds) != (first.machine, first.clock_mhz, first.kinds):
            raise Refusal("joined timelines are of one machine", where=name, got=one.machine, limit=first.machine)
        for track in one.tracks:
            if track.name not in numbers:
                numbers[track.name] = whole.track(track.name, track.group)
        place, at = [numbers[track.name] for track in one.tracks], whole.cycles
        parts.append((one, at, place, [lines.setdefault(source, len(lines)) for source in one.sources]))
        whole.stages += [replace(s, name=f"{title} {s.name}", start=s.start + at, end=s.end + at) for s in one.stages]
        for total, part in ((whole.host, one.host), (whole.counters, one.counters), (whole.levels, one.levels)):
            for key, value in part.items():
                total[key] = total.get(key, 0) + value
        whole.cycles += one.cycles
    whole.spans = LaterSpans(lambda: _spans(parts))
    whole.sources = list(lines)
    whole.flows = LaterList(lambda: _flows(parts))
    whole.series = LaterDict(lambda: _series(parts))
    whole.texts = LaterDict(lambda: _texts(parts))
    return whole


_Part = tuple[Timeline, int, list[int], list[int]]
"""A timeline, the cycle at which it begins in the whole, and the new numbers of its tracks and of its lines."""


def _spans(parts: Sequence[_Part]) -> SpanTable:
    return SpanTable.joined([SpanTable.of(one.spans).moved(at, place, line) for one, at, place, line in parts])


def _flows(parts: Sequence[_Part]) -> list[Flow]:
    return [
        Flow(f.text, place[f.from_track], f.from_cycle + at, place[f.to_track], f.to_cycle + at)
        for one, at, place, _ in parts
        for f in one.flows
    ]


def _series(parts: Sequence[_Part]) -> Mapping[str, Points]:
    """A series that a launch does not have is zero while it runs."""
    found: dict[str, list[tuple[int, float]]] = {}
    for one, at, _, _ in parts:
        for key, points in one.series.items():
            found.setdefault(key, [(0, 0.0)] if at else []).extend((cycle + at, value) for cycle, value in points)
        for key in found.keys() - one.series.keys():
            found[key].append((at, 0.0))
    return found


def _texts(parts: Sequence[_Part]) -> Mapping[str, str]:
    return {key: text for one, _, _, _ in parts for key, text in one.texts.items()}
