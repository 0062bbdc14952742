"""TinyTPU as a tinygrad device: `import tinytpu.tinygrad`, then `Tensor(x, device="TINYTPU")` or `DEV=TINYTPU`.

Decides what a user of the device may ask: what ran where and in how many cycles (`report`), and what kernels may become
(`numerics`). tinygrad is imported when its device is looked up.
"""

from kohakuaccel.frontends.tinygrad import register, version
from tinytpu.tinygrad.counting import Report, report, reset
from tinytpu.tinygrad.numerics import Numerics, numerics

version.check()
register.register("TINYTPU", "tinytpu.tinygrad.device")

__all__ = ["Numerics", "Report", "numerics", "report", "reset"]
