"""TinyTPU's model: simulated instructions per second, over the eleven published kernels, each repeated in loops.

Values and cycles of the kernels are checked first. "run us" is one published run from image to results, which is
mostly setting up; "M instr/s" and "M cycles/s" come from the repeated kernel. Times are the best of several rounds over
all kernels, in processor seconds of this process, so that other programs count as little as they can. The bar holds for
all kernels together: all their instructions over all their time.

    python benchmarks/tinytpu_speed.py [--check] [--quick]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import process_time

import numpy as np
from timing import Bar, arguments, finish

from tinytpu import machines, programs, runner
from tinytpu.asm import assemble
from tinytpu.isa import SXU, Column
from tinytpu.units.core import Image, execute

INSTRUCTIONS_PER_SECOND = 20e6
LONG = 10**9
"""A cycle limit that no benchmark reaches."""


def seconds(work: Callable[[], object]) -> float:
    """Processor seconds of a call."""
    start = process_time()
    work()
    return process_time() - start


def repeated(image: Image, times: int) -> Image:
    """The image whose program, but for its HALT, runs `times` * 200 times."""

    def word(op: SXU, tlen: int = 0) -> list[int]:
        return [int(op), *[0] * (len(Column) - 2), tlen]

    loops = [word(SXU.LOOP_BEGIN, times), word(SXU.LOOP_BEGIN, 200)]
    rows = np.vstack([loops, image.instructions[:-1], [word(SXU.LOOP_END)] * 2, image.instructions[-1:]])
    return Image(rows, image.vmem, image.wmem, image.amem, image.vmem_outputs, image.amem_outputs, image.mxu_result)


class Timed:
    """A kernel, published and repeated, and the shortest times of both so far."""

    def __init__(self, kernel: programs.Kernel, times: int) -> None:
        self.kernel = kernel
        self.machine = machines.load()
        self.long = self.machine.with_(params={"cycle_limit": LONG})
        self.image = runner.image(assemble(kernel.build(best=False).text, self.machine))
        self.again = repeated(self.image, times)
        self.done = execute(self.long, self.again)
        self.once, self.seconds = float("inf"), float("inf")

    @property
    def instructions(self) -> int:
        return self.done.counters["instructions"]

    def round(self) -> None:
        """Another measurement."""
        self.once = min(self.once, seconds(lambda: [execute(self.machine, self.image) for _ in range(20)]) / 20)
        self.seconds = min(self.seconds, seconds(lambda: execute(self.long, self.again)))

    def row(self) -> dict[str, float | int | str]:
        return {
            "kernel": self.kernel.name,
            "cycles": execute(self.machine, self.image).cycles,
            "run us": self.once * 1e6,
            "instructions": self.instructions,
            "M instr/s": self.instructions / self.seconds / 1e6,
            "M cycles/s": self.done.cycles / self.seconds / 1e6,
        }


def main() -> int:
    options = arguments("speed of TinyTPU's model")
    wrong = [outcome.kernel for outcome in programs.measure() if not outcome.right]
    assert not wrong, f"wrong values or cycles: {wrong}"
    times, rounds = (20, 3) if options.quick else (100, 9)
    timed = [Timed(kernel, times) for kernel in programs.KERNELS.values()]
    for _ in range(rounds):
        for one in timed:
            one.round()
    rate = sum(one.instructions for one in timed) / sum(one.seconds for one in timed)
    bars = [Bar("simulated instructions per second", rate, INSTRUCTIONS_PER_SECOND)]
    return finish("tinytpu_speed", [one.row() for one in timed], bars, options.check)


if __name__ == "__main__":
    sys.exit(main())
