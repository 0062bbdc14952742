"""The catalogue of algebraic forms: what each does, what it leaves alone, and its proof obligation in numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel.graph import Graph, parse, run
from kohakuaccel.graph import build as g
from kohakuaccel.graph import rewrite as rw
from kohakuaccel.graph.build import Tensor
from kohakuaccel.numerics import FP32

Array = NDArray[Any]
RNG = np.random.default_rng(11)
SHAPES = [(8,), (3, 8), (2, 3, 16), (1, 24)]


def built(make: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> Graph:
    builder = g.Builder()
    return builder.graph(out=make(builder.input("x", shape, FP32)))


def rows(shape: tuple[int, ...]) -> list[Array]:
    """Ordinary rows, large and small ones, rows with infinite and with equal elements."""
    x = np.asarray(RNG.normal(size=shape))
    hidden = np.where(RNG.random(shape) < 0.3, -np.inf, x)
    hidden[..., 3] = 1.5
    late = x.copy()
    late[..., :4] = -np.inf
    return [x, x * 300, x * 1e-6 + 5, hidden, late, np.full(shape, -7.0)]


def obligation(rule: rw.Rewrite, graph: Graph, x: Array, rtol: float = 1e-10, atol: float = 1e-12) -> None:
    after = rule.apply(graph)
    want, got = run(graph, {"x": x})["out"], run(after, {"x": x})["out"]
    finite = np.isfinite(want)
    np.testing.assert_allclose(got[finite], want[finite], rtol=rtol, atol=atol)
    tidy = run(rw.TIDY.apply(after), {"x": x})["out"]
    np.testing.assert_allclose(tidy[finite], want[finite], rtol=rtol, atol=atol)


@pytest.mark.parametrize("shape", SHAPES)
def test_online_softmax(shape: tuple[int, ...]) -> None:
    for make in (g.softmax, g.log_softmax):
        graph = built(make, shape)
        for block in (1, 2, 4):
            rule = rw.OnlineSoftmax(block=block)
            after = rule.apply(graph)
            assert len(after.statements) == len(graph.statements) + 2
            assert rule.apply(after) == after
            for x in rows(shape):
                obligation(rule, graph, x)


def test_online_softmax_golden() -> None:
    before = (
        "input x: FP16[2, 8]\nm: FP16[i<2] = max[k<8] x[i, k]\ns: FP16[i<2] = sum[k<8] exp2(x[i, k] - m[i])\noutput s\n"
    )
    after = """\
input x: FP16[2, 8]
block_top: FP16[i<2, t0<2] = max[t1<4] x[i, 4 * t0 + t1]
m: FP16[i<2] = max[t0<2] block_top[i, t0]
block_sum: FP16[i<2, t0<2] = sum[t1<4] where(block_top[i, t0] == -inf, 0.0, \
exp2((x[i, 4 * t0 + t1] - block_top[i, t0]) * 1.0))
s: FP16[i<2] = sum[t0<2] where(block_top[i, t0] == -inf, 0.0, \
block_sum[i, t0] * exp2((block_top[i, t0] - m[i]) * 1.0))
output s
"""
    assert str(rw.OnlineSoftmax(block=4).apply(parse(before))) == after


@pytest.mark.parametrize(
    "lines",
    [
        "m: FP16[i<2] = max[k<8] x[i, k]\ns: FP16[i<2] = sum[k<8] exp2(x[i, 7 - k] - m[i])\noutput s\n",
        "m: FP16[i<2] = max[k<8] x[i, k]\ns: FP16[i<2] = sum[k<8] exp2(x[i, k] - m[1 - i])\noutput s\n",
        "m: FP16[i<2] = max[k<8] x[i, k]\ns: FP16[i<2] = sum[k<8] exp2((x[i, k] - m[i]) * -1.0)\noutput s\n",
        "m: FP16[i<2] = min[k<8] x[i, k]\ns: FP16[i<2] = sum[k<8] exp2(x[i, k] - m[i])\noutput s\n",
        "m: FP16[i<2] = max[k<4] x[i, k]\ns: FP16[i<2] = sum[k<8] exp2(x[i, k] - m[i])\noutput s\n",
        "m: FP16[i<2] = max[k<3] x[i, k]\ns: FP16[i<2] = sum[k<3] exp2(x[i, k] - m[i])\noutput s\n",
        "m: FP16[i<2] = max[k<4] x[i, k]\ns: FP16[i<2] = sum[k<4] exp2(x[i, k] - m[i])\noutput s\n",
    ],
)
def test_online_softmax_leaves_other_rows_alone(lines: str) -> None:
    graph = parse(f"input x: FP16[2, 8]\n{lines}")
    assert rw.OnlineSoftmax(block=4).apply(graph) == graph


@pytest.mark.parametrize("shape", SHAPES)
def test_shifted_log_sum_exp(shape: tuple[int, ...]) -> None:
    rule = rw.ShiftedLogSumExp()
    graph = built(g.logsumexp, shape)
    after = rule.apply(graph)
    assert rule.apply(after) == after
    assert len(after.statements) == len(graph.statements) + 2
    for x in rows(shape):
        obligation(rule, graph, x)
        want = np.logaddexp.reduce(x, axis=-1)
        np.testing.assert_allclose(run(after, {"x": x})["out"], want, rtol=1e-10)
    # Where the plain form overflows or vanishes, the shifted one is still right; infinities pass.
    for offset in (2000.0, -2000.0, -np.inf, np.inf):
        x = RNG.normal(size=shape) + offset
        want = np.full(shape[:-1], offset) if np.isinf(offset) else np.logaddexp.reduce(x - offset, axis=-1) + offset
        assert not np.isfinite(run(graph, {"x": x})["out"]).any()
        np.testing.assert_allclose(run(after, {"x": x})["out"], want, rtol=1e-12)


def test_shifted_log_sum_exp_leaves_alone() -> None:
    head = "input x: FP16[2, 8]\n"
    for lines in [
        "s: FP16[i<2] = sum[k<8] exp2(x[i, k])\ny: FP16[i<2] = log2(s[i])\noutput y\noutput s\n",
        "s: FP16[i<2] = sum[k<8] exp2(x[i, k])\ny: FP16[i<2] = log2(s[i]) * s[i]\noutput y\n",
        "s: FP16[i<2] = sum[k<8] x[i, k]\ny: FP16[i<2] = log2(s[i])\noutput y\n",
    ]:
        assert rw.ShiftedLogSumExp().apply(parse(head + lines)) == parse(head + lines)
    for shape in SHAPES:
        graph = built(g.log_softmax, shape)
        assert rw.ShiftedLogSumExp().apply(graph) == graph


@pytest.mark.parametrize("make", [lambda x: g.var(x, -1), g.layernorm, lambda x: g.var(x)])
@pytest.mark.parametrize("shape", SHAPES)
def test_shifted_variance(make: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> None:
    rule = rw.ShiftedVariance()
    graph = built(make, shape)
    after = rule.apply(graph)
    assert rule.apply(after) == after
    assert len(after.statements) == len(graph.statements) + 2
    x = RNG.normal(size=shape)
    for row in (x, x * 300, x + 1000, np.full(shape, -7.0)):
        obligation(rule, graph, row, rtol=1e-8)


def test_shifted_variance_leaves_alone() -> None:
    head = "input x: FP16[2, 8]\nu: FP16[i<2] = sum[k<8] x[i, k]\n"
    for lines in [
        "m: FP16[i<2] = u[i] * 0.25\nv: FP16[i<2] = sum[k<8] (x[i, k] - m[i]) * (x[i, k] - m[i])\noutput v\n",
        "m: FP16[i<2] = u[i] * 0.125\nv: FP16[i<2] = sum[k<8] (x[i, k] - m[1 - i]) * (x[i, k] - m[1 - i])\noutput v\n",
        "m: FP16[i<2] = u[i] * 0.125\nv: FP16[i<2] = sum[k<8] (x[i, k] - m[i]) * (x[i, k] + m[i])\noutput v\n",
        "m: FP16[i<2] = u[i] * 0.125\nv: FP16[i<2] = sum[k<8] (x[i, 7 - k] - m[i]) * (x[i, 7 - k] - m[i])\noutput v\n",
    ]:
        assert rw.ShiftedVariance().apply(parse(head + lines)) == parse(head + lines)


def test_attention_goes_online() -> None:
    builder = g.Builder()
    q, k, v = (builder.input(n, (2, 8, 4), FP32) for n in "qkv")
    graph = builder.graph(out=g.attention(q, k, v, causal=True))
    after = (rw.TIDY + rw.OnlineSoftmax(block=4) + rw.DeadCode()).apply(graph)
    assert any(s.name == "block_top" for s in after.statements)
    given = {n: RNG.normal(size=(2, 8, 4)) for n in "qkv"}
    np.testing.assert_allclose(run(after, given)["out"], run(graph, given)["out"], rtol=1e-12)
