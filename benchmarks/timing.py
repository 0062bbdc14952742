"""What the benchmarks share: interleaved timing, one table and one JSON line per benchmark, bars that can
be checked.

It decides how time is taken, not what is timed. Alternatives that are compared run in turn within one
process, so that a machine that slows down slows all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from time import perf_counter

Work = Callable[[], object]


def _processor_seconds() -> tuple[float, float, float]:
    """Now, processor seconds used by everything on this system (0 where it does not tell), and by us."""
    own = sum(os.times()[:4])
    if sys.platform != "linux":
        return perf_counter(), 0.0, own
    with open("/proc/stat") as lines:
        user, nice, system, _idle, _wait, irq, softirq, steal = (int(w) for w in lines.readline().split()[1:9])
    ticks = user + nice + system + irq + softirq + steal
    return perf_counter(), ticks / os.sysconf("SC_CLK_TCK"), own


_START = _processor_seconds()


def others() -> float:
    """Processors that other programs kept busy, on average, since this module was imported."""
    (then, all_then, own_then), (now, all_now, own_now) = _START, _processor_seconds()
    return max(0.0, (all_now - all_then) - (own_now - own_then)) / max(now - then, 1e-9)


Row = Mapping[str, float | int | str]


@dataclass(frozen=True)
class Bar:
    """A figure that has a limit: `value` must be at least (or, with `below`, under) `limit`."""

    name: str
    value: float
    limit: float
    below: bool = False

    @property
    def met(self) -> bool:
        return self.value < self.limit if self.below else self.value >= self.limit

    def __str__(self) -> str:
        word = "under" if self.below else "at least"
        return f"{'met   ' if self.met else 'MISSED'} {self.name}: {self.value:.4g}, {word} {self.limit:.4g}"


def calls_for(work: Work, seconds: float) -> int:
    """How many calls in a row take about `seconds`, so that short work is timed in a loop. Also warms it
    up."""
    work()
    start = perf_counter()
    work()
    once = max(perf_counter() - start, 1e-7)
    return max(1, round(seconds / once))


@dataclass(frozen=True)
class Times:
    """Seconds per call over several rounds."""

    median: float
    best: float


def interleaved(works: Sequence[Work], repeats: int = 7, seconds: float = 0.02) -> list[Times]:
    """Seconds per call of each work, over `repeats` rounds in which every work takes its turn."""
    loops = [calls_for(work, seconds) for work in works]
    samples: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for work, loop, taken in zip(works, loops, samples):
            start = perf_counter()
            for _ in range(loop):
                work()
            taken.append((perf_counter() - start) / loop)
    return [Times(statistics.median(taken), min(taken)) for taken in samples]


def conditions() -> dict[str, str | int | float]:
    """What the figures depend on besides the code."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    packages = {name: version(name) for name in ("numpy", "numba")}
    return {
        "cores": cores,
        "busy with other work": round(others(), 2),
        "processor": processor(),
        "python": platform.python_version(),
        **packages,
    }


def processor() -> str:
    """The processor's name, where the system tells it."""
    if sys.platform == "linux":
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def arguments(description: str) -> argparse.Namespace:
    """The options every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--quick", action="store_true", help="few repeats and the smallest sizes")
    return parser.parse_args()


def _cell(value: float | int | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def finish(name: str, rows: Sequence[Row], bars: Sequence[Bar], check: bool) -> int:
    """Print the table, the bars and the JSON line; the exit code that `--check` asks for."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=name, title_justify="left", box=None)
    for column in rows[0]:
        table.add_column(column, justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    for bar in bars:
        print(bar)
    record = {"benchmark": name, "rows": [dict(row) for row in rows], "conditions": conditions()}
    record["bars"] = [{"name": b.name, "value": b.value, "limit": b.limit, "below": b.below} for b in bars]
    print(json.dumps(record))
    return 1 if check and not all(bar.met for bar in bars) else 0
