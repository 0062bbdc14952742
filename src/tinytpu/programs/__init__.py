"""Programs with known answers and known cycle counts: the published ones, and the best found for the same work.

`kernels` says what they are, `bench` runs them and checks values and cycles.
"""

from tinytpu.programs.bench import Outcome, geomean, measure, report
from tinytpu.programs.kernels import KERNELS, Kernel, Program

__all__ = ["KERNELS", "Kernel", "Outcome", "Program", "geomean", "measure", "report"]
