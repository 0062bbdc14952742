"""Spans in columns: the same spans back, clipped to windows, and cycles counted once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.sim import Flow, Span, SpanTable, Stage, Timeline, joined
from kohakuaccel.sim.spans import covered

INTERVALS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)).map(lambda p: (p[0], p[0] + p[1])))
EDGES = st.lists(st.integers(0, 70), min_size=2).map(sorted)
SPANS = [Span(0, 0, 40, "work", "x"), Span(1, 40, 90, "wait", "y", "port"), Span(0, 50, 60, "work", "x", line=0)]


def test_a_table_gives_the_spans_back() -> None:
    table = SpanTable.of(SPANS)
    assert list(table) == SPANS
    assert table == SPANS
    assert table[1] == SPANS[1]
    assert table[1:] == SPANS[1:]
    assert table != SPANS[:2]
    assert SpanTable.of(table) is table
    assert table.number("nowhere") == -1
    assert list(SpanTable.of([])) == []


@settings(deadline=None, max_examples=50)
@given(INTERVALS, EDGES)
def test_covered_cycles_are_counted_once(intervals: list[tuple[int, int]], edges: list[int]) -> None:
    low, high = np.array(intervals, np.int64).reshape(-1, 2).T
    cycles = {c for a, b in intervals for c in range(a, b)}
    assert covered(low, high, np.array(edges)).tolist() == [sum(c < edge for c in cycles) for edge in edges]


@settings(deadline=None, max_examples=50)
@given(INTERVALS, EDGES)
def test_clipping_keeps_every_cycle_of_a_window(intervals: list[tuple[int, int]], edges: list[int]) -> None:
    table = SpanTable.of(Span(0, a, b, "work", "x") for a, b in intervals)
    found = set(zip(*(column.tolist() for column in table.clipped(edges)), strict=True))
    expected: set[tuple[int, int, int]] = set()
    for row, (a, b) in enumerate(intervals):
        for window in range(len(edges) - 1):
            cycles = min(b, edges[window + 1]) - max(a, edges[window])
            if cycles > 0:
                expected.add((row, window, cycles))
    assert found == expected


def timeline() -> Timeline:
    t = Timeline("run", "toy", 100, ("work", "wait"), ("work",), cycles=100)
    for name in "ab":
        t.track(name)
    t.spans = SPANS
    t.stages.append(Stage("all", 0, 100, 1, SourceLine("f.py", 3), macs=10, nbytes=20))
    t.sources.append(SourceLine("f.py", 4, "y = x"))
    t.flows = [Flow("fill", 1, 40, 0, 55)]
    t.series = {"port B/cycle": [(0, 1.0), (50, 0.0)]}
    t.levels["DRAM read"] = 5
    t.peaks["MAC/cycle"] = 4
    t.texts = {"run/schedule": "text"}
    return t


def test_windows_sum_up_to_the_whole() -> None:
    t = timeline()
    windows = t.windows((0, 30, 45, 100))
    for name in ("waits", "top"):
        whole: dict[str, int] = {}
        for w in range(3):
            for key, value in getattr(windows, name)(w).items():
                whole[key] = whole.get(key, 0) + (value[0] if isinstance(value, tuple) else value)
        assert whole == {key: v[0] if isinstance(v, tuple) else v for key, v in getattr(t, name)().items()}
    assert sum(windows.shares(w)[0].busy for w in range(3)) == t.shares()[0].busy == 50
    assert windows.top(0) == {"x": (30, 1)}


def test_joining_moves_flows_series_and_lines() -> None:
    t, other = timeline(), timeline()
    other.tracks.reverse()
    other.sources[0] = SourceLine("g.py", 9)
    whole = joined([t, other], "both")
    whole.check()
    assert whole.flows[1] == Flow("fill", 0, 140, 1, 155)
    assert whole.series["port B/cycle"] == [(0, 1.0), (50, 0.0), (100, 1.0), (150, 0.0)]
    assert [whole.sources[s.line].file for s in whole.spans if s.line >= 0] == ["f.py", "g.py"]
    assert whole.levels == {"DRAM read": 10}
    assert whole.peaks == {"MAC/cycle": 4}
    assert whole.texts == {"run/schedule": "text"}
    assert [(s.start, s.macs, s.nbytes) for s in whole.stages] == [(0, 10, 20), (100, 10, 20)]


@pytest.mark.parametrize(
    ("flow", "rule"),
    [
        (Flow("x", 2, 0, 0, 1), "ends lie within the run"),
        (Flow("x", 0, 0, 0, 101), "ends lie within the run"),
        (Flow("x", 0, 9, 1, 8), "before it has arrived"),
    ],
)
def test_an_impossible_flow_is_refused(flow: Flow, rule: str) -> None:
    t = timeline()
    t.flows = [flow]
    with pytest.raises(Refusal, match=rule):
        t.check()


def test_a_series_that_goes_back_is_refused() -> None:
    t = timeline()
    t.series = {"port B/cycle": [*t.series["port B/cycle"], (49, 1.0)]}
    with pytest.raises(Refusal, match="forward in time"):
        t.check()
