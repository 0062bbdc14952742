"""Rewrites that cut a range into blocks: Welford's variance, running folds, and the tail where blocks do not divide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph import BOOL, Graph, parse, run
from kohakuaccel.graph import build as g
from kohakuaccel.graph import rewrite as rw
from kohakuaccel.graph.build import Tensor
from kohakuaccel.graph.dtypes import DType
from kohakuaccel.graph.model import ReduceOp
from kohakuaccel.graph.structure import as_contraction, as_scan
from kohakuaccel.numerics import FP16, FP32, INT32

Array = NDArray[Any]
RNG = np.random.default_rng(5)


def built(make: Callable[[Tensor], Tensor], shape: tuple[int, ...], dtype: DType = FP32) -> Graph:
    builder = g.Builder()
    return builder.graph(out=make(builder.input("x", shape, dtype)))


def same(before: Graph, after: Graph, x: Array, rtol: float = 1e-10, atol: float = 1e-12) -> None:
    want = run(before, {"x": x})["out"]
    finite = np.isfinite(want)
    for graph in (after, rw.TIDY.apply(after)):
        np.testing.assert_allclose(run(graph, {"x": x})["out"][finite], want[finite], rtol=rtol, atol=atol)


@pytest.mark.parametrize("make", [g.softmax, g.log_softmax, lambda x: g.softmax(x, 0)])
@pytest.mark.parametrize("block", [2, 3, 5, 8])
def test_online_softmax_with_a_short_last_block(make: Callable[[Tensor], Tensor], block: int) -> None:
    graph = built(make, (9, 9))
    rule = rw.OnlineSoftmax(block=block)
    after = rule.apply(graph)
    assert len(after.statements) == len(graph.statements) + 2
    assert rule.apply(after) == after
    x = np.asarray(RNG.normal(size=(9, 9)))
    hidden = np.where(RNG.random((9, 9)) < 0.4, -np.inf, x)
    hidden[3], hidden[:, 3] = 1.5, 1.5
    late = x.copy()
    late[:8], late[:, :8] = -np.inf, -np.inf
    for case in (x, x * 300, hidden, late, np.full((9, 9), -7.0)):
        same(graph, after, case)


def test_a_short_last_block_golden() -> None:
    head = "input x: FP16[2, 7]\n"
    before = head + "m: FP16[i<2] = max[k<7] x[i, k]\ns: FP16[i<2] = sum[k<7] exp2(x[i, k] - m[i])\noutput s\n"
    after = head + (
        "block_top: FP16[i<2, t0<2] = max[t1<4] guard(x[i, 4 * t0 + t1], -inf, 0 <= 4 * t0 + t1 < 7)\n"
        "m: FP16[i<2] = max[t0<2] block_top[i, t0]\n"
        "block_sum: FP16[i<2, t0<2] = sum[t1<4] where(block_top[i, t0] == -inf, 0.0, "
        "exp2((guard(x[i, 4 * t0 + t1], -inf, 0 <= 4 * t0 + t1 < 7) - block_top[i, t0]) * 1.0))\n"
        "s: FP16[i<2] = sum[t0<2] where(block_top[i, t0] == -inf, 0.0, "
        "block_sum[i, t0] * exp2((block_top[i, t0] - m[i]) * 1.0))\noutput s\n"
    )
    assert str(rw.OnlineSoftmax(block=4).apply(parse(before))) == after


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n", [7, 10])
def test_flash_attention_with_a_short_last_block(causal: bool, n: int) -> None:
    builder = g.Builder()
    q, k, v = (builder.input(name, (2, n, 4), FP32) for name in "qkv")
    graph = builder.graph(out=g.attention(q, k, v, causal=causal))
    given = {name: RNG.normal(size=(2, n, 4)) * 3 for name in "qkv"}
    rules = rw.TIDY + rw.ScaleOperand() + rw.DivideLast() + rw.OnlineSoftmax(block=4)
    after = rules.apply(graph)
    np.testing.assert_allclose(run(after, given)["out"], run(graph, given)["out"], rtol=1e-11)
    products = [c for s in after.statements if s.name.startswith("block_sum") and (c := as_contraction(s))]
    assert [[r.extent for r in c.k] for c in products] == [[4]]
    assert rules.apply(after) == after


@pytest.mark.parametrize("make", [lambda x: g.var(x, -1), g.layernorm, lambda x: g.var(x), lambda x: g.var(x, (0, 1))])
@pytest.mark.parametrize("shape", [(8,), (3, 8), (2, 3, 16), (1, 23), (5, 1)])
@pytest.mark.parametrize("block", [3, 4])
def test_welford_variance(make: Callable[[Tensor], Tensor], shape: tuple[int, ...], block: int) -> None:
    if len(shape) == 1:
        make = g.layernorm if make is g.layernorm else lambda x: g.var(x, -1)
    graph, rule = built(make, shape), rw.WelfordVariance(block=block)
    after = rule.apply(graph)
    assert rule.apply(after) == after
    x = np.asarray(RNG.normal(size=shape))
    for row in (x, x * 300, x + 1e6, np.full(shape, -7.0)):
        same(graph, after, row, rtol=1e-9, atol=1e-9)


def test_welford_is_as_accurate_as_two_passes() -> None:
    """Far from zero the shifted form still holds, the textbook form sum(x^2) - sum(x)^2 / n has no digit left."""
    graph = built(lambda x: g.var(x, -1), (4, 1000))
    x = RNG.normal(size=(4, 1000)) + 1e8
    got = run(rw.WelfordVariance(block=64).apply(graph), {"x": x})["out"]
    np.testing.assert_allclose(got, x.var(1), rtol=1e-9)
    assert not np.allclose((x * x).mean(1) - x.mean(1) ** 2, x.var(1), rtol=1e-3)


def test_welford_golden() -> None:
    head = "input x: FP32[2, 10]\n"
    graph = parse(
        head + "u: FP32[i<2] = sum[k<10] x[i, k]\nm: FP32[i<2] = u[i] * 0.1\n"
        "v: FP32[i<2] = sum[k<10] (x[i, k] - m[i]) * (x[i, k] - m[i])\noutput v\n"
    )
    inner = "0 <= 4 * t0 + t1 < 10"
    apart = f"where(iota(4 * t0 + t1) < 10, guard(x[i, 4 * t0 + t1], 0.0, {inner}) - block_mean[i, t0], 0.0)"
    away = "(block_mean[i, t0] - m[i])"
    assert str(rw.WelfordVariance(block=4).apply(graph)) == head + (
        f"block_sum: FP32[i<2, t0<3] = sum[t1<4] guard(x[i, 4 * t0 + t1], 0.0, {inner})\n"
        "u: FP32[i<2] = sum[t0<3] block_sum[i, t0]\nm: FP32[i<2] = u[i] * 0.1\n"
        "block_mean: FP32[i<2, t0<3] = block_sum[i, t0] * where(iota(t0) < 2, 0.25, 0.5)\n"
        f"block_m2: FP32[i<2, t0<3] = sum[t1<4] {apart} * {apart}\n"
        f"v: FP32[i<2] = sum[t0<3] block_m2[i, t0] + {away} * {away} * where(iota(t0) < 2, 4.0, 2.0)\noutput v\n"
    )


@pytest.mark.parametrize("rule", [rw.WelfordVariance(block=4), rw.ShiftedVariance()])
@pytest.mark.parametrize(
    "lines",
    [
        "m: FP16[i<2] = u[i] * 0.25\nv: FP16[i<2] = sum[k<8] (x[i, k] - m[i]) * (x[i, k] - m[i])\noutput v\n",
        "m: FP16[i<2] = u[i] * 0.125\nv: FP16[i<2] = sum[k<8] (x[i, k] - m[1 - i]) * (x[i, k] - m[1 - i])\noutput v\n",
        "m: FP16[i<2] = u[i] * 0.125\nv: FP16[i<2] = sum[k<8] (x[i, 7 - k] - m[i]) * (x[i, 7 - k] - m[i])\noutput v\n",
        "m: FP16[i<2] = u[i] * 0.125\nv: FP16[i<2] = max[k<8] (x[i, k] - m[i]) * (x[i, k] - m[i])\noutput v\n",
        "m: FP16[i<2] = x[i, 0] * 0.125\nv: FP16[i<2] = sum[k<8] (x[i, k] - m[i]) * (x[i, k] - m[i])\noutput v\n",
    ],
)
def test_what_is_no_variance_stays(rule: rw.Rewrite, lines: str) -> None:
    graph = parse(f"input x: FP16[2, 8]\nu: FP16[i<2] = sum[k<8] x[i, k]\n{lines}")
    assert rule.apply(graph) == graph


def test_a_range_that_ends_inside_a_block_is_not_cut_where_a_run_could_refuse_it() -> None:
    """Behind the end a divisor would be the pad, 0."""
    lines = "e: FP32[i<2, k<{n}] = cast(1 // ids[i, k], FP32)\nm: FP32[i<2] = max[k<{n}] cast(1 // ids[i, k], FP32)\n"
    lines += "s: FP32[i<2] = sum[k<{n}] exp2(cast(1 // ids[i, k], FP32) - m[i])\noutput s\n"
    for n, cut in ((7, False), (8, True)):
        graph = parse(f"input ids: INT32[2, {n}]\n" + lines.format(n=n))
        assert (rw.OnlineSoftmax(block=4).apply(graph) != graph) == cut


def test_gathers_and_windows_end_inside_a_block() -> None:
    """What is read at looked-up places, or at places beside the blocks' own, is guarded too."""
    head = "input x: FP32[12]\ninput ids: INT32[7]\n"
    for element in (
        "x[at(ids[k], 5) + k]",
        "x[i + k] * x[6 - k]",
        "x[k // 4]",
        "x[k % 4]",
        "guard(x[k - 2], 3.0, 0 <= k - 2 < 4)",
    ):
        graph = parse(
            head + f"m: FP32[i<2] = max[k<7] {element}\ns: FP32[i<2] = sum[k<7] exp2({element} - m[i])\noutput s\n"
        )
        after = rw.OnlineSoftmax(block=4).apply(graph)
        assert "block_top" in after.by_name
        given = {"x": RNG.normal(size=12), "ids": RNG.integers(0, 5, 7)}
        np.testing.assert_allclose(run(after, given)["s"], run(graph, given)["s"], rtol=1e-12)


NUMPY: dict[ReduceOp, Any] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def folded(how: ReduceOp, x: Array, axis: int, reverse: bool) -> Array:
    if not reverse:
        return NUMPY[how].accumulate(x, axis)
    return np.flip(NUMPY[how].accumulate(np.flip(x, axis), axis), axis)


@pytest.mark.parametrize("how", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((13,), 0), ((3, 16), 1), ((11, 2), 0), ((2, 9, 2), 1), ((1,), 0)])
def test_running_folds_direct_and_by_blocks(how: ReduceOp, reverse: bool, shape: tuple[int, ...], axis: int) -> None:
    x = np.asarray(RNG.normal(size=shape))
    want = folded(how, x, axis, reverse)
    for block in (None, 1, 3, 4, 20):
        graph = built(lambda x, block=block: g.scan(how, x, axis, reverse, block), shape)
        assert len(graph.statements) == (1 if block is None else 4)
        assert parse(str(graph)) == graph
        np.testing.assert_allclose(run(graph, {"x": x})["out"], want, rtol=1e-10)
        same(graph, graph, x)


@pytest.mark.parametrize(
    ("dtype", "how"), [(INT32, "sum"), (INT32, "max"), (INT32, "min"), (BOOL, "max"), (BOOL, "min")]
)
def test_running_folds_of_integers_and_truth_values(dtype: DType, how: ReduceOp) -> None:
    x = RNG.integers(-9, 9, (2, 11)) if dtype == INT32 else RNG.random((2, 11)) < 0.5
    want = NUMPY[how].accumulate(x, 1)
    for block in (None, 4):
        got = run(built(lambda x, b=block: g.scan(how, x, 1, False, b), x.shape, dtype), {"x": x})["out"]
        np.testing.assert_array_equal(got, want)


def test_blocks_of_a_scan_are_chosen_where_they_pay() -> None:
    rule = rw.BlockedScan()
    for extent, statements in ((4, 1), (32, 1), (33, 4), (1000, 4), (1 << 13, 4)):
        graph = built(lambda x: g.cumsum(x, 1), (2, extent))
        after = rule.apply(graph)
        assert len(after.statements) == statements, extent
        assert rule.apply(after) == after
        if extent < 2000:
            same(graph, after, np.asarray(RNG.normal(size=(2, extent))), rtol=1e-9)
    x = np.asarray(RNG.normal(size=(2, 1 << 13)))
    np.testing.assert_allclose(run(after, {"x": x})["out"], x.cumsum(1), rtol=1e-6, atol=1e-9)
    assert len(rw.BlockedScan(above=3).apply(built(lambda x: g.cumsum(x, 1), (2, 1000))).statements) == 7
    assert len(rw.BlockedScan(block=25).apply(built(lambda x: g.cummax(x, 0), (600,))).statements) == 4


def test_blocked_scan_golden() -> None:
    head = "input x: FP32[40]\n"
    graph = parse(head + "y: FP32[i<40] = sum[k<40] where(iota(i) < iota(k), 0.0, x[k])\noutput y\n")
    assert str(rw.BlockedScan(block=8).apply(graph)) == head + (
        "scan_fold: FP32[t0<5] = sum[t2<8] x[8 * t0 + t2]\n"
        "scan_before: FP32[t0<5] = sum[t1<5] where(iota(t1) < iota(t0), scan_fold[t1], 0.0)\n"
        "scan_within: FP32[t0<5, t2<8] = sum[t3<8] where(iota(t2) < iota(t3), 0.0, x[8 * t0 + t3])\n"
        "y: FP32[i<40] = scan_before[i // 8] + scan_within[i // 8, i % 8]\noutput y\n"
    )


@pytest.mark.parametrize(
    "body",
    [
        "sum[k<40] where(iota(i) < iota(k), 1.0, x[k])",
        "sum[k<40] where(iota(i) < iota(k), 0.0, x[i])",
        "sum[k<40] where(iota(i) < iota(k), 0.0, x[k] * x[i])",
        "sum[k<40] where(iota(i + 1) < iota(k), 0.0, x[k])",
        "max[k<40] where(iota(i) < iota(k), 0.0, x[k])",
        "sum[k<20] where(iota(i) < iota(k), 0.0, x[k])",
        "sum[k<40] x[k]",
    ],
)
def test_what_is_no_scan_stays(body: str) -> None:
    graph = parse(f"input x: FP32[40]\ny: FP32[i<40] = {body}\noutput y\n")
    assert as_scan(graph.statement("y")) is None
    assert rw.BlockedScan(block=8).apply(graph) == graph


def test_a_scan_has_a_block() -> None:
    with pytest.raises(Refusal, match="one element at least"):
        built(lambda x: g.cumsum(x, 0, block=0), (4,), FP16)


RULES = [getattr(rw, name) for name in rw.__all__ if isinstance(getattr(rw, name), type)]
RULES = [rule for rule in RULES if issubclass(rule, rw.Rewrite) and rule is not rw.Rewrite]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_rule_shows_its_picture_and_has_a_switch(rule: type[rw.Rewrite]) -> None:
    assert rule.__doc__
    assert "\n    before  " in rule.__doc__
    assert "\n    after   " in rule.__doc__
    builder = g.Builder()
    x = builder.input("x", (3, 200), FP16)
    g.exp(x)  # nobody reads it
    y = g.layernorm(g.transpose(g.transpose(x))) + g.softmax(x) + g.cumsum(x, 1) * g.logsumexp(x, keep=True)
    scores = (x @ g.transpose(x)) * 0.5
    graph = builder.graph(out=g.softmax(scores) @ (y + g.rmsnorm(x)) + g.transpose(g.transpose(g.sin(x))) * 1)
    assert rule(enabled=False).apply(graph) == graph
    after = rule().apply(graph)
    assert after != graph
    tidy = rw.TIDY if rule in {type(r) for r in rw.TIDY.rules} else rw.TIDY + rule()
    seen: list[str] = []
    tidy.without(rule.__name__).apply(graph, lambda r, _: seen.append(r.name))
    assert seen
    assert rule.__name__ not in seen
    given = {"x": RNG.normal(size=(3, 200))}
    np.testing.assert_allclose(run(after, given)["out"], run(graph, given)["out"], rtol=1e-9)
