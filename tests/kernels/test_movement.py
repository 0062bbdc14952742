"""Device copies against numpy: every value exactly, NaN's own bits where whole words move."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from kohakutpu import kernels
from kohakutpu.kernels import movement
from kohakutpu.tensor import Tensor

Half = NDArray[np.float16]
SHAPES = [(1,), (17,), (5, 1), (1, 7), (13, 32), (3, 5, 33), (2, 3, 1, 20)]


def any_bits(*shape: int, seed: int = 0) -> Half:
    """Every kind of half: subnormals, infinities, NaNs of any payload."""
    return np.random.default_rng((seed, *shape)).integers(0, 1 << 16, shape, np.uint16).view(np.float16)


def check(got: Tensor, want: NDArray[Any], whole: bool = False) -> None:
    """The same bits; a NaN may have become 0x7E00 unless whole words moved."""
    assert got.shape == want.shape
    a = np.ascontiguousarray(got.numpy()).view(np.uint16)
    b = np.ascontiguousarray(want).view(np.uint16)
    nan = (b & 0x7FFF) > 0x7C00
    canonical = np.zeros_like(nan) if whole else nan & (a == 0x7E00)
    assert np.array_equal(np.where(canonical, 0, a), np.where(canonical, 0, b))


def axes_of(shapes: list[tuple[int, ...]]) -> list[tuple[tuple[int, ...], int]]:
    return [(shape, axis) for shape in shapes for axis in range(len(shape))]


@pytest.mark.parametrize(("shape", "axis"), axes_of(SHAPES))
def test_concat(shape: tuple[int, ...], axis: int) -> None:
    parts = [any_bits(*(n if i != axis else k for i, n in enumerate(shape)), seed=k) for k in (3, 16, 1, 21, 5)]
    for count in (1, 2, 3, 5):
        want = np.concatenate(parts[:count], axis)
        check(kernels.concat(parts[:count], axis), want, whole=axis < len(shape) - 1)


def test_many_narrow_columns() -> None:
    parts = [any_bits(6, 1, seed=k) for k in range(11)]
    check(kernels.concat(parts, -1), np.concatenate(parts, -1))


SLICES = [
    (0, 1, 1),
    (None, None, 2),
    (None, None, -1),
    (1, None, 1),
    (None, -1, 3),
    (5, 0, -2),
    (16, 33, 1),
    (3, 20, 1),
]


@pytest.mark.parametrize(("shape", "axis"), axes_of([(17,), (13, 37), (3, 9, 64), (4, 5, 3, 2)]))
def test_slices(shape: tuple[int, ...], axis: int) -> None:
    x = any_bits(*shape)
    for start, stop, step in SLICES:
        want = x[(slice(None),) * axis + (slice(start, stop, step),)]
        if want.size:
            check(kernels.slice(x, axis, start, stop, step), want, whole=axis < len(shape) - 1)


def test_a_slice_of_all_is_the_value_itself() -> None:
    from kohakutpu import api as ktpu

    x = ktpu.tensor(any_bits(4, 5))
    assert kernels.slice(x, 1) is x


@pytest.mark.parametrize(("shape", "axis"), axes_of([(11,), (7, 40), (3, 5, 33)]))
def test_gathers(shape: tuple[int, ...], axis: int) -> None:
    x = any_bits(*shape)
    rng = np.random.default_rng(axis)
    for index in (0, [2], [[0, 1], [-1, 2]], rng.integers(-shape[axis], shape[axis], 37)):
        check(kernels.gather(x, index, axis), np.take(x, index, axis), whole=axis < len(shape) - 1)


def test_an_embedding() -> None:
    table, words = any_bits(300, 50), np.random.default_rng(1).integers(0, 300, (4, 33))
    check(kernels.gather(table, words), table[words], whole=True)


@pytest.mark.parametrize(("shape", "axis"), axes_of([(1,), (5,), (5, 1), (4, 17), (2, 3, 16)]))
@pytest.mark.parametrize("times", [1, 2, 7])
def test_repeat_and_tile(shape: tuple[int, ...], axis: int, times: int) -> None:
    x = any_bits(*shape)
    check(kernels.repeat(x, times, axis), np.repeat(x, times, axis))
    check(kernels.tile(x, times, axis), np.concatenate([x] * times, axis))


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_permutations(order: tuple[int, ...]) -> None:
    x = any_bits(3, 4, 5, 17)
    check(kernels.permute(x, order), x.transpose(order), whole=order[-1] == 3)


@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((1, 1), (1, 0)),
        ((7, 1, 13), (2, 1, 0)),
        ((64, 96), (1, 0)),
        ((1, 5, 1, 17, 1), (4, 3, 2, 1, 0)),
        ((2, 3), (-1, 0)),
    ],
)
def test_permutations_with_axes_of_length_one(shape: tuple[int, ...], order: tuple[int, ...]) -> None:
    x = any_bits(*shape)
    check(kernels.permute(x, order), x.transpose(order))


def test_a_permutation_that_moves_heads_moves_whole_rows_only() -> None:
    plan = movement.permutation((0, 2, 1, 3)).plan((2, 10, 4, 64))
    (stage,) = plan.schedule.stages
    assert "whole words, no arithmetic: 320 words" in plan.pretty()
    assert len(stage.bands) == 1


@pytest.mark.parametrize(
    ("small", "large"),
    [
        ((1,), (40,)),
        ((5, 1), (5, 19)),
        ((1, 17), (8, 17)),
        ((3, 1, 1, 5), (3, 4, 6, 5)),
        ((4, 1, 5, 1), (2, 4, 3, 5, 7)),
    ],
)
def test_expand(small: tuple[int, ...], large: tuple[int, ...]) -> None:
    x = any_bits(*small)
    check(kernels.expand(x, large), np.broadcast_to(x, large))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=3), st.data())
def test_any_piece_of_any_shape(shape: list[int], data: st.DataObject) -> None:
    x = any_bits(*shape)
    axis = data.draw(st.integers(0, len(shape) - 1))
    start = data.draw(st.integers(0, shape[axis] - 1))
    stop = data.draw(st.integers(start + 1, shape[axis]))
    got = kernels.slice(x, axis, start, stop)
    check(got, x[(slice(None),) * axis + (slice(start, stop),)])
    order = data.draw(st.permutations(range(len(shape))))
    check(kernels.permute(got, order), got.numpy().transpose(order))


def test_rows_wider_than_a_core() -> None:
    x = any_bits(3, 5003)
    check(kernels.slice(x, 1, 7, 4999), x[:, 7:4999])
    check(kernels.slice(x, 1, 16, 4816), x[:, 16:4816], whole=True)
    check(kernels.concat([x, x], 1), np.concatenate([x, x], 1))


def test_refusals() -> None:
    x = any_bits(4, 5)
    empty = np.zeros((0, 3), np.float16)
    with pytest.raises(Refusal, match="at least one element"):
        kernels.slice(x, 0, 2, 2)
    with pytest.raises(Refusal, match="at least one element"):
        kernels.permute(empty, (1, 0))
    with pytest.raises(Refusal, match="forwards or backwards"):
        kernels.slice(x, 0, step=0)
    with pytest.raises(Refusal, match="axis exists"):
        kernels.slice(x, 2)
    with pytest.raises(Refusal, match="needs one"):
        kernels.repeat(np.float16(1), 2)
    with pytest.raises(Refusal, match=r"inside the axis; got 0\.\.4; the limit is -4\.\.3"):
        kernels.gather(x, [0, 4])
    with pytest.raises(Refusal, match="whole numbers"):
        kernels.gather(x, [0.5])
    with pytest.raises(Refusal, match="at least one tensor"):
        kernels.concat([])
    with pytest.raises(Refusal, match="agree in every other axis"):
        kernels.concat([x, x[:, :3]], 0)
    with pytest.raises(Refusal, match="at least once"):
        kernels.tile(x, 0)
    with pytest.raises(Refusal, match="every axis once"):
        kernels.permute(x, (0, 0))
    with pytest.raises(Refusal, match="larger shape"):
        kernels.expand(x, (5,))
