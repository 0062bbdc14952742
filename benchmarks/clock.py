"""How fast the clock is: simulated cycles per second of host time, and what timing adds to a functional run.

*host ms* is `ktpu.time` of the work, *functional ms* the same work untimed; the clock's own speed is simulated cycles
over their difference. Simulated cycles are modelled, not measured.

    python benchmarks/clock.py [--check] [--quick]
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from timing import Bar, arguments, finish, interleaved

from kohakutpu import api as ktpu
from kohakutpu import machines
from kohakutpu.device import Device
from kohakutpu.machines.sizes import sized

CYCLES_PER_SECOND = 1e6
TIMED_OVER_FUNCTIONAL = 2.0
Work = Callable[[], ktpu.Tensor]


def matmul(n: int, device: Device) -> Work:
    """n^3, operands on the device."""
    rng = np.random.default_rng(n)
    a, b = (ktpu.tensor(rng.standard_normal((n, n)).astype(np.float16), device=device) for _ in "ab")
    return lambda: a @ b


def eight_busy_clusters() -> Device:
    """Memory that answers after 3 cycles keeps eight clusters busy, and so the clock: most events per cycle."""
    machine = sized(machines.load(), {"clusters": 8}).with_(name="eight clusters, L = 3", timing={"L": 3})
    return Device(machine)


def transformer_block(tokens: int, width: int) -> Work:
    """Norm, one head of attention, projection, norm, MLP, residuals."""
    rng = np.random.default_rng(tokens)

    def draw(*shape: int) -> ktpu.Tensor:
        return ktpu.tensor((0.05 * rng.standard_normal(shape)).astype(np.float16))

    x, gain = draw(tokens, width), draw(width)
    query, key, value, out = (draw(width, width) for _ in range(4))
    up, down = draw(4 * width, width), draw(width, 4 * width)

    def block() -> ktpu.Tensor:
        h = x.rmsnorm(gain)
        weights = ((h @ query) @ (h @ key)).softmax()
        y = x + (weights @ (h @ value).T) @ out
        return y + (y.rmsnorm(gain) @ up).silu() @ down

    return block


def measure(what: str, work: Work, repeats: int, device: Device) -> dict[str, float | int | str]:
    cycles = ktpu.time(work, device=device)[1].cycles
    functional, timed = interleaved([work, lambda: ktpu.time(work, device=device)], repeats)
    return {
        "what": what,
        "simulated cycles": cycles,
        "functional ms": functional.median * 1e3,
        "host ms": timed.median * 1e3,
        "ratio": timed.median / functional.median,
        "M cycles/s": cycles / max(timed.median - functional.median, 1e-9) / 1e6,
    }


def main() -> int:
    options = arguments("speed of the clock")
    n, tokens, width = (256, 64, 128) if options.quick else (1024, 256, 512)
    repeats = 3 if options.quick else 7
    ship, busy = ktpu.current_device(), eight_busy_clusters()
    rows = [
        measure(f"matmul {n}^3", matmul(n, ship), repeats, ship),
        measure(f"matmul {n}^3, eight clusters, L = 3", matmul(n, busy), repeats, busy),
        measure(f"transformer block, {tokens} tokens of {width}", transformer_block(tokens, width), repeats, ship),
    ]
    bars = [
        *(
            Bar(f"{row['what']}, simulated cycles per second", float(row["M cycles/s"]) * 1e6, CYCLES_PER_SECOND)
            for row in rows[:2]
        ),
        Bar("transformer block, timed over functional", float(rows[2]["ratio"]), TIMED_OVER_FUNCTIONAL, below=True),
    ]
    return finish("clock", rows, bars, options.check)


if __name__ == "__main__":
    sys.exit(main())
