"""How far tinygrad's kernels on the device are from the kernel library: simulated time of both for the same function.

Every row is one function of float16 tensors: written with tinygrad's own words and run on the device `KTPU` with its
clock, and as calls of the hand-written kernels. Cycles are modelled, not measured, so no run disturbs another.

    python benchmarks/tinygrad_kernels.py [--check] [--quick] [names...]
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("DEV", "TIMED+KTPU")
os.environ.setdefault("CACHELEVEL", "0")  # nothing is read from, or left in, tinygrad's cache on disk

import numpy as np
from timing import Bar, Row, finish

import kohakutpu.tinygrad as kt
from kohakutpu import api as ktpu
from kohakutpu import kernels as k

LIMIT = 1.2
Tensors = Mapping[str, Any]


@dataclass(frozen=True)
class Work:
    """One function: in tinygrad's words, by which kernels it is done by hand, the shapes of its inputs."""

    name: str
    words: Callable[[Tensors], Any]
    hand: Callable[[Tensors], Any]
    shapes: Mapping[str, tuple[int, ...]]


def works(quick: bool) -> list[Work]:
    """The functions of the acceptance list, each at several sizes."""
    made: list[Work] = []
    for m, n, c in [(64, 96, 64)] if quick else [(128, 128, 128), (256, 512, 256), (100, 300, 200)]:
        shapes = {"x": (m, c), "w": (n, c), "b": (n,)}
        size = f"{m}x{c}x{n}"
        made += [
            Work(
                f"linear {act} {size}",
                lambda f, act=act: getattr(f["x"] @ f["w"].T + f["b"], act)(),
                lambda f, act=act: k.linear(f["x"], f["w"], f["b"], activation=act),
                shapes,
            )
            for act in ("relu", "gelu", "silu")
        ]
    for m, n in [(64, 96)] if quick else [(128, 128), (256, 512), (1024, 64), (100, 200)]:
        size, x, row = f"{m}x{n}", {"x": (m, n)}, {"x": (m, n), "w": (n,), "b": (n,)}
        made += [
            Work(f"softmax {size}", lambda f: f["x"].softmax(), lambda f: k.softmax(f["x"]), x),
            Work(f"log_softmax {size}", lambda f: f["x"].log_softmax(), lambda f: k.log_softmax(f["x"]), x),
            Work(
                f"layernorm {size}",
                lambda f: f["x"].layernorm() * f["w"] + f["b"],
                lambda f: k.layernorm(f["x"], f["w"], f["b"]),
                row,
            ),
            Work(
                f"rmsnorm {size}",
                lambda f: f["x"] * (f["x"].square().mean(-1, keepdim=True) + 1e-6).rsqrt() * f["w"],
                lambda f: k.rmsnorm(f["x"], f["w"]),
                {"x": (m, n), "w": (n,)},
            ),
        ]
    for h, t, d in [(2, 32, 32)] if quick else [(4, 64, 64), (4, 128, 64), (2, 256, 32)]:
        heads = dict.fromkeys("qkv", (1, h, t, d))
        size = f"{h}x{t}x{d}"
        made += [
            Work(
                f"attention {size}",
                lambda f: f["q"].scaled_dot_product_attention(f["k"], f["v"]),
                lambda f: k.flash_attention(f["q"], f["k"], f["v"]),
                heads,
            ),
            Work(
                f"causal attention {size}",
                lambda f: f["q"].scaled_dot_product_attention(f["k"], f["v"], is_causal=True),
                lambda f: k.flash_attention(f["q"], f["k"], f["v"], causal=True),
                heads,
            ),
            Work(
                f"softmax(q k) v {size}",
                lambda f, d=d: (f["q"] @ f["k"].transpose(-2, -1) * d**-0.5).softmax() @ f["v"],
                lambda f: k.flash_attention(f["q"], f["k"], f["v"]),
                heads,
            ),
        ]
    return made


def draw(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Numbers of deviation 1, weights so that products keep it."""
    return ((shape[1] ** -0.5 if name == "w" and len(shape) == 2 else 1.0) * rng.standard_normal(shape)).astype(
        np.float16
    )


def measure(work: Work) -> Row:
    """Cycles of both, how many kernels tinygrad's took, and how far apart the results are."""
    from tinygrad.tensor import Tensor

    rng = np.random.default_rng(len(work.name))
    arrays = {name: draw(rng, name, shape) for name, shape in work.shapes.items()}
    given = {name: Tensor(a, device="KTPU").realize() for name, a in arrays.items()}
    tensors = {name: ktpu.tensor(a) for name, a in arrays.items()}
    found: Any = None
    for _ in range(2):
        kt.reset()
        found = work.words(given).contiguous().realize()
    report = kt.report()
    work.hand(tensors)
    wanted, timeline = ktpu.time(lambda: work.hand(tensors))
    one, other = found.numpy().astype(np.float64), wanted.numpy().astype(np.float64)
    return {
        "function": work.name,
        "tinygrad us": report.seconds * 1e6,
        "by hand us": timeline.seconds * 1e6,
        "ratio": report.seconds / timeline.seconds,
        "kernels": report.device_kernels,
        "host steps": report.host_kernels,
        "difference": float(np.abs(one - other).max() / np.abs(other).max()),
    }


def main() -> int:
    """Measure; 1 where a bar is missed and `--check` asks."""
    names = [a for a in sys.argv[1:] if not a.startswith("--")]
    rows = [measure(w) for w in works("--quick" in sys.argv) if not names or any(w.name.startswith(n) for n in names)]
    bars = [
        Bar("greatest of tinygrad over by hand", max(float(row["ratio"]) for row in rows), LIMIT, below=True),
        Bar("host steps", sum(int(row["host steps"]) for row in rows), 1, below=True),
    ]
    return finish("tinygrad_kernels", rows, bars, "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
