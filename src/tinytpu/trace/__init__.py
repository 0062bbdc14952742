"""What a run did cycle by cycle: trace lines and their parser, and the timeline of every unit (datasheet 16)."""

from tinytpu.trace.events import events
from tinytpu.trace.lines import Event, dump, parse
from tinytpu.trace.spans import timeline

__all__ = ["Event", "dump", "events", "parse", "timeline"]
