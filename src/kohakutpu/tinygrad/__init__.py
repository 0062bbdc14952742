"""KohakuTPU as a tinygrad device: `import kohakutpu.tinygrad`, then `Tensor(x, device="KTPU")` or `DEV=KTPU`.

Decides what a user of the device may ask: what ran where (`report`), in what simulated time (`clock`), and in which
numbers (`numerics`). tinygrad is imported when its device is looked up.
"""

from kohakuaccel.frontends.tinygrad import register, version
from kohakutpu.tinygrad.clock import clock
from kohakutpu.tinygrad.counting import Report, report, reset
from kohakutpu.tinygrad.custom import custom
from kohakutpu.tinygrad.numerics import Numerics, numerics

version.check()
register.register("KTPU", "kohakutpu.tinygrad.device")

__all__ = ["Numerics", "Report", "clock", "custom", "numerics", "report", "reset"]
