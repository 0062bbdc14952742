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


def _block(x: g.Tensor, *weights: g.Tensor) -> g.Tensor:
    """Norm, two heads of attention with a bias on the query, residual, norm, gated MLP, residual."""
    n1, q, b, k, v, o, n2, gate, up, down = weights
    a = g.rmsnorm(x, n1)
    query, key, value = g.linear(a, q, b), g.linear(a, k), g.linear(a, v)
    mixed = g.attention(g.heads(query, 2), g.heads(key, 2), g.heads(value, 2), causal=True)
    y = x + g.linear(g.reshape(g.permute(mixed, (1, 0, 2)), x.shape), o)
    c = g.rmsnorm(y, n2)
    return y + g.linear(g.silu(g.linear(c, gate)) * g.linear(c, up), down)


def _grouped(q: g.Tensor, k: g.Tensor, v: g.Tensor) -> g.Tensor:
    """Two query heads share one head of keys and values."""
    keys, values = (g.reshape(g.expand(g.reshape(t, (1, 2, 1, 12, 32)), (1, 2, 2, 12, 32)), q.shape) for t in (k, v))
    return g.attention(q, keys, values)


def _rope(x: g.Tensor, cos: g.Tensor, turn: g.Tensor) -> g.Tensor:
    first, second = g.slice_(x, -1, 0, 16), g.slice_(x, -1, 16, 32)
    return g.concat([first * cos - second * turn, second * cos + first * turn], -1)


def _llama(x: g.Tensor, q: g.Tensor, k: g.Tensor, v: g.Tensor, cos: g.Tensor, turn: g.Tensor) -> g.Tensor:
    """Four rotated query heads over two of keys and values, from their projections on."""
    length, width = x.shape[0], 32
    query, key = (_rope(g.heads(g.linear(x, w), n), cos, turn) for w, n in ((q, 4), (k, 2)))
    value = g.heads(g.linear(x, v), 2)
    repeated = [
        g.reshape(g.expand(g.reshape(t, (2, 1, length, width)), (2, 2, length, width)), (4, length, width))
        for t in (key, value)
    ]
    keys, values = repeated
    return g.attention(query, keys, values, causal=True)


def _kept(x: g.Tensor, w: g.Tensor) -> tuple[g.Tensor, ...]:
    """Values that leave and are read again."""
    hidden = g.relu(g.linear(x, w))
    top = g.max_(hidden, -1, keep=True)
    return hidden, top, g.linear(hidden - top, w)


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
    Workload(
        "transformer block",
        _block,
        {
            "x": (12, 64),
            "n1": (64,),
            "q": (64, 64),
            "b": (64,),
            "k": (64, 64),
            "v": (64, 64),
            "o": (64, 64),
            "n2": (64,),
            "gate": (96, 64),
            "up": (96, 64),
            "down": (64, 96),
        },
        0.15,
        0.2,
    ),
    Workload("grouped heads", _grouped, {"q": (1, 4, 12, 32), "k": (1, 2, 12, 32), "v": (1, 2, 12, 32)}, PRODUCT),
    Workload("rotary positions", _rope, {"x": (1, 2, 10, 32), "cos": (10, 16), "turn": (10, 16)}),
    Workload(
        "convolution",
        lambda x, w, b: g.relu(g.conv2d(x, w, b, padding=1)),
        {"x": (2, 32, 6, 5), "w": (16, 32, 3, 3), "b": (16,)},
        PRODUCT,
    ),
    Workload(
        "strided convolution of few channels",
        lambda x, w: g.conv2d(x, w, stride=2, padding=(2, 1)),
        {"x": (1, 3, 9, 8), "w": (8, 3, 3, 3)},
        PRODUCT,
    ),
    Workload("group norm", lambda x, w, b: g.groupnorm(x, 4, w, b), {"x": (2, 8, 4, 5), "w": (8,), "b": (8,)}, 4e-3),
    Workload("largest of windows", lambda x: g.max_pool2d(x, 3, 2, 1), {"x": (1, 4, 9, 9)}),
    Workload("values that leave and are read", _kept, {"x": (9, 32), "w": (32, 32)}, PRODUCT),
    Workload(
        "bias of several heads",
        lambda x, w, b: g.heads(g.linear(x, w, b), 2),
        {"x": (3, 9, 32), "w": (32, 32), "b": (32,)},
        PRODUCT,
    ),
    Workload("running sum", lambda x: g.cumsum(x, 1), {"x": (5, 20)}),
    Workload("along the first axis", lambda x: g.softmax(x, 0), {"x": (12, 3, 20)}),
    Workload(
        "grouped and rotated heads",
        _llama,
        {"x": (10, 64), "q": (128, 64), "k": (64, 64), "v": (64, 64), "cos": (10, 16), "turn": (10, 16)},
        0.1,
        0.2,
    ),
    Workload("one row", lambda x, w, c: g.gelu(g.linear(x, w, c)), {"x": (1, 40), "w": (24, 40), "c": (24,)}, PRODUCT),
    Workload("matrix times vector", lambda x, w: g.matmul(w, x) * 0.5, {"x": (40,), "w": (24, 40)}, PRODUCT),
    Workload("one query", g.attention, {"q": (2, 2, 1, 32), "k": (2, 2, 20, 32), "v": (2, 2, 20, 32)}, PRODUCT),
    Workload("mean and spread", lambda x: (g.mean(x, -1), g.var(x, -1)), {"x": (6, 40)}),
)
