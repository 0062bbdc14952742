"""One clock: events, resources with queues, and the timeline that says who was busy and who waited for what."""

from kohakuaccel.sim.events import Events, Resource
from kohakuaccel.sim.timeline import IDLE, SERVE, Share, Span, Stage, Timeline, Track, joined, merged

__all__ = [
    "IDLE",
    "SERVE",
    "Events",
    "Resource",
    "Share",
    "Span",
    "Stage",
    "Timeline",
    "Track",
    "joined",
    "merged",
]
