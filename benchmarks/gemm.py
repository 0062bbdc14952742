"""Matrix products through the tensor API against numpy's float32 product on the same cores, in one run.

Ours includes everything a user waits for except compiling: conversion to FP16, packing, upload, dispatch,
the simulated machine's arithmetic, readback. Times are medians; the ratio is numpy's best time over our
median, since numpy's threads suffer more than ours when something else runs.

    python benchmarks/gemm.py [--check] [--quick]
"""

from __future__ import annotations

import sys

import numpy as np
from timing import Bar, arguments, finish, interleaved

from kohakutpu import api as ktpu

SIZES = (64, 128, 256, 512, 1024)
BARS = {256: 1 / 100, 1024: 1 / 20}


def measure(n: int, repeats: int) -> dict[str, float | int | str]:
    rng = np.random.default_rng(n)
    a, b = (rng.standard_normal((n, n)).astype(np.float32) for _ in "ab")

    def ours() -> object:
        return (ktpu.tensor(a) @ ktpu.tensor(b)).numpy()

    def theirs() -> object:
        return a @ b.T

    exact = a.astype(np.float64) @ b.astype(np.float64).T
    error = np.linalg.norm((ktpu.tensor(a) @ ktpu.tensor(b)).numpy() - exact) / np.linalg.norm(exact)
    mine, numpys = interleaved([ours, theirs], repeats)
    return {
        "size": n,
        "ours ms": mine.median * 1e3,
        "numpy ms": numpys.median * 1e3,
        "ours GMAC/s": n**3 / mine.median / 1e9,
        "numpy best GMAC/s": n**3 / numpys.best / 1e9,
        "ratio": numpys.best / mine.median,
        "relative error": float(error),
    }


def main() -> int:
    options = arguments("matrix products against numpy float32")
    sizes = SIZES[:3] if options.quick else SIZES
    rows = [measure(n, 3 if options.quick else 7) for n in sizes]
    ratios = {int(row["size"]): float(row["ratio"]) for row in rows}
    bars = [Bar(f"{n}^3 ratio to numpy float32", ratios[n], bar) for n, bar in BARS.items() if n in ratios]
    return finish("gemm", rows, bars, options.check)


if __name__ == "__main__":
    sys.exit(main())
