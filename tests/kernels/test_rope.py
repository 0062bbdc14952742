"""Rotary embedding against float64: any even width, any leading axes, and what it must keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from api.bounds import STEP, check
from kernels.test_linear import draw
from kohakuaccel.diagnostics import Refusal
from kohakutpu import api as ktpu
from kohakutpu import kernels


def rope(x: Any, cos: Any, sin: Any) -> tuple[Any, Any]:
    """float64 result and the sum of the magnitudes that meet in it."""
    exact, half = x.astype(np.float64), x.shape[-1] // 2
    turned = np.concatenate([-exact[..., half:], exact[..., :half]], -1)
    c, s = (np.concatenate([t, t], -1).astype(np.float64) for t in (cos, sin))
    return exact * c + turned * s, np.abs(exact * c) + np.abs(turned * s)


@pytest.mark.parametrize("shape", [(1, 2), (5, 2), (3, 7, 10), (2, 3, 9, 64), (2, 1, 33, 128), (4, 26)])
def test_rope(shape: Any) -> None:
    x = draw(*shape)
    cos, sin = kernels.rope_tables(shape[-2], shape[-1])
    want, size = rope(x, cos, sin)
    got = kernels.rope(x, cos, sin)
    assert got.shape == shape
    check(got.numpy(), want, 2, size * 2 * STEP)


def test_position_zero_turns_nothing_and_tables_go_on() -> None:
    x = draw(1, 32)
    assert kernels.rope(x, *kernels.rope_tables(1, 32)).numpy().tobytes() == x.tobytes()
    for whole, part in zip(kernels.rope_tables(9, 32), kernels.rope_tables(4, 32, first=5)):
        assert np.array_equal(whole[5:], part)


def test_halves_of_aligned_heads_are_no_relayout() -> None:
    """Rows of D and rows of D/2 are the same bytes, so a value from another kernel stays where it is."""
    x = ktpu.tensor(draw(2, 9, 64)).softmax()
    ktpu.reset_stats()
    kernels.rope(x, *kernels.rope_tables(9, 64))
    found = ktpu.stats()
    assert found["bytes_from_device"] == 0
    assert found["relayouts"] == 0
    plan = kernels.rotate.plan((2, 9, 2, 32), (9, 32), (9, 32))
    assert len(plan.schedule.stages) == 2


def test_an_odd_head_is_refused() -> None:
    with pytest.raises(Refusal, match="turns pairs"):
        kernels.rope(draw(4, 7), draw(4, 3), draw(4, 3))
