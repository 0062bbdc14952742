"""Timelines on disk: one JSON document, spans in columns, every text once. A name that ends in .gz is compressed.

It decides the file format only. Equal timelines give equal files.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from kohakuaccel.diagnostics import Refusal, SourceLine, did_you_mean
from kohakuaccel.sim.spans import Span, SpanTable
from kohakuaccel.sim.timeline import Flow, Stage, Timeline, Track

FORMAT = "kohaku-timeline"
VERSION = 1
_PLAIN = ("name", "machine", "clock_mhz", "cycles", "host", "counters", "levels", "peaks")
_COLUMNS = ("track", "start", "end", "kind", "text", "on", "line")
_KINDS: dict[str, type] = {
    **dict.fromkeys(("name", "machine"), str),
    **dict.fromkeys(("clock_mhz", "cycles"), int),
    **dict.fromkeys(("host", "counters", "levels", "peaks", "texts", "series", "spans"), dict),
    **dict.fromkeys(("kinds", "work", "assumed", "names", "tracks", "stages", "sources", "flows"), list),
}
_VALUES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("host", "counters", "levels"), int),
    "peaks": (int, float),
    **dict.fromkeys(("texts", "kinds", "work", "assumed", "names"), str),
    "stages": dict,
}
"""What a file's values are, and what is in those that hold several of one kind."""
_KEYS = tuple(_KINDS)


def document(timeline: Timeline) -> dict[str, Any]:
    """The timeline as plain values. Spans are columns; a span's start is the distance from the one before, its end the
    distance from its start, so that numbers stay short."""
    t, table = timeline, SpanTable.of(timeline.spans)
    columns = {name: getattr(table, name) for name in _COLUMNS}
    columns["end"] = table.end - table.start
    columns["start"] = np.diff(table.start, prepend=0)
    return {
        "format": FORMAT,
        "version": VERSION,
        **{name: getattr(t, name) for name in _PLAIN},
        **{name: list(getattr(t, name)) for name in ("kinds", "work", "assumed")},
        "texts": dict(t.texts),
        "tracks": [[track.name, track.group] for track in t.tracks],
        "stages": [{**asdict(s), "source": s.source and _line(s.source)} for s in t.stages],
        "sources": [_line(source) for source in t.sources],
        "flows": [list(flow) for flow in t.flows],
        "series": {name: [[cycle, float(value)] for cycle, value in points] for name, points in t.series.items()},
        "names": table.names,
        "spans": {name: column.tolist() for name, column in columns.items()},
    }


def _line(source: SourceLine) -> list[str | int]:
    return [source.file, source.line, source.text]


def save(timeline: Timeline, path: Path) -> None:
    """Write `timeline`. Raises Refusal when the folder does not exist."""
    write_text(json.dumps(document(timeline), separators=(",", ":")) + "\n", path)


def write_text(text: str, path: Path) -> None:
    """Text as UTF-8, compressed where the name says so; the same text gives the same bytes. Raises Refusal where the
    folder does not exist."""
    if not path.parent.is_dir() or path.is_dir():
        rule = "what is said of a timeline is written to a file in an existing folder"
        raise Refusal(rule, where="timeline", got=str(path))
    data = text.encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def load(path: Path) -> Timeline:
    """Read a timeline written by `save`. Refuses what is missing, of another kind or of another version."""
    if not path.is_file():
        near = [p.name for p in path.parent.glob("*.json*")] if path.parent.is_dir() else []
        rule = "a timeline is an existing file" + (did_you_mean(path.name, near) if near else "")
        raise Refusal(rule, where=str(path), hint="kohaku run SCRIPT --time FILE writes one")
    hint = "timelines are written by timeline.save(path) and by kohaku run SCRIPT --time FILE"
    try:
        data = path.read_bytes()
        found: Any = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (ValueError, OSError, EOFError) as error:
        raise Refusal("not a timeline file", where=str(path), got="no JSON", hint=hint) from error
    if not isinstance(found, dict):
        raise Refusal("not a timeline file", where=str(path), got=f"a JSON {type(found).__name__}", hint=hint)
    if "traceEvents" in found:
        hint = "that is a trace for the Perfetto UI; name the timeline it was made from"
        raise Refusal("not a timeline file", where=str(path), got="traceEvents", hint=hint)
    if found.get("format") != FORMAT:
        raise Refusal("not a timeline file", where=str(path), got=found.get("format", "no format"), hint=hint)
    if found.get("version") != VERSION:
        got, limit = (f"{FORMAT} {version}" for version in (found.get("version"), VERSION))
        raise Refusal("a timeline of another version", where=str(path), got=got, limit=limit, hint="time it again")
    missing = [key for key in _KEYS if key not in found]
    unknown = [key for key in found if key not in (*_KEYS, "format", "version")]
    if missing or unknown:
        name = (unknown or missing)[0]
        rule = f"a timeline has no {name!r}{did_you_mean(name, _KEYS)}" if unknown else f"a timeline has {name!r}"
        raise Refusal(rule, where=str(path), hint="time it again")
    try:
        return _timeline(found)
    except (TypeError, ValueError, KeyError, IndexError) as error:
        hint = "the file was changed or cut; time it again"
        raise Refusal("a timeline's values fit together", where=str(path), got=error, hint=hint) from error


def _timeline(found: dict[str, Any]) -> Timeline:
    for name, kind in _KINDS.items():
        value = found[name]
        if not isinstance(value, kind) or (name == "clock_mhz" and value <= 0):
            raise ValueError(name)
        inner: Iterable[object] = value.values() if isinstance(value, dict) else value if kind is list else ()
        if not all(isinstance(part, _VALUES.get(name, object)) for part in inner):
            raise ValueError(f"a value of {name}")
    kinds, work = tuple(found["kinds"]), tuple(found["work"])
    t = Timeline(found["name"], found["machine"], found["clock_mhz"], kinds, work)
    for name in ("cycles", "host", "counters", "levels", "peaks", "texts"):
        setattr(t, name, found[name])
    t.assumed = tuple(found["assumed"])
    t.tracks += [Track(name, group) for name, group in found["tracks"]]
    t.sources += [SourceLine(*line) for line in found["sources"]]
    t.flows = [Flow(*flow) for flow in found["flows"]]
    t.series = {name: [(cycle, value) for cycle, value in points] for name, points in found["series"].items()}
    known = {f.name for f in fields(Stage)}
    for stage in found["stages"]:
        values = {key: value for key, value in stage.items() if key in known}
        source = values.pop("source")
        t.stages.append(Stage(**values, source=SourceLine(*source) if source else None))
    columns = {name: np.array(found["spans"][name], np.int64) for name in _COLUMNS}
    columns["start"] = np.cumsum(columns["start"])
    columns["end"] = columns["end"] + columns["start"]
    table = SpanTable(names=found["names"], **columns)
    t.spans = _checked(table, t)
    t.check()
    return t


def _checked(table: SpanTable, t: Timeline) -> list[Span]:
    """The table's spans, with every number in its range."""
    limits = {"track": len(t.tracks), "kind": len(table.names), "text": len(table.names)}
    for name, limit in {**limits, "on": len(table.names), "line": len(t.sources)}.items():
        column = getattr(table, name)
        if len(column) != len(table) or (
            len(column) and not -(name in ("on", "line")) <= column.min() <= column.max() < limit
        ):
            raise ValueError(f"span column {name}")
    return list(table)
