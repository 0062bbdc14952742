"""Graphs that the scheduler is held against: how each is built, and how large its relative error may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kohakuaccel import graph
from kohakuaccel.graph import Graph
from kohakuaccel.graph import build as g
from kohakuaccel.numerics import FP16

Half = NDArray[np.float16]
Made = Callable[..., "g.Tensor | tuple[g.Tensor, ...]"]
PRODUCT = 0.05
"""What quantised products may be off, of the largest element."""
VECTOR = 2e-3


@dataclass(frozen=True)
class Workload:
    """A graph over inputs of these shapes, drawn from a normal distribution of deviation `spread`."""

    name: str
    make: Made
    shapes: Mapping[str, tuple[int, ...]]
    tolerance: float = VECTOR
    spread: float = 0.5

    def graph(self) -> Graph:
        b = g.Builder()
        made = self.make(*(b.input(name, shape, FP16) for name, shape in self.shapes.items()))
        outputs = made if isinstance(made, tuple) else (made,)
        return b.graph(**{f"y{n}": t for n, t in enumerate(outputs)})

    def inputs(self) -> dict[str, Half]:
        rng = np.random.default_rng(len(self.name))
        return {k: (self.spread * rng.standard_normal(s)).astype(np.float16) for k, s in self.shapes.items()}

    def error(self, found: Mapping[str, object]) -> float:
        """The largest distance from the ruler, over the ruler's largest element."""
        want = graph.run(self.graph(), self.inputs())
        worst = 0.0
        for label, array in want.items():
            got = np.asarray(found[label]).astype(np.float64)
            assert got.shape == array.shape
            worst = max(worst, float(np.abs(got - array).max() / max(np.abs(array).max(), 1e-6)))
        return worst


WORKLOADS = (
    Workload("product", g.linear, {"x": (20, 70), "w": (13, 70)}, PRODUCT),
    Workload(
        "gelu of a linear layer",
        lambda x, w, c: g.gelu(g.linear(x, w, c)),
        {"x": (2, 9, 40), "w": (24, 40), "c": (24,)},
        PRODUCT,
    ),
    Workload("softmax", lambda x: g.softmax(x * 0.5), {"x": (3, 5, 50)}),
    Workload("layernorm", g.layernorm, {"x": (3, 5, 50), "w": (50,), "b": (50,)}),
    Workload("rmsnorm", g.rmsnorm, {"x": (3, 5, 64), "w": (64,)}),
    Workload("log-softmax", g.log_softmax, {"x": (7, 50)}),
    Workload(
        "gated block",
        lambda x, w, v, d: g.linear(g.silu(g.linear(x, w)) * g.linear(x, v), d),
        {"x": (9, 32), "w": (48, 32), "v": (48, 32), "d": (32, 48)},
        PRODUCT,
    ),
    Workload("elementwise", lambda x, y: g.relu(x * y + 1.0) - x, {"x": (3, 7, 11), "y": (3, 7, 11)}),
    Workload("broadcast", lambda x, y: x * y, {"x": (3, 7, 16), "y": (3, 7, 1)}),
    Workload("columns", lambda x: g.sum_(x, 0), {"x": (30, 20)}),
    Workload("everything", g.mean, {"x": (30, 20)}),
    Workload("attention", g.attention, {"q": (2, 2, 20, 32), "k": (2, 2, 20, 32), "v": (2, 2, 20, 32)}, PRODUCT),
    Workload(
        "causal",
        lambda q, k, v: g.attention(q, k, v, causal=True),
        {"q": (1, 2, 20, 32), "k": (1, 2, 20, 32), "v": (1, 2, 20, 32)},
        PRODUCT,
    ),
)
