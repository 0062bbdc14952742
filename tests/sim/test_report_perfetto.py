"""The trace for the Perfetto UI, held against the rules of the trace-event format by a reader of its own."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohakuaccel.sim import Flow, Span, Timeline
from kohakuaccel.sim.perfetto import lanes
from kohakutpu import api as ktpu
from sim.report_case import case

Event = dict[str, Any]


def written(t: Timeline, folder: Path) -> list[Event]:
    t.perfetto(folder / "trace.json")
    return json.loads((folder / "trace.json").read_text())["traceEvents"]


def validate(events: list[Event]) -> dict[str, int]:
    """Prove the format's rules; how many events of each phase there are."""
    count: dict[str, int] = defaultdict(int)
    slices: dict[tuple[int, int], list[Event]] = defaultdict(list)
    last: dict[tuple[int, object], int] = {}
    named: set[tuple[int, int | None]] = set()
    flows: dict[int, list[Event]] = defaultdict(list)
    for e in events:
        count[e["ph"]] += 1
        if e["ph"] == "M":
            assert e["name"] in ("process_name", "process_sort_index", "thread_name")
            named.add((e["pid"], e.get("tid")))
            continue
        assert isinstance(e["ts"], int)
        assert e["ts"] >= 0
        if e["ph"] == "X":
            assert e["dur"] >= 0
            assert (e["pid"], e["tid"]) in named, "every thread has a name"
            slices[e["pid"], e["tid"]].append(e)
            assert last.get((e["pid"], e["tid"]), 0) <= e["ts"], "time goes forward on a thread"
            last[e["pid"], e["tid"]] = e["ts"]
        elif e["ph"] == "C":
            assert (e["pid"], None) in named, "every process has a name"
            assert isinstance(e["args"]["value"], int | float)
            assert last.get((e["pid"], e["name"]), 0) <= e["ts"], "time goes forward in a counter"
            last[e["pid"], e["name"]] = e["ts"]
        else:
            assert e["ph"] in "sf"
            flows[e["id"]].append(e)
    for inside in slices.values():
        stack: list[int] = []
        for e in inside:
            while stack and stack[-1] <= e["ts"]:
                stack.pop()
            assert not stack or e["ts"] + e["dur"] <= stack[-1], "slices of a thread follow or contain each other"
            stack.append(e["ts"] + e["dur"])
    for pair in flows.values():
        assert [e["ph"] for e in pair] == ["s", "f"], "a flow has one start and one end, in this order"
        assert pair[0]["ts"] <= pair[1]["ts"], "an arrow starts before it ends"
        for e in pair:
            around = [s for s in slices[e["pid"], e["tid"]] if s["ts"] <= e["ts"] < s["ts"] + s["dur"]]
            assert around, f"flow {e['name']} meets no slice"
    return count


def test_the_case_is_a_valid_trace(tmp_path: Path) -> None:
    t = case()
    t.flows = [t.flows[0], Flow("B", 1, 520, 2, 525), *t.flows[2:]]
    events = written(t, tmp_path)
    count = validate(events)
    assert count["X"] == len(t.spans) + len(t.stages)
    assert count["s"] == count["f"] == 2
    assert count["C"] == 5
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert list(names.values()) == ["run", "port 0 read", "MG(1,1)", "VC(1,0)", "counters"]
    threads = {e["tid"]: (names[e["pid"]], e["args"]["name"]) for e in events if e["name"] == "thread_name"}
    gemm = next(e for e in events if e["name"] == "GEMM 4x4x2")
    assert threads[gemm["tid"]] == ("MG(1,1)", "MG(1,1) array")
    assert gemm["args"] == {"line": "layer.py:12: acc += x[i, k] @ w[j, k]"}
    arrows = [e for e in events if e["ph"] in "sf"]
    assert [(e["ts"], threads[e["tid"]][1]) for e in arrows] == [
        (219, "MG(1,1)"),
        (520, "MG(1,1) array"),
        (519, "MG(1,1)"),
        (525, "MG(1,1) array"),
    ]
    stage = next(e for e in events if e.get("cat") == "stage")
    assert stage["args"] == {
        "line": "layer.py:12: acc += x[i, k] @ w[j, k]",
        "rounds": 1,
        "macs": 65_536,
        "nbytes": 8_192,
    }
    assert "not measured" in json.loads((tmp_path / "trace.json").read_text())["otherData"]["time"]
    wait = next(e for e in events if e["name"] == "port busy")
    assert wait["args"]["waits for"] == "port 0 read"


def test_the_validator_finds_what_it_looks_for(tmp_path: Path) -> None:
    events = written(case(), tmp_path)
    for change, text in (
        (lambda e: e.reverse(), "one start and one end|has a name"),
        (lambda e: e.remove(next(x for x in e if x["ph"] == "f")), "one start and one end"),
        (lambda e: next(x for x in e if x["ph"] == "s").update(ts=100_000), "starts before it ends"),
        (lambda e: next(x for x in e if x["name"] == "port busy").update(dur=10_000), "contain each other"),
    ):
        broken = json.loads(json.dumps(events))
        change(broken)
        with pytest.raises(AssertionError, match=text):
            validate(broken)


SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 20)).map(lambda p: Span(0, p[0], sum(p), "compute", "x")))


@settings(deadline=None, max_examples=50)
@given(SPANS)
def test_any_spans_become_valid_threads(spans: list[Span]) -> None:
    spans.sort(key=lambda s: (s.start, -s.end))
    found = lanes(spans)
    assert sorted(s for lane in found for s in lane) == sorted(spans)
    for lane in found:
        for n, outer in enumerate(lane):
            for inner in lane[n + 1 :]:
                assert inner.start >= outer.end or inner.end <= outer.end


def test_spans_that_cross_get_a_thread_beside(tmp_path: Path) -> None:
    t = case()
    t.spans = [*t.spans, Span(3, 970, 990, "wait", "crosses", "port")]
    events = written(t, tmp_path)
    validate(events)
    assert [e["args"]["name"] for e in events if e["name"] == "thread_name"][-2:] == ["VC(1,0)", "VC(1,0), beside"]


def test_a_compressed_trace_holds_the_same(tmp_path: Path) -> None:
    t = case()
    t.perfetto(tmp_path / "trace.json.gz")
    assert json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"] == written(t, tmp_path)


def test_a_real_run_is_a_valid_trace(tmp_path: Path) -> None:
    x = ktpu.tensor(np.ones((64, 64)))
    _, t = ktpu.time(lambda: ktpu.silu(x @ x), device=x.device)
    events = written(t, tmp_path)
    count = validate(events)
    assert count["X"] == len(t.spans) + len(t.stages)
    assert count["s"] == len(t.flows)
    assert count["C"] == sum(len(points) for points in t.series.values())
    for a, b in pairwise([e for e in events if e["ph"] == "X" and e["cat"] == "stage"]):
        assert a["ts"] + a["dur"] == b["ts"]
