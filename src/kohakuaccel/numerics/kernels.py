"""Compiled conversions between the machines' number formats, bit for bit as datasheet 2.2 to 2.8.

Decides the bits of a conversion and counts what saturated or was not finite; it must not know who
converts, nor what is done about a count. Loops are branch-free selects so that they vectorise, and no
value on the way is a subnormal binary32, so a thread that flushes subnormals computes the same bits.

Register forms: an E8M15 code is held as uint32, the 24-bit code shifted left 8 (a binary32 pattern whose
low 8 bits are 0); an FP22 value is held as the float32 of the same value. Arrays are C-contiguous.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kohakuaccel.jit import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

E8M15_NAN = np.uint32(0x7FC00000)
"""The NaN every E8M15 operation writes (2.6), in register form."""

FP16_MAX = np.float32(65504.0)

# Step 5 of 2.2: 2^15 / m8 in integers, m8 = 8..15. The table is the rule (13 is not the nearest integer).
_RECIPROCALS = np.array([4096, 3641, 3277, 2979, 2731, 2520, 2341, 2185], dtype=np.float32)

_HALF_MIN_NORMAL = np.float32(2.0**-14)
_HALF_MIN_NORMAL_BITS = np.uint32(0x38800000)


@kernel
def rne(x: float, bits: int) -> float:
    """`x` rounded to nearest even at `bits` significant bits (2..52) with unbounded exponent.

    float64 in, float64 out, for normal doubles. Zeros, Inf and NaN pass unchanged. Scalar, to be inlined.
    """
    drop = 53 - bits
    pattern = np.float64(x).view(np.int64)
    lsb = (pattern >> drop) & 1
    rounded = np.int64((pattern + ((1 << (drop - 1)) - 1) + lsb) & -(1 << drop)).view(np.float64)
    return rounded if x == x else x


@kernel
def _half_magnitude(magnitude: np.uint32) -> np.float32:
    """float32 of a binary16 pattern without its sign; exponent 31 is an ordinary exponent (2.2 step 1)."""
    field = np.uint32(magnitude) << np.uint32(13)
    normal = np.uint32(field + np.uint32(112 << 23)).view(np.float32)
    subnormal = np.uint32(field | _HALF_MIN_NORMAL_BITS).view(np.float32) - _HALF_MIN_NORMAL
    return normal if magnitude >= 1024 else subnormal


@kernel
def mxfp7_quantise(half: NDArray[np.uint16], q: NDArray[np.int8], scale: NDArray[np.uint8]) -> int:
    """Quantise blocks of 32 binary16 patterns to int7 elements and E5M3 scale bytes (2.2).

    half: uint16[n, 32]; q: int8[n, 32] and scale: uint8[n] are written. Returns how many elements have
    exponent 31; they are quantised as the datasheet's steps say (its policy "count"), and what to make of
    them is the caller's business.

    Step 5 in float32: sig * R < 2^23, so v = |x| * R * 2^(-12-es) = sig * R / 2^sh is exact. Then
    trunc(v + 0.5) is the integer rule: for v >= 0.25 the sum is exact (v is a multiple of 2^-24), and below
    that it stays under 0.75 + 2^-24 and truncates to 0 as it must.
    """
    nonfinite = 0
    for block in range(half.shape[0]):
        row = half[block]
        peak = np.uint16(0)
        for k in range(32):
            magnitude = np.uint16(row[k] & np.uint16(0x7FFF))
            peak = magnitude if magnitude > peak else peak
        # The float32 of the peak is normalised, so its fields give P and ep (+112) without a loop.
        pattern = np.int64(np.float32(_half_magnitude(np.uint32(peak))).view(np.uint32))
        top = 1024 + ((pattern >> 13) & 1023)
        exponent = (pattern >> 23) - 112
        c = (top + 125) // 126
        m8 = c if c <= 15 else c - 8
        es = exponent - 21 if c <= 15 else exponent - 20
        es = min(max(es, -20), 11)
        # A zero block is es 0, m8 8: the byte A0, and every |x| below is 0.
        m8 = m8 if peak != 0 else 8
        es = es if peak != 0 else 0
        scale[block] = np.uint8(((es + 20) << 3) | (m8 - 8))
        factor = _RECIPROCALS[m8 - 8] * np.uint32((115 - es) << 23).view(np.float32)
        out = q[block]
        for k in range(32):
            h = np.uint32(row[k])
            v = np.float32(_half_magnitude(h & np.uint32(0x7FFF))) * factor
            level = np.int32(min(v + np.float32(0.5), np.float32(63.0)))
            out[k] = np.int8(-level if h >= 0x8000 else level)
        if peak >= 0x7C00:
            for k in range(32):
                nonfinite += int((row[k] & 0x7C00) == 0x7C00)
    return nonfinite


@kernel
def emit_fp16(x: NDArray[np.float32], out: NDArray[np.uint16]) -> int:
    """FP22 values (float32[n]) to binary16 patterns uint16[n]: RNE, subnormals produced, saturating (2.5).

    Zero becomes 0000; a nonzero value that rounds to zero keeps its sign. Returns the count of |x| > 65504.
    """
    saturated = 0
    for i in range(x.shape[0]):
        pattern = np.float32(x[i]).view(np.uint32)
        size = np.uint32(pattern & np.uint32(0x7FFFFFFF)).view(np.float32)
        saturated += int(size > FP16_MAX)
        magnitude = np.uint32(_half_from_magnitude(min(size, FP16_MAX)))
        sign = np.uint32((pattern >> np.uint32(16)) & np.uint32(0x8000))
        out[i] = np.uint16(magnitude | sign) if size != 0 else np.uint16(0)
    return saturated


@kernel
def _half_from_magnitude(size: np.float32) -> np.uint32:
    """Binary16 magnitude bits of a float32 in [0, 65504], RNE, subnormals produced."""
    bits = np.float32(size).view(np.uint32)
    odd = np.uint32((bits >> np.uint32(13)) & np.uint32(1))
    # Rebias and round in one sum; carries walk from the mantissa into the exponent as they should.
    normal = np.uint32(bits + np.uint32(0xFFF) + odd - np.uint32(112 << 23)) >> np.uint32(13)
    # 0.5 has an ulp of 2^-24, the binary16 subnormal step: the adder does the rounding.
    subnormal = np.uint32(np.float32(size + np.float32(0.5)).view(np.uint32) - np.uint32(0x3F000000))
    return np.uint32(normal) if size >= _HALF_MIN_NORMAL else subnormal


@kernel
def e8m15_from_fp16(half: NDArray[np.uint16], out: NDArray[np.uint32]) -> None:
    """Binary16 patterns uint16[n] to E8M15 register form uint32[n] (2.8).

    Exact; a NaN keeps its sign and fraction.
    """
    for i in range(half.shape[0]):
        h = np.uint32(half[i])
        magnitude = np.uint32(h & np.uint32(0x7FFF))
        sign = np.uint32((h & np.uint32(0x8000)) << np.uint32(16))
        bits = np.float32(_half_magnitude(magnitude)).view(np.uint32)
        special = np.uint32(np.uint32(112 << 23) if magnitude >= 0x7C00 else np.uint32(0))
        out[i] = np.uint32(np.uint32(bits + special) | sign)


@kernel
def fp16_from_e8m15(code: NDArray[np.uint32], out: NDArray[np.uint16]) -> int:
    """E8M15 register form uint32[n] to binary16 patterns uint16[n] (2.8).

    RNE with subnormals; a finite overflow becomes 7BFF/FBFF, Inf stays, a NaN keeps its sign and payload
    bits 13:5 with the quiet bit set. Returns the count of finite |x| > 65504.
    """
    saturated = 0
    for i in range(code.shape[0]):
        pattern = np.uint32(code[i])
        magnitude = np.uint32(pattern & np.uint32(0x7FFFFFFF))
        magnitude = magnitude if magnitude >= 0x00800000 else np.uint32(0)
        sign = np.uint32((pattern >> np.uint32(16)) & np.uint32(0x8000))
        # Patterns of non-negative floats order as integers, so the comparisons need no float.
        clipped = np.uint32(min(magnitude, np.uint32(0x477FE000))).view(np.float32)
        finite = np.uint32(_half_from_magnitude(clipped))
        nan = np.uint32(np.uint32(0x7E00) | ((magnitude >> np.uint32(13)) & np.uint32(0x1FF)))
        saturated += int((magnitude > 0x477FE000) & (magnitude < 0x7F800000))
        special = np.uint32(0x7C00) if magnitude == 0x7F800000 else nan
        result = special if magnitude >= 0x7F800000 else finite
        out[i] = np.uint16(np.uint32(result | sign))
    return saturated


@kernel
def e8m15_from_fp32(pattern: NDArray[np.uint32], out: NDArray[np.uint32]) -> None:
    """Binary32 patterns uint32[n] to E8M15 register form uint32[n] (2.8).

    Exponent 0 becomes a signed zero, the low 8 bits are rounded to nearest even, rounding past the top gives
    Inf, a NaN keeps its sign and payload bits 21:8 with the quiet bit set.
    """
    for i in range(pattern.shape[0]):
        bits = np.uint32(pattern[i])
        magnitude = np.uint32(bits & np.uint32(0x7FFFFFFF))
        odd = np.uint32((bits >> np.uint32(8)) & np.uint32(1))
        rounded = np.uint32(np.uint32(bits + np.uint32(0x7F) + odd) & np.uint32(0xFFFFFF00))
        nan = np.uint32(np.uint32(bits | np.uint32(0x00400000)) & np.uint32(0xFFFFFF00))
        zero = np.uint32(bits & np.uint32(0x80000000))
        finite = zero if magnitude < 0x00800000 else rounded
        out[i] = nan if magnitude > 0x7F800000 else finite


@kernel
def fp32_from_e8m15(code: NDArray[np.uint32], out: NDArray[np.uint32]) -> None:
    """E8M15 register form uint32[n] to binary32 patterns uint32[n]: the same bits, exponent 0 zero (2.8)."""
    for i in range(code.shape[0]):
        bits = np.uint32(code[i])
        zero = np.uint32(bits & np.uint32(0x80000000))
        out[i] = zero if np.uint32(bits & np.uint32(0x7F800000)) == 0 else bits
