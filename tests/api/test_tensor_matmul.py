"""`@` on the machine against float64: shapes, folding, batches on both sides, layouts that travel, NaN
policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from api.bounds import check_matmul
from kohakuaccel.diagnostics import Fault, Refusal
from kohakutpu import api as ktpu


def data(*shape: int, seed: int = 0) -> Any:
    return np.asarray(np.random.default_rng(seed).normal(size=shape), np.float16)


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (1, 1, 1),
        (3, 5, 7),
        (4, 4, 32),
        (17, 13, 31),
        (64, 64, 64),
        (1, 97, 33),
        (101, 1, 2),
        (16, 8, 300),
        (70, 130, 96),
    ],
)
def test_any_size(m: int, n: int, k: int) -> None:
    a, b = data(m, k, seed=1), data(n, k, seed=2)
    got = ktpu.tensor(a) @ ktpu.tensor(b)
    assert (got.shape, got.dtype) == ((m, n), np.float16)
    check_matmul(got.numpy(), a, b)


@pytest.mark.parametrize(
    ("left", "right", "shape"),
    [
        ((9,), (9,), ()),
        ((9,), (5, 9), (5,)),
        ((7, 9), (9,), (7,)),
        ((2, 3, 7, 9), (9,), (2, 3, 7)),
        ((9,), (4, 5, 9), (4, 5)),
        ((1, 9), (4, 5, 9), (4, 1, 5)),
        ((2, 3, 9), (5, 9), (2, 3, 5)),
        ((2, 3, 9), (1, 5, 9), (2, 3, 5)),
        ((4, 3, 9), (4, 5, 9), (4, 3, 5)),
        ((3, 9), (4, 5, 9), (4, 3, 5)),
        ((2, 1, 3, 9), (1, 4, 5, 9), (2, 4, 3, 5)),
        ((2, 1, 3, 9), (4, 5, 9), (2, 4, 3, 5)),
        ((6, 2, 3, 9), (2, 5, 9), (6, 2, 3, 5)),
        ((2, 5, 9), (6, 2, 3, 9), (6, 2, 5, 3)),
    ],
)
def test_batches_fold_and_broadcast(left: Any, right: Any, shape: Any) -> None:
    a, b = data(*left, seed=3), data(*right, seed=4)
    got = ktpu.matmul(a, b).numpy()
    assert got.shape == shape
    wide_a = a if a.ndim > 1 else a[None]
    wide_b = b if b.ndim > 1 else b[None]
    rows = got if b.ndim > 1 else got[..., None]
    rows = rows if a.ndim > 1 else rows[..., None, :]
    check_matmul(rows, wide_a, wide_b)


def test_arrays_on_either_side() -> None:
    a, b = data(6, 40), data(9, 40, seed=1)
    for got in (ktpu.tensor(a) @ b, a @ ktpu.tensor(b), ktpu.matmul(a, b), ktpu.tensor(a) @ b.tolist()):
        check_matmul(got.numpy(), a, b)


@pytest.mark.parametrize(
    ("left", "right", "shape"),
    [((3, 0), (4, 0), (3, 4)), ((0, 5), (4, 5), (0, 4)), ((2, 0, 5), (7, 5), (2, 0, 7)), ((0,), (0,), ())],
)
def test_empty_products_are_zeros_without_a_device(left: Any, right: Any, shape: Any) -> None:
    before = ktpu.stats()["dispatches"]
    got = ktpu.zeros(left) @ ktpu.zeros(right)
    assert np.array_equal(got.numpy(), np.zeros(shape))
    assert ktpu.stats()["dispatches"] == before


def test_the_accuracy_of_the_format_not_better_not_worse() -> None:
    a, b = data(128, 128, seed=5), data(128, 128, seed=6)
    want = a.astype(np.float64) @ b.astype(np.float64).T
    error = np.linalg.norm(ktpu.matmul(a, b).numpy() - want) / np.linalg.norm(want)
    assert 1.2e-2 < error < 2.0e-2


def test_refusals_show_both_shapes_and_the_transpose() -> None:
    with pytest.raises(Refusal, match=r"\(3, 4\) @ \(4, 5\).*[bB]\.T"):
        _ = ktpu.zeros((3, 4)) @ ktpu.zeros((4, 5))
    with pytest.raises(Refusal, match="LAST axis"):
        _ = ktpu.zeros((3, 4)) @ ktpu.zeros((3, 5))
    with pytest.raises(Refusal, match="broadcast"):
        _ = ktpu.zeros((2, 3, 4)) @ ktpu.zeros((3, 5, 4))
    for wrong in (3.0, ktpu.tensor(3.0)):
        with pytest.raises(Refusal, match="contracts an axis"):
            _ = ktpu.zeros((3, 4)) @ wrong


def test_dtype_of_results() -> None:
    a = np.ones((4, 4), np.float32)
    x, w = ktpu.tensor(a), ktpu.tensor(a.astype(np.float16))
    assert (x @ w).dtype == np.float32
    assert (w @ w).dtype == np.float16
    assert (x @ w).silu().numpy().dtype == np.float32
    assert np.array_equal(x.numpy(), a)


def test_the_seeds_program_moves_nothing_twice() -> None:
    x, w = ktpu.tensor(data(64, 96, seed=7)), ktpu.tensor(data(128, 96, seed=8))
    before = ktpu.stats()
    y = (x @ w).silu()
    during = ktpu.stats()
    assert during["relayouts"] == before["relayouts"]
    assert during["host_steps"] == before["host_steps"]
    assert during["bytes_from_device"] == before["bytes_from_device"]
    assert during["dispatches"] > before["dispatches"]
    y.numpy()
    assert ktpu.stats()["bytes_from_device"] == during["bytes_from_device"] + 64 * 128 * 2
    s = x.numpy().astype(float) @ w.numpy().astype(float).T
    assert np.abs(y.numpy() - s / (1 + np.exp(-s))).max() < 1.0


def test_operands_are_uploaded_once() -> None:
    x, w = ktpu.tensor(data(32, 32)), ktpu.tensor(data(32, 32, seed=1))
    first = (x @ w).numpy()
    before = ktpu.stats()["bytes_to_device"]
    assert np.array_equal((x @ w).numpy(), first)
    assert ktpu.stats()["bytes_to_device"] == before


def test_a_bias_does_not_move_the_product() -> None:
    a, b, bias = data(40, 64), data(48, 64, seed=1), data(48, seed=2)
    product = ktpu.tensor(a) @ ktpu.tensor(b)
    exact = product.numpy().astype(np.float64)
    before = ktpu.stats()["relayouts"]
    got = (ktpu.tensor(a) @ ktpu.tensor(b) + bias).numpy()
    assert ktpu.stats()["relayouts"] == before
    assert np.allclose(got, exact + bias, rtol=2**-10, atol=1e-6)


def test_a_chain_of_products_stays_on_the_device() -> None:
    a, b, c = data(32, 64), data(48, 64, seed=1), data(16, 48, seed=2)
    before = ktpu.stats()
    first = ktpu.tensor(a) @ ktpu.tensor(b)
    got = first @ ktpu.tensor(c)
    after = ktpu.stats()
    assert after["relayouts"] == before["relayouts"]
    assert after["bytes_from_device"] == before["bytes_from_device"]
    assert after["device_relayouts"] > before["device_relayouts"]
    check_matmul(got.numpy(), first.numpy(), c)


def test_a_transposed_operand() -> None:
    a, b = data(24, 40), data(40, 56, seed=1)
    check_matmul((ktpu.tensor(a) @ ktpu.tensor(b).T).numpy(), a, b.T)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_quantiser_refuses_and_names_the_element(value: float) -> None:
    a, b = data(8, 40), data(8, 40, seed=1)
    a[3, 33] = value
    x, w = ktpu.tensor(a), ktpu.tensor(b)
    with pytest.raises(Fault, match=r"element \[3, 33\]") as fault:
        (x @ w).numpy()
    assert 'nonfinite("count")' in str(fault.value)
    assert np.array_equal(x.numpy(), a, equal_nan=True)
    assert np.array_equal((x + 0.0).numpy(), a, equal_nan=True)
    check_matmul((w @ w).numpy(), b, b)


def test_count_is_an_opt_in_for_a_block() -> None:
    a = data(8, 40)
    a[1, 1] = np.inf
    x, w = ktpu.tensor(a), ktpu.ones((8, 40))
    before = ktpu.stats()["nonfinite"]
    with ktpu.nonfinite("count"):
        got = (x @ w).numpy()
    assert ktpu.stats()["nonfinite"] > before
    assert np.abs(got[1]).min() > 60000
    with pytest.raises(Fault):
        (x @ w).numpy()
    with pytest.raises(Refusal, match="raise or count"), ktpu.nonfinite("ignore"):  # type: ignore[arg-type]  # on purpose
        # the point
        pass


def test_a_computed_nan_is_refused_and_stays_readable() -> None:
    x = ktpu.tensor(np.zeros((4, 32))) / ktpu.tensor(np.zeros((4, 32)))
    with pytest.raises(Fault, match=r"element \[0, 0\]"):
        (x @ ktpu.ones((4, 32))).numpy()
    assert np.isnan(x.numpy()).all()


def test_pinned_operands_stay_through_empty_cache() -> None:
    x, w = ktpu.tensor(data(32, 32)), ktpu.tensor(data(32, 32, seed=1)).pin()
    first = (x @ w).numpy()
    assert ktpu.empty_cache() > 0
    assert w.layouts()
    assert not x.layouts()
    assert np.array_equal((x @ w).numpy(), first)
    w.unpin()
    ktpu.empty_cache()
    assert not w.layouts()
