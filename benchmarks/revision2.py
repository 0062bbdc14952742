"""Attention, products, convolutions on revision 1 and revision 2 machines: simulated time, bytes at the ports, error.

Everything here is modelled by the clock and the unit models; nothing depends on the host.

    python benchmarks/revision2.py [--check] [--quick]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from timing import Bar, arguments, finish

from kohakutpu import api as ktpu
from kohakutpu import kernels
from kohakutpu.machines import load

Row = dict[str, float | int | str]
Exact = NDArray[np.float64]
Features = tuple[str, ...]
Work = tuple[str, Callable[..., object], list[NDArray[np.float16]], Exact, int]  # name, call, operands, exact, MACs
ATTENTION: tuple[Features, ...] = (), ("r2_vc_quant",), ("r2_vc_quant", "r2_acc_to_vc")
PRODUCT: tuple[Features, ...] = (
    (),
    ("r2_bank_plan",),
    ("r2_dual_acc",),
    ("r2_multicast",),
    ("r2_dual_acc", "r2_multicast", "r2_bank_plan"),
)
CONVOLUTION: tuple[Features, ...] = (), ("r2_desc_fill",), ("r2_desc_fill", "r2_dual_acc", "r2_multicast")


def attention(heads: int, rows: int, keys: int, depth: int) -> Work:
    rng = np.random.default_rng((heads, rows, keys, depth))
    q, k, v = (rng.standard_normal((1, heads, n, depth)).astype(np.float16) for n in (rows, keys, keys))
    score = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) * depth**-0.5
    e = np.exp(score - score.max(-1, keepdims=True))
    exact = e / e.sum(-1, keepdims=True) @ v.astype(np.float64)
    name = f"attention {heads} heads, {rows}x{keys}x{depth}"
    return name, kernels.flash_attention, [q, k, v], exact, 2 * heads * rows * keys * depth


def product(m: int, n: int, k: int) -> Work:
    rng = np.random.default_rng((m, n, k))
    a, b = (rng.standard_normal((rows, k)).astype(np.float16) for rows in (m, n))
    return f"matmul {m}x{n}x{k}", kernels.matmul, [a, b], a.astype(np.float64) @ b.T.astype(np.float64), m * n * k


def convolution(side: int, channels: int, outputs: int, stride: int) -> Work:
    """3x3 taps, padding 1."""
    rng = np.random.default_rng((side, channels, outputs))
    x = rng.standard_normal((1, side, side, channels)).astype(np.float16)
    w = rng.standard_normal((outputs, 3, 3, channels)).astype(np.float16)
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    seen = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))[:, ::stride, ::stride]
    exact = np.einsum("bijcyx,nyxc->bijn", seen, w.astype(np.float64))

    def conv(image: object, weight: object) -> object:
        return kernels.conv2d(image, weight, padding=1, stride=stride)

    name = f"conv 3x3 {side}x{side}, {channels} to {outputs}, stride {stride}"
    return name, conv, [x, w], exact, exact.size * 9 * channels


def measure(work: Work, features: Sequence[Features]) -> list[Row]:
    """One call on `ship_3x2` with each of these features, the first without any."""
    name, call, operands, exact, macs = work
    rows: list[Row] = []
    for some in features:
        machine = load("ship_3x2").with_(name="+".join(some) or "r1", features=dict.fromkeys(some, True))
        device = ktpu.device(machine)
        tensors = [ktpu.tensor(x, device=device).pin() for x in operands]
        got, timeline = ktpu.time(call, *tensors, device=device)
        found = np.asarray(ktpu.tensor(got).numpy(), np.float64)
        first = float(rows[0]["simulated us"]) if rows else timeline.cycles / machine.params.clock_mhz
        rows.append(
            {
                "work": name,
                "machine": machine.name,
                "simulated us": timeline.cycles / machine.params.clock_mhz,
                "of r1": timeline.cycles / machine.params.clock_mhz / first,
                "MAC/cycle": macs / timeline.cycles,
                "KB read": timeline.counters["bytes read"] / 1024,
                "KB written": timeline.counters["bytes written"] / 1024,
                "relative error": float(np.linalg.norm(found - exact) / np.linalg.norm(exact)),
            }
        )
    return rows


def main() -> int:
    options = arguments("kernels on revision 2")
    chain = measure(attention(4, 128, 256, 64), ATTENTION)
    big = measure(product(512, 512, 512), PRODUCT)
    conv = measure(convolution(16, 64, 64, 1), CONVOLUTION)
    rows = [*chain, *big, *conv]
    if not options.quick:
        rows = [
            *chain,
            *measure(attention(4, 512, 512, 64), ATTENTION),
            *measure(attention(4, 200, 200, 32), ATTENTION),
        ]
        rows += [*big, *measure(product(256, 256, 1024), PRODUCT)]
        rows += [*conv, *measure(convolution(32, 128, 128, 2), CONVOLUTION)]
    output = 4 * 128 * 64 * 2 / 1024
    written = float(chain[1]["KB written"]) - output
    bars = [
        Bar("attention 128x256x64 with r2_vc_quant, time of r1's", float(chain[1]["of r1"]), 0.5, below=True),
        Bar("attention 128x256x64 with r2_vc_quant, KB written beyond the result", written, 1, below=True),
        Bar("matmul 512^3 with r2_dual_acc, time of r1's", float(big[2]["of r1"]), 0.75, below=True),
        Bar("matmul 512^3 with r2_multicast, time of r1's", float(big[3]["of r1"]), 0.75, below=True),
        Bar("conv 16x16 with r2_desc_fill, time of r1's", float(conv[1]["of r1"]), 0.5, below=True),
    ]
    return finish("revision2", rows, bars, options.check)


if __name__ == "__main__":
    sys.exit(main())
