"""float32 tensors on the device: stored as float32 there, computed with 16 bits; what products may take and leave."""

from __future__ import annotations

import numpy as np
import pytest
from tinygrad.helpers import Context
from tinygrad.nn.optim import SGD
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
    close((on_device(large) / on_device(small)).sum(0).numpy(), (large / small).sum(0))
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


INSIDE = "products inside a float32 kernel are too small for FP16"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sums", "operand", "sums of halves", "squares"])
def test_products_inside_a_kernel_go_to_the_host_where_fp16_would_lose_them(name: str) -> None:
    rng = np.random.default_rng(2)
    x, w = rng.uniform(0.5, 1, (8, 32)), rng.uniform(0.5, 1, (32, 8))

    def run(scale: float) -> tuple[np.ndarray, np.ndarray]:
        a, b = x * scale, w * scale
        if name == "sums":
            return ((on_device(a) @ on_device(b)).relu() / scale**2).numpy(), x @ w
        if name == "operand":
            e = float(np.log(scale) * 1.5)
            return ((on_device(x) + e).exp() @ on_device(w) / scale**1.5).numpy(), np.exp(x) @ w
        if name == "squares":
            return ((on_device(a) @ on_device(b)).square().mean() / scale**4).numpy(), np.square(x @ w).mean()
        halves = [Tensor(v.astype(np.float16), device=D).float() for v in (a, b)]
        return ((halves[0] @ halves[1]).relu() / scale**2).numpy(), (x * scale).astype(np.float16).astype(
            np.float64
        ) @ (w * scale).astype(np.float16) / scale**2

    for scale, why in ((1.0, {}), (0.5, {}), (1e-4, {INSIDE: 1}), (0.25, {})):
        kt.reset()
        got, want = run(scale)
        assert dict(kt.report().reasons) == why, scale
        np.testing.assert_allclose(got, want, rtol=1e-4 if why else 0.04)


def test_a_half_by_the_programs_word_is_the_devices() -> None:
    x, w = (Tensor(np.full(shape, 1e-4, np.float16), device=D) for shape in ((8, 32), (32, 8)))
    kt.reset()
    got = ((x @ w).relu() * 1000).numpy()
    assert kt.report().host_kernels == 0
    np.testing.assert_allclose(got, 3.2e-4, rtol=0.2)


def test_a_float32_copy_is_exact() -> None:
    x = np.random.default_rng(3).standard_normal((6, 9)).astype(np.float32)
    coarse = (x.view(np.uint32) & ~np.uint32(255)).view(np.float32)
    moves = {
        "flip": (lambda t: t.flip(1).contiguous(), lambda v: v[:, ::-1]),
        "transpose": (lambda t: t.T.contiguous(), lambda v: v.T),
        "tril": (lambda t: t.tril(), np.tril),
        "cat": (lambda t: t.cat(t), lambda v: np.concatenate([v, v])),
        "pad": (lambda t: t.pad(((1, 2), (0, 3)), value=7.0), lambda v: np.pad(v, ((1, 2), (0, 3)), constant_values=7)),
    }
    for name, (move, want) in moves.items():
        for values, why in ((x, {"a copy is its source, and E8M15 would round it": 1}), (coarse, {})):
            kt.reset()
            np.testing.assert_array_equal(move(Tensor(values, device=D)).numpy(), want(values), name)
            assert dict(kt.report().reasons) == why, name


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


def test_an_update_that_tinygrad_writes_as_a_value_and_a_copy_is_one() -> None:
    """It does where the change folds, as gradients of a product do."""
    w, x = on_device(np.ones((8, 8))).realize(), on_device(np.full((4, 8), 0.01))
    optimizer = SGD([w], lr=1.0)
    kt.reset()
    with Context(TRAINING=1):
        for _ in range(2):
            optimizer.zero_grad()
            ((x @ w).sum() * 1e-4).backward()
            optimizer.step()
    np.testing.assert_allclose(w.numpy(), 1 - 2 * 4e-6, rtol=0, atol=2.0**-23)
    assert kt.report().reasons["a float32 buffer is updated in place; in E8M15 small updates would be lost"] == 2
