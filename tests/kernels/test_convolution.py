"""conv2d against a direct float64 convolution, within the bound of its formats: quantised blocks, FP22, FP16 out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from api.bounds import FP16, STEP, TINY, matmul_bound
from kohakuaccel.diagnostics import Refusal
from kohakutpu import api as ktpu
from kohakutpu import kernels

Doubles = NDArray[np.float64]
Pads = tuple[tuple[int, int], tuple[int, int]]


def draw(*shape: int, seed: int = 0, scale: float = 1.0) -> Any:
    return np.random.default_rng((seed, *shape)).normal(0, scale, shape).astype(np.float16)


def pads_of(padding: Any) -> Pads:
    first, second = (padding, padding) if isinstance(padding, int) else padding
    a, b = ((p, p) if isinstance(p, int) else tuple(p) for p in (first, second))
    return (a[0], a[1]), (b[0], b[1])


def columns(x: Any, size: tuple[int, int], stride: Any, padding: Any, dilation: Any) -> Doubles:
    """float64[B, H', W', taps, C]: what every tap sees."""
    (sh, sw), (dh, dw) = ((v, v) if isinstance(v, int) else v for v in (stride, dilation))
    padded = np.pad(x.astype(np.float64), ((0, 0), *pads_of(padding), (0, 0)))
    high = (padded.shape[1] - dh * (size[0] - 1) - 1) // sh + 1
    wide = (padded.shape[2] - dw * (size[1] - 1) - 1) // sw + 1
    taps = [
        padded[:, a * dh : a * dh + sh * (high - 1) + 1 : sh, b * dw : b * dw + sw * (wide - 1) + 1 : sw]
        for a in range(size[0])
        for b in range(size[1])
    ]
    return np.stack(taps, 3)


def blocked(values: Doubles, joined: bool) -> Doubles:
    """[..., taps, C] as a contraction sees it: taps apart in whole blocks of 32 channels, or in one row."""
    if not joined:
        pad = -values.shape[-1] % 32
        values = np.concatenate([values, np.zeros((*values.shape[:-1], pad))], -1)
    return values.reshape(*values.shape[:-2], -1)


def check(got: Any, x: Any, w: Any, groups: int = 1, bias: Any = None, **options: Any) -> None:
    outputs, *size, channels = w.shape
    full = w
    if groups > 1 and channels % 32:
        full = np.zeros((outputs, *size, channels * groups), np.float16)
        for g in range(groups):
            rows = slice(g * outputs // groups, (g + 1) * outputs // groups)
            full[rows, ..., g * channels : (g + 1) * channels] = w[rows]
        groups, channels = 1, channels * groups
    seen = columns(
        x, (size[0], size[1]), options.get("stride", 1), options.get("padding", 0), options.get("dilation", 1)
    )
    taps = size[0] * size[1]
    joined = taps > 1 and taps * -(-channels // 32) >= 2 * -(-taps * channels // 32)
    share = outputs // groups
    want, error = [], []
    for g in range(groups):
        a = blocked(seen[..., g * channels : (g + 1) * channels], joined)
        b = blocked(full[g * share : (g + 1) * share].astype(np.float64).reshape(share, taps, channels), joined)
        want.append(a @ b.T)
        error.append(matmul_bound(a.reshape(-1, a.shape[-1]), b).reshape(*a.shape[:-1], share))
    exact, room = np.concatenate(want, -1), np.concatenate(error, -1)
    if bias is not None:
        exact = exact + bias.astype(np.float64)
        room = room + np.abs(exact) * (FP16 + STEP) + room * FP16 + TINY
    assert got.shape == exact.shape
    assert np.all(np.abs(got.astype(np.float64) - exact) <= room)


CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 1, 1, 1), (1, 1, 1, 1), {}),
    ((2, 5, 6, 40), (7, 1, 1, 40), {}),
    ((2, 7, 5, 32), (5, 3, 3, 32), {"padding": 1}),
    ((1, 8, 9, 33), (13, 3, 3, 33), {"stride": 2}),
    ((1, 7, 11, 64), (20, 2, 3, 64), {"stride": (2, 1), "padding": ((1, 0), (0, 2))}),
    ((1, 9, 9, 32), (8, 3, 3, 32), {"dilation": (2, 3), "padding": (2, 3)}),
    ((1, 6, 6, 16), (9, 1, 1, 16), {"stride": 2}),
    ((1, 6, 6, 5), (4, 1, 1, 5), {"padding": 1}),
    ((1, 11, 13, 3), (5, 7, 7, 3), {"padding": 3, "stride": 2}),
    ((2, 6, 6, 16), (8, 3, 3, 16), {"padding": 1}),
    ((1, 4, 4, 1), (3, 4, 4, 1), {}),
]


@pytest.mark.parametrize(("image", "weight", "options"), CASES)
def test_against_the_direct_convolution(
    image: tuple[int, ...], weight: tuple[int, ...], options: dict[str, Any]
) -> None:
    x, w = draw(*image), draw(*weight, seed=1, scale=float(np.prod(weight[1:])) ** -0.5)
    check(kernels.conv2d(x, w, **options).numpy(), x, w, **options)


def test_bias_activation_and_residual() -> None:
    x, w, bias = draw(1, 6, 7, 32), draw(12, 3, 3, 32, scale=0.06), draw(12)
    plain = kernels.conv2d(x, w, bias, padding=1).numpy()
    check(plain, x, w, bias=bias, padding=1)
    residual = draw(1, 6, 7, 12, seed=2)
    got = kernels.conv2d(x, w, bias, padding=1, activation="relu", residual=residual).numpy().astype(float)
    want = np.maximum(plain.astype(float), 0) + residual
    assert np.all(np.abs(got - want) <= np.abs(plain) * 2 * FP16 + np.abs(want) * 2 * FP16 + TINY)


@pytest.mark.parametrize(("channels", "outputs", "groups"), [(64, 24, 2), (8, 8, 8), (12, 6, 3)])
def test_groups(channels: int, outputs: int, groups: int) -> None:
    x, w = draw(1, 5, 6, channels), draw(outputs, 3, 3, channels // groups, scale=0.1)
    bias, residual = draw(outputs), np.zeros((1, 5, 6, outputs), np.float16)
    got = kernels.conv2d(x, w, bias, groups=groups, padding=1, residual=residual).numpy()
    check(got, x, w, groups, bias, padding=1)


@pytest.mark.parametrize("groups", [1, 2])
def test_channels_first(groups: int) -> None:
    x, w, residual = draw(2, 6, 7, 64), draw(8, 3, 3, 64 // groups, scale=0.05), draw(2, 6, 7, 8, seed=3)
    options: dict[str, Any] = {"padding": 1, "groups": groups}
    want = kernels.conv2d(x, w, residual=residual, **options).numpy()
    first = (0, 3, 1, 2)
    got = kernels.conv2d(
        x.transpose(first), w.transpose(first), residual=residual.transpose(first), layout="NCHW", **options
    )
    assert np.array_equal(got.numpy(), want.transpose(first))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_a_chain_moves_nothing_over_the_host(layout: str) -> None:
    x, w = draw(1, 8, 8, 32), draw(32, 3, 3, 32, scale=0.06)
    order = (0, 1, 2, 3) if layout == "NHWC" else (0, 3, 1, 2)
    image, weight = ktpu.tensor(x.transpose(order)), ktpu.tensor(w.transpose(order))
    first = kernels.conv2d(image, weight, padding=1, activation="relu", layout=layout)
    before = ktpu.stats()
    second = kernels.conv2d(first, weight, padding=1, stride=2, layout=layout)
    after = ktpu.stats()
    for counter in ("relayouts", "bytes_from_device"):
        assert after[counter] == before[counter]
    back = tuple(order.index(axis) for axis in range(4))
    check(second.numpy().transpose(back), first.numpy().transpose(back), w, padding=1, stride=2)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_any_convolution(data: st.DataObject) -> None:
    def draw_number(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    size = draw_number(1, 4), draw_number(1, 4)
    stride = draw_number(1, 3), draw_number(1, 3)
    dilation = draw_number(1, 2), draw_number(1, 2)
    padding = tuple((draw_number(0, 3), draw_number(0, 3)) for _ in range(2))
    least = [max(1, d * (k - 1) + 1 - sum(p)) for d, k, p in zip(dilation, size, padding)]
    high, wide = (n + draw_number(0, 6) for n in least)
    channels, outputs = draw_number(1, 70), draw_number(1, 20)
    x, w = draw(draw_number(1, 2), high, wide, channels), draw(outputs, *size, channels, scale=0.1)
    options: dict[str, Any] = {"stride": stride, "dilation": dilation, "padding": padding}
    check(kernels.conv2d(x, w, **options).numpy(), x, w, **options)


def test_weights_are_arranged_and_uploaded_once() -> None:
    x, w = ktpu.tensor(draw(1, 6, 6, 32)), ktpu.tensor(draw(8, 3, 3, 32))
    kernels.conv2d(x, w, padding=1)
    before = ktpu.stats()["bytes_to_device"]
    kernels.conv2d(x, w, padding=1)
    assert ktpu.stats()["bytes_to_device"] == before


def test_the_plan_of_a_3x3_convolution() -> None:
    """Copy in, four borders, one gather of all taps, one packing, one contraction."""
    plan = kernels.conv2d_taps.plan((1, 8, 8, 32), (9, 16, 32), size=(3, 3), padding=((1, 1), (1, 1)), pixels=64)
    assert [stage.bands[0].engine for stage in plan.schedule.stages] == ["VC"] * 7 + ["MG"]


def test_one_pixel_wide_weights_are_one_product_without_copies() -> None:
    x, w = ktpu.tensor(draw(2, 4, 4, 32)), ktpu.tensor(draw(8, 1, 1, 32))
    before = ktpu.stats()["dispatches"]
    kernels.conv2d(x, w)
    assert ktpu.stats()["dispatches"] == before + 1


def test_refusals() -> None:
    x, w = draw(1, 5, 5, 8), draw(4, 3, 3, 8)
    with pytest.raises(Refusal, match=r"window fits into its padded image.*dilation \(3, 3\)"):
        kernels.conv2d(x, w, dilation=3)
    with pytest.raises(Refusal, match="channels and outputs divide by the groups"):
        kernels.conv2d(x, w, groups=3)
    with pytest.raises(Refusal, match="channels and outputs divide by the groups"):
        kernels.conv2d(x, w, groups=2)
    with pytest.raises(Refusal, match="four axes"):
        kernels.conv2d(x[0], w)
    with pytest.raises(Refusal, match="known order"):
        kernels.conv2d(x, w, layout="CHWN")
    with pytest.raises(Refusal, match="stride is at least 1"):
        kernels.conv2d(x, w, stride=0)
    with pytest.raises(Refusal, match="dilation is at least 1"):
        kernels.conv2d(x, w, dilation=(1, 0))
    with pytest.raises(Refusal, match="padding is not negative"):
        kernels.conv2d(x, w, padding=-1)
    with pytest.raises(Refusal, match="activation is one that the library has"):
        kernels.conv2d(x, w, activation="swish")
