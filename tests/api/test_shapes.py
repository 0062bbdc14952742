"""Shape rules against numpy itself, on random shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohakuaccel.diagnostics import Refusal
from kohakutpu import broadcasting as shapes

Shape = tuple[int, ...]
small = st.lists(st.integers(0, 3), max_size=4).map(tuple)


@given(small, small)
def test_broadcast_is_numpys(a: Shape, b: Shape) -> None:
    try:
        want: Any = np.broadcast(np.empty(a), np.empty(b)).shape
    except ValueError:
        want = None
    if want is None:
        with pytest.raises(Refusal, match="broadcast"):
            shapes.broadcast(a, b, "+")
    else:
        assert shapes.broadcast(a, b, "+") == want


@given(st.lists(st.integers(1, 3), max_size=4).map(tuple), st.data())
def test_a_trailing_block_repeats_in_flat_order(full: Shape, draw: st.DataObject) -> None:
    cut = draw.draw(st.integers(0, len(full)))
    block = tuple(1 if draw.draw(st.booleans()) else n for n in full[cut:])
    count = shapes.trailing(block, full)
    values = np.arange(np.prod(block, dtype=int)).reshape(block)
    flat = np.broadcast_to(values, full).reshape(-1)
    if count is not None:
        assert count == values.size
        assert np.array_equal(flat, np.tile(values.reshape(-1), flat.size // count))
    elif values.size > 1:
        assert not np.array_equal(flat, np.tile(values.reshape(-1), flat.size // values.size))


@given(small, st.integers(-5, 5) | st.none() | st.lists(st.integers(-5, 5), max_size=3).map(tuple))
def test_axes_are_numpys(shape: Shape, axis: Any) -> None:
    try:
        want: Any = np.sum(np.ones(shape), axis=axis, keepdims=True).shape
    except ValueError:
        want = None
    if want is None:
        with pytest.raises(Refusal, match="axis"):
            shapes.normalise_axes(axis, len(shape), "sum")
    else:
        axes = shapes.normalise_axes(axis, len(shape), "sum")
        assert tuple(1 if i in axes else n for i, n in enumerate(shape)) == want


@given(small, st.lists(st.integers(-1, 4), max_size=4).map(tuple))
def test_reshape_is_numpys(shape: Shape, wanted: Shape) -> None:
    try:
        want: Any = np.empty(shape).reshape(wanted).shape
    except ValueError:
        want = None
    if want is None:
        with pytest.raises(Refusal, match="reshape"):
            shapes.resolve_reshape(wanted, shapes.size_of(shape))
    else:
        assert shapes.resolve_reshape(wanted, shapes.size_of(shape)) == want


@given(st.lists(st.integers(1, 3), max_size=4).map(tuple), st.data())
def test_a_kept_order_is_kept(shape: Shape, draw: st.DataObject) -> None:
    axes = tuple(draw.draw(st.permutations(range(len(shape)))))
    values = np.arange(shapes.size_of(shape)).reshape(shape)
    same = np.array_equal(values.transpose(axes).reshape(-1), values.reshape(-1))
    assert shapes.keeps_order(shape, axes) == same


@pytest.mark.parametrize("wanted", [(True,), (2.0,), ("2",), (-2,), ((2, -3),)])
def test_odd_shapes_are_refused(wanted: Any) -> None:
    with pytest.raises(Refusal, match="integers"):
        shapes.as_shape(wanted, "reshape")


def test_shapes_come_as_tuple_list_or_numbers() -> None:
    forms: list[Any] = [(2, 3), ((2, 3),), ([2, 3],), (np.int64(2), 3)]
    for wanted in forms:
        assert shapes.as_shape(wanted, "reshape") == (2, 3)
    assert shapes.as_shape((), "reshape") == ()
    assert shapes.as_shape(((),), "reshape") == ()
