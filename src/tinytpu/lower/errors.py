"""What cannot be lowered: a refusal that is a NotImplementedError too, so that callers may ask for either."""

from __future__ import annotations

from kohakuaccel.diagnostics import Unsupported


class NotLowered(Unsupported, NotImplementedError):
    """A graph that this machine has no program for; raised before anything runs."""
