"""Convolutions, pools and products of views of whole numbers through TINYTPU: numpy's values, from the array."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from tinygrad.dtype import dtypes
from tinygrad.tensor import Tensor

import tinytpu.tinygrad as tt

Array = NDArray[Any]
Pair = tuple[Callable[..., Tensor], Callable[..., Array]]
D = "TINYTPU"


def windows(x: Array, size: int, stride: int) -> Array:
    """[batch, channels, y, x, size, size] of an image that is padded already."""
    return sliding_window_view(x, (size, size), axis=(2, 3))[:, :, ::stride, ::stride]


def padded(x: Array, by: int, value: int = 0) -> Array:
    return np.pad(x, ((0, 0), (0, 0), (by, by), (by, by)), constant_values=value)


def convolved(x: Array, w: Array, stride: int, padding: int, groups: int) -> Array:
    seen = windows(padded(x, padding), w.shape[-1], stride)
    parts = np.split(seen, groups, 1), np.split(w, groups)
    return np.concatenate([np.einsum("bcyxij,ocij->boyx", s, v) for s, v in zip(*parts)], 1)


def transposed(x: Array, w: Array, stride: int, padding: int) -> Array:
    """Weights [in, out, k, k]: every element spreads them, then the frame of so many is cut off."""
    (b, _, h, wide), (_, out, k, _) = x.shape, w.shape
    made = np.zeros((b, out, (h - 1) * stride + k, (wide - 1) * stride + k), np.int64)
    for i in range(h):
        for j in range(wide):
            made[:, :, i * stride : i * stride + k, j * stride : j * stride + k] += np.einsum(
                "bc,coij->boij", x[:, :, i, j], w
            )
    return made[:, :, padding : made.shape[2] - padding, padding : made.shape[3] - padding]


def whole(x: Tensor) -> Tensor:
    return x.cast(dtypes.int32)


def layer(rng: random.Random, groups: int = 1) -> tuple[Pair, list[tuple[int, ...]]]:
    size, stride, padding = rng.choice((2, 3)), rng.choice((1, 2, 3)), rng.choice((0, 1))
    c, o, h = groups * rng.choice((1, 2, 3)), groups * rng.choice((2, 3, 4)), rng.choice((4, 5, 6, 7))
    flat = rng.random() < 0.5

    def ours(x: Tensor, w: Tensor) -> Tensor:
        made = whole(x).conv2d(whole(w), groups=groups, stride=stride, padding=padding)
        return made.flatten(1) if flat else made

    def theirs(x: Array, w: Array) -> Array:
        made = convolved(x, w, stride, padding, groups)
        return made.reshape(len(made), -1) if flat else made

    return (ours, theirs), [(rng.choice((1, 2)), c, h, h), (o, c // groups, size, size)]


def spread(rng: random.Random) -> tuple[Pair, list[tuple[int, ...]]]:
    k, stride = rng.choice((2, 3)), rng.choice((1, 2))
    padding = rng.choice((0, 1))
    pair: Pair = (
        lambda x, w: whole(x).conv_transpose2d(whole(w), stride=stride, padding=padding),
        lambda x, w: transposed(x, w, stride, padding),
    )
    return pair, [(1, rng.choice((2, 3)), 4, 4), (0, rng.choice((2, 3)), k, k)]


def pooled(rng: random.Random) -> tuple[Pair, list[tuple[int, ...]]]:
    k, stride = rng.choice((2, 3)), rng.choice((1, 2, 3))
    padding, h = rng.choice((0, 1)), rng.choice((5, 6, 8))

    def ours(x: Tensor) -> Tensor:
        made = x.max_pool2d((k, k), stride=stride, padding=padding)
        assert isinstance(made, Tensor)
        return made.flatten(1)

    def theirs(x: Array) -> Array:
        return windows(padded(x, padding, -128), k, stride).max((-1, -2)).reshape(len(x), -1)

    return (ours, theirs), [(2, 2, h, h)]


def averaged(rng: random.Random) -> tuple[Pair, list[tuple[int, ...]]]:
    """A pool of averages in whole numbers: sums of windows."""
    k, stride, h = rng.choice((2, 3)), rng.choice((1, 2)), rng.choice((6, 8))
    pair: Pair = (
        lambda x: whole(x).pad((1, 1, 1, 1)).unfold(2, k, stride).unfold(3, k, stride).sum((-1, -2)),
        lambda x: windows(padded(x, 1), k, stride).sum((-1, -2)),
    )
    return pair, [(1, 2, h, h)]


def viewed(rng: random.Random) -> tuple[Pair, list[tuple[int, ...]]]:
    """A product of a sliced, reversed, padded, transposed or folded view."""
    m, n = rng.choice((3, 4, 6)), rng.choice((3, 4, 5))
    views: list[tuple[int, Callable[[Any], Any], Callable[[Array], Array]]] = [
        (8, lambda x: x[:, 3:19], lambda x: x[:, 3:19]),
        (8, lambda x: x.flip(1)[:, :16], lambda x: x[:, ::-1][:, :16]),
        (8, lambda x: x[:, ::2], lambda x: x[:, ::2]),
        (8, lambda x: x.pad(((0, 0), (2, 1)))[:, 1:17], lambda x: np.pad(x, ((0, 0), (2, 1)))[:, 1:17]),
        (
            8,
            lambda x: x.reshape(m, 2, 2, 8).permute(0, 2, 1, 3).reshape(m, 32)[:, 8:24],
            lambda x: x.reshape(m, 2, 2, 8).transpose(0, 2, 1, 3).reshape(m, 32)[:, 8:24],
        ),
        (
            8,
            lambda x: x[:, :4].reshape(m, 4, 1).expand(m, 4, 4).reshape(m, 16),
            lambda x: np.repeat(x[:, :4], 4, 1),
        ),
    ]
    _, ours, theirs = rng.choice(views)
    return (lambda x, w: whole(ours(x)) @ whole(w), lambda x, w: theirs(x) @ w), [(m, 32), (16, n)]


def drawn(seed: int) -> Iterator[tuple[str, Pair, list[tuple[int, ...]], bool]]:
    rng = random.Random(seed)
    yield "conv2d", *layer(rng), True
    yield "grouped", *layer(rng, 2), True
    yield "conv_transpose2d", *spread(rng), True
    yield "max_pool2d", *pooled(rng), False
    yield "sums of windows", *averaged(rng), False
    yield "a view", *viewed(rng), True


def checked(seed: int) -> None:
    numbers = np.random.default_rng(seed)
    for name, (ours, theirs), shapes, product in drawn(seed):
        if name == "conv_transpose2d":
            shapes[1] = (shapes[0][1], *shapes[1][1:])
        arrays = [numbers.integers(-128, 128, shape, np.int8) for shape in shapes]
        tensors = [Tensor(a, device=D).realize() for a in arrays]
        tt.reset()
        found, wanted = ours(*tensors).numpy(), theirs(*(a.astype(np.int64) for a in arrays))
        where = f"{name} {shapes}"
        assert found.shape == wanted.shape, where
        assert (found == wanted).all(), where
        assert tt.report().host_kernels == 0, where
        assert not product or any("on the array" in str(k) for k in tt.report().kernels.values()), where


@pytest.mark.slow
def test_windows_and_views_are_numpys_and_products_are_on_the_array() -> None:
    checked(0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_more_windows_and_views(seed: int) -> None:
    checked(seed)
