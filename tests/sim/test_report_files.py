"""Timelines on disk: what is saved is loaded, and every other file is refused in clear words."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.sim import Timeline
from kohakutpu import api as ktpu
from sim.report_case import case


def equal(a: Timeline, b: Timeline) -> bool:
    return all(getattr(a, f.name) == getattr(b, f.name) for f in fields(a))


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_a_saved_timeline_is_loaded(tmp_path: Path, name: str) -> None:
    t, path = case(), tmp_path / name
    t.save(path)
    found = Timeline.load(path)
    assert equal(found, t)
    found.save(tmp_path / f"again-{name}")
    assert path.read_bytes() == (tmp_path / f"again-{name}").read_bytes()
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")


def test_a_real_run_is_loaded_and_reports_the_same(tmp_path: Path) -> None:
    x = ktpu.tensor(np.ones((32, 64)))
    _, t = ktpu.time(lambda: ktpu.silu(x @ x), device=x.device)
    t.save(tmp_path / "run.json")
    found = Timeline.load(tmp_path / "run.json")
    assert equal(found, t)
    assert found.report() == t.report()


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    case().save(path)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d.update(version=2), "another version; got kohaku-timeline 2; the limit is kohaku-timeline 1"),
        (lambda d: d.update(format="kohaku-image"), "not a timeline file; got kohaku-image"),
        (lambda d: d.pop("format"), "not a timeline file; got no format"),
        (lambda d: d.update(trackz=[]), "no 'trackz'; did you mean 'tracks'"),
        (lambda d: d.pop("levels"), "a timeline has 'levels'"),
        (lambda d: d.update(traceEvents=[]), "got traceEvents. That is a trace for the Perfetto UI"),
        (lambda d: d["spans"]["track"].pop(), "values fit together; got span column track"),
        (lambda d: d["spans"]["kind"].__setitem__(0, 99), "values fit together; got span column kind"),
        (lambda d: d["spans"]["line"].__setitem__(0, -2), "values fit together; got span column line"),
        (lambda d: d["spans"]["start"].__setitem__(0, -2), "values fit together.*a span lies within the run"),
        (lambda d: d["stages"].pop(), "stages cover the run"),
        (lambda d: d.update(tracks=[["x"]]), "values fit together"),
        (lambda d: d.update(clock_mhz="300"), "values fit together; got clock_mhz"),
        (lambda d: d.update(clock_mhz=0), "values fit together; got clock_mhz"),
        (lambda d: d.update(host=[1]), "values fit together; got host"),
        (lambda d: d["counters"].update(rounds="many"), "values fit together; got a value of counters"),
        (lambda d: d.update(assumed=[1]), "values fit together; got a value of assumed"),
        (lambda d: d.update(stages=[3]), "values fit together; got a value of stages"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], object], text: str) -> None:
    with pytest.raises(Refusal, match=text):
        Timeline.load(changed(tmp_path / "run.json", change))


@pytest.mark.parametrize(("data", "got"), [(b"PK\3\4", "no JSON"), (b"\x1f\x8bxx", "no JSON"), (b"[1]", "a JSON list")])
def test_what_is_no_document_is_refused(tmp_path: Path, data: bytes, got: str) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(data)
    with pytest.raises(Refusal, match=f"not a timeline file; got {got}"):
        Timeline.load(path)


def test_a_missing_file_has_a_near_name(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"existing file. Kohaku run"):
        Timeline.load(tmp_path / "nowhere" / "run.json")
    case().save(tmp_path / "run.json")
    with pytest.raises(Refusal, match=r"did you mean 'run\.json'"):
        Timeline.load(tmp_path / "rum.json")


@pytest.mark.parametrize("way", ["save", "html", "perfetto"])
def test_nothing_is_written_where_no_folder_is(tmp_path: Path, way: str) -> None:
    for place in (tmp_path / "nowhere" / "run", tmp_path):
        with pytest.raises(Refusal, match="to a file in an existing folder"):
            getattr(case(), way)(place)
