"""The builder's wider vocabulary against numpy: windows, scatters, padding, masks, Einstein sums, rounding, powers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graph.test_graph_build import Array, check, compute, convolved, normal
from kohakuaccel.diagnostics import KohakuError
from kohakuaccel.graph import BOOL
from kohakuaccel.graph import build as g
from kohakuaccel.graph.build import Builder, Tensor
from kohakuaccel.graph.structure import as_contraction, as_copy
from kohakuaccel.numerics import FP32, INT32

RNG = np.random.default_rng(17)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (g.cos, np.cos),
        (g.ceil, np.ceil),
        (g.trunc, np.trunc),
        (g.round_, np.round),
        (g.sign, np.sign),
        (g.isnan, np.isnan),
        (g.leaky_relu, lambda x: np.where(x < 0, 0.01 * x, x)),
        (lambda x: g.elu(x, 0.5), lambda x: np.where(x < 0, 0.5 * np.expm1(np.minimum(x, 0)), x)),
        (g.hardsigmoid, lambda x: np.clip(x / 6 + 0.5, 0, 1)),
        (g.hardswish, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
        (lambda x: g.clamp(x, -1, 2), lambda x: np.clip(x, -1, 2)),
        (lambda x: g.clamp(x, low=0.5), lambda x: np.maximum(x, 0.5)),
        (lambda x: g.clamp(x, high=0.5), lambda x: np.minimum(x, 0.5)),
        (lambda x: g.power(x, 3), lambda x: x**3),
        (lambda x: g.power(x, 0), np.ones_like),
        (lambda x: g.power(x, 16), lambda x: x**16),
        (lambda x: g.power(x, -2), lambda x: x**-2.0),
        (lambda x: g.power(g.absolute(x), 0.5), lambda x: np.sqrt(np.abs(x))),
        (lambda x: g.power(g.absolute(x), -0.5), lambda x: 1 / np.sqrt(np.abs(x))),
        (lambda x: g.power(g.absolute(x), 1.7), lambda x: np.abs(x) ** 1.7),
        (lambda x: g.power(g.absolute(x), x), lambda x: np.abs(x) ** x),
    ],
)
def test_elementwise(make: Callable[..., Tensor], expected: Callable[..., Any]) -> None:
    check(make, expected, np.concatenate([normal(40) * 3, [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 7.0, -3.0]]))


def test_the_error_function() -> None:
    """Against the library's, within the bound of the formula."""
    x = np.concatenate([np.linspace(-6, 6, 4001), [0.0, -0.0, 1e-9]])
    want = np.array([math.erf(v) for v in x])
    assert np.abs(compute(g.erf, x) - want).max() < 1.5e-7
    exact = x / 2 * (1 + np.array([math.erf(v / math.sqrt(2)) for v in x]))
    assert np.abs(compute(lambda x: g.gelu(x, exact=True), x) - exact).max() < 5e-7
    assert np.abs(compute(g.gelu, x) - exact).max() > 1e-4  # the other form is another function


def test_comparisons_and_logic() -> None:
    a, b = RNG.integers(0, 3, (4, 5)).astype(float), RNG.integers(0, 3, 5).astype(float)
    a[0, 0] = np.nan
    for make, expected in [
        (g.not_equal, np.not_equal),
        (g.greater, np.greater),
        (g.less_equal, np.less_equal),
        (g.greater_equal, np.greater_equal),
    ]:
        check(make, expected, a, b)
    p, q = a < 1, b > 0
    check(g.logical_and, np.logical_and, p, q)
    check(g.logical_or, np.logical_or, p, q)
    for axes in (None, 0, 1):
        check(lambda x, axes=axes: g.any_(x, axes), lambda x, axes=axes: x.any(axes), p)
        check(lambda x, axes=axes: g.all_(x, axes, keep=True), lambda x, axes=axes: x.all(axes, keepdims=True), a)
    check(g.sign, np.sign, RNG.integers(-2, 3, 9))


@pytest.mark.parametrize("axes", [None, 0, (0, 2), -1])
@pytest.mark.parametrize("correction", [0, 1])
def test_spread(axes: Any, correction: int) -> None:
    x = normal(3, 4, 5)
    check(lambda x: g.var(x, axes, correction=correction), lambda x: x.var(axes, ddof=correction), x)
    check(lambda x: g.std(x, axes, True, correction), lambda x: x.std(axes, ddof=correction, keepdims=True), x)


def test_places_of_the_flat_value() -> None:
    x = RNG.integers(0, 9, (3, 4, 5))
    check(g.argmax, np.argmax, x)
    check(lambda x: g.argmin(x, keep=True), lambda x: x.argmin(keepdims=True), x)


def test_norms_over_several_axes_and_batches() -> None:
    x, w, b = normal(4, 3, 5, 6), normal(5, 6), normal(5, 6)

    def plain(x: Array, axes: tuple[int, ...]) -> Array:
        return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)

    check(lambda x, w, b: g.layernorm(x, w, b, axes=2), lambda x, w, b: plain(x, (2, 3)) * w + b, x, w, b)
    mean, var, w, b = normal(3), np.abs(normal(3)), normal(3), normal(3)
    column = (3, 1, 1)

    def given(x: Array, mean: Array, var: Array, w: Array, b: Array) -> Array:
        flat = (x - mean.reshape(column)) / np.sqrt(var.reshape(column) + 1e-5)
        return flat * w.reshape(column) + b.reshape(column)

    check(g.batchnorm, given, x, mean, var, w, b)
    check(lambda x, w: g.batchnorm(x, weight=w), lambda x, w: plain(x, (0, 2, 3)) * w.reshape(column), x, w)


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((2, 3, 9), (4, 3, 3), {}),
        ((1, 4, 10), (6, 2, 3), {"stride": 2, "padding": 1, "dilation": 2, "groups": 2}),
    ],
)
def test_conv1d(x: tuple[int, ...], w: tuple[int, ...], options: dict[str, Any]) -> None:
    full = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1} | options
    pairs = {"stride": (1, full["stride"]), "padding": (0, full["padding"]), "dilation": (1, full["dilation"])}

    def expected(x: Array, w: Array, b: Array) -> Array:
        return convolved(x[:, :, None], w[:, :, None], **pairs, groups=full["groups"])[:, :, 0] + b[:, None]

    check(lambda x, w, b: g.conv1d(x, w, b, **options), expected, normal(*x), normal(*w), normal(w[0]))


def test_conv3d_is_a_sum_of_images() -> None:
    x, w = normal(1, 2, 4, 5, 6), normal(3, 2, 2, 3, 3)

    def expected(x: Array, w: Array) -> Array:
        layers = [sum(convolved(x[:, :, z + k], w[:, :, k], 1, 1, 1, 1) for k in range(2)) for z in range(3)]
        return np.stack(layers, 2)

    check(lambda x, w: g.conv(x, w, padding=(0, 1, 1)), expected, x, w)


def spread_out(x: Array, w: Array, stride: Any, padding: Any, more: Any, dilation: Any, groups: int) -> Array:
    """The scatter that defines a transposed convolution, one source element at a time."""
    s, p, o, d = ((v, v) if isinstance(v, int) else v for v in (stride, padding, more, dilation))
    kh, kw = w.shape[2:]
    size = [(n - 1) * s[i] + d[i] * (k - 1) + 1 for i, (n, k) in enumerate(zip(x.shape[2:], (kh, kw)))]
    out = np.zeros((x.shape[0], w.shape[1] * groups, size[0] + o[0], size[1] + o[1]))
    per = x.shape[1] // groups
    for c, i, j in itertools.product(range(x.shape[1]), range(x.shape[2]), range(x.shape[3])):
        first = c // per * w.shape[1]
        window = out[:, first : first + w.shape[1], i * s[0] :, j * s[1] :]
        window[:, :, : d[0] * (kh - 1) + 1 : d[0], : d[1] * (kw - 1) + 1 : d[1]] += (
            x[:, c, i, j, None, None, None] * w[c]
        )
    return out[:, :, p[0] : out.shape[2] - p[0], p[1] : out.shape[3] - p[1]]


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((2, 3, 4, 5), (3, 4, 3, 2), {}),
        ((1, 2, 4, 4), (2, 3, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
        ((1, 4, 3, 5), (4, 2, 2, 3), {"stride": (3, 1), "groups": 2, "dilation": (1, 2)}),
        ((2, 2, 3, 3), (2, 1, 4, 4), {"stride": 2, "padding": (1, 2), "groups": 2}),
    ],
)
def test_transposed_convolution(x: tuple[int, ...], w: tuple[int, ...], options: dict[str, Any]) -> None:
    full = {"stride": 1, "padding": 0, "output_padding": 0, "dilation": 1, "groups": 1} | options
    names = ("stride", "padding", "output_padding", "dilation", "groups")

    def expected(x: Array, w: Array, b: Array) -> Array:
        return spread_out(x, w, *(full[n] for n in names)) + b.reshape(-1, 1, 1)

    bias = normal(w[1] * full["groups"])
    check(lambda x, w, b: g.conv_transpose(x, w, b, **options), expected, normal(*x), normal(*w), bias)


def test_convolutions_are_contractions() -> None:
    builder = Builder()
    x, w = builder.input("x", (1, 4, 6, 6), FP32), builder.input("w", (4, 2, 3, 3), FP32)
    graph = builder.graph(a=g.conv2d(x, w, groups=2), b=g.conv_transpose(x, w, stride=2))
    kinds = [as_contraction(s) for s in graph.statements]
    assert [c and [r.name for r in c.k] for c in kinds if c] == [["c", "ky", "kx"], ["c", "ky", "kx"]]


def test_scatters() -> None:
    base, source = normal(6, 4), normal(5, 4)
    places = RNG.integers(0, 6, (5, 4))

    def put(base: Array, places: Array, source: Array, what: Callable[[Any, Any], Any], axis: int) -> Array:
        out = base.copy()
        for at in np.ndindex(*places.shape):
            to = list(at)
            to[axis] = int(places[at])
            if 0 <= to[axis] < base.shape[axis]:
                out[tuple(to)] = what(out[tuple(to)], source[at])
        return out

    ways: list[tuple[Any, Callable[[Any, Any], Any]]] = [
        ("sum", lambda a, b: a + b),
        ("prod", lambda a, b: a * b),
        ("max", max),
        ("min", min),
    ]
    for axis in (0, 1):
        for wild in (places % base.shape[axis], places - 1, places[:3, :2] % base.shape[axis]):
            for how, what in ways:
                check(
                    lambda b, p, s, how=how, axis=axis: g.scatter_reduce(b, axis, p, s, how),
                    lambda b, p, s, what=what, axis=axis: put(b, p, s, what, axis),
                    base,
                    wild,
                    source,
                )
            check(
                lambda b, p, s, axis=axis: g.scatter(b, axis, p, s),
                lambda b, p, s, axis=axis: put(b, p, s, lambda _, x: x, axis),
                base,
                wild,
                source,
            )
    check(
        lambda b, i, s: g.scatter_add(b, i, s, axis=1),
        lambda b, i, s: put(b, np.broadcast_to(i, s.shape), s, lambda a, x: a + x, 1),
        base,
        RNG.integers(0, 4, 5),
        normal(6, 5),
    )


def test_axes_of_one_stacks_and_splits() -> None:
    x = normal(2, 3, 4)
    for axis in (0, 1, -1, 3):
        check(lambda x, a=axis: g.unsqueeze(x, a), lambda x, a=axis: np.expand_dims(x, a), x)
    check(g.squeeze, np.squeeze, normal(1, 3, 1))
    check(lambda x: g.squeeze(x, -1), lambda x: x.squeeze(-1), normal(1, 3, 1))
    check(g.flatten, np.ravel, x)
    check(lambda x: g.flatten(x, 1), lambda x: x.reshape(2, 12), x)
    check(lambda x: g.flatten(x), lambda x: x.reshape(1), normal())
    for axis in (0, 2, -1):
        check(lambda x, y, a=axis: g.stack([x, y], a), lambda x, y, a=axis: np.stack([x, y], a), x, normal(2, 3, 4))
    for n in range(3):
        check(lambda x, n=n: g.split(x, [1, 2, 1], 2)[n], lambda x, n=n: np.split(x, [1, 3], 2)[n], x)
    check(lambda x: g.split(x, 3, 2)[1], lambda x: x[:, :, 3:], x)


def test_rolls_repeats_and_sizes() -> None:
    x = normal(2, 3, 5)
    for shift, axis in [(1, 0), (2, 2), (-7, -1), (0, 1)]:
        check(lambda x, s=shift, a=axis: g.roll(x, s, a), lambda x, s=shift, a=axis: np.roll(x, s, a), x)
    for times in [(1, 2, 3), (2, 1, 1, 2)]:
        check(lambda x, t=times: g.repeat(x, t), lambda x, t=times: np.tile(x, t), x)
    check(lambda x: g.repeat_interleave(x, 3, 1), lambda x: x.repeat(3, 1), x)
    for size in [(7,), (6, 10), (2, 3), (1, 1, 1)]:

        def expected(x: Array, size: tuple[int, ...] = size) -> Array:
            for axis, n in zip(range(3 - len(size), 3), size):
                x = x.take(np.arange(n) * x.shape[axis] // n, axis)
            return x

        check(lambda x, s=size: g.interpolate_nearest(x, s), expected, x)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("widths", [[(0, 0), (2, 1)], [(1, 2), (0, 3)], [(2, 2), (3, 3)], [(0, 2), (1, 0)]])
def test_padding_modes(mode: Any, widths: list[tuple[int, int]]) -> None:
    names: dict[str, Any] = {"replicate": "edge", "circular": "wrap"}
    check(lambda x: g.pad_mode(x, widths, mode), lambda x: np.pad(x, widths, names.get(mode, mode)), normal(3, 4))


@pytest.mark.parametrize("diagonal", [-2, 0, 1])
def test_triangles(diagonal: int) -> None:
    for x in (normal(3, 4), normal(2, 5, 3), RNG.integers(1, 9, (4, 4))):
        check(lambda x: g.tril(x, diagonal), lambda x: np.tril(x, diagonal), x)
        check(lambda x: g.triu(x, diagonal), lambda x: np.triu(x, diagonal), x)
    mask = np.tri(3, 5, diagonal, dtype=bool)
    check(lambda x: g.tril_mask(x.builder, 3, 5, diagonal), lambda x: mask, normal(1))


@pytest.mark.parametrize(
    ("formula", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("bik,bjk->bij", [(2, 3, 4), (2, 5, 4)]),
        ("bhid, bhjd -> bhij", [(2, 2, 3, 4), (2, 2, 5, 4)]),
        ("ij->ji", [(3, 4)]),
        ("ij->", [(3, 4)]),
        ("ii->i", [(4, 4)]),
        ("ii", [(4, 4)]),
        ("ba", [(3, 4)]),
        ("i,j->ij", [(3,), (4,)]),
        ("ij,j,ik->k", [(3, 4), (4,), (3, 5)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (4, 5)]),
        ("...i,...i", [(2, 1, 4), (3, 4)]),
        ("i...->...", [(3, 2, 2)]),
        ("ij,jk", [(3, 4), (4, 5)]),
    ],
)
def test_einstein_sums(formula: str, shapes: list[tuple[int, ...]]) -> None:
    check(lambda *ts: g.einsum(formula, *ts), lambda *xs: np.einsum(formula, *xs), *(normal(*s) for s in shapes))


def test_an_einstein_sum_is_seen_for_what_it_is() -> None:
    builder = Builder()
    a, b = builder.input("a", (2, 3, 4), FP32), builder.input("b", (2, 5, 4), FP32)
    graph = builder.graph(c=g.einsum("bik,bjk->bij", a, b), p=g.einsum("bik->kbi", a))
    product, copy = graph.statements
    found = as_contraction(product)
    assert found
    assert found.plain
    assert [[r.name for r in group] for group in (found.batch, found.m, found.n, found.k)] == [
        ["b"],
        ["i"],
        ["j"],
        ["k"],
    ]
    moved = as_copy(copy, (2, 3, 4))
    assert moved
    assert moved.permutation == (2, 0, 1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x: g.conv1d(x, x), "x and weight have three axes"),
        (lambda x: g.conv(g.reshape(x, (1, 2, 3)), g.reshape(x, (2, 3, 1))), "groups cut channels"),
        (lambda x: g.conv(g.reshape(x, (1, 2, 3)), g.reshape(x, (1, 2, 3)), stride=(1, 1)), "one number an axis"),
        (lambda x: g.conv_transpose(g.reshape(x, (1, 2, 3)), g.reshape(x, (2, 1, 3)), padding=9), "leaves an image"),
        (
            lambda x: g.conv_transpose(g.reshape(x, (1, 2, 3)), g.reshape(x, (2, 1, 3)), output_padding=1),
            "leaves an image",
        ),
        (lambda x: g.squeeze(x, 0), "an axis that goes has extent 1"),
        (lambda x: g.split(x, [1, 1], 1)[0], "pieces make up the axis"),
        (lambda x: g.split(x, 0, 1)[0], "pieces make up the axis"),
        (lambda x: g.repeat(x, (2,)), "a positive number for every axis"),
        (lambda x: g.repeat_interleave(x, 0, 0), "elements are repeated"),
        (lambda x: g.interpolate_nearest(x, (1, 2, 3)), "extents for the last axes"),
        (lambda x: g.pad_mode(x, [(0, 0)], "reflect"), "one pair of widths an axis"),
        (lambda x: g.pad_mode(x, [(0, 0), (3, 0)], "reflect"), "made of what is there"),
        (lambda x: g.pad_mode(x, [(0, 0), (-1, 0)], "replicate"), "made of what is there"),
        (lambda x: g.pad_mode(x, [(0, 0), (1, 0)], "mirror"), "a mode of padding"),  # pyright: ignore[reportArgumentType] - refused
        (lambda x: g.tril(g.sum_(x)), "a triangle has two axes"),
        (lambda x: g.var(x, 0, correction=2), "more elements than its correction"),
        (lambda x: g.batchnorm(x, mean=x), "a mean with a variance"),
        (lambda x: g.scatter(x, 0, x, x), "places are integers"),
        (lambda x: g.scatter(x, 0, g.cast(g.transpose(x), INT32), x), "places fit the source"),
        (lambda x: g.scatter_reduce(x, 0, g.cast(x, INT32), g.cast(x, INT32)), "both of one kind"),
        (lambda x: g.einsum("ij,jk->ik", x), "one list of axes for every operand"),
        (lambda x: g.einsum("i->i", x), "a letter for every axis"),
        (lambda x: g.einsum("ij->k", x), "names axes of the operands"),
        (lambda x: g.einsum("ij->ii", x), "names axes of the operands"),
        (lambda x: g.einsum("i.->i", x), "axes are letters"),
        (lambda x: g.einsum("ij,ji->ij", x, x), "an axis has one extent"),
        (lambda x: g.logical_and(x, x), "and takes bool or int"),
    ],
)
def test_refusals(make: Callable[[Tensor], Tensor], words: str) -> None:
    with pytest.raises(KohakuError, match=words):
        compute(make, normal(2, 3))


def test_masks_of_every_kind_keep_their_kind() -> None:
    builder = Builder()
    x = builder.input("x", (3, 3), BOOL)
    assert g.tril(x).dtype == BOOL
    assert g.scatter(x, 0, g.cast(x, INT32), x).dtype == BOOL
