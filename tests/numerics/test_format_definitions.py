"""What formats say of themselves, what they refuse, and the properties every scalar format has."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohakuaccel.diagnostics import DefinitionError, Refusal, Unsupported
from kohakuaccel.numerics import (
    BF16,
    E5M3,
    E8M15,
    FP16,
    FP22,
    FP32,
    INT8,
    INT16,
    INT32,
    MXFP7,
    IntFormat,
    ScalarFormat,
    Tally,
    ValueSet,
    accumulator,
    convert,
)

SCALARS = [FP32, FP16, BF16, E8M15, FP22]
NAMED = [f.name for f in SCALARS]


@pytest.mark.parametrize(
    ("fmt", "most", "normal", "subnormal", "bits"),
    [
        (FP32, float(np.finfo(np.float32).max), 2.0**-126, 2.0**-149, 32),
        (FP16, 65504.0, 2.0**-14, 2.0**-24, 16),
        (BF16, float(ml_dtypes.finfo(ml_dtypes.bfloat16).max), 2.0**-126, 2.0**-133, 16),
        (E8M15, (2 - 2.0**-15) * 2.0**127, 2.0**-126, None, 24),
        (FP22, (2 - 2.0**-14) * 2.0**63, 2.0**-62, None, 22),
        (E5M3, 3840.0, 2.0**-20, None, 8),
        (INT16, 32767.0, 1.0, None, 16),
    ],
)
def test_numbers(fmt: Any, most: float, normal: float, subnormal: float | None, bits: int) -> None:
    assert (fmt.max, fmt.min_normal, fmt.min_subnormal, fmt.bits) == (most, normal, subnormal, bits)


def test_saturation_value_of_the_accumulator() -> None:
    assert FP22.marker == (2 - 2.0**-14) * 2.0**64
    assert accumulator(16).bits == 24


def test_ulp() -> None:
    assert [FP16.ulp(x) for x in (1.0, -1.5, 0.99, 0.0, 2.0**-20, 65504.0, 1e9)] == [
        2.0**-10,
        2.0**-10,
        2.0**-11,
        2.0**-24,
        2.0**-24,
        32.0,
        32.0,
    ]
    assert E8M15.ulp(2.0**-130) == 2.0**-141
    assert math.isnan(FP16.ulp(math.inf))
    assert (INT8.ulp(100.0), MXFP7.ulp(1.0)) == (1.0, 9 / 8 * 2.0**-6)


EXACT: list[tuple[ValueSet, ValueSet]] = [
    (FP32, FP16), (FP32, BF16), (FP32, E8M15), (FP32, FP22), (E8M15, FP16), (E8M15, FP22), (E8M15, MXFP7),
    (FP32, INT16), (E8M15, INT16), (FP16, INT8), (BF16, INT8), (INT32, INT16), (FP22, MXFP7),
]  # fmt: skip
INEXACT: list[tuple[ValueSet, ValueSet, str]] = [
    (FP16, E8M15, "spans"), (FP22, FP16, "no Inf, no NaN, no negative zero"), (E8M15, FP32, "steps by"),
    (E8M15, BF16, "smallest value of BF16"), (FP16, MXFP7, "spans"), (BF16, FP16, "steps by 2^-24"),
    (FP16, INT16, "steps by"), (INT8, INT16, "spans"), (INT8, FP16, "no Inf"), (FP32, INT32, "steps by 2^0"),
    (FP22, accumulator(16), "saturation value"),
]  # fmt: skip


def test_exactness_between_the_shipped_formats() -> None:
    for dst, src in EXACT:
        assert dst.is_exact_from(src), dst.obstacles(src)
        assert dst.contains_range_of(src)
    for dst, src, reason in INEXACT:
        assert not dst.is_exact_from(src)
        assert any(reason in text for text in dst.obstacles(src)), dst.obstacles(src)
    assert FP22.contains_range_of(FP16)
    assert not BF16.contains_range_of(FP32)
    assert not FP16.contains_range_of(E8M15)


def test_an_exact_conversion_proves_itself_or_is_refused() -> None:
    halves = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    wide = convert(halves, FP16, FP32, exact=True)
    assert wide.shape == (256, 256)
    assert wide.dtype == np.uint32
    with pytest.raises(Refusal, match=r"FP32 -> FP16: an exact conversion.*FP32 spans.*steps by.*[Dd]rop exact"):
        convert(wide, FP32, FP16, exact=True)
    np.testing.assert_array_equal(
        convert(np.arange(-128, 128), INT8, FP16, exact=True),
        np.arange(-128.0, 128).astype(np.float16).view(np.uint16),
    )


def test_saturation_is_refused_or_counted() -> None:
    with pytest.raises(
        Refusal, match=r"FP16.encode, element 2:.*range \(2 of 4 do not\); got 65505; the limit is \[-65504"
    ):
        FP16.encode([0, 1, 65505, -1e30])
    tally = Tally()
    assert FP16.encode([0, 1, 65505, -1e30], tally=tally).tolist() == [0, 0x3C00, 0x7BFF, 0xFBFF]
    assert (tally.saturated, tally.inexact) == (2, 2)
    FP16.encode([1e6], tally=tally)
    assert tally.saturated == 3
    with pytest.raises(Refusal, match=r"element 1: the format has no NaN"):
        FP22.encode([0, np.nan])
    with pytest.raises(Refusal, match=r"element 0: values lie within"):
        E5M3.encode([0.0, 1.0])
    with pytest.raises(Refusal, match=r"INT8.encode, element 1.*got inf"):
        INT8.encode([0, np.inf])
    with pytest.raises(Refusal, match=r"FP22.encode, element 1.*got inf"):
        FP22.encode([FP22.marker or 0, np.inf])
    with pytest.raises(Refusal, match=r"INT8.encode, element 1"):
        convert(FP16.encode([1, 300]), FP16, INT8)
    assert np.isinf(FP32.decode(FP32.encode([1e39])))[0]


def test_what_is_no_code_or_no_number_is_refused() -> None:
    with pytest.raises(Refusal, match=r"FP22.decode.*1 codes that are not.*pattern 1FFFFF"):
        FP22.decode(np.array([0x1FC000, 0x1FFFFF]))
    with pytest.raises(Refusal, match=r"E8M15.decode.*24 bits"):
        E8M15.decode(np.array([1 << 24]))
    with pytest.raises(Refusal, match=r"got -1"):
        FP16.decode(np.array([-1]))
    with pytest.raises(Refusal, match=r"got 8589934592"):
        FP16.decode(np.array([1 << 33]))
    with pytest.raises(Refusal, match=r"INT8.decode.*got 128; the limit is -128\.\.127"):
        INT8.decode(np.array([5, 128]))
    with pytest.raises(Unsupported, match=r"codes are integers; got float32.*\.view\(\)"):
        FP32.decode(np.zeros(1, np.float32))
    with pytest.raises(Unsupported, match=r"got complex128"):
        FP32.encode(np.zeros(1, np.complex128))
    with pytest.raises(Refusal, match=r"2\*\*53"):
        INT32.encode(np.array([2**53 + 1]))
    with pytest.raises(Refusal, match=r"got -1"):
        FP16.decode(np.array([-1], np.int16))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"exp_bits": 9}, "1 to 8 exponent"),
        ({"man_bits": 24}, "0 to 23 mantissa"),
        ({"bias": 600}, "bias lies"),
        ({"rounding": "up"}, "rounding is one of nearest-even"),
        ({"overflow": "wrap"}, "overflow is one of"),
        ({"zero": "two"}, "zero is one of"),
        ({"inf_nan": "none", "overflow": "infinity"}, "needs inf_nan ieee"),
        ({"overflow": "marker"}, "marker needs inf_nan none"),
        ({"zero": "none"}, "subnormals need a zero"),
        ({"signed": False}, "no signed zero"),
        ({"man_bits": 0}, "need 2 exponent and 1 mantissa"),
    ],
)
def test_contradictions_are_refused(change: dict[str, Any], text: str) -> None:
    given_fields: dict[str, Any] = {
        "name": "X",
        "exp_bits": 5,
        "man_bits": 10,
        "bias": 15,
        "subnormals": True,
        "inf_nan": "ieee",
        "overflow": "infinity",
    }
    with pytest.raises(DefinitionError, match=f"format X.*{text}"):
        ScalarFormat(**(given_fields | change))


def test_integer_contradictions_are_refused() -> None:
    with pytest.raises(DefinitionError, match="2 to 32 bits; got 33"):
        IntFormat("X", 33)
    with pytest.raises(DefinitionError, match="symmetric means signed"):
        IntFormat("X", 8, signed=False, symmetric=True)


def test_formats_are_values() -> None:
    assert ScalarFormat("FP16", 5, 10, 15, True, "ieee", "saturate") == FP16
    assert len({FP16, FP16.with_overflow("infinity"), accumulator(), FP22}) == 3
    assert str(E8M15) == "E8M15"


def test_explain() -> None:
    text = str(FP16.explain(1 + 2.0**-11))
    assert "3C00 = 1.0" in text
    assert "0 01111 0000000000" in text
    assert "(-0.5 ulp)" in text
    assert "tie rounded towards zero (nearest-even)" in text
    assert "exact" in str(FP22.explain(-1.5))
    saturated = FP16.explain(70000.0)
    assert saturated.saturated
    assert "saturated and counted: x is beyond [-65504, 65504]" in str(saturated)
    assert "overflow to Inf" in str(E8M15.explain(1e39))
    assert "rounded to zero: the smallest magnitude is 1.17549e-38" in str(E8M15.explain(1e-39))
    assert "does not have" in str(FP22.explain(math.nan))
    assert "rounded away from zero" in str(INT8.explain(-1.7))
    assert "-2" in str(INT8.explain(-1.7))


def test_shapes_scalars_and_ml_dtypes_values() -> None:
    assert FP16.encode(1.0).shape == ()
    assert FP16.encode(np.zeros((2, 0, 3))).shape == (2, 0, 3)
    x = np.arange(12.0).reshape(3, 4).T[::-1]
    np.testing.assert_array_equal(FP32.round(x), x)
    assert BF16.encode(np.ones(2, ml_dtypes.bfloat16)).tolist() == [0x3F80, 0x3F80]
    assert INT32.encode(np.array([True, False])).tolist() == [1, 0]
    halves = np.ones(3, np.float16)
    halves.flags.writeable = False
    assert E8M15.encode(halves).tolist() == [0x3F8000] * 3


doubles = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(doubles, min_size=1, max_size=20))
@pytest.mark.parametrize("fmt", [*SCALARS, INT8], ids=[*NAMED, "INT8"])
def test_rounding_is_idempotent_monotonic_odd_and_near(fmt: Any, xs: list[float]) -> None:
    values = np.sort(np.array(xs))
    once = fmt.round(values, tally=Tally())
    np.testing.assert_array_equal(fmt.round(once, tally=Tally()), once)
    assert (once[1:] >= once[:-1]).all()
    if isinstance(fmt, ScalarFormat):
        np.testing.assert_array_equal(fmt.round(-values, tally=Tally()), -once)
    for x, r in zip(values.tolist(), once.tolist()):
        if fmt.lowest <= x <= fmt.max and abs(x) >= fmt.smallest:
            assert abs(r - x) <= fmt.ulp(x) / 2


def test_importing_formats_does_not_load_the_compiler() -> None:
    code = "import sys, kohakuaccel.numerics as n; n.FP16.ulp(1.0); sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_read_only_arrays_need_no_second_compilation() -> None:
    from kohakuaccel.numerics import codecs, kernels

    row = np.ones(32, np.float16)
    codes = np.ones(4, np.uint32)
    for array in (row, codes):
        array.flags.writeable = False
    MXFP7.quantise(row)
    FP32.decode(codes)
    assert len(codecs.decode_float.signatures) == 1
    assert len(codecs.encode_float.signatures) <= 1
    # The test tables call it too, always with writeable arrays.
    assert len(kernels.mxfp7_quantise.signatures) == 1
