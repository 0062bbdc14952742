"""The clock's engine and the timeline's invariants, without any machine."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.sim import IDLE, Span, Stage, Timeline, joined


def timeline(*spans: Span, cycles: int = 100) -> Timeline:
    t = Timeline("t", "toy", 100, ("work", "wait"), ("work",), cycles=cycles)
    t.track("a")
    t.track("a array", "a")
    t.spans = spans
    t.stages.append(Stage("stage 0", 0, cycles, 1))
    return t


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=60))
def test_events_come_in_order_of_time_then_of_pushing(steps: list[tuple[bool, int]]) -> None:
    """Against a sorted list. Words 0, 1 and 2 are the size, the order and the time."""
    from kohakuaccel.sim.events import pop, push

    words = np.zeros(3 + 3 * len(steps), np.int64)
    waiting: list[tuple[int, int]] = []
    for number, (out, time) in enumerate(steps):
        if out and waiting:
            waiting.sort()
            want = waiting.pop(0)
            what = pop(words, 3, 0, 2)
            assert (words[2], what) == want
        else:
            push(words, 3, 0, 1, time, number)
            waiting.append((time, number))
        assert words[0] == len(waiting)


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
