"""Products on several TinyTPU cores: cycles and speed-up of 1, 2, 4 and 8 cores, and what limits them.

Loading of records, distribution over the network, execution and results are all counted. Every product is checked
first. The speed-up is over one core of the same system; "rows" and "depth" are compared, and ways to feed the cores.
The bars are those of one host link, which loads one core at a time.

    python benchmarks/tinytpu_cores.py [--check] [--quick]
"""

from __future__ import annotations

import sys

import numpy as np
from timing import Bar, arguments, finish

from kohakuaccel.machine import Machine
from tinytpu import machines
from tinytpu.cores.collectives import collective
from tinytpu.cores.gemm import Gemm, gemm

SIZES = ((64, 64, 64), (32, 32, 32), (8, 128, 8))
BARS = {(64, 2): 1.9, (64, 4): 3.3, (64, 8): 4.0, (32, 2): 1.8, (32, 4): 3.0, (8, 4): 2.0}
"""Least speed-up by (rows, cores) on one link."""

Row = dict[str, float | int | str]


def _row(size: tuple[int, int, int], links: str, cores: int, done: Gemm, alone: int) -> Row:
    busy = done.link_cycles / (done.cycles * done.ran.machine.params.host_links)
    return {
        "what": f"{'x'.join(map(str, size))} int8, {links}",
        "cores": cores,
        "way": f"{done.split}, {done.feed}",
        "cycles": done.cycles,
        "speed-up": alone / done.cycles,
        "link busy": f"{busy:.0%}",
        "longest program": f"{max(done.ran.spent('execute')) / done.cycles:.0%}",
        "packets": len(done.ran.packets),
    }


def _products(machine: Machine, links: str, size: tuple[int, int, int], bars: list[Bar]) -> list[Row]:
    m, k, n = size
    rng = np.random.default_rng(1)
    a, b = rng.integers(-128, 128, (m, k)), rng.integers(-128, 128, (k, n))
    rows: list[Row] = []
    alone = 0
    for cores in (1, 2, 4, 8):
        # On the largest only what wins there, so that the table is made in seconds.
        split = "rows" if m * k * n > 1 << 17 else ""
        done = gemm(a, b, machine, cores=cores, split=split, feed="packed" if split else "")
        assert (done.values == a @ b).all()
        alone = alone or done.cycles
        rows.append(_row(size, links, cores, done, alone))
        if machine.params.host_links == 1 and (m, cores) in BARS:
            bars.append(Bar(f"{rows[-1]['what']}, {cores} cores", alone / done.cycles, BARS[m, cores]))
    return rows


def _collectives() -> list[Row]:
    rng = np.random.default_rng(2)
    rows: list[Row] = []
    for kind in ("broadcast", "scatter", "gather", "all_gather", "reduce", "reduce_scatter", "all_reduce"):
        data = rng.integers(-1000, 1000, (4, 64)).astype(np.int32)
        done = collective(kind, data[0] if kind == "broadcast" else data, cores=4)
        row: Row = {"what": f"{kind} of 64 int32 a core", "cores": 4, "way": done.algorithm, "cycles": done.cycles}
        rows.append(row | {"speed-up": "", "link busy": "", "longest program": "", "packets": len(done.ran.packets)})
    return rows


def main() -> int:
    options = arguments("products and collectives on several TinyTPU cores")
    machine, bars = machines.load(), list[Bar]()
    rows: list[Row] = []
    for size in SIZES[1:] if options.quick else SIZES:
        rows += _products(machine, "1 link", size, bars)
    free = machine.with_(name="tinytpu_4x4, 8 links", params={"host_links": 8})
    rows += _products(free, "8 links", SIZES[1], bars)
    return finish("tinytpu_cores", [*rows, *_collectives()], bars, options.check)


if __name__ == "__main__":
    sys.exit(main())
