"""Functions of `graph.build` over machine words: on the machine, and by the ruler, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel import graph
from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph import WORDS, DType
from kohakuaccel.graph import build as g
from kohakuaccel.numerics import FP32
from tinytpu.lower import compile_graph

Array = NDArray[Any]
rng = np.random.default_rng(0)
X = rng.integers(-9, 9, (3, 5)).astype(np.int32)
ROWS = np.array([0, 3, 6], np.int32)
TABLE = rng.normal(size=(7, 5)).astype(np.float32)
SOURCE = rng.integers(0, 9, (3, 5)).astype(np.int32)
WIDE = rng.integers(-(2**40), 2**40, (3, 5))


def dtype_of(array: Array) -> DType:
    if array.dtype.kind == "f":
        return FP32
    return WORDS[f"{'S' if array.dtype.kind == 'i' else 'U'}{array.dtype.itemsize * 8}"]


def added(base: Array, ids: Array, source: Array) -> Array:
    out = base.copy()
    np.add.at(out, ids, source)
    return out


def padded_product(x: Array, w: Array) -> Array:
    image = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(2, 3))
    return np.einsum("bchwij,ocij->bohw", windows, w.astype(np.int64)).astype(np.int32)


IMAGE, KERNEL = (rng.integers(-9, 9, s).astype(np.int32) for s in ((1, 3, 6, 6), (4, 3, 3, 3)))
CASES: list[tuple[str, Callable[..., g.Tensor], tuple[Array, ...], Array]] = [
    ("conv2d", lambda x, w: g.conv2d(x, w, padding=1), (IMAGE, KERNEL), padded_product(IMAGE, KERNEL)),
    ("cummax", lambda x: g.cummax(x, 1), (X,), np.maximum.accumulate(X, 1)),
    ("cummax by blocks", lambda x: g.cummax(x, 1, block=2), (X,), np.maximum.accumulate(X, 1)),
    ("cummin", lambda x: g.cummin(x, 1), (X.astype(np.int8),), np.minimum.accumulate(X.astype(np.int8), 1)),
    ("cummin of 64 bits", lambda x: g.cummin(x, 1), (WIDE,), np.minimum.accumulate(WIDE, 1)),
    ("cumsum by blocks", lambda x: g.cumsum(x, 1, block=3), (X,), np.cumsum(X, 1).astype(np.int32)),
    ("cumsum of 64 bits", lambda x: g.cumsum(x, 1), (WIDE,), np.cumsum(WIDE, 1)),
    ("embedding", g.embedding, (TABLE, ROWS), TABLE[ROWS]),
    ("embedding by U8", g.embedding, (TABLE, ROWS.astype(np.uint8)), TABLE[ROWS]),
    ("embedding by S64", g.embedding, (TABLE, ROWS.astype(np.int64)), TABLE[ROWS]),
    ("one_hot", lambda i: g.one_hot(i, 5, WORDS["S32"]), (ROWS,), (ROWS[:, None] == np.arange(5)).astype(np.int32)),
    ("scatter_add", g.scatter_add, (np.resize(X, (7, 5)), ROWS, SOURCE), added(np.resize(X, (7, 5)), ROWS, SOURCE)),
    ("tril", g.tril, (X,), np.tril(X)),
    ("relu", g.relu, (X,), np.maximum(X, 0)),
    ("clamp", lambda x: g.clamp(x, -2, 3), (X,), X.clip(-2, 3)),
    ("sign", g.sign, (X,), np.sign(X)),
    ("numbers", lambda x: g.where(g.less(x, 3), x + 1, 7), (X,), np.where(X < 3, X + 1, 7)),
]


@pytest.mark.parametrize(("name", "build", "given", "want"), CASES, ids=[case[0] for case in CASES])
def test_words(name: str, build: Callable[..., g.Tensor], given: tuple[Array, ...], want: Array) -> None:
    b = g.Builder()
    inputs = {f"x{n}": array for n, array in enumerate(given)}
    program = b.graph(y=build(*(b.input(x, array.shape, dtype_of(array)) for x, array in inputs.items())))
    np.testing.assert_array_equal(graph.run(program, inputs)["y"], want)
    got = compile_graph(program).run(inputs).outputs["y"]
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_places_without_a_sign_are_cast_where_some_are_none() -> None:
    b = g.Builder()
    base, places = b.input("x", (4,), WORDS["S32"]), b.input("i", (2,), WORDS["U8"])
    with pytest.raises(Refusal, match="places are integers with a sign; got U8"):
        g.scatter_reduce(base, 0, places, b.input("s", (2,), WORDS["S32"]))
    with pytest.raises(Refusal, match=r"a number is of the kind of what it meets; got 1\.5; the limit is word"):
        g.maximum(base, 1.5)
