"""`matmul="split"`: products on the clusters as accurate as the tensors' type, and what of a kernel is the host's."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from tinygrad.device import Device
from tinygrad.dtype import dtypes
from tinygrad.tensor import Tensor

import kohakutpu.tinygrad as kt
from kohakuaccel.diagnostics import Refusal
from kohakutpu import split
from kohakutpu.tinygrad.split import AROUND

D = "KTPU"


def given(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def on(x: np.ndarray) -> Tensor:
    return Tensor(x, device=D).realize()


def test_a_product_is_no_step_of_the_host() -> None:
    x, w = given(8, 64), given(16, 64, seed=1)
    a, b = on(x), on(w)
    kt.reset()
    with kt.numerics(matmul="split", host="refuse"):
        y = (a @ b.T).numpy()
    np.testing.assert_allclose(y, x.astype(np.float64) @ w.T, atol=1e-5)
    report = kt.report()
    assert (report.device_kernels, report.host_kernels, report.split_kernels) == (1, 0, 1)
    assert report.split_passes == 26
    assert report.split_bytes == x.nbytes + w.nbytes + 6 * (x.size + w.size) + 7 * 8 * 16 * 2
    assert "1 kernels: 1 on the device, 0 steps of the host\n  1 of them split products: 26 passes" in str(report)


CASES: dict[str, Callable[[], tuple[Tensor, np.ndarray]]] = {
    "bias and relu": lambda: (
        (on(given(5, 33)) @ on(given(33, 7, seed=1)) + on(given(7, seed=2))).relu(),
        np.maximum(given(5, 33) @ given(33, 7, seed=1) + given(7, seed=2), 0),
    ),
    "functions of operands": lambda: (
        (on(given(5, 9)).exp() @ on(given(9, 7, seed=1)).sigmoid()),
        np.exp(given(5, 9)) @ (1 / (1 + np.exp(-given(9, 7, seed=1)))),
    ),
    "batched attention": lambda: (
        on(given(2, 3, 5, 8)).scaled_dot_product_attention(on(given(2, 3, 6, 8)), on(given(2, 3, 6, 8, seed=1))),
        _attention(given(2, 3, 5, 8), given(2, 3, 6, 8), given(2, 3, 6, 8, seed=1)),
    ),
    "padded convolution": lambda: (
        on(given(2, 3, 6, 5)).conv2d(on(given(4, 3, 3, 3, seed=1)), padding=1, stride=2),
        _convolution(np.pad(given(2, 3, 6, 5), ((0, 0), (0, 0), (1, 1), (1, 1))), given(4, 3, 3, 3, seed=1)),
    ),
}


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def _convolution(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    views = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), (2, 3))[:, :, ::2, ::2]
    return np.einsum("bcyxij,ocij->boyx", views, w)


@pytest.mark.parametrize("name", CASES)
def test_arithmetic_around_a_product_is_the_hosts_and_counted(name: str) -> None:
    kt.reset()
    with kt.numerics(matmul="split"):
        ours, wanted = CASES[name]()
        np.testing.assert_allclose(ours.numpy(), wanted, rtol=1e-5, atol=5e-6)
    report = kt.report()
    assert report.split_kernels >= 1
    assert report.reasons[AROUND] == report.mixed == report.split_kernels - (name == "padded convolution")
    split_kernels = [ran for ran in report.kernels.values() if ran.lines[0].startswith("split products: 1, ")]
    assert len(split_kernels) == report.split_kernels
    assert sum(f"host: {AROUND}" in ran.lines for ran in split_kernels) == report.mixed
    assert not any("MXFP7" in reason for reason in report.reasons)


def test_arithmetic_around_a_product_is_refused_where_the_host_is() -> None:
    a, b = on(given(4, 4)), on(given(4, 4, seed=1))
    with kt.numerics(matmul="split", host="refuse"), pytest.raises(Refusal, match="around a split product"):
        (a @ b + 1).numpy()


def test_halves_are_multiplied_exactly_and_rounded_to_their_type() -> None:
    x, w = given(6, 20).astype(np.float16), given(20, 5, seed=1).astype(np.float16)
    kt.reset()
    with kt.numerics(matmul="split"):
        found = (Tensor(x, device=D) @ Tensor(w, device=D)).numpy()
        short = (
            (on(given(6, 20)).cast(dtypes.bfloat16) @ on(given(20, 5, seed=1)).cast(dtypes.bfloat16)).float().numpy()
        )
    assert kt.report().split_kernels == 2
    assert (found == (x.astype(np.float64) @ w.astype(np.float64)).astype(np.float16)).all()
    wide = [v.astype(ml_dtypes.bfloat16).astype(np.float64) for v in (given(6, 20), given(20, 5, seed=1))]
    np.testing.assert_allclose(short, (wide[0] @ wide[1]).astype(ml_dtypes.bfloat16).astype(np.float32), rtol=2**-7)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_products_with_nan_or_inf_are_the_hosts(bad: float) -> None:
    x, w = given(4, 6), given(6, 5, seed=1)
    x[1, 2] = bad
    a, b = on(x), on(w)
    kt.reset()
    with kt.numerics(matmul="split"):
        np.testing.assert_allclose((a @ b).numpy(), x @ w, rtol=1e-5, atol=1e-5)
    assert kt.report().reasons == {"a product with NaN or Inf": 1}
    with kt.numerics(matmul="split", host="refuse"), pytest.raises(Refusal, match="NaN or Inf"):
        (a @ b).numpy()


def test_rows_that_span_many_powers_of_two_keep_their_small_elements() -> None:
    x, w = given(7, 40), given(40, 5, seed=1)
    x[:, ::2] *= 1e6
    w[::2] *= 1e-6
    terms = np.abs(x) @ np.abs(w)
    with kt.numerics(matmul="split", host="refuse"):
        found = (on(x) @ on(w)).numpy()
    assert (np.abs(found - x.astype(np.float64) @ w) <= 2.0**-20 * terms).all()


def test_rows_that_no_scale_makes_even_are_the_hosts() -> None:
    x, w = given(6, 40), given(40, 6, seed=1)
    x[:3, ::2], x[3:, 1::2] = x[:3, ::2] * 1e8, x[3:, 1::2] * 1e8
    w[:, :3] *= np.where(np.arange(40) % 2, 1, 1e-9)[:, None]
    w[:, 3:] *= np.where(np.arange(40) % 2, 1e-9, 1)[:, None]
    kt.reset()
    with kt.numerics(matmul="split"):
        found = (on(x) @ on(w)).numpy()
    assert kt.report().reasons == {"a split product of rows that span more powers of two than digits hold": 1}
    assert (np.abs(found - x.astype(np.float64) @ w) <= 2.0**-20 * (np.abs(x) @ np.abs(w))).all()


def test_what_the_device_refuses_is_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise Refusal("it fits", where="here")

    monkeypatch.setattr(split, "product", refuse)
    x, w = given(4, 6), given(6, 5, seed=1)
    kt.reset()
    with kt.numerics(matmul="split"):
        np.testing.assert_allclose((on(x) @ on(w)).numpy(), x @ w, rtol=1e-5, atol=1e-5)
    report = kt.report()
    assert report.reasons == {"a split product was refused: it fits": 1}
    assert (report.device_kernels, report.split_kernels, report.host_kernels) == (0, 0, 1)
    assert str(report).startswith("1 kernels: 0 on the device, 1 steps of the host")
    (ran,) = report.kernels.values()
    assert ran.lines == (
        "split products: 0, 0 passes, 0 bytes of digits and sums",
        "host: a split product was refused: it fits",
    )


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.float64])
def test_products_of_integers_and_doubles_stay_on_the_host(dtype: object) -> None:
    x, w = on(given(4, 6) * 9).cast(dtype).realize(), on(given(6, 5, seed=1) * 9).cast(dtype).realize()  # pyright: ignore[reportArgumentType] - a dtype of tinygrad's
    kt.reset()
    with kt.numerics(matmul="split"):
        np.testing.assert_allclose((x @ w).numpy(), x.numpy() @ w.numpy(), rtol=1e-14)
    assert kt.report().split_kernels == 0
    assert kt.report().host_kernels == 1


def test_seconds_include_every_pass_and_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = getattr(Device[D], "engine")  # noqa: B009  (a device's own attribute)
    monkeypatch.setattr(engine, "timed", True)
    machine = engine.machine

    def seconds(x: np.ndarray) -> tuple[float, float]:
        """Of a product with itself: all, and what its bytes take on the link."""
        a = on(x)
        kt.reset()
        counters = engine.device.counters
        before = counters.bytes_to_device + counters.bytes_from_device
        with kt.numerics(matmul="split"):
            (a @ a.T).realize()
        moved = counters.bytes_to_device + counters.bytes_from_device - before
        return kt.report().seconds, moved / machine.timing.host_bytes / (machine.params.clock_mhz * 1e6)

    whole, link = seconds(given(16, 32))
    (ran,) = kt.report().kernels.values()
    assert ran.seconds == whole
    assert kt.report().by_kernel().splitlines()[1].startswith("  split products: 1, 26 passes")
    assert any("% full" in line for line in ran.lines)
    assert ran.lines[-1].startswith("the link: ")
    once, short_link = seconds(np.rint(given(16, 32)))
    assert whole > link > 2 * short_link > 0
    assert whole - link > once - short_link > 0
