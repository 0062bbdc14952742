"""Further row kernels against float64: bounds from the formats, any width, group norm over any pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from api.bounds import FP16, STEP, TINY, check
from kernels.test_linear import ACTIVATIONS, draw
from kohakuaccel.diagnostics import Refusal
from kohakutpu import kernels

WIDTHS = [(1, 1), (5, 17), (3, 100), (2, 3, 129), (2, 9000)]


def sum_room(magnitudes: Any) -> Any:
    """Error of a tree of E8M15 sums along the last axis: up to 24 levels and one add per 128 elements."""
    count = magnitudes.shape[-1]
    return np.abs(magnitudes).sum(-1) * (24 + count / 128) * STEP


@pytest.mark.parametrize("shape", WIDTHS)
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_log_softmax(shape: Any, scale: float) -> None:
    x = draw(*shape, scale=3.0)
    exact = x.astype(np.float64) * scale
    centred = exact - exact.max(-1, keepdims=True)
    want = centred - np.log(np.exp(centred).sum(-1, keepdims=True))
    # The sum's relative error is an absolute one of its logarithm; the exponent's rounding is one of each addend.
    absolute = (24 + shape[-1] / 128 + 4 * np.abs(centred).max() + 4) * STEP * 2
    check(kernels.log_softmax(x, scale=scale).numpy(), want, 8, absolute)


@pytest.mark.parametrize("shape", WIDTHS)
def test_softmax_with_a_scale(shape: Any) -> None:
    x = draw(*shape, scale=3.0)
    exact = x.astype(np.float64) * 0.3
    e = np.exp(exact - exact.max(-1, keepdims=True))
    want = e / e.sum(-1, keepdims=True)
    check(
        kernels.softmax(x, scale=0.3).numpy(), want, 8, want * (np.abs(exact).max() * 6 + 30 + shape[-1] / 128) * STEP
    )


@pytest.mark.parametrize("shape", WIDTHS)
def test_sums_of_squares(shape: Any) -> None:
    x = draw(*shape)
    squares = x.astype(np.float64) ** 2
    check(kernels.row_sumsq(x).numpy(), squares.sum(-1), 2, sum_room(squares))
    check(kernels.row_mean_square(x).numpy(), squares.mean(-1), 3, sum_room(squares) / shape[-1])


def test_mean_squares_do_not_overflow() -> None:
    x = np.full((2, 4096), 200.0)
    assert float(kernels.row_mean_square(x).numpy()[0]) == pytest.approx(40000, rel=1e-3)
    assert float(kernels.row_sumsq(x).numpy()[0]) == 65504


def group_norm(x: Any, groups: int, w: Any, b: Any, activation: str) -> tuple[Any, Any]:
    """float64 result, and the largest error of it: statistics and result in FP16, sums in E8M15."""
    exact = x.astype(np.float64)
    rows = exact.reshape(x.shape[0], groups, -1)
    spread = np.sqrt(rows.var(-1, keepdims=True) + 1e-5)
    normal = ((rows - rows.mean(-1, keepdims=True)) / spread).reshape(x.shape)
    per_channel = (1, -1) + (1,) * (x.ndim - 2)
    scale, offset = (np.asarray(v, np.float64).reshape(per_channel) for v in (w, b))
    n = rows.shape[-1]
    sums = (24 + n / 128) * STEP
    shift = np.abs(rows).mean(-1, keepdims=True) * (sums * 2**-8 + STEP * 2) / spread
    room = np.abs(normal) * (FP16 + 2 * sums + 8 * STEP) + np.broadcast_to(shift, rows.shape).reshape(x.shape)
    y = normal * scale + offset
    room = room * np.abs(scale) + (np.abs(y) + np.abs(offset)) * (FP16 + 4 * STEP) + TINY
    return ACTIVATIONS[activation](y), 1.13 * room + np.abs(y) * 8 * STEP


SHAPES = [((1, 1, 1), 1), ((2, 6, 5, 7), 3), ((1, 4, 16, 16), 4), ((2, 4, 3), 1), ((1, 64, 3, 11), 32), ((1, 8), 2)]


@pytest.mark.parametrize(("shape", "groups"), SHAPES)
@pytest.mark.parametrize("activation", ["none", "silu"])
def test_group_norm(shape: Any, groups: int, activation: str) -> None:
    x, w, b = draw(*shape), draw(shape[1], seed=1), draw(shape[1], seed=2)
    want, room = group_norm(x, groups, w, b, activation)
    got = kernels.group_norm(x, groups, w, b, activation=activation).numpy()
    assert got.shape == shape
    assert (np.abs(got.astype(np.float64) - want) <= room).all()


def test_group_norm_of_a_far_mean() -> None:
    x = (draw(1, 8, 10, 10).astype(np.float64) + 300).astype(np.float16)
    want, room = group_norm(x, 2, np.ones(8), np.zeros(8), "none")
    error = np.abs(kernels.group_norm(x, 2).numpy().astype(np.float64) - want)
    assert (error <= room).all()
    assert error.max() < 0.05


def test_group_norm_without_weights_is_that_with_ones() -> None:
    x = draw(2, 6, 20)
    plain = kernels.group_norm(x, 3).numpy()
    assert plain.tobytes() == kernels.group_norm(x, 3, np.ones(6)).numpy().tobytes()
    assert np.array_equal(plain, kernels.group_norm(x, 3, np.ones(6), np.zeros(6)).numpy())


def test_channels_are_a_multiple_of_groups() -> None:
    with pytest.raises(Refusal, match="multiple of the groups"):
        kernels.group_norm(draw(1, 6, 4), 4)
