"""The timeline as one page for a browser, which needs no other file and no network.

It decides what data the page holds. How it looks and moves is in the files beside this one: page.html is the frame,
page.css the looks, model.js unpacks the data, view.js draws the timeline, parts.js everything else.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kohakuaccel.diagnostics import SourceLine
from kohakuaccel.sim.files import write_text
from kohakuaccel.sim.page.flat import flattened
from kohakuaccel.sim.report import place_of
from kohakuaccel.sim.spans import SpanTable
from kohakuaccel.sim.timeline import SERVE

if TYPE_CHECKING:
    from kohakuaccel.sim.summary import Placement, StageSummary
    from kohakuaccel.sim.timeline import Timeline

SHOWN = 12  # waits and instructions listed per stage; the whole run lists all of them


def write(timeline: Timeline, path: Path) -> None:
    """Write the page. Equal timelines give equal files."""
    write_text(page(timeline), path)


def page(timeline: Timeline) -> str:
    """The page as one HTML document; its only variable part is the data, in a JSON element."""
    here = files("kohakuaccel.sim.page")
    text = here.joinpath("page.html").read_text("utf-8")
    parts = {
        "@CSS@": here.joinpath("page.css").read_text("utf-8"),
        "@JS@": "\n".join(here.joinpath(name).read_text("utf-8") for name in ("model.js", "view.js", "parts.js")),
        # "<" would end the element in a text like "</script>"
        "@DATA@": json.dumps(data(timeline), separators=(",", ":")).replace("<", "\\u003c"),
    }
    for mark, part in parts.items():
        before, _, after = text.partition(mark)
        text = before + part + after
    return text


def data(timeline: Timeline) -> dict[str, Any]:
    """What the page shows, as plain values."""
    t, summary = timeline, timeline.summary()
    table = SpanTable.of(t.spans)
    return {
        "name": t.name or "timeline",
        "machine": t.machine,
        "clock": t.clock_mhz,
        "cycles": t.cycles,
        "kinds": t.kinds,
        "work": t.work,
        "serve": t.kinds.index(SERVE) if SERVE in t.kinds else -1,
        "assumed": t.assumed,
        "host": t.host,
        "counters": t.counters,
        "levels": t.levels,
        "names": table.names,
        "kindNumbers": [table.number(kind) for kind in t.kinds],
        "sources": [_line(source) for source in t.sources],
        "tracks": _tracks(t, table),
        "flows": [list(column) for column in zip(*sorted(t.flows, key=lambda flow: flow.from_cycle))],
        "series": {name: [[p[0] for p in points], [p[1] for p in points]] for name, points in t.series.items()},
        "stages": [_stage(s, SHOWN) for s in summary.stages],
        "whole": _stage(summary.whole, None),
        "roofs": [[r.unit, r.peak, r.bandwidth, r.memory, r.ridge] for r in summary.roofs.values()],
        "texts": dict(t.texts),
    }


def _line(source: SourceLine | None) -> list[str | int] | None:
    return None if source is None else [source.file, source.line, source.text]


def _tracks(t: Timeline, table: SpanTable) -> list[dict[str, Any]]:
    """Per track, its spans by start, in columns with starts as distances; where spans overlap, `flat` says which one
    shows when: the most telling kind."""
    rank = np.full(len(table.names) + 1, len(t.kinds), np.int64)
    for place, kind in enumerate(t.kinds):
        rank[table.number(kind)] = place
    order = np.lexsort((-table.end, table.start, table.track))
    cut = np.searchsorted(table.track[order], np.arange(len(t.tracks) + 1))
    found: list[dict[str, Any]] = []
    for number, track in enumerate(t.tracks):
        rows = order[cut[number] : cut[number + 1]]
        start, end = table.start[rows], table.end[rows]
        one: dict[str, Any] = {
            "name": track.name,
            "group": track.group,
            "s": np.diff(start, prepend=0).tolist(),
            "d": (end - start).tolist(),
            "k": rank[table.kind[rows]].tolist(),
            "t": table.text[rows].tolist(),
            "o": table.on[rows].tolist(),
            "l": table.line[rows].tolist(),
        }
        if len(rows) and (start[1:] < end[:-1]).any():
            one["flat"] = flattened(start.tolist(), end.tolist(), one["k"])
        found.append(one)
    return found


def _stage(s: StageSummary, shown: int | None) -> dict[str, Any]:
    stage = s.stage
    return {
        "name": stage.name,
        "start": stage.start,
        "end": stage.end,
        "rounds": stage.rounds,
        "source": _line(stage.source),
        "where": place_of(stage.source),
        "macs": stage.macs,
        "flops": stage.flops,
        "bytes": stage.nbytes,
        "shares": [[share.group, share.busy, share.kinds] for share in s.shares[:shown]],
        "own": dict(list(s.own.items())[:shown]),
        "waits": dict(list(s.waits.items())[:shown]),
        "top": [[name, *both] for name, both in list(s.top.items())[:shown]],
        "place": _placement(s.placement),
    }


def _placement(place: Placement | None) -> dict[str, Any] | None:
    """A stage under its roof; no traffic is no intensity."""
    if place is None:
        return None
    return {
        "unit": place.roof.unit,
        "intensity": None if place.intensity == float("inf") else place.intensity,
        "attained": place.attained,
        "limit": place.limit,
        "bound": place.bound,
    }
