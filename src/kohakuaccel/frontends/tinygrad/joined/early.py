"""The seam before a device of ours is loaded: the first schedule that names one loads it.

tinygrad looks a device up when it first compiles for it, which is after its first schedule. Decides nothing else; with
schedules of other devices it does nothing but look at their buffers. Imported while tinygrad itself is being imported,
so it needs no more of it than this.
"""

from __future__ import annotations

import sys
from importlib import import_module

import tinygrad.schedule as schedule
from tinygrad.uop import Ops
from tinygrad.uop.ops import PatternMatcher, UOp, UPat

JOINED = "kohakuaccel.frontends.tinygrad.joined.schedule"
_stock = schedule.lower_sink_to_linear
_sources: dict[str, str] = {}
"""Devices that are not loaded yet, by name, and the modules that define them."""


def enter() -> None:
    """Stand where tinygrad lowers schedules. Doing it again changes nothing."""
    schedule.pm_schedule = PatternMatcher([(UPat(Ops.SINK, name="function"), lowered)])


def expect(name: str, source: str) -> None:
    """Load module `source` when a schedule names the device `name`."""
    _sources[name] = source
    enter()


def lowered(function: UOp) -> UOp | None:
    """tinygrad's own lowering, or, once a device of ours has been named, that of `joined.schedule`."""
    if _sources:
        named = {name for u in function.toposort() if u.op in (Ops.PARAM, Ops.BUFFER) for name in _names(u)}
        for name in sorted(named & _sources.keys()):
            import_module(_sources.pop(name))
    joined = sys.modules.get(JOINED)
    return _stock(function) if joined is None else joined.lowered(function)


def _names(u: UOp) -> set[str]:
    device = u.device
    return {d.partition(":")[0] for d in ((device,) if isinstance(device, str) else device or ())}
