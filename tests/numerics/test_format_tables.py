"""The examples of datasheet 2.4 (partials and sums through the accumulator float) and 2.6 (lane rounding)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kohakuaccel.numerics import E8M15, FP22, FP32, MXFP7, Tally


@pytest.mark.parametrize(
    ("dot", "a", "b", "code"),
    [
        (127008, 0xFF, 0xFF, 0x19ED03),
        (1, 0x00, 0x00, 0x05C000),
        (-100001, 0xA0, 0xA0, 0x33E1A8),
        (77777, 0x9B, 0xA5, 0x13D4DB),
        (65537, 0xA0, 0xA0, 0x13C000),
    ],
)
def test_partials(dot: int, a: int, b: int, code: int) -> None:
    scales = MXFP7.scale.decode(np.array([a, b]))
    assert int(FP22.encode(dot * scales[0] * scales[1])) == code


@pytest.mark.parametrize(
    ("a", "b", "total", "saturated"),
    [
        (0x0FC000, 0x0C4000, 0x0FC001, 0),
        (0x0FC000, 0x2C0001, 0x0FBFFF, 0),
        (0x140076, 0x37DC80, 0x37DC7F, 0),
        (0x13D4DB, 0x33D4DB, 0x000000, 0),
        (0x1FBFFF, 0x1FBFFF, 0x1FFFFF, 0),
        (0x1FBFFF, 0x1FBFFE, 0x1FFFFF, 1),
        (0x1FFFFF, 0x1FFFFF, 0x1FFFFF, 1),
        (0x3FFFFF, 0x3FBFFF, 0x3FFFFF, 1),
    ],
)
def test_accumulator_sums(a: int, b: int, total: int, saturated: int) -> None:
    # Each sum is exact in float64. 2 * 1FBFFF is the saturation pattern's very value, hence no loss.
    exact = FP22.decode(np.array([a, b])).sum()
    tally = Tally()
    assert int(FP22.encode(exact, tally=tally)) == total
    assert tally.saturated == saturated


def lane(code: int) -> float:
    return float(E8M15.decode(code))


LANE_CASES = [
    (lane(0x3F8003) * lane(0x3FC000), 0x3FC004),
    (lane(0x3F8001) * lane(0x3FC000), 0x3FC002),
    (lane(0x3F8000) + lane(0x378000), 0x3F8000),
    (lane(0x3F8001) + lane(0x378000), 0x3F8002),
    (lane(0x3F8001) * lane(0x3F8001) + lane(0xBF8002), 0x308000),
    (lane(0x3F8001) * lane(0x3F7FFF) + lane(0xBF8000), 0x377FFE),
    (lane(0x800000) + lane(0x800000), 0x800000),
    (lane(0x00B3C2) * lane(0x3F364A), 0x008000),
    (lane(0x808000) * lane(0x3F0000), 0x800000),
    (lane(0x7F7FFF) * lane(0x400000), 0x7F8000),
    (lane(0x7F7FFF) + lane(0x767FFF), 0x7F7FFF),
    (math.inf, 0x7F8000),
    (-math.inf, 0xFF8000),
    (math.nan, 0x7FC000),
]


@pytest.mark.parametrize(("exact", "code"), LANE_CASES)
def test_lane_results(exact: float, code: int) -> None:
    # Products of two 16-bit significands and these sums are exact in float64; encode rounds once.
    assert int(E8M15.encode(exact)) == code


def test_a_lane_reads_exponent_zero_as_signed_zero() -> None:
    values = E8M15.decode(np.array([0x000001, 0x007FFF, 0x800001, 0x807FFF]))
    assert values.tolist() == [0, 0, 0, 0]
    assert np.signbit(values).tolist() == [False, False, True, True]


def test_accumulator_zero_has_one_spelling() -> None:
    assert FP22.decode(np.array([0x000000, 0x003FFF, 0x200000, 0x203FFF])).tolist() == [0, 0, 0, 0]
    assert not np.signbit(FP22.decode(np.array([0x200000]))).any()
    assert FP22.encode([0.0, -0.0, -(2.0**-64), 2.0**-63]).tolist() == [0, 0, 0, 0]
    assert FP22.encode([-(2.0**-62), 2.0**-62 * (1 - 2.0**-16)]).tolist() == [0x204000, 0x004000]
    assert FP32.is_exact_from(FP22)
    assert E8M15.is_exact_from(FP22)
