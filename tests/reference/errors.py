"""How the reference reports what a unit cannot do: raise, fault, wait.

Names only; it must not know the numeric codes of the compiled models (a test maps names to them).
"""

from __future__ import annotations


class Raised(Exception):
    """The simulator stops: `what` is the rule's short name, e.g. UNWRITTEN, PAGE, LIVE_SWEEP."""

    def __init__(self, what: str, *details: int) -> None:
        super().__init__(what, *details)
        self.what = what
        self.details = details


class UnitFault(Exception):
    """The unit retires the instruction with SIG_FAULT and this code (datasheet 5.6, 6.3)."""

    def __init__(self, code: int, pc: int = -1) -> None:
        super().__init__(code, pc)
        self.code = code
        self.pc = pc


class Waits(Exception):
    """The unit waits for something that nothing can bring any more: NO_EMIT, DRAIN_QUEUE, SHARE, POLL, CREDIT."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
