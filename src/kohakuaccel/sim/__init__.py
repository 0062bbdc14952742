"""One clock: events, resources with queues, and the timeline that says who was busy and who waited for what."""

from kohakuaccel.sim.events import Events, Resource
from kohakuaccel.sim.spans import Span, SpanTable
from kohakuaccel.sim.timeline import IDLE, SERVE, Flow, Share, Stage, Timeline, Track, joined

__all__ = [
    "IDLE",
    "SERVE",
    "Events",
    "Flow",
    "Resource",
    "Share",
    "Span",
    "SpanTable",
    "Stage",
    "Timeline",
    "Track",
    "joined",
]
