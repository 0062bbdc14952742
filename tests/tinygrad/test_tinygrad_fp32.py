"""float32 tensors on the device: stored as float32 there, computed with 16 bits; what products may take and leave."""

from __future__ import annotations

import numpy as np
import pytest
from tinygrad.tensor import Tensor

import kohakutpu.tinygrad as kt

D = "KTPU"
BITS = 2.0**-14
"""A few roundings to E8M15."""


def on_device(values: np.ndarray) -> Tensor:
    return Tensor(values.astype(np.float32), device=D)


def close(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_allclose(got, want, rtol=BITS, atol=0)


def test_small_and_large_values_stay_on_the_device() -> None:
    rng = np.random.default_rng(0)
    small, large = rng.uniform(1, 2, (6, 20)) * 1e-9, rng.uniform(1, 2, (6, 20)) * 1e9
    kt.reset()
    close((on_device(large) * 2).numpy(), large * 2)
    close((on_device(large) * on_device(large)).numpy(), large * large)
    close(on_device(small).sqrt().numpy(), np.sqrt(small))
    close((on_device(small) * on_device(small)).sum(1).numpy(), (small * small).sum(1))
    close((on_device(large) / on_device(small)).max(0).numpy(), (large / small).max(0))
    e = np.exp(small / 1e-9 - 2)
    close(((on_device(small) * 1e9).softmax()).numpy(), e / e.sum(1, keepdims=True))
    assert kt.report().host_kernels == 0, kt.report()


def test_values_stay_there_between_kernels() -> None:
    values = np.linspace(1e-8, 2e-8, 200)
    kt.reset()
    t = (on_device(values) * 3).realize()
    close((t * t).numpy(), 9 * values**2)
    assert (kt.report().device_kernels, kt.report().host_kernels) == (2, 0)


@pytest.mark.parametrize(
    ("scale", "other", "why"),
    [
        (1e6, 1.0, "a product's float32 operand beyond FP16"),
        (1e-9, 1.0, "a product's float32 operands are too small for FP16"),
        (1e-3, 1e-3, "a product's float32 results are too small for FP16"),
        (1e4, 1e4, "a result is beyond FP16"),
        (1.0, 1.0, ""),
    ],
)
def test_a_product_goes_to_the_host_where_fp16_would_lose_it(scale: float, other: float, why: str) -> None:
    rng = np.random.default_rng(1)
    x, w = rng.uniform(0.5, 1, (8, 32)) * scale, rng.uniform(0.5, 1, (32, 8)) * other
    x *= np.where(why.endswith("results are too small for FP16"), 1e-1, 1)
    kt.reset()
    got = (on_device(x) @ on_device(w)).numpy()
    assert dict(kt.report().reasons) == ({why: 1} if why else {})
    np.testing.assert_allclose(got, x @ w, rtol=1e-5 if why else 0.03)


def test_what_a_kernel_left_is_looked_at_before_a_product_takes_it() -> None:
    x, w = np.full((8, 32), 1e-4), np.full((32, 8), 0.5)
    kt.reset()
    made = (on_device(x) * 1e-5).realize()
    np.testing.assert_allclose((made @ on_device(w)).numpy(), 32 * 0.5e-9 * np.ones((8, 8)), rtol=1e-4)
    assert set(kt.report().reasons) == {"a product's float32 operands are too small for FP16"}


def test_an_epilogue_keeps_what_fp16_would_lose() -> None:
    x, w = np.full((8, 32), 0.5), np.full((32, 8), 0.5)
    kt.reset()
    got = ((on_device(x) @ on_device(w)) * 1e-7).numpy()
    np.testing.assert_allclose(got, 8e-7 * np.ones((8, 8)), rtol=0.03)
    assert kt.report().host_kernels == 0


def test_parameters_are_updated_on_the_host_unless_asked_for() -> None:
    start, gradient = np.linspace(1, 2, 64), np.linspace(-1, 1, 64)

    def step() -> np.ndarray:
        p = on_device(start).contiguous().realize()
        g = on_device(gradient).contiguous().realize()
        kt.reset()
        p.assign(p - g * 0.125).realize()
        return p.numpy()

    np.testing.assert_allclose(step(), start - 0.125 * gradient, rtol=1e-6)
    assert any("updated in place" in why for why in kt.report().reasons)
    with kt.numerics(float32="update"):
        close(step(), start - 0.125 * gradient)
        assert not any("updated in place" in why for why in kt.report().reasons)
        one = on_device(np.array([1.0, 1.0])).contiguous().realize()
        one.assign(one + on_device(np.array([2.0**-15, 2.0**-18]))).realize()
        assert one.numpy().tolist() == [1.0 + 2.0**-15, 1.0]
