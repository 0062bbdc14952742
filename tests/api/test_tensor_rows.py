"""Row operators and reductions on the machine against float64: any axis, any width, empties, NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from api.bounds import STEP, check
from kohakuaccel.diagnostics import Refusal
from kohakutpu import api as ktpu


def data(*shape: int, seed: int = 0, scale: float = 1.0) -> Any:
    return np.asarray(np.random.default_rng(seed).normal(0, scale, shape), np.float16)


def double(x: Any) -> Any:
    return np.asarray(x, np.float64)


def softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def sum_room(x: Any, axes: Any) -> Any:
    """Error of a tree of E8M15 sums: every addend passes at most 7 + 4 tree levels, 8 lanes' carries and one
    add a pass of 2,048 elements; each rounds by 2^-16 of at most the sum of magnitudes."""
    count = x.size if axes is None else np.prod([x.shape[a] for a in np.atleast_1d(axes)])
    return np.abs(x).sum(axes, keepdims=True) * (24 + count / 128) * STEP


@pytest.mark.parametrize("shape", [(1,), (7,), (3, 16), (5, 17), (2, 3, 129), (1, 1), (64, 128)])
def test_softmax(shape: Any) -> None:
    a = data(*shape, scale=3.0)
    got = ktpu.tensor(a).softmax().numpy()
    want = softmax(double(a))
    check(got, want, 8, want * (np.abs(double(a)).max() + 4) * 6 * STEP + STEP * want)


@pytest.mark.parametrize("axis", [0, 1, -2])
def test_softmax_along_another_axis(axis: int) -> None:
    a = data(4, 5, 6)
    got = ktpu.softmax(a, axis).numpy()
    want = softmax(double(a), axis)
    check(got, want, 8, want * 10 * 6 * STEP)


@pytest.mark.parametrize("width", [1, 3, 32, 100, 2048, 2049])
def test_rmsnorm(width: int) -> None:
    a, w = data(3, width, seed=1), data(width, seed=2)
    want = double(a) / np.sqrt((double(a) ** 2).mean(-1, keepdims=True) + 1e-6) * double(w)
    check(ktpu.tensor(a).rmsnorm(w).numpy(), want, 8 + (24 + width / 128), np.abs(want) * 2.0**-11)


@pytest.mark.parametrize("width", [2, 3, 32, 100, 2048, 2049])
def test_layernorm(width: int) -> None:
    a, w, b = data(3, width, seed=3), data(width, seed=4), data(width, seed=5)
    x = double(a)
    scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * double(w)
    room = (np.abs(scaled) + np.abs(double(w)) * 0.1) * (2.0**-10 + (32 + width / 64) * STEP)
    check(ktpu.tensor(a).layernorm(w, b).numpy(), scaled + double(b), 4, room)


def test_norms_refuse_other_lengths_and_bad_eps() -> None:
    x = ktpu.zeros((2, 8))
    with pytest.raises(Refusal, match="length of the last axis"):
        x.rmsnorm(np.ones(7))
    with pytest.raises(Refusal, match="length of the last axis"):
        x.layernorm(np.ones(8), np.ones((1, 8)))
    with pytest.raises(Refusal, match="eps is a number"):
        x.rmsnorm(np.ones(8), eps="small")  # type: ignore[arg-type]  # the point of the test
    for row_operator in (lambda s: s.softmax(), lambda s: s.rmsnorm(np.ones(1))):
        with pytest.raises(Refusal, match="without axes"):
            row_operator(ktpu.tensor(1.0))


AXES: list[Any] = [None, 0, 1, 2, -1, (0, 1), (1, 2), (0, 2), (2, 0), (0, 1, 2), ()]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min"])
def test_reductions_over_any_axes(name: str, axis: Any, keepdims: bool) -> None:
    a = data(3, 5, 7, seed=6)
    got = getattr(ktpu.tensor(a), name)(axis, keepdims).numpy()
    want = getattr(double(a), name)(axis, keepdims=keepdims)
    room = 0.0 if name in ("max", "min") else sum_room(double(a), axis).reshape(np.shape(want))
    check(got, want, 3, room)


@pytest.mark.parametrize("width", [1, 2, 15, 16, 17, 127, 1000, 2048, 2049, 20011])
def test_rows_of_any_width(width: int) -> None:
    a = data(3, width, seed=7)
    x = ktpu.tensor(a)
    check(x.max(-1).numpy(), double(a).max(-1), 0)
    check(x.min(-1).numpy(), double(a).min(-1), 0)
    check(x.sum(-1).numpy(), double(a).sum(-1), 1, sum_room(double(a), -1)[:, 0])
    check(x.mean(-1).numpy(), double(a).mean(-1), 3, sum_room(double(a), -1)[:, 0] / width)


@pytest.mark.parametrize("width", [20000, 4099])
def test_wide_row_operators(width: int) -> None:
    a = data(2, width, seed=8)
    want = softmax(double(a))
    check(ktpu.tensor(a).softmax().numpy(), want, 8, want * (60 + width / 128) * STEP)
    ones = np.ones(width)
    norm = double(a) / np.sqrt((double(a) ** 2).mean(-1, keepdims=True) + 1e-6)
    check(ktpu.tensor(a).rmsnorm(ones).numpy(), norm, 40 + width / 128, np.abs(norm) * 2.0**-11)


def test_no_false_maximum_from_padding() -> None:
    a = -np.abs(data(5, 37, seed=9)) - np.float16(1)
    assert np.array_equal(ktpu.tensor(a).max(-1).numpy(), a.max(-1))
    assert np.array_equal(ktpu.tensor(-a).min(-1).numpy(), (-a).min(-1))


def test_reductions_of_nothing() -> None:
    x = ktpu.zeros((3, 0, 2))
    before = ktpu.stats()["dispatches"]
    assert np.array_equal(x.sum(1).numpy(), np.zeros((3, 2)))
    assert np.isnan(x.mean(1, keepdims=True).numpy()).all()
    assert x.mean(1, keepdims=True).shape == (3, 1, 2)
    assert x.max(0).shape == (0, 2)
    assert x.sum().item() == 0.0
    assert ktpu.stats()["dispatches"] == before
    with pytest.raises(Refusal, match="at least one element"):
        x.max(1)
    with pytest.raises(Refusal, match="at least one element"):
        x.min()


def test_axes_are_checked() -> None:
    x = ktpu.zeros((2, 3))
    for axis in (2, -3, (0, 0), (0, -2), "0", 1.0):
        with pytest.raises(Refusal):
            x.sum(axis)  # type: ignore[arg-type]  # the point of the test


def test_reducing_the_last_axis_of_a_row_result_is_no_relayout() -> None:
    x = ktpu.tensor(data(8, 32)).softmax()
    before = ktpu.stats()
    x.sum(-1)
    assert ktpu.stats()["device_relayouts"] == before["device_relayouts"]
    x.sum(0)
    after = ktpu.stats()
    assert after["device_relayouts"] > before["device_relayouts"]
    assert after["relayouts"] == before["relayouts"]
    assert after["bytes_from_device"] == before["bytes_from_device"]


def test_scalar_reductions() -> None:
    x = ktpu.tensor(2.5)
    assert [x.sum().item(), x.max().item(), x.mean(keepdims=True).item()] == [2.5, 2.5, 2.5]


def test_a_softmax_written_out() -> None:
    a = data(6, 10, seed=10)
    x = ktpu.tensor(a)
    e = (x - x.max(-1, keepdims=True)).exp()
    got = (e / e.sum(-1, keepdims=True)).numpy()
    assert np.allclose(got, softmax(double(a)), rtol=5e-3, atol=1e-6)
