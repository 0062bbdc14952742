"""Simulated time of KohakuTPU images: one event-driven model of engines, dispatchers, units and ports.

Times are modelled from the machine description's values (datasheet 8); see docs/clock.md.
"""

from kohakutpu.sim.timing import host_cycles, time_image

__all__ = ["host_cycles", "time_image"]
