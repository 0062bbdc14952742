"""The timeline as a trace-event file, the JSON that the Perfetto UI opens.

It decides the file format: groups are processes, tracks are threads, a cycle is a microsecond.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohakuaccel.sim.timeline import Timeline


def write(timeline: Timeline, path: Path) -> None:
    """Write `timeline` to `path`. Equal timelines give equal files."""
    processes = {group: n + 1 for n, group in enumerate(timeline.groups)}
    events: list[dict[str, Any]] = []
    for group, pid in processes.items():
        events.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": group}})
    for tid, track in enumerate(timeline.tracks):
        place = {"pid": processes[track.group], "tid": tid}
        events.append({"ph": "M", "name": "thread_name", **place, "args": {"name": track.name}})
    for span in sorted(timeline.spans, key=lambda s: (s.start, -s.end)):
        event: dict[str, Any] = {
            "ph": "X",
            "name": span.text,
            "cat": span.kind,
            "ts": span.start,
            "dur": span.end - span.start,
            "pid": processes[timeline.tracks[span.track].group],
            "tid": span.track,
        }
        if span.on:
            event["args"] = {"waits for": span.on}
        events.append(event)
    note = {"machine": timeline.machine, "time": "modelled, not measured; 1 us shown = 1 cycle"}
    document = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": note}
    path.write_text(json.dumps(document, separators=(",", ":")) + "\n")
