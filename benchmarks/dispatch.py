"""What a call costs besides its arithmetic, what starting costs, and how much memory a run takes.

"beyond the machine" is a warm call's time minus the time spent inside the transport, where the machine's
models run. Starts are timed in fresh processes, from the first line to the first result; the cold one has
an empty cache of compiled kernels.

    python benchmarks/dispatch.py [--check] [--quick]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from timing import Bar, arguments, finish

from kohakuaccel.device import Runs, Transport
from kohakutpu import api as ktpu

Rows = list[dict[str, float | int | str]]

IMPORT = """
import time
start = time.perf_counter()
import kohakutpu
from kohakutpu import api
print(time.perf_counter() - start)
"""
FIRST_CALL = """
import time
start = time.perf_counter()
import numpy as np
from kohakutpu import api as ktpu
x, w = ktpu.tensor(np.ones((64, 64))), ktpu.tensor(np.ones((64, 64)))
(x @ w).silu().softmax().numpy()
print(time.perf_counter() - start, time.process_time())
"""
MEMORY = """
import resource, sys
import numpy as np
from kohakutpu import api as ktpu
n = int(sys.argv[1])
rng = np.random.default_rng(0)
a, b = (rng.standard_normal((n, n), np.float32) for _ in "ab")
c = (ktpu.tensor(a) @ ktpu.tensor(b)).numpy()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, a.nbytes + b.nbytes + c.nbytes)
"""


class Timed:
    """A transport that adds up the time spent in another one."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.seconds = 0.0

    def write(self, bus: int, data: NDArray[Any]) -> None:
        start = perf_counter()
        self.inner.write(bus, data)
        self.seconds += perf_counter() - start

    def read(self, bus: int, nbytes: int, runs: Runs | None = None) -> NDArray[np.uint8]:
        start = perf_counter()
        try:
            return self.inner.read(bus, nbytes, runs)
        finally:
            self.seconds += perf_counter() - start


def fresh(code: str, *words: str, cache: str | None = None) -> list[float]:
    """The numbers that `code` prints when run in a process of its own."""
    environment = dict(os.environ, **({"NUMBA_CACHE_DIR": cache} if cache else {}))
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as Python comes: the first process leaves bytecode behind
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def warm_call(repeats: int) -> tuple[float, float]:
    """Median seconds of a warm 64^3 product from tensors to a numpy result, in all and beyond the machine."""
    from kohakutpu.device import Device
    from kohakutpu.machines import load
    from kohakutpu.units.system import System

    machine = load("ship_3x2")
    clock = Timed(System(machine))
    device = Device(machine, clock)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 64)).astype(np.float16) for _ in "ab")
    whole: list[float] = []
    beyond: list[float] = []
    for _ in range(20 + repeats):
        clock.seconds, start = 0.0, perf_counter()
        (ktpu.tensor(a, device=device) @ ktpu.tensor(b, device=device)).numpy()
        whole.append(perf_counter() - start)
        beyond.append(whole[-1] - clock.seconds)
    return statistics.median(whole[20:]), statistics.median(beyond[20:])


def main() -> int:
    options = arguments("dispatch, start-up and memory")
    starts = 3 if options.quick else 5
    whole, beyond = warm_call(50 if options.quick else 400)
    imported = statistics.median(fresh(IMPORT)[0] for _ in range(starts))
    with tempfile.TemporaryDirectory() as cache:
        cold, cold_cpu = fresh(FIRST_CALL, cache=cache)
        warm = statistics.median(fresh(FIRST_CALL, cache=cache)[0] for _ in range(starts))
    peak, operands = fresh(MEMORY, "1024")
    rows: Rows = [
        {"what": "warm 64^3 matmul, in all", "figure": whole * 1e3, "unit": "ms"},
        {"what": "warm 64^3 matmul, beyond the machine", "figure": beyond * 1e3, "unit": "ms"},
        {"what": "import kohakutpu and its api", "figure": imported, "unit": "s"},
        {"what": "first result, cold kernel cache", "figure": cold, "unit": "s"},
        {"what": "first result, cold kernel cache, processor time", "figure": cold_cpu, "unit": "s"},
        {"what": "first result, warm kernel cache", "figure": warm, "unit": "s"},
        {"what": "peak memory of a 1024^3 matmul", "figure": peak / 1e6, "unit": "MB"},
        {"what": "its operands and result", "figure": operands / 1e6, "unit": "MB"},
    ]
    bars = [
        Bar("warm call beyond the machine, ms", beyond * 1e3, 1.0, below=True),
        Bar("import, s", imported, 1.0, below=True),
        Bar("first result, cold kernel cache, s", cold, 30.0, below=True),
        Bar("first result, warm kernel cache, s", warm, 2.0, below=True),
        Bar("peak memory, MB", peak / 1e6, (4 * operands + 300e6) / 1e6, below=True),
    ]
    return finish("dispatch", rows, bars, options.check)


if __name__ == "__main__":
    sys.exit(main())
