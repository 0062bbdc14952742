"""Products from digits: the clusters' sums bit for bit, the error against its bound, what is counted and refused."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from kohakutpu import api as ktpu
from kohakutpu import split
from kohakutpu.device import Device
from kohakutpu.split import digits, multiply

Real = NDArray[Any]


@pytest.fixture(scope="module")
def device() -> Device:
    return Device("mini")


def slow_digits(row: list[float]) -> tuple[int, list[list[int]]]:
    """(exponent, six signed radix-16 digits of each element), by fractions: an independent definition."""
    exponent = 0
    peak = max((abs(Fraction(x)) for x in row), default=Fraction(0))
    if peak:
        while peak >= Fraction(2) ** exponent:
            exponent += 1
        while peak < Fraction(2) ** (exponent - 1):
            exponent -= 1
    found: list[list[int]] = []
    for x in row:
        whole = round(Fraction(x) * Fraction(2) ** (23 - exponent))
        places: list[int] = []
        for _ in range(5):
            digit = (whole + 8) % 16 - 8
            places.append(digit)
            whole = (whole - digit) // 16
        found.append([whole, *reversed(places)])
    return exponent, found


def bound(left: Real, right: Real) -> NDArray[np.float64]:
    """The documented bound: 2^-20 of K times both rows' greatest elements, and half an ulp of float64's arithmetic."""
    tops = np.abs(left.astype(np.float64)).max(-1)[:, None] * np.abs(right.astype(np.float64)).max(-1)[None, :]
    return 2.0**-20 * left.shape[1] * tops


def exactly(left: Real, right: Real) -> list[list[Fraction]]:
    """left @ right.T in fractions."""
    a = [[Fraction(float(x)) for x in row] for row in left]
    b = [[Fraction(float(x)) for x in row] for row in right]
    return [[sum((x * y for x, y in zip(p, q)), Fraction(0)) for q in b] for p in a]


def within(left: Real, right: Real, device: Device) -> None:
    found = multiply.product(left[None], right[None], device).values[0]
    limit = bound(left, right)
    for i, row in enumerate(exactly(left, right)):
        for j, value in enumerate(row):
            assert abs(Fraction(float(found[i, j])) - value) <= Fraction(float(limit[i, j])) * (1 + Fraction(1, 2**20))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=9))
def test_digits_are_those_of_fractions(row: list[float]) -> None:
    found = digits.digits_of(np.array([[row]], np.float32), "here")
    exponent, wanted = slow_digits(row)
    planes = np.zeros((6, len(row)), np.int64)
    planes[list(found.kinds)] = found.planes[:, 0, 0]
    assert int(found.exponents[0, 0]) == exponent
    assert planes.T.tolist() == wanted
    assert np.abs(planes).max() <= 8
    assert all(plane.any() for plane in found.planes)


def test_sums_leave_the_clusters_as_python_computes_them(device: Device) -> None:
    """All seven levels, several stretches and ragged edges: integers, and FP16's one rounding of them."""
    rng = np.random.default_rng(3)
    left, right = rng.standard_normal((5, 70)).astype(np.float32), rng.standard_normal((6, 70)).astype(np.float32)
    a, b = digits.digits_of(left[None], ""), digits.digits_of(right[None], "")
    levels = digits.levels_of(a.kinds, b.kinds)
    assert [len(pairs) for pairs in levels.values()] == [1, 2, 3, 4, 5, 6, 5]
    first, second = ([slow_digits(row.tolist())[1] for row in side] for side in (left, right))
    for length in (70, 32, 16):
        sums = multiply._run(device, a.planes, b.planes, multiply._Group(levels, length))
        assert sums.shape == (7, 1, -(-70 // length), 5, 6)
        for level in range(7):
            for part in range(sums.shape[2]):
                stretch = range(part * length, min(70, (part + 1) * length))
                for i in range(5):
                    for j in range(6):
                        total = sum(
                            first[i][k][p] * second[j][k][level - p]
                            for k in stretch
                            for p in range(6)
                            if 0 <= level - p < 6
                        )
                        assert sums[level, 0, part, i, j] == np.float16(total)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (9, 2, 33), (4, 4, 100)])
def test_error_stays_below_its_bound(shape: tuple[int, int, int], scale: float, device: Device) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m * n * k)
    left = (rng.standard_normal((m, k)) * scale).astype(np.float32)
    right = (rng.standard_normal((n, k)) / scale).astype(np.float32)
    within(left, right, device)


def test_odd_rows_stay_below_the_bound(device: Device) -> None:
    """Zero rows, subnormals, rows of wide range, cancellation, and rows that every sum grows along."""
    rng = np.random.default_rng(5)
    left = rng.standard_normal((7, 64)).astype(np.float32)
    left[0] = 0
    left[1] = np.float32(1e-44) * rng.integers(-9, 9, 64)
    left[2] *= 2.0 ** rng.integers(-40, 40, 64)
    left[3] = 1 + 2.0**-23 * rng.integers(0, 3, 64)
    left[4] = np.float32(0.3)
    left[5] = np.float32(3.4e38)
    right = left[:, ::-1].copy() * np.float32(1e-3)
    right[3, ::2] *= -1
    within(left, right, device)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_random_rows_stay_below_the_bound(data: st.DataObject) -> None:
    k = data.draw(st.sampled_from((1, 8, 31)))
    numbers = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**60), max_value=2.0**60)
    rows = [data.draw(st.lists(numbers, min_size=k, max_size=k)) for _ in range(4)]
    within(np.array(rows[:2], np.float32), np.array(rows[2:], np.float32), ktpu.device())


def test_integers_and_short_numbers_are_exact_and_take_few_passes(device: Device) -> None:
    rng = np.random.default_rng(1)
    left, right = rng.integers(-100, 101, (2, 8, 40)), rng.integers(-100, 101, (2, 9, 40))
    found = multiply.product(left, right, device)
    assert np.array_equal(found.values, left @ right.swapaxes(1, 2))
    assert found.passes == 4
    eights = multiply.product(rng.integers(-7, 8, (1, 8, 40)), rng.integers(-7, 8, (1, 8, 40)), device)
    assert eights.passes == 1
    assert multiply.product(np.zeros((1, 3, 5)), np.ones((1, 4, 5)), device).passes == 0


def test_sums_that_grow_are_taken_in_stretches(device: Device) -> None:
    """All elements alike: the sum of the first digits alone is beyond what FP16 holds exactly."""
    left = np.full((1, 4, 640), 0.7, np.float32)
    found = multiply.product(left, left, device)
    assert found.segments > 10
    assert np.abs(found.values / (640 * float(np.float32(0.7)) ** 2) - 1).max() < 2.0**-22


def test_a_wrong_guess_is_seen_and_taken_again(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    left = np.full((1, 4, 640), 0.7, np.float32)
    wanted = multiply.product(left, left, device)
    monkeypatch.setattr(digits, "probable", lambda *_: 0.0)
    found = multiply.product(left, left, device)
    assert found.passes > wanted.passes
    assert found.values.tobytes() == wanted.values.tobytes()


def test_products_beyond_a_share_of_the_memory_are_computed_in_parts(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(2)
    left, right = rng.standard_normal((2, 9, 20)), rng.standard_normal((2, 11, 20))
    wanted = multiply.product(left, right, device)
    monkeypatch.setattr(multiply, "SHARE", device.machine.memories[0].size // 8000)
    found = multiply.product(left, right, device)
    assert found.runs >= 4 > wanted.runs
    assert found.values.tobytes() == wanted.values.tobytes()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((4, 6), (6, 5)),
        ((6,), (6, 5)),
        ((4, 6), (6,)),
        ((6,), (6,)),
        ((3, 4, 6), (6, 5)),
        ((3, 1, 4, 6), (2, 6, 5)),
        ((0, 6), (6, 5)),
        ((4, 0), (0, 5)),
    ],
)
def test_shapes_are_those_of_numpy(first: tuple[int, ...], second: tuple[int, ...], device: Device) -> None:
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal(first).astype(np.float32), rng.standard_normal(second).astype(np.float32)
    found = split.matmul(a, b, device=device)
    assert found.dtype == np.float32
    assert found.shape == np.matmul(a, b).shape
    assert np.allclose(found, np.matmul(a.astype(np.float64), b), rtol=1e-5, atol=1e-5)


def test_what_it_took_is_counted_and_timed() -> None:
    device = Device("mini")
    a = np.random.default_rng(0).standard_normal((16, 32)).astype(np.float32)
    _, timeline = ktpu.time(lambda: split.matmul(a, a.T, device=device), device=device)
    stats = ktpu.stats(device)
    assert (stats["split_products"], stats["split_passes"]) == (1, 26)
    operands, sums = 2 * 6 * 16 * 32, 7 * 16 * 16 * 2
    assert stats["split_bytes"] == 2 * a.nbytes + operands + sums
    assert stats["bytes_to_device"] == operands
    assert stats["bytes_from_device"] == sums
    assert timeline.cycles > 0
    assert {"data in", "data out"} <= set(timeline.host)


@pytest.mark.parametrize(
    ("a", "b", "rule"),
    [
        (np.array([[1.0, np.nan]]), np.ones((2, 2)), "finite"),
        (np.ones((2, 2)), np.array([[1.0], [np.inf]]), "finite"),
        (np.ones((2, 3)), np.ones((2, 3)), "one length"),
        (np.ones((2, 3, 3)), np.ones((3, 3, 3)), "broadcast"),
        (np.ones((2, 2), np.complex64), np.ones((2, 2)), "real numbers"),
        (1.0, np.ones((2, 2)), "real numbers"),
    ],
)
def test_what_is_no_product_is_refused(a: Any, b: Any, rule: str, device: Device) -> None:
    with pytest.raises(Refusal, match=rule):
        split.matmul(a, b, device=device)
