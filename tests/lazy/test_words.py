"""Every word of the tensor level and the library, recorded: what runs is as near to float64 as the formats allow, and
so is the eager kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kohakuaccel import graph as gr
from kohakuaccel.graph.structure import as_contraction
from kohakutpu import api as ktpu
from kohakutpu import kernels as kk
from kohakutpu.lazy.recorder import GraphPart

Case = tuple[str, Callable[..., Any], tuple[tuple[int, ...], ...]]

ELEMENTWISE: list[Case] = [
    (name, lambda x, n=name: getattr(x, n)(), ((5, 24),))
    for name in ("silu", "gelu", "relu", "sigmoid", "exp", "exp2", "abs", "__neg__")
]
CASES: list[Case] = [
    *ELEMENTWISE,
    ("roots", lambda x: (x * x + 0.5).sqrt() + (x * x + 0.5).rsqrt() + (x * x + 1.0).recip(), ((5, 24),)),
    ("logs", lambda x: (x * x + 0.5).log() - (x * x + 1.0).log2(), ((5, 24),)),
    ("scalars", lambda x: (2.0 - x) / 4.0 + 1.0 / (x.abs() + 1.0), ((3, 40),)),
    ("extremes", lambda x, y: x.maximum(y).minimum(0.5).maximum(-0.25), ((3, 40), (3, 40))),
    ("broadcast", lambda x, y: x * y + y - x / (y * y + 1.0), ((2, 3, 16), (3, 1))),
    ("row", lambda x, y: x + y, ((7, 32), (32,))),
    ("softmax", lambda x: x.softmax(), ((6, 40),)),
    ("softmax 0", lambda x: x.softmax(0), ((6, 40),)),
    ("rmsnorm", lambda x, w: x.rmsnorm(w), ((2, 6, 48), (48,))),
    ("layernorm", lambda x, w, b: x.layernorm(w, b), ((2, 6, 48), (48,), (48,))),
    ("sums", lambda x: x.sum(1) + x.mean(1) - x.max(1) + x.min(1), ((4, 6, 32),)),
    ("whole", lambda x: x.mean() + x.max(), ((4, 32),)),
    ("kept", lambda x: x - x.mean(-1, keepdims=True), ((4, 32),)),
    ("product", lambda x, w: x @ w, ((10, 40), (12, 40))),
    ("products", lambda x, w: x @ w, ((2, 10, 40), (2, 12, 40))),
    ("stretched product", lambda x, w: x @ w, ((3, 1, 4, 32), (2, 5, 32))),
    ("vector", lambda x, w: x @ w, ((40,), (12, 40))),
    ("dot", lambda x, w: x @ w, ((40,), (40,))),
    (
        "library linear",
        lambda x, w, b, r: kk.linear(x, w, b, residual=r, activation="gelu"),
        ((8, 32), (16, 32), (16,), (8, 16)),
    ),
    ("library mlp", lambda x, u, d: kk.mlp(x, u, d, activation="relu"), ((8, 32), (64, 32), (16, 64))),
    ("swiglu", lambda x, a, u, d: kk.swiglu(x, a, u, d, x), ((8, 32), (64, 32), (64, 32), (32, 64))),
    ("geglu", lambda x, a, u, d: kk.geglu(x, a, u, d), ((8, 32), (64, 32), (64, 32), (16, 64))),
    ("log_softmax", lambda x: kk.log_softmax(x, scale=0.5), ((6, 40),)),
    ("row kernels", lambda x: kk.row_mean_square(x) + kk.row_sumsq(x) * 0.125, ((6, 40),)),
    ("columns", lambda x: kk.col_mean(x) + kk.col_max(x), ((6, 40),)),
    ("full", lambda x: kk.full_mean(x) - kk.full_min(x), ((6, 40),)),
    ("affine", lambda x: kk.affine(x, scale=3.0, offset=-1.0), ((6, 40),)),
    ("concat", lambda x, y: kk.concat([x, y], 1), ((3, 8), (3, 24))),
    ("slice", lambda x: kk.slice(x, 1, 4, 20, 2) + 1.0, ((3, 24),)),
    ("backwards", lambda x: kk.slice(x, 0, None, None, -1), ((5, 16),)),
    ("gather", lambda x: kk.gather(x, [[2, 0], [1, 1]]), ((3, 16),)),
    ("repeat", lambda x: kk.repeat(x, 3, 0) + kk.tile(x, 3, 0), ((4, 16),)),
    ("permute", lambda x: kk.permute(x * 2.0, (1, 0, 2)), ((3, 4, 16),)),
    ("expand", lambda x: kk.expand(x * 2.0, (5, 4, 16)), ((4, 1),)),
    ("group norm", lambda x, w, b: kk.group_norm(x, 2, w, b, activation="silu"), ((2, 8, 4, 4), (8,), (8,))),
]
HEAVY: list[Case] = [
    ("attention", lambda q, k, v: kk.flash_attention(q, k, v), ((2, 4, 12, 32), (2, 2, 20, 32), (2, 2, 20, 16))),
    ("causal", lambda q, k, v: kk.flash_attention(q, k, v, causal=True, scale=0.5), ((1, 2, 12, 32),) * 3),
    (
        "masked",
        lambda q, k, v, b: kk.flash_attention(q, k, v, bias=b, keep=np.array([[1, 0, 1, 1, 0, 1, 1, 1]] * 2)),
        ((2, 2, 8, 32), (2, 2, 8, 32), (2, 2, 8, 32), (1, 2, 8, 8)),
    ),
    (
        "conv",
        lambda x, w, b: kk.conv2d(x, w, b, padding=1, stride=2, activation="relu"),
        ((1, 9, 9, 32), (8, 3, 3, 32), (8,)),
    ),
    (
        "conv channels first",
        lambda x, w: kk.conv2d(x, w, layout="NCHW", padding=((0, 1), (1, 0))),
        ((1, 8, 6, 6), (4, 8, 3, 3)),
    ),
    ("heads", lambda x, w, o: kk.merge_heads(kk.split_heads(x, w), o, x), ((1, 10, 32), (2, 16, 32), (2, 32, 16))),
    ("rope", lambda x, c, s: kk.rope(x, c, s), ((1, 2, 6, 32), (6, 16), (6, 16))),
]


def inputs(shapes: tuple[tuple[int, ...], ...]) -> list[Any]:
    rng = np.random.default_rng(sum(map(len, shapes)))
    return [ktpu.tensor(rng.uniform(-1, 1, shape) / max(1, shape[-1] // 32) ** 0.5) for shape in shapes]


def held(case: Case) -> None:
    """The recorded program against the eager kernels and against its own graph in float64."""
    _, fn, shapes = case
    given = inputs(shapes)
    eager = fn(*given).numpy()
    traced = ktpu.jit(fn)
    got = traced(*given).numpy()
    assert got.shape == eager.shape
    assert got.dtype == eager.dtype
    trace = traced.traced(*given)
    (part,) = trace.parts
    assert isinstance(part, GraphPart)
    graph = part.graph
    numbers = trace.constants | dict(zip(trace.arguments, given))
    data = {name: numbers[number].numpy().reshape(graph[name].shape) for name, number in part.inputs.items()}
    ((label, _),) = graph.outputs
    exact = gr.run(graph, data)[label].reshape(got.shape)
    # An operand of a product is off by a uniform error of one step, 1/63 of its block's peak: 0.8% of the norm of an
    # operand drawn uniformly, 1.1% for two, and chained products add up in quadrature. All else rounds to FP16, which
    # fusing does less often.
    products = sum(as_contraction(s) is not None for s in graph.statements)
    for values in (got, eager):
        error = values.astype(float) - exact
        if products:
            assert np.linalg.norm(error) <= 0.02 * products**0.5 * np.linalg.norm(exact)
        else:
            assert np.abs(error).max() <= 2.0**-9 * max(1.0, float(np.abs(exact).max()))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_a_recorded_word_is_the_eager_one(case: Case) -> None:
    held(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", HEAVY, ids=lambda c: c[0])
def test_a_recorded_kernel_is_the_eager_one(case: Case) -> None:
    held(case)
