"""Products of int8 matrices through tinygrad on the device `TINYTPU`: what the machine takes, and this machine's time.

"first s" is tinygrad's compilation, the lowering and the run; "again s" another product of such matrices, made anew;
"replay s" the same under TinyJit. Both run the whole machine model, and all values are checked. Seconds are those of
this process's processor; cycles are modelled.

    python benchmarks/tinytpu_tinygrad.py [--check] [--quick]
"""

from __future__ import annotations

import os
import sys
from time import process_time

os.environ.setdefault("CACHELEVEL", "0")  # nothing is read from, or left in, tinygrad's cache on disk
os.environ.setdefault("PARALLEL", "0")

import numpy as np
from timing import Bar, arguments, finish

import tinytpu.tinygrad as tt
from tinytpu.tinygrad.engine import planned

SECONDS = 1.0
SIZES = ((16, 16, 16), (64, 64, 64), (128, 128, 128))


def measure(m: int, k: int, n: int, repeats: int) -> dict[str, float | int | str]:
    from tinygrad.dtype import dtypes
    from tinygrad.engine.jit import TinyJit
    from tinygrad.tensor import Tensor

    rng = np.random.default_rng(0)

    def product(a: Tensor, b: Tensor) -> Tensor:
        return (a.cast(dtypes.int32) @ b.cast(dtypes.int32)).realize()

    def taken(call: object) -> float:
        a, b = rng.integers(-128, 128, (m, k), np.int8), rng.integers(-128, 128, (k, n), np.int8)
        left, right = (Tensor(x, device="TINYTPU").realize() for x in (a, b))
        start = process_time()
        found = call(left, right).numpy()  # pyright: ignore[reportCallIssue, reportUnknownMemberType, reportUnknownVariableType] - a TinyJit has no type of its own
        seconds = process_time() - start
        assert (found == a.astype(np.int32) @ b.astype(np.int32)).all()
        return seconds

    first = taken(product)
    tt.reset()
    plans = planned.cache_info().misses
    again = min(taken(product) for _ in range(repeats))
    report = tt.report()
    assert (report.device_kernels, report.host_kernels) == (repeats, 0)
    programs, cycles = report.took.programs // repeats, report.took.cycles // repeats
    jitted = TinyJit(product)
    for _ in range(2):
        taken(jitted)
    replay = min(taken(jitted) for _ in range(repeats))
    return {
        "m x k x n": f"{m}x{k}x{n}",
        "programs": programs,
        "cycles": cycles,
        "first s": first,
        "again s": again,
        "replay s": replay,
        "plans made again": planned.cache_info().misses - plans,
    }


def main() -> int:
    options = arguments("products of int8 matrices through tinygrad")
    measure(4, 4, 4, 1)  # compiled code of the model is loaded
    rows = [measure(*size, 2 if options.quick else 5) for size in (SIZES[:2] if options.quick else SIZES)]
    bars = [Bar("a 64x64x64 product again, in seconds", float(rows[1]["again s"]), SECONDS, below=True)]
    bars += [Bar("plans made for equal kernels", sum(int(row["plans made again"]) for row in rows), 1, below=True)]
    return finish("tinytpu_tinygrad", rows, bars, options.check)


if __name__ == "__main__":
    sys.exit(main())
