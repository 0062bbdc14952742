"""Reductions over columns and over everything against float64, within the roundings that the machine makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from api.bounds import FP16, STEP, TINY
from kohakutpu import api as ktpu
from kohakutpu import kernels

SHAPES = [(1, 1), (1, 13), (7, 1), (5, 7), (16, 16), (37, 300), (211, 3), (1000, 40)]


def draw(*shape: int) -> Any:
    return np.random.default_rng(shape).normal(0, 1, shape).astype(np.float16)


def room(x: Any, axis: Any, scale: float = 1.0) -> Any:
    """A sum's error: one E8M15 rounding per addition that an element passes: chunks of 128 lanes, then two trees."""
    size = np.abs(x.astype(np.float64)).sum(axis) * scale
    longest = x.size if axis is None else x.shape[axis]
    return size * STEP * (longest / 128 + 16)


@pytest.mark.parametrize("shape", [*SHAPES, (2, 3, 20, 17)])
def test_columns(shape: tuple[int, ...]) -> None:
    x = draw(*shape)
    exact = x.astype(np.float64).sum(-2)
    assert np.array_equal(kernels.col_max(x).numpy(), x.max(-2))
    assert np.array_equal(kernels.col_min(x).numpy(), x.min(-2))
    total, mean = kernels.col_sum(x).numpy().astype(np.float64), kernels.col_mean(x).numpy().astype(np.float64)
    assert np.all(np.abs(total - exact) <= room(x, -2) + np.abs(exact) * FP16 + TINY)
    scale = 1 / shape[-2]
    assert np.all(np.abs(mean - exact * scale) <= room(x, -2, scale) + np.abs(exact) * scale * (FP16 + STEP) + TINY)


@pytest.mark.parametrize("shape", SHAPES)
def test_everything(shape: tuple[int, ...]) -> None:
    x = draw(*shape)
    exact = x.astype(np.float64).sum()
    assert kernels.full_max(x).item() == x.max()
    assert kernels.full_min(x).item() == x.min()
    lost = 2 * shape[0] * TINY
    assert abs(kernels.full_sum(x).item() - exact) <= room(x, None) + abs(exact) * FP16 + lost
    mean, scale = exact / x.size, 1 / x.size
    assert abs(kernels.full_mean(x).item() - mean) <= room(x, None, scale) + abs(mean) * (FP16 + 2 * STEP) + 2 * TINY


def test_partials_lose_nothing_that_a_single_row_keeps() -> None:
    """Sums of rows that cancel: FP16 partials alone would be off by up to half a unit of 16 each."""
    x = np.zeros((64, 256), np.float16)
    x[:, ::2] = draw(64, 128) * 100
    x[:, 1::2] = -np.roll(x[:, ::2], 1, 0)
    x[0, 0] += 3
    exact = x.astype(np.float64).sum()
    assert abs(kernels.full_sum(x).item() - exact) <= room(x, None) + abs(exact) * FP16 + 64 * TINY


def test_infinities_and_nans_arrive() -> None:
    x = np.ones((40, 16), np.float16)
    x[3, 3] = np.inf
    assert kernels.full_sum(x).item() == np.inf
    assert kernels.full_mean(-x).item() == -np.inf
    x[5, 5] = np.nan
    assert np.isnan(kernels.full_sum(x).item())


def test_a_row_beyond_fp16_is_counted_and_still_right() -> None:
    x = np.zeros((2, 64), np.float16)
    x[0], x[1] = 1100, -600
    before = ktpu.stats()["saturations"]
    assert kernels.full_sum(x).item() == 500 * 64
    assert ktpu.stats()["saturations"] == before + 1


def test_a_full_reduction_uses_every_core() -> None:
    plan = kernels.full_max.plan((64, 100))
    assert "64 rows of 100 on 4 cores" in plan.pretty()
