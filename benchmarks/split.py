"""Products of digits against MXFP7 and float32: how accurate, and what simulated time that takes.

Every row multiplies two square matrices. Errors are the greatest, and the root of the mean square, over the root of the
mean square of the result in float64. Time is modelled: the device's and, apart, with the bytes over its link.

    python benchmarks/split.py [--check] [--quick]
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray
from timing import Bar, Row, finish

from kohakuaccel.sim import Timeline
from kohakutpu import api as ktpu
from kohakutpu import split

SINGLE_LIMIT = 2.0
"""The greatest error, in those of float32."""


def draw(rng: np.random.Generator, kind: str, n: int) -> NDArray[np.float32]:
    """Numbers around zero, or all of one sign, whose sums grow with K."""
    drawn = rng.standard_normal((n, n)) if kind == "normal" else rng.random((n, n))
    return drawn.astype(np.float32)


def microseconds(timeline: Timeline, clock_mhz: float, link: bool) -> float:
    """Of a run on the device, without or with what the host moved."""
    return (timeline.cycles + (timeline.host_cycles if link else 0)) / clock_mhz


def measure(kind: str, n: int) -> Row:
    """One product three times."""
    rng = np.random.default_rng(n)
    a, b = draw(rng, kind, n), draw(rng, kind, n)
    exact = a.astype(np.float64) @ b
    size = float(np.sqrt(np.mean(exact**2)))

    def errors(found: Any) -> tuple[float, float]:
        off = np.abs(np.asarray(found, np.float64) - exact)
        return float(off.max()) / size, float(np.sqrt(np.mean(off**2))) / size

    quick, short = ktpu.time(lambda: (ktpu.tensor(a) @ ktpu.tensor(b.T)).numpy())
    ktpu.reset_stats()
    fine, long = ktpu.time(lambda: split.matmul(a, b), device=ktpu.device())
    passes = ktpu.stats()["split_passes"]
    clock = ktpu.device().machine.params.clock_mhz
    (most, usual), (single, _) = errors(fine), errors(a @ b)
    return {
        "numbers": kind,
        "product": f"{n}^3",
        "MXFP7 error": errors(quick)[1],
        "split error": usual,
        "greatest": most,
        "float32 greatest": single,
        "passes": passes,
        "MXFP7 us": microseconds(short, clock, link=False),
        "split us": microseconds(long, clock, link=False),
        "ratio": long.cycles / short.cycles,
        "MXFP7 with link": microseconds(short, clock, link=True),
        "split with link": microseconds(long, clock, link=True),
    }


def main() -> int:
    """Measure; 1 where a bar is missed and `--check` asks."""
    sizes = (64,) if "--quick" in sys.argv else (64, 128, 256, 512)
    rows = [measure(kind, n) for kind in ("normal", "uniform") for n in sizes]
    worst = max(float(row["greatest"]) / float(row["float32 greatest"]) for row in rows)
    bars = [Bar("greatest error over float32's", worst, SINGLE_LIMIT, below=True)]
    return finish("split", rows, bars, "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
