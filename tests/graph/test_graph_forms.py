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
from kohakuaccel.graph.structure import as_contraction
from kohakuaccel.numerics import FP16, FP32

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


@pytest.mark.slow
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


def attention(causal: bool, n: int = 8) -> tuple[Graph, dict[str, Array]]:
    builder = g.Builder()
    q, k, v = (builder.input(name, (2, n, 4), FP32) for name in "qkv")
    given = {name: np.asarray(RNG.normal(size=(2, n, 4))) * 3 for name in "qkv"}
    return builder.graph(out=g.attention(q, k, v, causal=causal)), given


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("block", [2, 4])
def test_attention_becomes_flash_attention(causal: bool, block: int) -> None:
    graph, given = attention(causal)
    rules = rw.TIDY + rw.ScaleOperand() + rw.DivideLast() + rw.OnlineSoftmax(block=block)
    after = rules.apply(graph)
    want = run(graph, given)["out"]
    np.testing.assert_allclose(run(after, given)["out"], want, rtol=1e-11)
    # Nothing has a whole row of weights any more: what is left over (row, column) are the scores.
    wide = {s.name for s in after.statements if s.shape == (2, 8, 8)}
    assert wide <= {"t_matmul", "scores"}
    parts = [s for s in after.statements if s.name.startswith("block_sum")]
    products = [found for s in parts if (found := as_contraction(s))]
    assert len(parts) == 2
    assert len(products) == 1
    assert [r.extent for r in products[0].k] == [block]
    assert rules.apply(after) == after


def test_divide_last() -> None:
    head = "input a: FP32[2, 3]\ninput s: FP32[2]\ninput v: FP32[3, 4]\n"
    graph = parse(
        head + "p: FP32[i<2, k<3] = a[i, k] / s[i]\nout: FP32[i<2, j<4] = sum[k<3] p[i, k] * v[k, j]\noutput out\n"
    )
    after = (rw.DivideLast() + rw.DeadCode()).apply(graph)
    assert str(after) == head + (
        "weighted: FP32[i<2, j<4] = sum[k<3] a[i, k] * v[k, j]\n"
        "out: FP32[i<2, j<4] = weighted[i, j] / s[i]\noutput out\n"
    )
    given = {"a": RNG.normal(size=(2, 3)), "s": RNG.normal(size=2), "v": RNG.normal(size=(3, 4))}
    np.testing.assert_allclose(run(after, given)["out"], run(graph, given)["out"], rtol=1e-12)
    for body in ["a[i, k] / v[k, 0]", "a[i, k] * s[i]"]:
        other = parse(head + f"out: FP32[i<2, j<4] = sum[k<3] {body} * v[k, j]\noutput out\n")
        assert rw.DivideLast().apply(other) == other


def test_scale_operand() -> None:
    head = "input q: FP16[2, 3]\ninput x: FP16[4, 3]\ns: FP16[i<2, j<4] = sum[k<3] q[i, k] * x[j, k]\n"
    graph = parse(head + "y: FP16[i<2, j<4] = exp2(s[i, j] * 0.3)\nz: FP16[j<4] = s[0, j] * 0.3\noutput y\noutput z\n")
    after = rw.ScaleOperand().apply(graph)
    assert str(after.statement("s").body) == "q[i, k] * 0.3 * x[j, k]"
    assert str(after.statement("y").body) == "exp2(s[i, j])"
    given = {"q": RNG.normal(size=(2, 3)), "x": RNG.normal(size=(4, 3))}
    for label in "yz":
        np.testing.assert_allclose(run(after, given)[label], run(graph, given)[label], rtol=1e-12)
    assert rw.ScaleOperand(exact=True).apply(graph) == graph
    halved = parse(head + "y: FP16[i<2, j<4] = s[i, j] * -0.5\noutput y\n")
    assert rw.ScaleOperand(exact=True).apply(halved) != halved
    for lines in [
        "y: FP16[i<2, j<4] = s[i, j] * 0.3\nz: FP16[j<4] = s[0, j] * 0.4\noutput y\noutput z\n",
        "y: FP16[i<2, j<4] = s[i, j] * 0.3 + s[i, j]\noutput y\n",
        "y: FP16[i<2, j<4] = s[i, j] * 0.3\noutput y\noutput s\n",
    ]:
        assert rw.ScaleOperand().apply(parse(head + lines)) == parse(head + lines)


def test_a_chain_of_scaled_products_keeps_its_factors() -> None:
    head = "input q: FP16[2, 2]\ns: FP16[i<2, j<2] = sum[k<2] q[i, k] * q[k, j]\n"
    graph = parse(
        head + "u: FP16[i<2, j<2] = sum[k<2] (s[i, k] * 0.3) * q[k, j]\ny: FP16[i<2, j<2] = u[i, j] * 0.7\noutput y\n"
    )
    given = {"q": RNG.normal(size=(2, 2))}
    after = rw.ScaleOperand().apply(graph)
    np.testing.assert_allclose(run(after, given)["y"], run(graph, given)["y"], rtol=1e-12)


def test_mean_inside() -> None:
    builder = g.Builder()
    x, y = builder.input("x", (3, 300), FP16), builder.input("y", (3, 300), FP32)
    graph = builder.graph(out=g.rmsnorm(x), wide=g.rmsnorm(y))
    rule = rw.MeanInside()
    after = rule.apply(graph)
    assert rule.apply(after) == after
    assert after.statement("t_sum_1") == graph.statement("t_sum_1")  # FP32 holds the sum
    for scale in (1e-3, 1.0, 200.0):
        given = {n: RNG.normal(size=(3, 300)) * scale for n in "xy"}
        for label in ("out", "wide"):
            np.testing.assert_allclose(run(after, given)[label], run(graph, given)[label], rtol=1e-11)
    # What the rule is for: at 200 the plain sum leaves FP16, the new one does not.
    assert (run(graph, given, keep=("t_sum",))["t_sum"] > FP16.max).all()
    assert (run(after, given, keep=("t_sum",))["t_sum"] < FP16.max).all()
