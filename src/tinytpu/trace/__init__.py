"""What a run did cycle by cycle: trace lines and their parser, the timeline of every unit, sums (datasheet 16)."""

from tinytpu.trace.events import events
from tinytpu.trace.lines import Event, dump, parse
from tinytpu.trace.profile import Profile, profile
from tinytpu.trace.spans import timeline

__all__ = ["Event", "Profile", "dump", "events", "parse", "profile", "timeline"]
