"""E8M15, FP22, FP32 and FP16 against plain Python integers, on random and adversarial values; the compiled
conversions of the units against the same reference."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel.numerics import E8M15, FP16, FP22, FP32, FP32_DAZ, ScalarFormat, Tally, accumulator, convert, kernels


def reference(fmt: ScalarFormat, x: float) -> tuple[int, bool]:
    """Code of a finite x and whether it counts as saturated; integers only, nearest even."""
    numerator, denominator = abs(x).as_integer_ratio()
    negative = x < 0 or (x == 0 and str(x)[0] == "-")
    sign = int(negative) << (fmt.exp_bits + fmt.man_bits)
    zero = sign if fmt.zero == "signed" else 0
    if numerator == 0:
        return zero, False
    point = denominator.bit_length() - 1
    exponent = numerator.bit_length() - 1 - point
    emin = 1 - fmt.bias
    step = (max(exponent, emin) if fmt.subnormals else exponent) - fmt.man_bits
    shift = point + step
    whole, rest = divmod(numerator, 1 << shift) if shift > 0 else (numerator << -shift, 0)
    twice = 2 * rest - (1 << shift) if shift > 0 else -1
    if twice > 0 or (twice == 0 and whole % 2):
        whole += 1
    if whole >> (fmt.man_bits + 1):
        whole, step = whole >> 1, step + 1
    biased = step + fmt.man_bits + fmt.bias
    top = 2**fmt.exp_bits - 1
    saturated = fmt.overflow != "infinity" and abs(x) > fmt.max and abs(x) != fmt.marker
    if whole >> fmt.man_bits == 0:  # subnormal, or zero
        return (sign | whole if whole else zero), False
    if biased <= 0:
        return zero, False
    if biased >= top:
        code = {
            "infinity": top << fmt.man_bits,
            "saturate": (top << fmt.man_bits) - 1,
            "marker": (1 << (fmt.exp_bits + fmt.man_bits)) - 1,
        }[fmt.overflow]
        return sign | code, saturated
    return sign | (biased << fmt.man_bits) | (whole & (2**fmt.man_bits - 1)), saturated


def random_double(rng: random.Random, low: int, high: int) -> float:
    """A double with a random exponent in low..high, full random mantissa, or few bits set, or a long run."""
    kind = rng.randrange(4)
    mantissa = rng.getrandbits(52)
    if kind == 1:
        mantissa &= -1 << rng.randrange(28, 53)
    elif kind == 2:
        mantissa = (1 << rng.randrange(53)) - 1 ^ mantissa & 1
    elif kind == 3:
        mantissa = (1 << 52) - (1 << rng.randrange(52))
    sign = rng.getrandbits(1)
    pattern = sign << 63 | (rng.randint(low, high) + 1023) << 52 | mantissa & (1 << 52) - 1
    return struct.unpack("<d", struct.pack("<Q", pattern))[0]


def adversarial(fmt: ScalarFormat, rng: random.Random, n: int) -> Iterator[float]:
    """Ties and their neighbours a double's ulp away, around every kind of edge the format has."""
    step = 2.0**-fmt.man_bits
    edges = [fmt.max, fmt.min_normal, fmt.smallest, fmt.min_normal / 2, fmt.smallest / 2, 65504.0, 1.0]
    if fmt.marker is not None:
        edges.append(fmt.marker)
    yield from (0.0, -0.0, 2.0**-300, -(2.0**-300), 2.0**300, -(2.0**300))
    points = [edge * (1 + k * step / 4) for edge in edges for k in range(-9, 10)]
    for _ in range(n):
        exponent = rng.randint(-fmt.bias - fmt.man_bits, fmt.bias + 2)
        points.append((1 + (rng.getrandbits(fmt.man_bits) + 0.5) * step) * 2.0**exponent)
    for point in points:
        for value in (point, float(np.nextafter(point, 0)), float(np.nextafter(point, np.inf))):
            yield value
            yield -value


def agree(fmt: ScalarFormat, values: list[float]) -> None:
    expected = [reference(fmt, x) for x in values]
    tally = Tally()
    codes = fmt.encode(values, tally=tally)
    wanted = np.array([code for code, _ in expected], codes.dtype)
    bad = np.flatnonzero(codes != wanted)
    assert not bad.size, (fmt.name, values[bad[0]].hex(), hex(codes[bad[0]]), hex(wanted[bad[0]]))
    assert tally.saturated == sum(saturated for _, saturated in expected)
    decoded = fmt.decode(codes)
    finite = np.isfinite(decoded)
    assert tally.overflowed == np.count_nonzero(~finite)
    assert tally.flushed == np.count_nonzero((decoded == 0) & (np.array(values) != 0))
    assert tally.inexact == np.count_nonzero((decoded != np.array(values)) | ~finite)


WIDE = [E8M15, FP22, FP32, FP16, accumulator(10), accumulator(16)]


@pytest.mark.slow
@pytest.mark.parametrize("fmt", WIDE, ids=[f.name for f in WIDE])
def test_random_and_adversarial_values(fmt: ScalarFormat) -> None:
    rng = random.Random(fmt.name)
    reach = fmt.bias + fmt.man_bits + 4
    agree(fmt, [random_double(rng, -reach, fmt.bias + 4) for _ in range(25_000)])
    agree(fmt, list(adversarial(fmt, rng, 4_000)))


@pytest.mark.slow
@pytest.mark.parametrize("fmt", [E8M15, FP22], ids=["E8M15", "FP22"])
def test_millions_of_values(fmt: ScalarFormat) -> None:
    rng = random.Random(f"slow {fmt.name}")
    reach = fmt.bias + fmt.man_bits + 4
    for _ in range(4):
        agree(fmt, [random_double(rng, -reach, fmt.bias + 4) for _ in range(200_000)])
        agree(fmt, list(adversarial(fmt, rng, 40_000)))


@pytest.mark.slow
@pytest.mark.parametrize("fmt", [E8M15, FP22], ids=["E8M15", "FP22"])
def test_every_code_and_every_tie(fmt: ScalarFormat) -> None:
    # Values from an arithmetic of their own: mantissa times a power of two, binade after binade.
    mantissas = (1 + np.arange(2**fmt.man_bits) / 2**fmt.man_bits)[None, :]
    exponents = np.arange(1, 2**fmt.exp_bits - 1)[:, None]
    values = np.ldexp(mantissas, exponents - fmt.bias).reshape(-1)
    codes = (exponents * 2**fmt.man_bits + np.arange(2**fmt.man_bits)[None, :]).reshape(-1)
    np.testing.assert_array_equal(fmt.decode(codes), values)
    np.testing.assert_array_equal(fmt.encode(values), codes)
    assert np.all(np.diff(values) > 0)
    middle = (values[:-1] + values[1:]) / 2
    even = codes[:-1] + (codes[:-1] & 1)
    for sign, bit in ((1.0, 0), (-1.0, 1 << (fmt.exp_bits + fmt.man_bits))):
        np.testing.assert_array_equal(fmt.encode(sign * middle), even + bit)
        np.testing.assert_array_equal(fmt.encode(sign * np.nextafter(middle, 0)), codes[:-1] + bit)
        np.testing.assert_array_equal(fmt.encode(sign * np.nextafter(middle, np.inf)), codes[1:] + bit)


def doubles_of_fp32(patterns: NDArray[np.uint32]) -> list[float]:
    return patterns.view(np.float32).astype(np.float64).tolist()


def sample_patterns(seed: int, n: int) -> NDArray[np.uint32]:
    """Binary32 patterns: uniform bits, and low halves that make ties of 8, 13 or more dropped bits."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2**32, n, dtype=np.uint32)
    lows = np.array([0, 0x80, 0x7F, 0x81, 0x180, 0x1000, 0x0FFF, 0x1001, 0x3000, 0xFFFF, 0x8000], np.uint32)
    tied = (bits & np.uint32(0xFFFF0000)) | rng.choice(lows, n)
    exponents = rng.integers(127 - 27, 127 + 18, n).astype(np.uint32) << np.uint32(23)
    near_half = (tied & np.uint32(0x807FFFFF)) | exponents
    half_edges = "477FE000 477FE001 477FEFFF 477FF000 47800000 33000000 33000001 32FFFFFF 387FFFFF 38800000"
    lane_edges = "00000000 007FFF80 007FFFFF 00800000 7F7FFF7F 7F7FFF80 7F7FFFFF 7F800000"
    edges = np.array([int(text, 16) for text in f"{half_edges} {lane_edges}".split()], np.uint32)
    return np.concatenate([bits, tied, near_half, edges, edges | np.uint32(0x80000000)])


def check_fp32_to_e8m15(patterns: NDArray[np.uint32]) -> None:
    out = np.empty_like(patterns)
    kernels.e8m15_from_fp32(patterns, out)
    assert not (out & 0xFF).any()
    for pattern, code in zip(patterns.tolist(), (out >> 8).tolist()):
        exponent, mantissa, sign = pattern >> 23 & 255, pattern & 0x7FFFFF, pattern >> 31
        if exponent == 255 and mantissa:
            wanted = sign << 23 | 0x7FC000 | mantissa >> 8 & 0x3FFF
        elif exponent == 255:
            wanted = sign << 23 | 0x7F8000
        elif exponent == 0:
            wanted = sign << 23
        else:
            wanted = reference(E8M15, (1 - 2 * sign) * (2**23 + mantissa) * 2.0 ** (exponent - 150))[0]
        assert code == wanted, hex(pattern)


def check_e8m15_to_fp16(codes: NDArray[np.uint32]) -> None:
    out = np.empty(codes.size, np.uint16)
    saturated = kernels.fp16_from_e8m15(codes << np.uint32(8), out)
    count = 0
    for code, half in zip(codes.tolist(), out.tolist()):
        exponent, mantissa, sign = code >> 15 & 255, code & 0x7FFF, code >> 23
        if exponent == 255:
            wanted = sign << 15 | (0x7E00 | mantissa >> 5 & 0x1FF if mantissa else 0x7C00)
        elif exponent == 0:
            wanted = sign << 15
        else:
            wanted, over = reference(FP16, (1 - 2 * sign) * (2**15 + mantissa) * 2.0 ** (exponent - 142))
            count += over
        assert half == wanted, hex(code)
    assert saturated == count


def test_fp32_to_e8m15_kernel() -> None:
    check_fp32_to_e8m15(sample_patterns(1, 20_000))


def test_e8m15_to_fp16_kernel() -> None:
    check_e8m15_to_fp16(sample_patterns(2, 15_000) >> np.uint32(8))


@pytest.mark.slow
def test_conversion_kernels_on_millions() -> None:
    check_fp32_to_e8m15(sample_patterns(3, 300_000))
    check_e8m15_to_fp16(sample_patterns(4, 300_000) >> np.uint32(8))


def test_every_half_to_e8m15() -> None:
    halves = np.arange(65536, dtype=np.uint16)
    out = np.empty(65536, np.uint32)
    kernels.e8m15_from_fp16(halves, out)
    for half, code in zip(halves.tolist(), out.tolist()):
        exponent, fraction, sign = half >> 10 & 31, half & 1023, half >> 15
        if exponent == 31:
            wanted = sign << 23 | 0x7F8000 | fraction << 5
        else:
            size = (fraction if exponent == 0 else 1024 + fraction) * 2.0 ** (max(exponent, 1) - 25)
            wanted = reference(E8M15, -size if sign else size)[0]
        assert code == wanted << 8, hex(half)
    # The way back loses nothing but the signalling of a NaN.
    back = np.empty(65536, np.uint16)
    assert kernels.fp16_from_e8m15(out, back) == 0
    quiet = np.where((halves & 0x7FFF) > 0x7C00, halves | 0x200, halves)
    np.testing.assert_array_equal(back, quiet)


def every_e8m15_code() -> Iterator[NDArray[np.uint32]]:
    for start in range(0, 2**24, 2**21):
        yield np.arange(start, start + 2**21, dtype=np.uint32)


@pytest.mark.slow
def test_kernels_equal_the_generic_codec_on_every_e8m15_code() -> None:
    for codes in every_e8m15_code():
        tally = Tally()
        half = np.empty(codes.size, np.uint16)
        saturated = kernels.fp16_from_e8m15(codes << np.uint32(8), half)
        np.testing.assert_array_equal(half, convert(codes, E8M15, FP16, tally=tally))
        assert saturated == tally.saturated
        single = np.empty(codes.size, np.uint32)
        kernels.fp32_from_e8m15(codes << np.uint32(8), single)
        np.testing.assert_array_equal(single, convert(codes, E8M15, FP32, exact=True))
        back = np.empty(codes.size, np.uint32)
        kernels.e8m15_from_fp32(single, back)
        zero = (codes & 0x7F8000) == 0
        nan = (codes & 0x7FFFFF) > 0x7F8000
        expected = np.where(zero, codes & 0x800000, np.where(nan, codes | 0x4000, codes))
        np.testing.assert_array_equal(back >> 8, expected)


def test_kernels_equal_the_generic_codec_on_samples() -> None:
    patterns = sample_patterns(5, 200_000)
    out = np.empty_like(patterns)
    kernels.e8m15_from_fp32(patterns, out)
    np.testing.assert_array_equal(out >> 8, convert(patterns, FP32_DAZ, E8M15))
    # With its subnormals read, binary32 differs just where they round up to 2^-126.
    differ = patterns[(out >> 8) != convert(patterns, FP32, E8M15)]
    assert set((differ & 0x7FFFFFFF) >= 0x007FFF80) == {True}
    assert set((differ & 0x7FFFFFFF) <= 0x007FFFFF) == {True}
    tally = Tally()
    half = np.empty(out.size, np.uint16)
    assert kernels.fp16_from_e8m15(out, half) == np.count_nonzero(
        (np.abs(FP32.decode(out)) > 65504) & np.isfinite(FP32.decode(out))
    )
    np.testing.assert_array_equal(half, convert(out >> 8, E8M15, FP16, tally=tally))


def fp22_codes() -> NDArray[np.uint32]:
    codes = np.arange(2**22, dtype=np.uint32)
    top = (codes >> 14 & 127) == 127
    zero = (codes >> 14 & 127) == 0
    return codes[(~top | (codes & 0x3FFF == 0x3FFF)) & (~zero | (codes == 0))]


def test_emit_of_every_fp22_value() -> None:
    codes = fp22_codes()
    values = FP22.decode(codes)
    out = np.empty(codes.size, np.uint16)
    saturated = kernels.emit_fp16(values.astype(np.float32), out)
    assert saturated == np.count_nonzero(np.abs(values) > 65504)
    # numpy's conversion is the second witness; it has no subnormal or tie rule of its own to agree with.
    expected = np.clip(values, -65504, 65504).astype(np.float16).view(np.uint16)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(out[::7], FP16.encode(values[::7], tally=Tally()))
    for i in range(0, codes.size, 997):
        assert out[i] == reference(FP16, float(values[i]))[0]


def rne_reference(x: float, bits: int) -> float:
    numerator, denominator = x.as_integer_ratio()
    drop = abs(numerator).bit_length() - bits
    if drop <= 0:
        return x
    whole, rest = divmod(abs(numerator), 1 << drop)
    whole += rest * 2 > 1 << drop or (rest * 2 == 1 << drop and whole % 2)
    return (1 if x > 0 else -1) * (whole << drop) / denominator


@pytest.mark.parametrize("bits", [2, 4, 11, 15, 16, 17, 24, 51, 52])
def test_rne(bits: int) -> None:
    rng = random.Random(bits)
    for _ in range(3_000):
        x = random_double(rng, -200, 200)
        assert kernels.rne(x, bits) == rne_reference(x, bits), (x.hex(), bits)
        tie = float(np.ldexp((2 * rng.getrandbits(bits - 1) + 1) | 1 << bits, -rng.randrange(100)))
        assert kernels.rne(-tie, bits) == rne_reference(-tie, bits), (tie.hex(), bits)


def test_nan_payloads() -> None:
    halves = np.arange(0x7C01, 0x8000, dtype=np.uint16)
    np.testing.assert_array_equal(convert(halves, FP16, E8M15), 0x7F8000 | (halves & 0x3FF).astype(np.uint32) << 5)
    codes = np.arange(0x7F8001, 0x800000, dtype=np.uint32)
    np.testing.assert_array_equal(convert(codes, E8M15, FP16), 0x7E00 | codes >> 5 & 0x1FF)
    np.testing.assert_array_equal(convert(codes | 0x800000, E8M15, FP16), 0xFE00 | codes >> 5 & 0x1FF)
    np.testing.assert_array_equal(convert(codes, E8M15, FP32), codes << 8)
    singles = (np.arange(1, 2**23, 4099, dtype=np.uint32)) | 0xFF800000
    np.testing.assert_array_equal(convert(singles, FP32, E8M15), 0xFFC000 | singles >> 8 & 0x3FFF)
    canonical: list[Any] = [E8M15.encode(-np.nan), E8M15.encode(np.nan)]
    assert canonical == [0x7FC000, 0x7FC000]
