"""The compiler and the larger kernels: time to compile, overhead of a warm call, and rates of attention and a block.

"compile" is plan, unit programs and encoded image, the first time in a process that has run one small kernel.
"beyond the machine" is a warm kernel call less the time inside the transport, where the models run.

    python benchmarks/kernels.py [--check] [--quick]
"""

from __future__ import annotations

import sys
from time import perf_counter

import numpy as np
from timing import Bar, arguments, finish, interleaved

from kohakutpu import api as ktpu
from kohakutpu import kernels
from kohakutpu.lang import Kernel
from kohakutpu.machines import load


def compile_seconds(kernel: Kernel, *shapes: tuple[int, ...]) -> float:
    """The first time in this process."""
    start = perf_counter()
    plan = kernel.plan(*shapes)
    plan.image(plan.nominal_addresses())
    return perf_counter() - start


def attention(heads: int, length: int, depth: int, repeats: int) -> tuple[float, float]:
    """(seconds of a warm call, multiply-accumulates of its two products)."""
    rng = np.random.default_rng(0)
    q, k, v = (ktpu.tensor(rng.standard_normal((1, heads, length, depth))).pin() for _ in range(3))
    (warm,) = interleaved([lambda: kernels.flash_attention(q, k, v)], repeats)
    return warm.median, 2.0 * heads * length * length * depth


def overhead(repeats: int) -> float:
    """Seconds of a warm 64^3 matmul call outside the transport."""
    rng = np.random.default_rng(0)
    a, b = (ktpu.tensor(rng.standard_normal((64, 64))).pin() for _ in range(2))
    transport = a.device.transport
    inside = 0.0
    write = transport.write

    def timed(bus: int, data: object) -> None:
        nonlocal inside
        start = perf_counter()
        write(bus, data)  # pyright: ignore[reportArgumentType]  # passed through
        inside += perf_counter() - start

    kernels.matmul(a, b)
    best = float("inf")
    transport.write = timed  # pyright: ignore[reportAttributeAccessIssue]  # for this measurement only
    try:
        for _ in range(repeats):
            inside = 0.0
            start = perf_counter()
            kernels.matmul(a, b)
            best = min(best, perf_counter() - start - inside)
    finally:
        transport.write = write  # pyright: ignore[reportAttributeAccessIssue]  # for this measurement only
    return best


def utilisation(latency: int) -> tuple[float, float]:
    """Shares of the clusters' peak in a 1024^3 product on the default machine with memory latency L: by the sweeps
    issued, and by the busiest cluster's own time with its fills (modelled by the units, without contention)."""
    machine = load("ship_3x2").with_(name=f"ship_3x2, L={latency}", timing={"L": latency})
    device = ktpu.device(machine)
    n = 1024
    a, b = (ktpu.tensor(np.ones((n, n), np.float16), device=device) for _ in range(2))
    kernels.matmul(a, b)
    clusters = machine.units_of("MG")
    sweeps = max(device.control_value(u, 3) >> 32 for u in clusters)
    busy = max(device.control_value(u, 2) & 0xFFFFFFFF for u in clusters)
    peak = n**3 / (machine.params.macs_per_cycle * len(clusters))
    return peak / sweeps, peak / busy


def main() -> int:
    options = arguments("compiling, calling and running kernels")
    repeats = 2 if options.quick else 5
    kernels.matmul(ktpu.ones((4, 4)), ktpu.ones((4, 4)))  # loads the models
    cube = compile_seconds(kernels.matmul, (1024, 1024), (1024, 1024))
    shape = (1, 8, 1024, 64)
    flash = compile_seconds(kernels.flash_attention, shape, shape, shape)
    small, macs = attention(4, 256, 64, repeats)
    call = overhead(20 * repeats)
    rows: list[dict[str, float | int | str]] = [
        {"what": "compile matmul 1024^3", "figure": cube, "unit": "s"},
        {"what": "compile flash_attention 1x8x1024x64", "figure": flash, "unit": "s"},
        {"what": "warm kernel call beyond the machine, 64^3 matmul", "figure": call * 1e6, "unit": "us"},
        {"what": "flash_attention 1x4x256x64", "figure": macs / small / 1e6, "unit": "M MAC/s"},
    ]
    issued, fast = utilisation(3)
    rows += [
        {"what": "matmul 1024^3, share of peak by the sweeps issued (modelled)", "figure": 100 * issued, "unit": "%"},
        {
            "what": "the same with fills, L = 3 as in the validation tables (modelled)",
            "figure": 100 * fast,
            "unit": "%",
        },
        {
            "what": "the same with fills, L = 30 as the preset assumes (modelled)",
            "figure": 100 * utilisation(30)[1],
            "unit": "%",
        },
    ]
    bars = [
        Bar("matmul 1024^3, % of peak by the sweeps issued", 100 * issued, 90),
        Bar("compile matmul 1024^3, s", cube, 0.3, below=True),
        Bar("compile flash_attention 1x8x1024x64, s", flash, 1.0, below=True),
        Bar("warm call, us", call * 1e6, 200, below=True),
        Bar("flash_attention 1x4x256x64, M MAC/s", macs / small / 1e6, 200),
    ]
    return finish("kernels", rows, bars, options.check)


if __name__ == "__main__":
    sys.exit(main())
