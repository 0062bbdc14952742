"""One clock: events in order, and the timeline that says who was busy and who waited for what."""

from kohakuaccel.sim.joining import joined
from kohakuaccel.sim.later import LaterDict, LaterList
from kohakuaccel.sim.spans import LaterSpans, Span, SpanTable
from kohakuaccel.sim.timeline import IDLE, SERVE, Flow, Share, Stage, Timeline, Track

__all__ = [
    "IDLE",
    "SERVE",
    "Flow",
    "LaterDict",
    "LaterList",
    "LaterSpans",
    "Share",
    "Span",
    "SpanTable",
    "Stage",
    "Timeline",
    "Track",
    "joined",
]
