"""Tensors that were asked to be float32 in memory: what stays, what a cast is, what is counted."""

from __future__ import annotations

import numpy as np
import pytest

from kohakutpu import api as ktpu

RNG = np.random.default_rng(8)


def wide(*shape: int, scale: float = 1.0) -> ktpu.Tensor:
    return ktpu.tensor(RNG.standard_normal(shape) * scale, dtype="float32")


def test_values_are_kept_as_they_are() -> None:
    values = np.array([1e-30, 1.0 + 2**-23, -3e38, np.inf, np.nan, 0.0], np.float32)
    t = ktpu.tensor(values, dtype="float32")
    assert t.stored == t.dtype == np.float32
    assert np.array_equal(t.numpy(), values, equal_nan=True)
    assert ktpu.tensor(values[:2]).stored == np.float16  # data of that type alone does not ask for it
    assert ktpu.zeros((3,), "float32").stored == np.float32


@pytest.mark.parametrize(("data", "value"), [([10**30], 1e30), ([True], 1.0), ([1e39], None), ([2**24 + 1], 2.0**24)])
def test_what_enters_is_rounded_once(data: list[float], value: float | None) -> None:
    if value is None:
        with pytest.raises(ValueError, match="a value stored in FP32 stays finite"):
            ktpu.tensor(data, dtype="float32")
        assert ktpu.tensor(data, dtype="float32", overflow="saturate").item() == np.finfo(np.float32).max
        return
    if data == [10**30]:
        data = [float(data[0])]
    assert ktpu.tensor(data, dtype="float32").item() == np.float32(value)


def test_operators_keep_fp32() -> None:
    x, y = wide(20, 33, scale=1e-12), wide(20, 33, scale=1e12)
    X, Y = x.numpy().astype(float), y.numpy().astype(float)
    for got, want in [
        (x + x, 2 * X),
        (x * y, X * Y),
        (x * 3.0, 3 * X),
        (x / y, X / Y),
        (x.maximum(y), np.maximum(X, Y)),
        (y.softmax(), np.eye(33)[Y.argmax(1)]),
        (x * wide(33) * 0 + x, X),
    ]:
        assert got.stored == np.float32
        assert np.abs(got.numpy() - want).max() <= 2.0**-14 * np.abs(want).max()
    for axis in (0, 1, None):
        total = y.sum(axis)
        assert total.stored == np.float32
        assert np.allclose(total.numpy(), Y.sum(axis), rtol=1e-3, atol=1e-3 * np.abs(Y).sum(axis).max())


def test_a_large_whole_reduction_is_one_row_on_one_core() -> None:
    x = wide(128, 128, scale=1e9)
    assert np.isclose((x * x).sum().item(), (x.numpy().astype(float) ** 2).sum(), rtol=1e-3)


def test_fp16_beside_fp32_gives_fp32() -> None:
    x, h = wide(9, 40, scale=1e6), ktpu.tensor(RNG.standard_normal((9, 40)))
    assert (x * h).stored == np.float32
    assert (h + h).stored == np.float16


def test_casts_are_kernels_and_saturation_is_counted() -> None:
    x = ktpu.tensor([1.0, 1e9, -1e9, 1e-9], dtype="float32")
    ktpu.reset_stats()
    half = x.astype("float16")
    assert half.numpy().tolist() == [1.0, 65504.0, -65504.0, 0.0]
    assert ktpu.stats()["saturations"] == 2
    assert ktpu.stats()["dispatches"] == 1
    back = half.stored_as("float32")
    assert back.stored == np.float32
    assert back.numpy().tolist() == [1.0, 65504.0, -65504.0, 0.0]
    assert half.astype("float32").stored == np.float16  # only shown so


def test_what_is_moved_stays_fp32() -> None:
    x = wide(6, 17, scale=1e20) + 0.0
    assert np.array_equal(x.T.numpy(), x.numpy().T)
    turned = x.T * 1.0
    assert turned.stored == np.float32
    assert np.array_equal(turned.numpy(), x.numpy().T)
    assert np.array_equal((x.reshape(17, 6) * 1.0).numpy(), x.numpy().reshape(17, 6))
    one = wide(1, 17) + 0.0
    assert np.array_equal(one.broadcast_to((6, 17)).numpy(), np.broadcast_to(one.numpy(), (6, 17)))
    assert np.array_equal((x * one).shape, (6, 17))


def test_a_product_of_fp32_is_counted_where_it_saturates() -> None:
    x = ktpu.tensor(np.full((4, 32), 1e6), dtype="float32")
    w = ktpu.tensor(np.full((4, 32), 1e-3))
    ktpu.reset_stats()
    y = x @ w
    assert ktpu.stats()["saturations"] == 128
    assert y.stored == np.float16
    assert y.dtype == np.float32
    assert np.allclose(y.numpy(), 65504 * 32 * 1e-3, rtol=0.05)
    again = (x * 1e-6) @ w  # made on the device: a stage narrows it there
    assert np.allclose(again.numpy(), 0.032, rtol=0.05)
