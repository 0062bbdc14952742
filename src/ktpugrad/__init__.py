"""Another name of `kohakutpu.tinygrad`."""

from kohakutpu.tinygrad import Numerics, Report, custom, numerics, report, reset

__all__ = ["Numerics", "Report", "custom", "numerics", "report", "reset"]
