"""TinyTPU's model: simulated instructions per second, over the eleven published kernels, each repeated in loops.

Values and cycles of the kernels are checked first. "run us" is one published run from image to results, which is
mostly setting up; "M instr/s" and "M cycles/s" come from the repeated kernel. Times are the best of several rounds in
processor seconds of this process, so that other programs count as little as they can. The bar holds for all kernels
together: all their instructions over all their time.

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
from tinytpu.units.core import Image, Run, execute

INSTRUCTIONS_PER_SECOND = 20e6
LONG = 10**9
"""A cycle limit that no benchmark reaches."""


def best(work: Callable[[], object], repeats: int) -> float:
    """Processor seconds of the fastest call."""
    taken: list[float] = []
    for _ in range(repeats):
        start = process_time()
        work()
        taken.append(process_time() - start)
    return min(taken)


def repeated(image: Image, times: int) -> Image:
    """The image whose program, but for its HALT, runs `times` * 200 times."""

    def word(op: SXU, tlen: int = 0) -> list[int]:
        return [int(op), *[0] * (len(Column) - 2), tlen]

    loops = [word(SXU.LOOP_BEGIN, times), word(SXU.LOOP_BEGIN, 200)]
    rows = np.vstack([loops, image.instructions[:-1], [word(SXU.LOOP_END)] * 2, image.instructions[-1:]])
    return Image(rows, image.vmem, image.wmem, image.amem, image.vmem_outputs, image.amem_outputs, image.mxu_result)


def measure(kernel: programs.Kernel, times: int, repeats: int) -> tuple[dict[str, float | int | str], Run, float]:
    machine = machines.load()
    long = machine.with_(params={"cycle_limit": LONG})
    image = runner.image(assemble(kernel.build(best=False).text, machine))
    again = repeated(image, times)
    done = execute(long, again)
    seconds = best(lambda: execute(long, again), repeats)
    row: dict[str, float | int | str] = {
        "kernel": kernel.name,
        "cycles": execute(machine, image).cycles,
        "run us": best(lambda: [execute(machine, image) for _ in range(20)], repeats) / 20 * 1e6,
        "instructions": done.counters["instructions"],
        "M instr/s": done.counters["instructions"] / seconds / 1e6,
        "M cycles/s": done.cycles / seconds / 1e6,
    }
    return row, done, seconds


def main() -> int:
    options = arguments("speed of TinyTPU's model")
    wrong = [outcome.kernel for outcome in programs.measure() if not outcome.right]
    assert not wrong, f"wrong values or cycles: {wrong}"
    times, repeats = (2, 3) if options.quick else (20, 9)
    measured = [measure(kernel, times, repeats) for kernel in programs.KERNELS.values()]
    rate = sum(run.counters["instructions"] for _, run, _ in measured) / sum(seconds for _, _, seconds in measured)
    bars = [Bar("simulated instructions per second", rate, INSTRUCTIONS_PER_SECOND)]
    return finish("tinytpu_speed", [row for row, _, _ in measured], bars, options.check)


if __name__ == "__main__":
    sys.exit(main())
