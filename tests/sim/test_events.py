"""The clock's engine and the timeline's invariants, without any machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.sim import IDLE, Events, Resource, Span, Stage, Timeline, joined


def timeline(*spans: Span, cycles: int = 100) -> Timeline:
    t = Timeline("t", "toy", 100, ("work", "wait"), ("work",), cycles=cycles)
    t.track("a")
    t.track("a array", "a")
    t.spans += spans
    t.stages.append(Stage("stage 0", 0, cycles, 1))
    return t


def test_events_run_in_order_of_time_then_of_asking() -> None:
    events, seen = Events(), list[tuple[int, str]]()
    for time, name in ((5, "c"), (3, "a"), (3, "b")):
        events.at(time, lambda now, n: seen.append((now, n)), name)
    events.run()
    assert seen == [(3, "a"), (3, "b"), (5, "c")]
    with pytest.raises(Refusal, match="future"):
        events.at(4, lambda now: None)


def test_a_stopped_run_goes_on() -> None:
    events, seen = Events(), list[int]()

    def call(now: int) -> None:
        seen.append(now)
        events.stop = True

    events.at(1, call)
    events.at(2, call)
    events.run()
    assert seen == [1]
    events.run()
    assert seen == [1, 2]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9)), max_size=30))
def test_a_resource_serves_one_at_a_time_in_order(customers: list[tuple[int, int]]) -> None:
    r, at, end = Resource("r"), 0, 0
    for later, cycles in customers:
        at += later
        start = r.serve(at, cycles)
        assert start == max(at, end)
        end = start + cycles
    assert r.busy == sum(c for _, c in customers)
    assert r.waited >= r.most >= 0


def test_a_resource_refuses_the_past() -> None:
    r = Resource("port")
    r.serve(5, 1)
    with pytest.raises(Refusal, match="order of arrival"):
        r.serve(4, 1)
    with pytest.raises(Refusal, match="negative"):
        r.serve(6, -1)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40), st.sampled_from(["work", "wait"]), st.booleans())))
def test_kinds_sum_up_and_the_first_kind_wins(raw: list[tuple[int, int, str, bool]]) -> None:
    t = timeline(*(Span(int(array), s, s + n, kind, "x") for s, n, kind, array in raw))
    t.check()
    (share,) = t.shares()
    busy = {c for s, n, kind, _ in raw if kind == "work" for c in range(s, s + n)}
    waits = {c for s, n, kind, _ in raw if kind == "wait" for c in range(s, s + n)} - busy
    assert share.kinds.get("work", 0) == share.busy == len(busy)
    assert share.kinds.get("wait", 0) == len(waits)
    assert share.kinds[IDLE] == 100 - len(busy) - len(waits)


@pytest.mark.parametrize(
    "span", [Span(0, -1, 3, "work", "x"), Span(0, 9, 3, "work", "x"), Span(0, 9, 101, "work", "x")]
)
def test_an_impossible_span_is_refused(span: Span) -> None:
    with pytest.raises(Refusal, match="within the run"):
        timeline(span).check()


def test_stages_cover_the_run() -> None:
    t = timeline()
    t.stages.append(Stage("gap", 101, 105, 1))
    with pytest.raises(Refusal, match="follow each other"):
        t.check()
    t.stages[-1:] = []
    t.cycles = 101
    with pytest.raises(Refusal, match="cover"):
        t.check()


def test_report_names_the_limiter_and_calls_nothing_measured() -> None:
    t = timeline(Span(0, 0, 40, "work", "x"), Span(0, 40, 90, "wait", "y", "port"))
    text = t.report()
    assert "100 cycles = 1.0 us at 100 MHz (modelled, not measured)" in text
    assert "a      40.0 %  work 40.0 %, wait 50.0 %, idle 10.0 %" in text
    assert "port, 50.0 %" in text
    assert t.top() == {"x": (40, 1)}


def test_joined_timelines_add_up() -> None:
    one, two = timeline(Span(0, 0, 40, "work", "x")), timeline(Span(1, 10, 50, "work", "y"))
    one.host["staging"] = two.host["staging"] = 7
    whole = joined([one, two], "both")
    whole.check()
    assert whole.cycles == 200
    assert whole.host == {"staging": 14}
    assert [s.start for s in whole.spans] == [0, 110]
    two.clock_mhz = 150
    with pytest.raises(Refusal, match="one machine"):
        joined([one, two], "both")
