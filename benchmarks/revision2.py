"""Flash attention on revision 1 and revision 2 machines: simulated time, bytes at the memory ports, error.

Everything here is modelled by the clock and the unit models; nothing depends on the host.

    python benchmarks/revision2.py [--check] [--quick]
"""

from __future__ import annotations

import sys

import numpy as np
from timing import Bar, arguments, finish

from kohakutpu import api as ktpu
from kohakutpu import kernels
from kohakutpu.machines import load

Row = dict[str, float | int | str]
Shape = tuple[int, int, int, int]  # heads, rows, keys, depth
FEATURES = (), ("r2_vc_quant",), ("r2_vc_quant", "r2_acc_to_vc")


def measure(shape: Shape, features: tuple[str, ...], first: float) -> Row:
    """One call on `ship_3x2` with these features; first: cycles of the r1 call, 0 where this is it."""
    heads, rows, keys, depth = shape
    rng = np.random.default_rng(shape)
    q, k, v = (rng.standard_normal((1, heads, n, depth)).astype(np.float16) for n in (rows, keys, keys))
    machine = load("ship_3x2").with_(name="+".join(features) or "r1", features=dict.fromkeys(features, True))
    device = ktpu.device(machine)
    tensors = [ktpu.tensor(x, device=device).pin() for x in (q, k, v)]
    got, timeline = ktpu.time(kernels.flash_attention, *tensors, device=device)
    score = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) * depth**-0.5
    e = np.exp(score - score.max(-1, keepdims=True))
    want = e / e.sum(-1, keepdims=True) @ v.astype(np.float64)
    macs = 2 * heads * rows * keys * depth
    return {
        "heads x rows x keys x depth": "x".join(map(str, shape)),
        "machine": machine.name,
        "simulated us": timeline.cycles / machine.params.clock_mhz,
        "of r1": timeline.cycles / (first or timeline.cycles),
        "MAC/cycle": macs / timeline.cycles,
        "KB read": timeline.counters["bytes read"] / 1024,
        "KB written": timeline.counters["bytes written"] / 1024,
        "relative error": float(np.linalg.norm(got.numpy() - want) / np.linalg.norm(want)),
    }


def main() -> int:
    options = arguments("flash attention on revision 2")
    shapes: list[Shape] = (
        [(4, 128, 256, 64)] if options.quick else [(4, 128, 256, 64), (4, 512, 512, 64), (4, 200, 200, 32)]
    )
    rows: list[Row] = []
    for shape in shapes:
        first = 0.0
        for features in FEATURES:
            row = measure(shape, features, first)
            first = first or float(row["simulated us"]) * load("ship_3x2").params.clock_mhz
            rows.append(row)
    output = 4 * 128 * 64 * 2 / 1024
    bars = [
        Bar("4x128x256x64 with r2_vc_quant, time of r1's", float(rows[1]["of r1"]), 0.5, below=True),
        Bar(
            "4x128x256x64 with r2_vc_quant, KB written beyond the result",
            float(rows[1]["KB written"]) - output,
            1,
            below=True,
        ),
    ]
    return finish("revision2", rows, bars, options.check)


if __name__ == "__main__":
    sys.exit(main())
