"""Every builder function against numpy, which shares no code with the index maps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph import BOOL, from_json, parse, run, to_json
from kohakuaccel.graph import build as g
from kohakuaccel.graph.build import Builder, Tensor
from kohakuaccel.graph.dtypes import WORDS, DType
from kohakuaccel.numerics import BF16, E8M15, FP16, FP32, INT8, INT16, INT32

Array = NDArray[Any]
RNG = np.random.default_rng(4)


def compute(make: Callable[..., Tensor], *arrays: Array, dtype: DType = FP32) -> Array:
    """What a function gives for arrays (bool, int and real ones), after a round trip through both file forms."""
    builder = Builder()
    kinds: dict[str, DType] = {"b": BOOL, "i": INT32, "f": dtype}
    handles = [builder.input(f"x{n}", a.shape, kinds[a.dtype.kind]) for n, a in enumerate(arrays)]
    made = make(*handles)
    graph = builder.graph(out=made)
    assert parse(str(graph)) == graph
    assert from_json(to_json(graph)) == graph
    result = run(graph, {h.name: a for h, a in zip(handles, arrays)})["out"]
    assert result.shape == made.shape
    return result


def check(make: Callable[..., Tensor], expected: Callable[..., Any], *arrays: Array) -> None:
    got, want = compute(make, *arrays), np.asarray(expected(*arrays))
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12)


def normal(*shape: int) -> Array:
    return np.asarray(RNG.normal(size=shape))


SHAPES = [((4, 5), (4, 5)), ((4, 5), (5,)), ((3, 1, 5), (4, 1)), ((), (2, 3)), ((1,), (1, 1))]


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda a, b: a + b, np.add),
        (lambda a, b: a - b, np.subtract),
        (lambda a, b: a * b, np.multiply),
        (lambda a, b: a / b, np.divide),
        (g.maximum, np.maximum),
        (g.minimum, np.minimum),
        (g.less, np.less),
        (g.equal, np.equal),
    ],
)
def test_binary(make: Callable[..., Tensor], expected: Callable[..., Any], shapes: tuple[Any, Any]) -> None:
    check(make, expected, *(normal(*s) for s in shapes))


def test_scalars_take_the_kind_of_what_they_meet() -> None:
    check(lambda a: 2 - a * 3 + 1, lambda a: 2 - a * 3 + 1, normal(3))
    check(lambda a: 2 - a * 3 + 1, lambda a: 2 - a * 3 + 1, np.arange(5))
    check(lambda a: 1 / -a, lambda a: 1 / -a, normal(3))
    with pytest.raises(Refusal, match="kind of what it meets"):
        compute(lambda a: a + 0.5, np.arange(3))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (g.exp, np.exp),
        (g.exp2, np.exp2),
        (g.sin, np.sin),
        (g.floor, np.floor),
        (g.absolute, np.abs),
        (g.recip, lambda x: 1 / x),
        (g.relu, lambda x: np.maximum(x, 0)),
        (g.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
        (g.silu, lambda x: x / (1 + np.exp(-x))),
        (g.tanh, np.tanh),
        (g.softplus, lambda x: np.log1p(np.exp(x))),
        (g.gelu, lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
        (lambda x: g.sqrt(g.absolute(x)), lambda x: np.sqrt(np.abs(x))),
        (lambda x: g.rsqrt(g.absolute(x)), lambda x: 1 / np.sqrt(np.abs(x))),
        (lambda x: g.log(g.absolute(x)), lambda x: np.log(np.abs(x))),
        (lambda x: g.log2(g.absolute(x)), lambda x: np.log2(np.abs(x))),
        (lambda x: g.unary("neg", x), np.negative),
        (lambda x: g.cast(x, INT32), np.trunc),
        (lambda x: g.cast(x, BOOL), lambda x: x != 0),
    ],
)
@pytest.mark.parametrize("shape", [(), (7,), (3, 2, 4)])
def test_unary(make: Callable[..., Tensor], expected: Callable[..., Any], shape: tuple[int, ...]) -> None:
    check(make, expected, normal(*shape) * 3)


def test_where_and_masks() -> None:
    c, a, b = RNG.random((3, 4)) < 0.5, normal(4), normal(3, 1)
    check(g.where, np.where, c, a, b)
    check(lambda c, a: g.where(c, a, 2), lambda c, a: np.where(c, a, 2), c, a)
    check(lambda c, a: g.where(c, 2, a), lambda c, a: np.where(c, 2, a), c, a)
    check(lambda c: g.where(c, 2, 3), lambda c: np.where(c, 2, 3), c)
    check(lambda c: g.where(c, 2.5, 3), lambda c: np.where(c, 2.5, 3), c)
    check(g.inverse, np.logical_not, c)
    check(lambda c: g.max_(c, 1), lambda c: c.any(1), c)
    check(lambda c: g.min_(c, 0), lambda c: c.all(0), c)
    check(lambda c: g.sum_(c), np.sum, c)


@pytest.mark.parametrize("axes", [None, 0, -1, (0, 2), (1,), ()])
@pytest.mark.parametrize("keep", [False, True])
def test_reductions(axes: int | Sequence[int] | None, keep: bool) -> None:
    x = normal(3, 4, 5)
    at: Any = axes if axes is None or isinstance(axes, int) else tuple(axes)
    check(lambda x: g.sum_(x, axes, keep), lambda x: x.sum(at, keepdims=keep), x)
    check(lambda x: g.max_(x, axes, keep), lambda x: x.max(at, keepdims=keep), x)
    check(lambda x: g.min_(x, axes, keep), lambda x: x.min(at, keepdims=keep), x)
    check(lambda x: g.prod(x, axes, keep), lambda x: x.prod(at, keepdims=keep), x)
    check(lambda x: g.mean(x, axes, keep), lambda x: x.mean(at, keepdims=keep), x)
    check(lambda x: g.var(x, axes, keep), lambda x: x.var(at, keepdims=keep), x)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_places_running_sums_and_softmax(axis: int) -> None:
    x = normal(4, 5, 6)
    ties = RNG.integers(0, 3, (4, 5, 6))
    for a in (x, ties):
        check(lambda a: g.argmax(a, axis), lambda a: a.argmax(axis), a)
        check(lambda a: g.argmin(a, axis, keep=True), lambda a: a.argmin(axis, keepdims=True), a)
        check(lambda a: g.cumsum(a, axis), lambda a: a.cumsum(axis), a)
        check(lambda a: g.cumsum(a, axis, reverse=True), lambda a: np.flip(np.flip(a, axis).cumsum(axis), axis), a)
    e = np.exp(x) / np.exp(x).sum(axis, keepdims=True)
    check(lambda x: g.softmax(x, axis), lambda x: e, x)
    check(lambda x: g.log_softmax(x, axis), lambda x: np.log(e), x)
    check(lambda x: g.logsumexp(x, axis), lambda x: np.log(np.exp(x).sum(axis)), x)


def test_a_nan_is_the_place() -> None:
    x = np.array([1.0, np.nan, 3.0, np.nan])
    assert compute(lambda x: g.argmax(x, 0), x) == 1
    assert compute(lambda x: g.argmin(x, 0), x) == 1


@pytest.mark.parametrize("shape", [(6,), (3, 8), (2, 3, 4)])
def test_norms(shape: tuple[int, ...]) -> None:
    x, w, b = normal(*shape), normal(shape[-1]), normal(shape[-1])

    def plain(x: Array) -> Array:
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)

    check(g.layernorm, lambda x, w, b: plain(x) * w + b, x, w, b)
    check(lambda x: g.layernorm(x), plain, x)
    check(g.rmsnorm, lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w, x, w)


@pytest.mark.parametrize(("shape", "groups"), [((2, 6, 3, 4), 3), ((1, 4, 5), 1), ((3, 4), 4)])
def test_group_norm(shape: tuple[int, ...], groups: int) -> None:
    x, w, b = normal(*shape), normal(shape[1]), normal(shape[1])

    def expected(x: Array, w: Array, b: Array) -> Array:
        rows = x.reshape(shape[0], groups, -1)
        rows = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-5)
        column = (-1, *(1 for _ in shape[2:]))
        return rows.reshape(shape) * w.reshape(column) + b.reshape(column)

    check(lambda x, w, b: g.groupnorm(x, groups, w, b), expected, x, w, b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 5)),
        ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 1)),
        ((5, 1, 3, 4), (2, 4, 6)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((4,), (2, 4, 3)),
        ((2, 3, 4), (4,)),
    ],
)
def test_matmul(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    check(lambda a, b: a @ b, np.matmul, normal(*a), normal(*b))


def test_linear() -> None:
    check(g.linear, lambda x, w, b: x @ w.T + b, normal(2, 3, 8), normal(5, 8), normal(5))
    check(g.linear, lambda x, w: x @ w.T, normal(8), normal(5, 8))


def convolved(x: Array, w: Array, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """Loops over output places, windows by slicing."""
    (sy, sx), (py, px), (dy, dx) = (p if isinstance(p, tuple) else (p, p) for p in (stride, padding, dilation))
    x = np.pad(x, ((0, 0), (0, 0), (py, py), (px, px)))
    filters, channels, kh, kw = w.shape
    spans = (kh - 1) * dy + 1, (kw - 1) * dx + 1
    h, v = (x.shape[2] - spans[0]) // sy + 1, (x.shape[3] - spans[1]) // sx + 1
    out = np.zeros((x.shape[0], filters, h, v))
    for f in range(filters):
        part = x[:, f // (filters // groups) * channels :][:, :channels]
        for i in range(h):
            for j in range(v):
                window = part[:, :, i * sy : i * sy + spans[0] : dy, j * sx : j * sx + spans[1] : dx]
                out[:, f, i, j] = (window * w[f]).sum((1, 2, 3))
    return out


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((2, 3, 7, 6), (4, 3, 3, 3), {}),
        ((1, 4, 8, 8), (4, 4, 1, 1), {}),
        ((2, 4, 9, 7), (6, 2, 3, 2), {"stride": 2, "padding": 1, "groups": 2}),
        ((1, 3, 9, 9), (3, 1, 3, 3), {"padding": (2, 1), "dilation": 2, "groups": 3}),
        ((1, 2, 5, 9), (2, 2, 5, 3), {"stride": (1, 3), "padding": (0, 2), "dilation": (1, 2)}),
    ],
)
def test_conv2d(x: tuple[int, ...], w: tuple[int, ...], options: dict[str, Any]) -> None:
    full = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1} | options

    def expected(x: Array, w: Array, b: Array) -> Array:
        return convolved(x, w, **full) + b.reshape(-1, 1, 1)

    check(lambda x, w, b: g.conv2d(x, w, b, **options), expected, normal(*x), normal(*w), normal(w[0]))


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, None, 0), (3, 2, 1), ((2, 3), (1, 2), (1, 0))])
def test_pooling(kernel: Any, stride: Any, padding: Any) -> None:
    x = normal(2, 3, 7, 8)
    (kh, kw), (py, px) = (p if isinstance(p, tuple) else (p, p) for p in (kernel, padding))
    sy, sx = (kh, kw) if stride is None else stride if isinstance(stride, tuple) else (stride, stride)

    def windows(x: Array, fill: float) -> Array:
        x = np.pad(x, ((0, 0), (0, 0), (py, py), (px, px)), constant_values=fill)
        return np.lib.stride_tricks.sliding_window_view(x, (kh, kw), axis=(2, 3))[:, :, ::sy, ::sx]

    check(lambda x: g.max_pool2d(x, kernel, stride, padding), lambda x: windows(x, -np.inf).max((-1, -2)), x)
    check(lambda x: g.avg_pool2d(x, kernel, stride, padding), lambda x: windows(x, 0).mean((-1, -2)), x)
    check(
        lambda x: g.avg_pool2d(x, kernel, stride, padding, count_padding=False),
        lambda x: np.nanmean(windows(x, np.nan), (-1, -2)),
        x,
    )


def test_max_pool_of_integers_and_dilated() -> None:
    check(lambda x: g.max_pool2d(x, 2, 1, 1), pooled, -np.arange(9).reshape(3, 3))
    x = normal(1, 1, 6, 6)
    check(
        lambda x: g.max_pool2d(x, 2, 1, dilation=2),
        lambda x: np.maximum.reduce([x[..., i : i + 4, j : j + 4] for i in (0, 2) for j in (0, 2)]),
        x,
    )


def pooled(x: Array) -> Array:
    x = np.pad(x, 1, constant_values=-(10**6))
    return np.maximum.reduce([x[i : i + 4, j : j + 4] for i in (0, 1) for j in (0, 1)])


def test_movement() -> None:
    x = normal(2, 3, 4)
    check(lambda x: g.permute(x, (2, 0, 1)), lambda x: x.transpose(2, 0, 1), x)
    check(lambda x: g.transpose(x), lambda x: x.swapaxes(1, 2), x)
    for shape in [(24,), (6, 4), (4, 6), (2, 12), (8, 3), (1, 24, 1), (3, 2, 2, 2), (4, 3, 2)]:
        check(lambda x, s=shape: g.reshape(x, s), lambda x, s=shape: x.reshape(s), x)
    check(lambda x: g.reshape(x, (4, -1)), lambda x: x.reshape(4, -1), x)
    check(lambda x: g.expand(x, (5, 2, 3)), lambda x: np.broadcast_to(x, (5, 2, 3)), normal(2, 1))
    check(lambda x: g.flip(x, (0, 2)), lambda x: np.flip(x, (0, 2)), x)
    for axis, start, stop, step in [(0, 1, None, 1), (1, 0, 2, 1), (2, 0, None, 2), (2, -1, None, -1), (2, 3, 0, -2)]:
        cut: list[Any] = [slice(None)] * 3
        cut[axis] = slice(start, stop, step)
        check(lambda x, a=(axis, start, stop, step): g.slice_(x, *a), lambda x, c=tuple(cut): x[c], x)
    widths = [(1, 0), (0, 2), (2, 2)]
    check(lambda x: g.pad(x, widths, 1.5), lambda x: np.pad(x, widths, constant_values=1.5), x)
    check(lambda x: g.pad(x, [(0, 0), (-1, 0), (0, -2)]), lambda x: x[:, 1:, :-2], x)
    check(lambda x, y: g.concat([x, y, x], 1), lambda x, y: np.concatenate([x, y, x], 1), x, normal(2, 1, 4))
    check(lambda x: g.concat([x], 0), lambda x: x, x)
    check(lambda c, d: g.concat([c, d], 0), lambda c, d: np.concatenate([c, d]), x[0, 0] > 0, x[0, 1] > 0)


def test_gathers() -> None:
    table, ids = normal(7, 3), RNG.integers(0, 7, (2, 4))
    check(g.embedding, lambda t, i: t[i], table, ids)
    check(lambda t, i: g.take(t, i, 1), lambda t, i: t.take(i, 1), table, ids % 3)
    check(lambda t, i: g.gather(t, 0, i), lambda t, i: np.take_along_axis(t, i, 0), table, RNG.integers(0, 7, (5, 3)))
    check(lambda t, i: g.gather(t, 1, i), lambda t, i: np.take_along_axis(t, i, 1), table, RNG.integers(0, 3, (7, 9)))
    check(lambda i: g.one_hot(i, 7), lambda i: np.eye(7)[i], ids)
    check(lambda i: g.one_hot(i, 5, INT8), lambda i: np.eye(7)[i][..., :5], ids)

    def added(base: Array, ids: Array, source: Array) -> Array:
        out = base.copy()
        np.add.at(out, ids, source)
        return out

    check(g.scatter_add, added, table, RNG.integers(0, 7, 9), normal(9, 3))
    check(lambda x: g.arange(x.builder, 5), lambda x: np.arange(5), table)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_attention(causal: bool, lead: tuple[int, ...]) -> None:
    q, k, v = normal(*lead, 4, 8), normal(*lead, 6, 8), normal(*lead, 6, 5)
    seen = RNG.random((4, 6)) < 0.7
    seen[:, 0] = True

    def expected(q: Array, k: Array, v: Array, seen: Array | None = None) -> Array:
        s = q @ k.swapaxes(-1, -2) / math.sqrt(8)
        keep = np.tril(np.ones((4, 6), bool), 2) if causal else np.ones((4, 6), bool)
        s = np.where(keep if seen is None else keep & seen, s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v

    check(lambda q, k, v: g.attention(q, k, v, causal=causal), expected, q, k, v)
    check(lambda q, k, v, m: g.attention(q, k, v, causal=causal, mask=m), expected, q, k, v, seen)
    bias = np.where(seen, 0.0, -np.inf)
    check(
        lambda q, k, v, m: g.attention(q, k, v, causal=causal, mask=m),
        lambda q, k, v, m: expected(q, k, v, m == 0),
        q,
        k,
        v,
        bias,
    )


def test_heads() -> None:
    check(lambda x: g.heads(x, 2), lambda x: x.reshape(3, 5, 2, 4).swapaxes(1, 2), normal(3, 5, 8))


def test_result_formats_follow_exactness() -> None:
    assert g.result_dtype([FP16, E8M15]) == E8M15
    assert g.result_dtype([FP16, BF16]) == FP32
    assert g.result_dtype([INT8, INT16]) == INT16
    assert g.result_dtype([BOOL, BOOL]) == BOOL
    assert INT8.is_exact_from(BOOL)
    assert not BOOL.is_exact_from(INT8)
    with pytest.raises(Refusal, match="Cast one of them"):
        g.result_dtype([FP16, INT8])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x: x + g.Builder().input("y", (3,), FP32), "values of one graph"),
        (lambda x: x.builder.input("x0", (3,), FP32), "a name of its own"),
        (lambda x: x @ x, "inner extents agree"),
        (lambda x: g.sum_(x, 2), "an axis of the value"),
        (lambda x: g.permute(x, (0, 0)), "names every axis once"),
        (lambda x: g.reshape(x, (5,)), "keeps every element"),
        (lambda x: g.reshape(x, (-1, 5)), "keeps every element"),
        (lambda x: g.expand(x, (4, 3)), "shapes broadcast"),
        (lambda x: g.expand(x, (3,)), "expands to the shape"),
        (lambda x: g.slice_(x, 0, 2), "keeps something"),
        (lambda x: g.slice_(x, 0, 0, None, 0), "has a step"),
        (lambda x: g.pad(x, [(1, 1)]), "one pair of widths"),
        (lambda x: g.concat([], 0), "something to concatenate"),
        (lambda x: g.concat([x, g.transpose(x)], 0), "differ in one axis"),
        (lambda x: g.groupnorm(x, 2), "groups divide the channels"),
        (lambda x: g.linear(x, x @ g.transpose(x)), "x\\[..., k\\] and weight"),
        (lambda x: g.conv2d(x, x), "four axes"),
        (lambda x: g.conv2d(g.reshape(x, (1, 2, 3, 1)), g.reshape(x, (1, 3, 2, 1))), "groups cut channels"),
        (lambda x: g.max_pool2d(x, 4), "window fits the padded image"),
        (lambda x: g.matmul(g.sum_(x), x), "matrices or vectors"),
        (lambda x: g.embedding(x, x), "places are integers"),
        (lambda x: g.gather(x, 0, g.arange(x.builder, 2)), "have the value's rank"),
        (lambda x: g.scatter_add(x, g.arange(x.builder, 2), g.sum_(x, 0)), "for ids\\[n\\]"),
        (lambda x: g.heads(x, 2), "heads cut the last axis"),
        (lambda x: g.pointwise(lambda a: a, 1.0), "one operand at least"),
        (lambda x: g.mean(g.cast(x, WORDS["S8"])), "mean: a mean is of reals; got S8"),
        (lambda x: g.var(g.cast(x, INT8)), "mean: a mean is of reals; got INT8"),
        (lambda x: g.avg_pool2d(g.cast(x, WORDS["U8"]), 2), "avg_pool2d: a mean is of reals; got U8. Cast it"),
    ],
)
def test_refusals(make: Callable[[Tensor], Tensor], words: str) -> None:
    with pytest.raises(Refusal, match=words):
        compute(make, normal(2, 3))


def test_run_refuses_what_it_cannot_know_before() -> None:
    builder = Builder()
    t, i = builder.input("t", (4, 2), FP32), builder.input("i", (3,), INT32)
    n = builder.input("n", (3,), INT8)
    graph = builder.graph(g.embedding(t, i), big=n * n, q=g.binary("idiv", n, i))
    good: dict[str, Any] = {"t": np.ones((4, 2)), "i": [1, 2, 3], "n": [1, 2, 3]}
    assert set(run(graph, good)) == {"taken", "big", "q"}
    for change, words in [
        ({"i": [1, 2, 4]}, "gathered index lies in what it promises"),
        ({"i": [1, 2, 0]}, "divisor is not zero"),
        ({"n": [1, 2, 100]}, "statement big|integers lie in INT8.*10000"),
        ({"n": [1, 2, 200]}, "input n: integers lie in INT8"),
        ({"n": [1.0, 2.0, 3.0]}, "holds such numbers"),
        ({"t": np.ones((2, 4))}, "an input has its shape"),
        ({"u": 1}, "inputs are the graph's"),
    ]:
        with pytest.raises(Refusal, match=words):
            run(graph, good | change)
    with pytest.raises(Refusal, match="every input is given"):
        run(graph, {"t": good["t"]})
    with pytest.raises(Refusal, match="becomes an integer is finite"):
        compute(lambda x: g.cast(x, INT32), np.array([np.inf]))


def test_a_large_space_is_computed_in_slices() -> None:
    x = normal(700, 40)
    got = compute(lambda x: g.cumsum(g.reshape(x, (40, 700)), 1), x)
    np.testing.assert_allclose(got, x.reshape(40, 700).cumsum(1), atol=1e-10)
