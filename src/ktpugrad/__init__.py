"""Another name of `kohakutpu.tinygrad`."""

from kohakutpu.tinygrad import Numerics, Report, numerics, report, reset

__all__ = ["Numerics", "Report", "numerics", "report", "reset"]
