"""Tensor methods on the device against numpy: several shapes, host steps included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tinygrad.dtype import dtypes
from tinygrad.helpers import Context
from tinygrad.nn import optim
from tinygrad.tensor import Tensor

import kohakutpu.tinygrad as kt

D = "KTPU"
SHAPES = ((7,), (3, 5), (2, 3, 4))


def given(*shape: int, seed: int = 0, kind: str = "real") -> np.ndarray:
    rng = np.random.default_rng(seed)
    if kind == "int":
        return rng.integers(-9, 9, size=shape).astype(np.int32)
    return rng.normal(size=shape).astype(np.float32)


UNARY: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[np.ndarray], Any]]] = {
    "relu": (lambda t: t.relu(), lambda x: np.maximum(x, 0)),
    "exp": (lambda t: t.exp(), np.exp),
    "log": (lambda t: (t.abs() + 0.1).log(), lambda x: np.log(np.abs(x) + np.float32(0.1))),
    "sqrt": (lambda t: t.abs().sqrt(), lambda x: np.sqrt(np.abs(x))),
    "rsqrt": (lambda t: (t * t + 1).rsqrt(), lambda x: 1 / np.sqrt(x * x + 1)),
    "sin": (lambda t: t.sin(), np.sin),
    "tanh": (lambda t: t.tanh(), np.tanh),
    "sigmoid": (lambda t: t.sigmoid(), lambda x: 1 / (1 + np.exp(-x))),
    "floor": (lambda t: (t * 3).floor(), lambda x: np.floor(x * 3)),
    "round": (lambda t: (t * 3).round(), lambda x: np.round(x * 3)),
    "sign": (lambda t: t.sign(), np.sign),
    "clip": (lambda t: t.clip(-0.5, 0.5), lambda x: np.clip(x, -0.5, 0.5)),
    "pow": (lambda t: t**3, lambda x: x**3),
    "where": (lambda t: (t > 0).where(t, t * 2), lambda x: np.where(x > 0, x, x * 2)),
    "flip": (lambda t: t.flip(0), lambda x: x[::-1]),
    "roll": (lambda t: t.roll(1, 0), lambda x: np.roll(x, 1, 0)),
    "repeat": (lambda t: t.repeat((2,) * t.ndim), lambda x: np.tile(x, (2,) * x.ndim)),
    "pad": (lambda t: t.pad(((1, 2),) * t.ndim), lambda x: np.pad(x, ((1, 2),) * x.ndim)),
    "cat": (lambda t: t.cat(t * 2, dim=0), lambda x: np.concatenate([x, x * 2], 0)),
    "transpose": (lambda t: t.transpose(0, -1).contiguous(), lambda x: np.swapaxes(x, 0, -1)),
    "sum": (lambda t: t.sum(0), lambda x: x.sum(0)),
    "mean": (lambda t: t.mean(-1), lambda x: x.mean(-1)),
    "max": (lambda t: t.max(-1), lambda x: x.max(-1)),
    "prod": (lambda t: t.prod(0), lambda x: x.prod(0)),
    "std": (lambda t: t.std(-1), lambda x: x.std(-1, ddof=1)),
    "argmax": (lambda t: t.argmax(-1), lambda x: x.argmax(-1)),
    "cumsum": (lambda t: t.cumsum(0), lambda x: x.cumsum(0)),
    "softmax": (lambda t: t.softmax(-1), lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    "sort": (lambda t: t.sort(-1)[0], lambda x: np.sort(x, -1)),
    "int8": (lambda t: (t * 50).cast(dtypes.int8), lambda x: (x * 50).astype(np.int8)),
    "half": (lambda t: t.half().float(), lambda x: x.astype(np.float16).astype(np.float32)),
    "bits": (lambda t: t.bitcast(dtypes.int32), lambda x: x.view(np.int32)),
    "one hot": (lambda t: t.argmax(-1).one_hot(int(t.shape[-1])), lambda x: np.eye(x.shape[-1])[x.argmax(-1)]),
    "tril": (
        lambda t: t.reshape(t.shape[0], -1).tril(),
        lambda x: np.tril(x.reshape(x.shape[0], -1)),
    ),
}


@pytest.mark.parametrize("name", UNARY)
def test_methods(name: str) -> None:
    ours, theirs = UNARY[name]
    with kt.numerics(matmul="split"):
        for n, shape in enumerate(SHAPES):
            x = given(*shape, seed=n)
            got, wanted = ours(Tensor(x, device=D)).numpy(), np.asarray(theirs(x))
            assert got.shape == wanted.shape
            np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.uint32, dtypes.int64])
def test_integers_wrap(dtype: Any) -> None:
    x = given(5, 6, kind="int").astype(np.dtype(dtype.fmt))
    y = np.where(np.roll(x, 1) == 0, 3, np.roll(x, 1)).astype(x.dtype)
    a, b = Tensor(x, dtype=dtype, device=D), Tensor(y, dtype=dtype, device=D)
    with np.errstate(over="ignore"):
        for got, wanted in (
            (a * b * b, x * y * y),
            (a - b, x - y),
            (a ^ b, x ^ y),
            (a & b | b, x & y | y),
            (a << 3, x << np.asarray(3, x.dtype)),
            (a >> 1, x >> np.asarray(1, x.dtype)),
            (a // b, x // y),
            (a % b, x % y),
        ):
            assert (got.numpy() == wanted).all()


def test_products_and_convolutions() -> None:
    with kt.numerics(matmul="split"):
        x, w = given(2, 3, 9, 7), given(4, 3, 3, 3, seed=1)
        got = Tensor(x, device=D).conv2d(Tensor(w, device=D), padding=1, stride=2).numpy()
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
        np.testing.assert_allclose(got, np.einsum("bcyxij,ocij->boyx", windows[:, :, ::2, ::2], w), atol=1e-5)
        a, b = given(2, 5, 6), given(2, 6, 3, seed=1)
        np.testing.assert_allclose((Tensor(a, device=D) @ Tensor(b, device=D)).numpy(), a @ b, atol=1e-5)
        pooled = Tensor(x, device=D).max_pool2d((3, 3), 2)
        views = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))[:, :, ::2, ::2]
        assert isinstance(pooled, Tensor)
        np.testing.assert_allclose(pooled.numpy(), views.max((-1, -2)))


def test_gathers_and_scatters() -> None:
    x, at = given(6, 4), np.array([[5, 0, 2, 1], [3, 3, 0, 4]], np.int32)
    t, i = Tensor(x, device=D), Tensor(at, device=D)
    assert (t.gather(0, i).numpy() == np.take_along_axis(x, at, 0)).all()
    assert (t[Tensor([4, -1], dtype=dtypes.int32, device=D)].numpy() == x[[4, -1]]).all()
    made = Tensor.zeros(6, 4, device=D).contiguous().scatter(0, i[:1], Tensor(x[:1], device=D)).numpy()
    wanted = np.zeros_like(x)
    np.put_along_axis(wanted, at[:1], x[:1], 0)
    assert (made == wanted).all()


def test_a_training_step_follows_the_gradient() -> None:
    """One Adam step of two layers, against the same step in numpy's float64."""
    x, w1, w2 = given(16, 8), given(12, 8, seed=1), given(3, 12, seed=2)
    params = [Tensor(w1, device=D), Tensor(w2, device=D)]
    with kt.numerics(matmul="split"), Context(TRAINING=1):
        opt = optim.Adam(params, lr=0.01)
        loss = ((Tensor(x, device=D) @ params[0].T).relu() @ params[1].T).square().mean()
        opt.zero_grad()
        loss.backward()
        loss.realize()
        opt.step()
        found = [p.numpy() for p in params]
    h = np.maximum(x.astype(np.float64) @ w1.T, 0)
    y = h @ w2.T
    dy = 2 * y / y.size
    grads = [((dy @ w2) * (h > 0)).T @ x, dy.T @ h]
    assert abs(float(loss.numpy()) - (y**2).mean()) < 1e-4
    for p, w, g in zip(found, (w1, w2), grads):
        np.testing.assert_allclose(p, w - 0.01 * g / (np.abs(g) + 1e-8), atol=1e-5)
