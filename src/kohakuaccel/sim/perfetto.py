"""The timeline as a trace-event file, the JSON that the Perfetto UI opens.

It decides the file format: a group is a process, a track a thread, a cycle a microsecond; stages are a process of their
own, series are counters of another. A name that ends in .gz is compressed.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kohakuaccel.diagnostics import SourceLine
from kohakuaccel.sim.files import write_text
from kohakuaccel.sim.spans import Span, SpanTable

if TYPE_CHECKING:
    from kohakuaccel.sim.timeline import Timeline

Event = dict[str, Any]
RUN, COUNTERS = "run", "counters"


def lanes(spans: list[Span]) -> list[list[Span]]:
    """One track's spans, in the order of their starts, as threads on which spans follow or contain each other.

    A trace has no other arrangement; most tracks need one thread.
    """
    found: list[list[Span]] = []
    open_ends: list[list[int]] = []
    for span in spans:
        number = next((n for n, ends in enumerate(open_ends) if _fits(span, ends)), len(found))
        if number == len(found):
            found.append([])
            open_ends.append([])
        found[number].append(span)
        open_ends[number].append(span.end)
    return found


def _fits(span: Span, ends: list[int]) -> bool:
    """Whether a span lies within the innermost one that is still open; `ends` are the ends of the open ones."""
    while ends and ends[-1] <= span.start:
        ends.pop()
    return not ends or span.end <= ends[-1]


def _where(source: SourceLine | None) -> dict[str, str]:
    return {} if source is None else {"line": str(source)}


class _Trace:
    """Events in the making; every process and thread has its number and its place in the order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._threads = 0
        self._processes: dict[str, int] = {}

    def process(self, name: str) -> int:
        """The number of the process of this name, made when it is new."""
        if name not in self._processes:
            pid = self._processes[name] = len(self._processes) + 1
            self.events.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}})
            self.events.append({"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}})
        return self._processes[name]

    def thread(self, process: str, name: str) -> dict[str, int]:
        """A new thread's place."""
        place = {"pid": self.process(process), "tid": self._threads}
        self.events.append({"ph": "M", "name": "thread_name", **place, "args": {"name": name}})
        self._threads += 1
        return place

    def slice(self, place: dict[str, int], name: str, category: str, start: int, end: int, args: Event) -> None:
        event: Event = {"ph": "X", "name": name, "cat": category, "ts": start, "dur": end - start, **place}
        self.events.append({**event, "args": args} if args else event)


def write(timeline: Timeline, path: Path) -> None:
    """Write `timeline` to `path`. Equal timelines give equal files."""
    t, trace = timeline, _Trace()
    stages = trace.thread(RUN, "stages")
    for stage in t.stages:
        work = {name: getattr(stage, name) for name in ("rounds", "macs", "flops", "nbytes") if getattr(stage, name)}
        trace.slice(stages, stage.name, "stage", stage.start, stage.end, {**_where(stage.source), **work})
    by_track: list[list[Span]] = [[] for _ in t.tracks]
    for span in sorted(SpanTable.of(t.spans), key=lambda s: (s.start, -s.end)):
        by_track[span.track].append(span)
    ends: list[_Ends] = []
    for track, spans in zip(t.tracks, by_track):
        found = lanes(spans)
        places: list[dict[str, int]] = []
        for number, lane in enumerate(found or [[]]):
            place = trace.thread(track.group, track.name if number == 0 else f"{track.name}, beside")
            places.append(place)
            for span in lane:
                args: Event = {"waits for": span.on} if span.on else {}
                line = t.sources[span.line] if span.line >= 0 else None
                trace.slice(place, span.text, span.kind, span.start, span.end, {**args, **_where(line)})
        ends.append(_Ends(found, places))
    flows = sorted(t.flows, key=lambda flow: (flow.from_cycle, flow.to_cycle))
    for number, flow in enumerate(flows, 1):
        event = {"name": flow.text, "cat": "flow", "id": number}
        trace.events.append({"ph": "s", **event, **ends[flow.from_track].at(flow.from_cycle, False)})
        trace.events.append({"ph": "f", "bp": "e", **event, **ends[flow.to_track].at(flow.to_cycle, True)})
    for name, points in t.series.items():
        place = {"pid": trace.process(COUNTERS)}
        trace.events += [{"ph": "C", "name": name, "ts": cycle, **place, "args": {"value": v}} for cycle, v in points]
    note = {
        "machine": t.machine,
        "time": "modelled, not measured; 1 us shown = 1 cycle",
        "assumed": ", ".join(t.assumed),
    }
    document = {"traceEvents": trace.events, "displayTimeUnit": "ms", "otherData": note}
    write_text(json.dumps(document, separators=(",", ":")) + "\n", path)


class _Ends:
    """Where arrows meet a track: inside the slice they leave or enter, as an arrow binds to the slice around it."""

    def __init__(self, found: list[list[Span]], places: list[dict[str, int]]) -> None:
        self._lane = found[0] if found else []
        self._place = places[0]
        self._starts = [span.start for span in self._lane]
        self._reach = list(accumulate((span.end for span in self._lane), max))

    def at(self, cycle: int, entering: bool) -> dict[str, int]:
        """Thread and time of an arrow's end at `cycle`: it leaves a span that ends there in the span's last cycle."""
        index = bisect_right(self._starts, cycle) - 1
        if not entering:
            # The latest span that is over by then, if none is open; one that only starts now cannot have sent it.
            while index >= 0 and self._reach[index] >= cycle:
                if self._starts[index] < cycle <= self._lane[index].end:
                    return {**self._place, "ts": cycle - 1}
                index -= 1
        return {**self._place, "ts": cycle}
