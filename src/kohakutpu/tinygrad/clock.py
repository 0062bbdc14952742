"""Simulated time for a part of a script whose device has no clock of its own.

Decides which devices are clocked, and for how long; it must not know how time is simulated.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from kohakuaccel.diagnostics import Refusal
from kohakutpu.tinygrad.counting import Report, total


@contextmanager
def clock(*devices: str) -> Generator[Report]:
    """A scope in which kernels of the devices (KTPU where none is named) run with the clock, as under
    `DEV=TIMED+KTPU`: `report().seconds` and `report().by_kernel()` hold their simulated time.

    Raises Refusal for a device that is no KohakuTPU."""
    from tinygrad.device import Device

    from kohakutpu.tinygrad.engine import KTPUEngine

    engines: list[KTPUEngine] = []
    for name in devices or ("KTPU",):
        engine = getattr(Device[name], "engine", None)
        if not isinstance(engine, KTPUEngine):
            raise Refusal("a clocked device is a KohakuTPU", where="clock", got=name, hint='name "KTPU" or "KTPU:1"')
        engines.append(engine)
    before = [engine.timed for engine in engines]
    for engine in engines:
        engine.timed = True
    try:
        yield total
    finally:
        for engine, timed in zip(engines, before, strict=True):
            engine.timed = timed
