"""Where a maximum was: found by comparing elements in another kernel, whatever rounds in between."""

from __future__ import annotations

import numpy as np
import pytest
from tinygrad.tensor import Tensor

import kohakutpu.tinygrad as kt
from kohakutpu.tinygrad.selection import rounded

D = "KTPU"


def given(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("factor", [1.0, 1.37])
def test_argmax_of_values_that_would_round(factor: float) -> None:
    x = given(6, 33)
    kt.reset()
    assert ((Tensor(x, device=D) * factor).argmax(-1).numpy() == x.argmax(-1)).all()
    assert not kt.report().device_kernels


def test_argmax_of_what_the_machine_made() -> None:
    x, w = given(6, 32), given(32, 16)
    made = (Tensor(x, device=D) @ Tensor(w, device=D)).realize()
    kt.reset()
    found = made.argmax(-1).numpy()
    assert kt.report().device_kernels == 1  # the maximum itself
    assert (found == made.numpy().argmax(-1)).all()


def test_the_gradient_of_a_maximum_of_computed_values() -> None:
    x, w = given(3, 8), given(3, 8)[::-1].copy()
    a, b = Tensor(x, device=D), Tensor(w, device=D)
    (found,) = ((a * b).max(-1).sum()).gradient(a)
    best = (x * w).argmax(-1)
    want = np.zeros_like(x)
    want[range(3), best] = w[range(3), best]
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-3)


def test_what_e8m15_rounds() -> None:
    assert rounded(np.array([1 + 2.0**-16], np.float32))
    assert not rounded(np.array([1 + 2.0**-15, -3.5e-20 * 0, 65536.0], np.float32))
    assert not rounded(np.array([0.1], np.float16))
