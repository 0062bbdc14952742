"""What only the device has is transposed, stretched, cut anew and reduced there: the host moves nothing, and the
counters say what was done instead."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakutpu import api as ktpu
from kohakutpu import kernels
from kohakutpu.tensor import Tensor


def data(*shape: int, seed: int = 0) -> NDArray[np.float16]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def computed(a: NDArray[np.float16]) -> Tensor:
    """A tensor that only the device has: rows that a kernel wrote."""
    return ktpu.tensor(-a) * -1.0


def product(rows: int, cols: int) -> tuple[Tensor, NDArray[np.float16]]:
    """A tensor in tile order that only the device has, and its values."""
    a, b = data(rows, 32, seed=3) / 8, data(cols, 32, seed=4) / 8
    return ktpu.tensor(a) @ ktpu.tensor(b), (ktpu.tensor(a) @ ktpu.tensor(b)).numpy()


@contextmanager
def nothing_on_the_host() -> Generator[None]:
    before = ktpu.stats()
    yield
    after = ktpu.stats()
    for counter in ("relayouts", "host_steps", "bytes_from_device"):
        assert after[counter] == before[counter], counter


@pytest.mark.parametrize("shape", [(24, 40), (5, 7), (1, 33), (2, 9, 17)])
def test_a_transpose(shape: tuple[int, ...]) -> None:
    a = data(*shape)
    with nothing_on_the_host():
        turned = computed(a).T
        y = turned.relu()
    assert np.array_equal(y.numpy(), np.maximum(a.T, 0))
    assert np.array_equal(turned.numpy(), a.T)


def test_a_transpose_that_nobody_computes_with_moves_nothing() -> None:
    x = computed(data(6, 10))
    before = ktpu.stats()
    turned = x.T
    assert ktpu.stats() == before
    turned.numpy()
    assert ktpu.stats()["dispatches"] == before["dispatches"]


def test_a_transpose_of_a_transpose() -> None:
    a = data(3, 10, 20)
    with nothing_on_the_host():
        y = computed(a).transpose(2, 0, 1).transpose(0, 2, 1) * 2.0
    assert np.array_equal(y.numpy(), a.transpose(2, 1, 0) * np.float16(2))


def test_scores_of_computed_values() -> None:
    q, k = product(40, 64), product(72, 64)
    with nothing_on_the_host():
        scores = q[0] @ k[0]
        back = scores @ k[0].T
    exact = q[1].astype(float) @ k[1].astype(float).T
    assert np.linalg.norm(scores.numpy() - exact) / np.linalg.norm(exact) < 0.02
    exact = scores.numpy().astype(float) @ k[1].astype(float)
    assert np.linalg.norm(back.numpy() - exact) / np.linalg.norm(exact) < 0.02


def test_a_host_value_takes_the_host_path_and_is_uploaded_once() -> None:
    x = ktpu.tensor(data(20, 30))
    (x.T + 1.0).numpy()
    before = ktpu.stats()
    y = x.T + 1.0
    after = ktpu.stats()
    assert after["bytes_to_device"] == before["bytes_to_device"]
    assert after["device_relayouts"] == before["device_relayouts"]
    assert np.array_equal(y.numpy(), x.numpy().T + np.float16(1))


@pytest.mark.parametrize(
    ("a", "b"), [((20, 1), (20, 33)), ((1, 33), (20, 33)), ((4, 1, 5), (4, 6, 5)), ((1,), (3, 40))]
)
def test_a_computed_value_is_stretched_on_the_device(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    small, large = data(*a), data(*b, seed=1)
    with nothing_on_the_host():
        y = computed(large).maximum(computed(small))
    assert np.array_equal(y.numpy(), np.maximum(large, small))


@pytest.mark.parametrize(("old", "new"), [((6, 20), (20, 6)), ((20, 6), (120,)), ((120,), (8, 15)), ((30,), (5, 6))])
def test_rows_are_cut_anew_on_the_device(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    a = data(*old)
    with nothing_on_the_host():
        y = computed(a).reshape(new).softmax()
    e = np.exp(a.reshape(new).astype(float))
    assert np.allclose(y.numpy(), e / e.sum(-1, keepdims=True), atol=2e-3)


def test_the_sums_of_rows_are_a_row() -> None:
    a = data(37, 50)
    with nothing_on_the_host():
        y = computed(a).sum(-1).softmax()
    s = a.astype(float).sum(-1)
    assert np.allclose(y.numpy(), np.exp(s - s.max()) / np.exp(s - s.max()).sum(), atol=0.02)


@pytest.mark.parametrize("axis", [0, 1, 2, (0, 1), (1, 2), (0, 2), None])
@pytest.mark.parametrize("name", ["sum", "max", "mean"])
def test_reductions_over_any_axes(axis: Any, name: str) -> None:
    a = data(5, 12, 20)
    with nothing_on_the_host():
        y = getattr(computed(a), name)(axis)
    exact = getattr(np, name)(a.astype(float), axis=axis)
    assert np.allclose(y.numpy(), exact, rtol=2**-10, atol=2**-10)


def test_a_reduction_of_a_product_over_its_rows() -> None:
    x, values = product(70, 90)
    with nothing_on_the_host():
        y = x.sum(0)
    assert np.allclose(y.numpy(), values.astype(float).sum(0), rtol=2**-10, atol=2**-8)


def test_a_large_reduction_runs_on_every_core() -> None:
    a = data(100, 200)
    assert np.allclose(ktpu.tensor(a).sum().item(), a.astype(float).sum(), rtol=2**-10)
    assert ktpu.tensor(a).max().item() == a.max()
    assert np.allclose(
        ktpu.tensor(a.reshape(-1)[:16384]).mean().item(), a.reshape(-1)[:16384].astype(float).mean(), atol=1e-5
    )


def test_an_operand_moved_for_an_epilogue_spares_the_accumulator_in_l1() -> None:
    """A residual that only the device has, in rows: its relayout must not run between the drain into L1 and its use."""
    a, b, r = data(30, 64), data(12, 64, seed=1) / 8, data(30, 12, seed=2)
    with nothing_on_the_host():
        y = kernels.linear(a, b, residual=computed(r))
    assert np.array_equal(y.numpy(), kernels.linear(a, b, residual=r).numpy())
