"""Input conversion: every accepted source rounds once and correctly; everything else is refused with a way
out."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohakuaccel.diagnostics import Refusal
from kohakutpu.conversion import (
    asked_dtype,
    constant,
    is_scalar,
    reciprocal_constant,
    result_dtype,
    to_half,
)

HALF, SINGLE = np.dtype(np.float16), np.dtype(np.float32)


def nearest_half(exact: Fraction) -> float:
    """Reference: round a rational to binary16 by its definition, ties to even; beyond the range is Inf."""
    sign, size = (-1.0 if exact < 0 else 1.0), abs(exact)
    if size == 0:
        return 0.0
    exponent = -24
    while size >= Fraction(2) ** (exponent + 11):
        exponent += 1
    steps = size / Fraction(2) ** exponent
    whole = steps.numerator // steps.denominator
    rest = steps - whole
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2):
        whole += 1
    value = Fraction(whole) * Fraction(2) ** exponent
    return math.inf * sign if value >= 65536 else sign * float(value)


def adversarial_float64() -> list[float]:
    """Values at, just above and just below the midpoints of FP16: where a second rounding would show."""
    out: list[float] = []
    for code in (0, 1, 2, 3, 0x3FF, 0x400, 0x401, 0x3C00, 0x3C01, 0x5555, 0x7BFE, 0x7BFF):
        low = float(np.uint16(code).view(np.float16))
        high = float(np.uint16(code + 1).view(np.float16)) if code < 0x7BFF else 65536.0
        middle = (low + high) / 2
        for near in (middle, math.nextafter(middle, 0), math.nextafter(middle, 1e9), middle * (1 + 2**-30)):
            out += [near, -near]
    return out


@pytest.mark.parametrize("value", adversarial_float64())
def test_float64_rounds_once(value: float) -> None:
    half, dtype = to_half(value, overflow="inf")
    assert half.item() == nearest_half(Fraction(value))
    assert dtype == HALF


@given(st.floats(width=64, allow_nan=False, allow_infinity=False, min_value=-70000, max_value=70000))
def test_any_float64_rounds_to_nearest_even(value: float) -> None:
    assert to_half(value, overflow="inf")[0].item() == nearest_half(Fraction(value))


@given(st.integers(-(2**63), 2**63 - 1) | st.integers(-70000, 70000))
def test_any_int64_rounds_to_nearest_even(value: int) -> None:
    assert to_half(np.array([value], np.int64), overflow="inf")[0].item() == nearest_half(Fraction(value))


@given(st.integers(-(10**30), 10**30))
def test_python_integers_of_any_size(value: int) -> None:
    assert to_half([[value]], overflow="inf")[0].item() == nearest_half(Fraction(value))


def test_all_halves_pass_unchanged() -> None:
    codes = np.arange(65536, dtype=np.uint16)
    half, dtype = to_half(codes.view(np.float16))
    assert np.array_equal(half.view(np.uint16), codes)
    assert dtype == HALF


def nearest_halves(exact: Any) -> Any:
    """Reference over arrays: the FP16 value between whose exact midpoints each finite double lies, ties to
    even."""
    codes = np.arange(0x7C00, dtype=np.uint16)
    values = np.append(codes.view(np.float16).astype(np.float64), 65536.0)
    middles = (values[:-1] + values[1:]) / 2
    size = np.abs(exact)
    at = np.searchsorted(middles, size, side="left")
    tie = (at < middles.size) & (middles[np.minimum(at, middles.size - 1)] == size)
    at = at + (tie & (at % 2 == 1))
    return np.copysign(np.where(at == 0x7C00, np.inf, values[at]), exact)


def test_the_two_references_agree() -> None:
    for value in adversarial_float64():
        assert nearest_halves(np.array([value]))[0] == nearest_half(Fraction(value))


def test_every_bfloat16() -> None:
    source = np.arange(65536, dtype=np.uint16).view(ml_dtypes.bfloat16)
    half, dtype = to_half(source, overflow="inf")
    with np.errstate(invalid="ignore"):
        wide = source.astype(np.float64)
    finite = np.isfinite(wide)
    assert np.array_equal(half[finite].astype(np.float64), nearest_halves(wide[finite]))
    assert np.array_equal(half[np.isinf(wide)], wide[np.isinf(wide)])
    assert np.array_equal(np.isnan(half), np.isnan(wide))
    assert dtype == HALF


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_million_random_floats(dtype: Any) -> None:
    rng = np.random.default_rng(11)
    source = (rng.normal(size=500_000) * 2.0 ** rng.integers(-30, 18, 500_000)).astype(dtype)
    assert np.array_equal(to_half(source, overflow="inf")[0].astype(np.float64), nearest_halves(source))
    middle = nearest_halves(source) + nearest_halves(source).astype(np.float16).astype(np.float64) * 2.0**-11
    near = (middle * (1 + rng.integers(-2, 3, middle.size) * np.finfo(dtype).eps)).astype(dtype)
    near = near[np.isfinite(near)]
    assert np.array_equal(to_half(near, overflow="inf")[0].astype(np.float64), nearest_halves(near))


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i4", ">f4", "<f8", ">f2"])
def test_every_source_dtype(dtype: str) -> None:
    source = np.array([0, 1, 1, 100, 127, 0], dtype=dtype)
    half, shown = to_half(source)
    assert np.array_equal(half, source.astype(np.float64))
    assert shown == (SINGLE if source.dtype.kind == "f" and source.dtype.itemsize == 4 else HALF)
    assert half.dtype == HALF
    assert half.dtype.isnative


def test_unsigned_extremes_do_not_wrap() -> None:
    big = np.array([2**64 - 1, 65504, 2049], np.uint64)
    assert to_half(big, overflow="saturate")[0].tolist() == [65504.0, 65504.0, 2048.0]


def test_integers_round_to_even() -> None:
    assert to_half([2049, 2051, 4098, 4102])[0].tolist() == [2048.0, 2052.0, 4096.0, 4104.0]


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[::2],
        lambda a: a[:, ::-3],
        lambda a: a.T,
        lambda a: np.asfortranarray(a),
        lambda a: np.broadcast_to(a[:1], (5, *a.shape[1:])),
        lambda a: a[:0],
        lambda a: a[3, 4],
    ],
)
def test_any_strides(view: Any) -> None:
    source = view(np.arange(63, dtype=np.float64).reshape(7, 9))
    half, _ = to_half(source)
    assert half.shape == np.shape(source)
    assert half.flags.c_contiguous
    assert np.array_equal(half, source)


def test_the_copy_is_a_snapshot() -> None:
    source = np.ones(4, np.float16)
    half, _ = to_half(source)
    source[:] = 7
    assert half.tolist() == [1, 1, 1, 1]
    assert not half.flags.writeable


def test_nan_inf_and_signed_zero_enter() -> None:
    half, dtype = to_half(np.array([np.nan, np.inf, -np.inf, -0.0], np.float32))
    assert np.isnan(half[0])
    assert half[1:3].tolist() == [math.inf, -math.inf]
    assert np.signbit(half[3])
    assert dtype == SINGLE


def test_the_edge_of_the_range() -> None:
    below = math.nextafter(65520.0, 0)
    assert to_half([65504.0, below, -below])[0].tolist() == [65504.0, 65504.0, -65504.0]
    with pytest.raises(Refusal):
        to_half([65520.0])
    assert to_half([65520.0, -1e300], overflow="saturate")[0].tolist() == [65504.0, -65504.0]
    assert to_half([65520.0, -1e300], overflow="inf")[0].tolist() == [math.inf, -math.inf]
    assert to_half([math.inf, 1e9], overflow="saturate")[0].tolist() == [math.inf, 65504.0]


def test_refusal_names_element_value_limit_and_way_out() -> None:
    data = np.ones((3, 4))
    data[1, 2], data[2, 0] = 70000.5, -1e9
    with pytest.raises(Refusal, match="saturate") as refused:
        to_half(data)
    text = str(refused.value)
    for word in ("tensor[1, 2]", "70000.5", "65504", "2 of 12", 'overflow="inf"'):
        assert word in text


@pytest.mark.parametrize("source", [np.int64(70000), 70000, [70000], np.float32(7e4), ml_dtypes.bfloat16(7e4)])
def test_overflow_is_refused_from_every_kind(source: Any) -> None:
    with pytest.raises(Refusal, match="65504"):
        to_half(source)


@pytest.mark.parametrize(
    ("source", "word"),
    [
        (1 + 2j, "complex128"),
        (np.array(["a"]), "<U1"),
        ("text", "real numbers"),
        (None, "object"),
        ([object()], "object"),
        (np.array(["2020-01-01"], "M8[D]"), "datetime64"),
        (np.zeros(2, np.longdouble), "float128"),
        (np.zeros(2, [("x", "f4")]), "dtype"),
        ([[1, 2], [3]], "rectangular"),
        (np.ma.masked_array([1.0], mask=[True]), "mask"),
    ],
)
def test_what_is_not_a_real_array_is_refused(source: Any, word: str) -> None:
    with pytest.raises(Refusal, match=word):
        to_half(source)


def test_an_unknown_overflow_rule_is_refused() -> None:
    with pytest.raises(Refusal, match="refuse, saturate, inf"):
        to_half([1.0], overflow="wrap")  # type: ignore[arg-type]  # the point of the test


def test_dtype_rule() -> None:
    assert result_dtype(HALF, HALF) == HALF
    assert result_dtype(HALF, SINGLE) == SINGLE
    assert result_dtype(SINGLE) == SINGLE
    assert asked_dtype("float32") == SINGLE
    with pytest.raises(Refusal, match="float16 or float32"):
        asked_dtype(np.float64)


@pytest.mark.parametrize("value", [1, True, 2.5, np.float32(1), np.int8(3), np.array(2.0), np.bool_(True)])
def test_scalars(value: Any) -> None:
    assert is_scalar(value)


@pytest.mark.parametrize("value", [[1.0], np.ones(1), "1", None, 1j, np.complex64(1)])
def test_not_scalars(value: Any) -> None:
    assert not is_scalar(value)


def test_constants() -> None:
    top = (2 - 2**-15) * 2.0**127
    assert constant(top, "+") == top
    assert math.isnan(constant(math.nan, "+"))
    assert constant(-math.inf, "+") == -math.inf
    for beyond in (2.0**128, -(10**400), 1e300, (2 - 2**-16) * 2.0**127):
        with pytest.raises(Refusal, match="E8M15"):
            constant(beyond, "+")


def test_reciprocals_keep_signs_and_limits() -> None:
    assert reciprocal_constant(4, "/") == 0.25
    assert reciprocal_constant(-0.0, "/") == -math.inf
    assert reciprocal_constant(-math.inf, "/") == 0.0
    assert math.copysign(1, reciprocal_constant(-math.inf, "/")) == -1
    assert math.isnan(reciprocal_constant(math.nan, "/"))
    for beyond in (1e-39, 1e-320, 2.0**127):
        with pytest.raises(Refusal, match="reciprocal"):
            reciprocal_constant(beyond, "/")


@settings(max_examples=30)
@given(st.floats(min_value=2.0**-126, max_value=2.0**126))
def test_reciprocals_of_the_normal_range(value: float) -> None:
    assert reciprocal_constant(value, "/") == 1.0 / value
