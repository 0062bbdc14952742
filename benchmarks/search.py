"""What a search of tiles by the clock gains over the estimate's choice: simulated time of both plans of the same graph.

Cycles are modelled, not measured, so no run disturbs another.

    python benchmarks/search.py [--check] [names...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from timing import Bar, Row, finish

from kohakuaccel.graph import build as g
from kohakuaccel.numerics import FP16
from kohakutpu import api as ktpu
from kohakutpu.auto import compile_graph

TRIED = 8


@dataclass(frozen=True)
class Work:
    """One function and the shapes of its inputs."""

    name: str
    build: Callable[..., g.Tensor]
    shapes: Mapping[str, tuple[int, ...]]


WORKS = (
    Work("wide product", g.linear, {"x": (128, 256), "w": (1024, 256)}),
    Work("square product", g.linear, {"x": (256, 256), "w": (256, 256)}),
    Work("deep product", g.linear, {"x": (32, 2048), "w": (512, 2048)}),
    Work(
        "swiglu mlp",
        lambda x, gate, up, down: g.linear(g.silu(g.linear(x, gate)) * g.linear(x, up), down),
        {"x": (128, 256), "gate": (512, 256), "up": (512, 256), "down": (256, 512)},
    ),
    Work("attention", lambda q, k, v: g.attention(q, k, v), dict.fromkeys("qkv", (4, 128, 64))),
)


def measure(work: Work) -> Row:
    rng = np.random.default_rng(0)
    b = g.Builder()
    program = b.graph(y=work.build(*(b.input(name, shape, FP16) for name, shape in work.shapes.items())))
    tensors = {n: ktpu.tensor(rng.standard_normal(s) * s[-1] ** -0.25) for n, s in work.shapes.items()}
    cycles: list[int] = []
    results: list[Any] = []
    for search in (0, TRIED):
        plan = compile_graph(program, ktpu.device().machine, substitutions=(), search=search)
        plan.run(tensors)
        made, timeline = ktpu.time(lambda plan=plan: plan.run(tensors)["y"])
        cycles.append(timeline.cycles)
        results.append(made.numpy().tobytes())
    return {
        "function": work.name,
        "estimate's tiles": cycles[0],
        "searched": cycles[1],
        "ratio": cycles[1] / cycles[0],
        "same bits": int(len(set(results)) == 1),
    }


def main() -> int:
    names = [a for a in sys.argv[1:] if not a.startswith("--")]
    rows = [measure(w) for w in WORKS if not names or w.name in names]
    bars = [Bar(f"{row['function']}, searched over estimated", float(row["ratio"]), 1.001, below=True) for row in rows]
    bars.append(Bar("plans with the same bits", sum(int(row["same bits"]) for row in rows), len(rows)))
    return finish("search", rows, bars, "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
