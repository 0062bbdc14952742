"""Every code of every format of at most 16 bits: values, round trips, order, every tie between neighbours.

The witnesses are `fractions` (values from the definition of the fields), a sorted table of those values with
binary search (rounding), and ml_dtypes and numpy where they have the type.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel.numerics import BF16, E5M3, FP16, INT8, INT16, IntFormat, ScalarFormat, Tally, accumulator

F8E5M2 = ScalarFormat("F8E5M2", 5, 2, 15, True, "ieee", "infinity")
F8E4M3 = ScalarFormat("F8E4M3", 4, 3, 7, True, "ieee", "infinity")
F8E3M4 = ScalarFormat("F8E3M4", 3, 4, 3, True, "ieee", "infinity")
F6E2M3 = ScalarFormat("F6E2M3", 2, 3, 1, True, "none", "saturate")
F6E3M2 = ScalarFormat("F6E3M2", 3, 2, 3, True, "none", "saturate")
F4E2M1 = ScalarFormat("F4E2M1", 2, 1, 1, True, "none", "saturate")
E8M5_FLUSHED = ScalarFormat("E8M5", 8, 5, 127, False, "ieee", "infinity")
E5M7_AWAY = ScalarFormat("E5M7A", 5, 7, 15, True, "ieee", "saturate", "nearest-away")
E5M6_CUT = ScalarFormat("E5M6Z", 5, 6, 15, True, "ieee", "saturate", "toward-zero")

FORMATS = [
    FP16,
    BF16,
    accumulator(8),
    accumulator(3),
    E5M3,
    F8E5M2,
    F8E4M3,
    F8E3M4,
    F6E2M3,
    F6E3M2,
    F4E2M1,
    E8M5_FLUSHED,
    E5M7_AWAY,
    E5M6_CUT,
]
WITNESSES: list[tuple[ScalarFormat, Any]] = [
    (FP16.with_overflow("infinity"), np.float16),
    (BF16, ml_dtypes.bfloat16),
    (F8E5M2, ml_dtypes.float8_e5m2),
    (F8E4M3, ml_dtypes.float8_e4m3),
    (F8E3M4, ml_dtypes.float8_e3m4),
    (F6E2M3, ml_dtypes.float6_e2m3fn),
    (F6E3M2, ml_dtypes.float6_e3m2fn),
    (F4E2M1, ml_dtypes.float4_e2m1fn),
]
IDS = [f"{f.name}-{f.overflow}" for f in FORMATS]


def field_value(fmt: ScalarFormat, code: int) -> Fraction | str | None:
    """The value of a code by the words of its definition; "inf", "nan", or None for what is no code."""
    negative = fmt.signed and code >> (fmt.exp_bits + fmt.man_bits) == 1
    exponent = (code >> fmt.man_bits) % 2**fmt.exp_bits
    mantissa = code % 2**fmt.man_bits
    if exponent == 2**fmt.exp_bits - 1:
        if fmt.inf_nan == "ieee":
            return "nan" if mantissa else "inf"
        if fmt.overflow == "marker" and mantissa != 2**fmt.man_bits - 1:
            return None
    significand, power = 2**fmt.man_bits + mantissa, exponent - fmt.bias - fmt.man_bits
    if exponent == 0 and fmt.zero != "none":
        significand, power = mantissa if fmt.subnormals else 0, 1 - fmt.bias - fmt.man_bits
    signed = -significand if negative else significand
    return Fraction(signed << power) if power >= 0 else Fraction(signed, 1 << -power)


@cache
def table(fmt: ScalarFormat) -> list[Fraction | str | None]:
    return [field_value(fmt, code) for code in range(2**fmt.bits)]


def all_codes(fmt: ScalarFormat) -> NDArray[np.uint32]:
    codes = np.arange(2**fmt.bits, dtype=np.uint32)
    if fmt.overflow == "marker":
        exponent = (codes >> fmt.man_bits) & (2**fmt.exp_bits - 1)
        mantissa = codes & (2**fmt.man_bits - 1)
        codes = codes[(exponent != 2**fmt.exp_bits - 1) | (mantissa == 2**fmt.man_bits - 1)]
    return codes


@pytest.mark.parametrize("fmt", FORMATS, ids=IDS)
def test_every_code_decodes_to_the_value_of_its_fields(fmt: ScalarFormat) -> None:
    codes = all_codes(fmt)
    for code, value in zip(codes.tolist(), fmt.decode(codes).tolist()):
        expected = table(fmt)[code]
        if expected == "nan":
            assert value != value
        elif expected == "inf":
            assert value == (-np.inf if code >> (fmt.bits - 1) else np.inf)
        else:
            assert value == expected
            if value == 0:
                negative = fmt.zero == "signed" and code >> (fmt.bits - 1) == 1
                assert bool(np.signbit(value)) == negative


@pytest.mark.parametrize("fmt", FORMATS, ids=IDS)
def test_every_code_survives_a_round_trip(fmt: ScalarFormat) -> None:
    codes = all_codes(fmt)
    values = fmt.decode(codes)
    tally = Tally()
    back = fmt.encode(values, tally=tally, nan="kept").astype(np.uint32)
    expected = codes.copy()
    if fmt.zero != "none":
        # All spellings of zero collapse to the one that is written.
        sign = 1 << (fmt.exp_bits + fmt.man_bits)
        expected = np.where(values == 0, codes & sign if fmt.zero == "signed" else 0, codes)
    np.testing.assert_array_equal(back, expected)
    assert tally == Tally()
    again = fmt.round(values, tally=Tally())
    np.testing.assert_array_equal(again, values)


def finite_positive(fmt: ScalarFormat) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """All positive values without a saturation pattern, ascending, from exact fractions; and their codes."""
    rows: list[tuple[Fraction, int]] = []
    for code in range(2 ** (fmt.exp_bits + fmt.man_bits)):
        value = table(fmt)[code]
        reserved = fmt.overflow == "marker" and code >> fmt.man_bits == 2**fmt.exp_bits - 1
        if isinstance(value, Fraction) and value > 0 and not reserved:
            rows.append((value, code))
    assert [value for value, _ in rows] == sorted({value for value, _ in rows}), "codes are in order of value"
    return np.array([float(value) for value, _ in rows]), np.array([code for _, code in rows])


def saturation_code(fmt: ScalarFormat, last: int) -> int:
    if fmt.overflow == "infinity":
        return (2**fmt.exp_bits - 1) << fmt.man_bits
    return 2 ** (fmt.exp_bits + fmt.man_bits) - 1 if fmt.overflow == "marker" else last


@pytest.mark.parametrize("fmt", FORMATS, ids=IDS)
def test_every_tie_and_its_two_neighbours_round_by_the_rule(fmt: ScalarFormat) -> None:
    values, codes = finite_positive(fmt)
    if fmt.zero != "none":
        values, codes = np.concatenate([[0.0], values]), np.concatenate([[0], codes])
    # One step beyond the largest value: what would round up to it leaves the range.
    beyond = values[-1] + (values[-1] - values[-2])
    upper_values = np.append(values[1:], beyond)
    upper_codes = np.append(codes[1:], saturation_code(fmt, int(codes[-1])))
    middle = (values + upper_values) / 2
    if not fmt.subnormals and fmt.zero != "none":
        # Below the smallest normal value rounding keeps full precision first; tininess is judged after it.
        middle[0] = values[1] * (1 - 2.0 ** -(fmt.man_bits + 2))
    even_up = codes % 2 == 1
    tie = np.where(even_up, upper_codes, codes)
    if not fmt.subnormals and fmt.zero != "none":
        tie[0] = upper_codes[0]
    below, above = np.nextafter(middle, 0), np.nextafter(middle, np.inf)
    expect = {"nearest-even": (codes, tie, upper_codes), "nearest-away": (codes, upper_codes, upper_codes)}
    expected = expect.get(fmt.rounding, (codes, codes, codes))
    for points, wanted in zip((below, middle, above), expected):
        np.testing.assert_array_equal(fmt.encode(points, tally=Tally()), wanted)
        if fmt.signed:
            sign = 1 << (fmt.bits - 1)
            negative = np.where(wanted == 0, sign if fmt.zero == "signed" else 0, wanted + sign)
            np.testing.assert_array_equal(fmt.encode(-points, tally=Tally()), negative)


@pytest.mark.parametrize(("fmt", "dtype"), WITNESSES, ids=[f.name for f, _ in WITNESSES])
def test_numpy_and_ml_dtypes_agree(fmt: ScalarFormat, dtype: Any) -> None:
    codes = np.arange(2**fmt.bits, dtype=fmt.code_dtype)
    with np.errstate(invalid="ignore"):  # casting a signalling NaN
        theirs = codes.view(dtype).astype(np.float64)
    np.testing.assert_array_equal(fmt.decode(codes), theirs)
    rng = np.random.default_rng(1)
    span = np.log2(fmt.max) + 2
    span = min(span, 127.9)
    size = 2.0 ** rng.uniform(np.log2(fmt.smallest) - 3, span, 100_000)
    x = (rng.choice([-1.0, 1.0], 100_000) * size).astype(np.float32)
    x = np.concatenate([x, [0.0, -0.0, np.inf, -np.inf]]).astype(np.float32)
    with np.errstate(over="ignore"):
        theirs = x.astype(dtype).view(fmt.code_dtype)
    if fmt.inf_nan == "none":
        finite = np.isfinite(x)
        x, theirs = x[finite], theirs[finite]
    np.testing.assert_array_equal(fmt.encode(x, tally=Tally()), theirs)


@pytest.mark.parametrize(
    "fmt", [INT8, INT16, IntFormat("UINT8", 8, signed=False), IntFormat("INT7", 7, symmetric=True)]
)
def test_integers_exhaustively(fmt: IntFormat) -> None:
    codes = np.arange(int(fmt.lowest), int(fmt.max) + 1)
    np.testing.assert_array_equal(fmt.decode(codes), codes)
    np.testing.assert_array_equal(fmt.encode(codes.astype(np.float64)), codes)
    tally = Tally()
    ties = fmt.encode(codes[:-1] + 0.5, tally=tally)
    np.testing.assert_array_equal(ties, codes[:-1] + (codes[:-1] % 2))
    assert tally.inexact == len(codes) - 1
    assert tally.saturated == 0
    # A hair off the tie goes to the nearer side.
    np.testing.assert_array_equal(fmt.encode(np.nextafter(codes[:-1] + 0.5, np.inf), tally=tally), codes[1:])
    np.testing.assert_array_equal(fmt.encode(np.nextafter(codes[:-1] + 0.5, -np.inf), tally=tally), codes[:-1])


def test_integer_ends() -> None:
    tally = Tally()
    codes = INT8.encode([127.4, 128, 1e300, np.inf, -128.4, -129, -np.inf, np.nan, -0.3], tally=tally)
    assert codes.tolist() == [127, 127, 127, 127, -128, -128, -128, 0, 0]
    assert (tally.saturated, tally.nan, tally.flushed, tally.inexact) == (7, 1, 1, 8)
    away = IntFormat("A", 8, rounding="nearest-away").encode([0.5, 1.5, -0.5, 0.49999999999999994])
    assert away.tolist() == [1, 2, -1, 0]
    cut = IntFormat("Z", 8, rounding="toward-zero").encode([0.99, -1.99])
    assert cut.tolist() == [0, -1]


def values_of(fmt: ScalarFormat | IntFormat) -> set[Fraction | str]:
    if isinstance(fmt, IntFormat):
        return {Fraction(i) for i in range(int(fmt.lowest), int(fmt.max) + 1)}
    held: set[Fraction | str] = set()
    held.update(value for value in table(fmt) if value is not None)
    return held | ({"minus zero"} if fmt.zero == "signed" else set())


def test_exactness_and_range_are_set_inclusion() -> None:
    small: list[ScalarFormat | IntFormat] = [f for f in FORMATS if f.bits <= 11]
    small += [
        INT8,
        IntFormat("INT4", 4),
        IntFormat("UINT6", 6, signed=False),
        IntFormat("INT7", 7, symmetric=True),
    ]
    # Narrow siblings, so that both answers occur often.
    small += [
        ScalarFormat("S", 4, 2, 7, True, "ieee", "infinity"),
        ScalarFormat("T", 4, 1, 7, False, "ieee", "infinity"),
        ScalarFormat("U", 5, 2, 15, False, "ieee", "infinity"),
        ScalarFormat("V", 5, 4, 15, False, "none", "saturate"),
        ScalarFormat("W", 3, 3, 1, True, "none", "saturate"),
    ]
    sets = {f: values_of(f) for f in small}
    answers = {True: 0, False: 0}
    for dst in small:
        for src in small:
            exact = sets[src] <= sets[dst]
            assert dst.is_exact_from(src) == exact, (dst, src, dst.obstacles(src))
            answers[exact] += 1
            a = [v for v in sets[dst] if isinstance(v, Fraction) and v != 0]
            b = [v for v in sets[src] if isinstance(v, Fraction) and v != 0 and abs(v) != src.marker]
            low = min(v for v in b if v > 0) >= min(v for v in a if v > 0)
            ordinary = [v for v in a if abs(v) != dst.marker]
            assert dst.contains_range_of(src) == (
                low and max(b) <= max(ordinary) and min(b) >= min((*ordinary, Fraction(0)))
            )
    assert min(answers.values()) > len(small)
