"""Element arithmetic of the vector core: one pass over a register row per operation (datasheet 2.6, 2.9).

Decides the bits of every ALU operation; it must not know instructions, predicates, lengths or time. A row
is 128 E8M15 words in register form: uint32, the pattern of a binary32 whose low 8 bits are zero. Source
rows hold no word with exponent 0 and a nonzero mantissa (the caller cleans them), so the float32 view of a
row is its value.

Why float64 is enough. An E8M15 significand has 16 bits.
* A product has 32 bits and its exponent fits: exact in float64, rounded once by `finish`.
* A sum is exact in float64 when the exponents differ by at most 36 (16 + 36 + 1 = 53 bits). Beyond that the
  smaller term is below 2^-20 ulp16 of the larger one. The rounding points at 16 bits (midpoints) nearest to a
  16-bit number are half an ulp16 away (a quarter below a power of two), so float64's first rounding, which
  moves the sum by less than 2^-36 ulp16, can neither reach nor cross one: the second rounding sees the
  infinitely precise sum's side.
* FMA adds a 32-bit product and a 16-bit addend, and a product may sit exactly on a midpoint. TwoSum gives the
  exact error of the float64 sum; making the sum odd where it is inexact (round to odd, 53 >= 16 + 2 bits)
  keeps it off every midpoint and on the right side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kohakuaccel.jit import leaf, separate
from kohakutpu.units.seeds import EXP2, INV, LOG2, RSQRT, TABLE
from kohakutpu.units.vector_codes import (
    VABS,
    VADD,
    VCMPEQ,
    VCMPGT,
    VCMPLT,
    VEXP2,
    VFMA,
    VFNMA,
    VINV,
    VLOG2,
    VMAX,
    VMIN,
    VMOV,
    VMUL,
    VNEG,
    VRSQRT,
    VSEL,
    VSUB,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAN = np.uint32(0x7FC00000)
INF = np.uint32(0x7F800000)
SIGN = np.uint32(0x80000000)
ONE = np.uint32(0x3F800000)
ZERO = np.uint32(0)

# Coefficients as float32, which holds 22-bit integers exactly.
_TABLE = TABLE.astype(np.float32)
_FLOOR = 1.5 * 2.0**52  # adding and subtracting it rounds |x| < 2^51 to an integer
_EPS = 2.0**-17
_WEIGHT = 2.0**-20  # of F
# 2.9 forces F at the start of an octave. No code does: for exp2, log2 and rsqrt C0 gives that very F, and inv's
# C0 = 2^20 - 1 rounds to the word of 2^20.


@leaf
def finish(x: float) -> np.uint32:
    """rndE (2.6): the E8M15 word of a float64, RNE to 16 bits, flush below 2^-126, Inf from 2^128."""
    pattern = np.float64(x).view(np.int64)
    rounded = (pattern + ((1 << 36) - 1) + ((pattern >> 37) & 1)) & -(1 << 37)
    word = np.float32(np.int64(rounded).view(np.float64)).view(np.uint32)
    word = word if (word & INF) != ZERO else word & SIGN
    return word if x == x else NAN


@leaf
def _interpolate(real: NDArray[np.float32], bits: NDArray[np.uint32], s: int, n: int) -> None:
    """Row s = F of 2.9, an integer of 21 bits, for the table positions of row s+3: (table row << 12) + u.

    Looking up comes first and apart, because a loop that looks things up does not become SIMD.
    h = (C2*u + (C1<<16) + 2^15) >> 16 is floor(y + 1/2) with y a multiple of 2^-16, hence the nearest integer of
    y + 2^-17, which is never a tie. Every step is exact: integers below 2^40 over 2^16.
    """
    for i in range(n):
        row = bits[s + 3, i] >> np.uint32(12)
        real[s, i] = _TABLE[row, 0]
        real[s + 1, i] = _TABLE[row, 1]
        real[s + 2, i] = _TABLE[row, 2]
    for i in range(n):
        u = np.float64(np.int32(bits[s + 3, i] & np.uint32(4095))) * (1.0 / 65536.0)
        h = ((np.float64(real[s + 2, i]) * u + np.float64(real[s + 1, i]) + _EPS) + _FLOOR) - _FLOOR
        f = ((h * u + np.float64(real[s, i]) + _EPS) + _FLOOR) - _FLOOR
        real[s, i] = np.float32(f)


@leaf
def _power(k: int) -> float:
    """2^k as float64, -1022 <= k <= 1023."""
    return np.int64((np.int64(k) + 1023) << 52).view(np.float64)


@leaf
def _argument(x: np.float32) -> np.int32:
    """R of exp2 (2.9): |x| * 2^17 rounded half up, with the sign of x; 0 where |x| >= 128 makes no use of it.

    Exact in float64 up to the truncation: below 2^-36 the sum rounds to 1/2, which truncates to 0 as it must.
    """
    size = np.float64(abs(x)) * 131072.0 + 0.5
    whole = np.int32(size if size < 16777217.0 else 0.0)
    return np.int32(-whole if x < np.float32(0.0) else whole)


@separate("void(int64, float32[:,::1], uint32[:,::1], int64, int64, int64, int64)")
def seed(op: int, real: NDArray[np.float32], bits: NDArray[np.uint32], a: int, t: int, s: int, n: int) -> None:
    """Row t = exp2, log2, inv or rsqrt of row a (2.9). Row s+3 gets (table row << 12) + u of each element."""
    if op == VEXP2:
        for i in range(n):
            r = _argument(real[a, i])
            bits[s + 3, i] = np.uint32((EXP2 << 12) + (r & 0x1FFFF))
        _interpolate(real, bits, s, n)
        for i in range(n):
            x = real[a, i]
            y = (np.float64(real[s, i]) * _WEIGHT + 1.0) * _power(_argument(x) >> 17)
            # From 128 on the answer is Inf or +0; a NaN takes neither branch and stays.
            y = y if abs(x) < np.float32(128.0) else (np.inf if x > np.float32(0.0) else 0.0)
            bits[t, i] = finish(y if x == x else np.nan)
        return
    first = RSQRT if op == VRSQRT else (INV if op == VINV else LOG2)
    octave = np.uint32(1 if op == VRSQRT else 0)
    for i in range(n):
        w = bits[a, i] >> np.uint32(8)
        # P of rsqrt is the lowest bit of e - 127: rows of the second octave follow those of the first.
        p = (~(w >> np.uint32(15)) & octave) << np.uint32(17)
        bits[s + 3, i] = np.uint32((np.uint32(first << 12) + p) + ((w & np.uint32(0x7FFF)) << np.uint32(2)))
    _interpolate(real, bits, s, n)
    if op == VLOG2:
        for i in range(n):
            x = real[a, i]
            e = np.int32((bits[a, i] >> np.uint32(23)) & np.uint32(255)) - np.int32(127)
            y = np.float64(e) + np.float64(real[s, i]) * _WEIGHT
            y = y if x > np.float32(0.0) else (-np.inf if x == np.float32(0.0) else np.nan)
            bits[t, i] = finish(y if x != np.float32(np.inf) else np.inf)
    elif op == VINV:
        for i in range(n):
            x = real[a, i]
            size = bits[a, i] & ~SIGN
            e = np.int32(size >> np.uint32(23))
            y = np.float64(real[s, i]) * _power(np.int32(107) - e)
            y = y if size != ZERO else np.inf
            y = y if size < INF else (0.0 if size == INF else np.nan)
            bits[t, i] = finish(-y if (bits[a, i] & SIGN) != ZERO else y)
    else:
        for i in range(n):
            x = real[a, i]
            e = np.int32((bits[a, i] >> np.uint32(23)) & np.uint32(255)) - np.int32(127)
            y = np.float64(real[s, i]) * _power(np.int32(-20) - (e >> np.int32(1)))
            y = y if x > np.float32(0.0) else (np.inf if x == np.float32(0.0) else np.nan)
            bits[t, i] = finish(y if x != np.float32(np.inf) else 0.0)


@separate("void(int64, float32[:,::1], uint32[:,::1], int64, int64, int64, int64, int64, int64)")
def alu(
    op: int, real: NDArray[np.float32], bits: NDArray[np.uint32], a: int, b: int, c: int, t: int, s: int, n: int
) -> None:
    """Row t = op(row a, row b, row c), elements 0..n-1; op is an ALU opcode.

    real and bits are float32 and uint32 views of the same [rows, 128]; t differs from a, b and c; rows
    s..s+3 are scratch. Comparisons write 1.0 or +0 (what a chain passes on).
    """
    if op == VADD:
        for i in range(n):
            bits[t, i] = finish(np.float64(real[a, i]) + np.float64(real[c, i]))
    elif op == VSUB:
        for i in range(n):
            bits[t, i] = finish(np.float64(real[a, i]) - np.float64(real[c, i]))
    elif op == VMUL:
        for i in range(n):
            bits[t, i] = finish(np.float64(real[a, i]) * np.float64(real[b, i]))
    elif op in (VFMA, VFNMA):
        sign = 1.0 if op == VFMA else -1.0
        for i in range(n):
            p = np.float64(real[a, i]) * np.float64(real[b, i]) * sign
            q = np.float64(real[c, i])
            total = p + q
            v = total - p
            error = (p - (total - v)) + (q - v)
            # Round to odd: where the sum was rounded away from zero one step back, then the last bit set.
            # A NaN error (infinities) compares false and leaves the sum alone.
            inexact = (error > 0.0) | (error < 0.0)
            away = inexact & ((error > 0.0) != (total > 0.0))
            odd = (np.float64(total).view(np.int64) - np.int64(away)) | np.int64(inexact)
            bits[t, i] = finish(np.int64(odd).view(np.float64))
    elif op in (VMAX, VMIN):
        for i in range(n):
            x, y, xw, yw = real[a, i], real[b, i], bits[a, i], bits[b, i]
            swap = (x < y) if op == VMAX else (x > y)
            word = yw if swap else xw
            bits[t, i] = word if x == x else NAN
    elif op == VSEL:
        for i in range(n):
            xw, yw = bits[a, i], bits[b, i]
            word = xw if real[c, i] != np.float32(0.0) else yw
            bits[t, i] = word if (word & ~SIGN) <= INF else NAN
    elif op in (VMOV, VNEG, VABS):
        keep = ~SIGN if op == VABS else ~ZERO
        flip = SIGN if op == VNEG else ZERO
        for i in range(n):
            word = (bits[a, i] & keep) ^ flip
            bits[t, i] = word if (word & ~SIGN) <= INF else NAN
    elif op == VCMPLT:
        for i in range(n):
            bits[t, i] = ONE if real[a, i] < real[b, i] else ZERO
    elif op == VCMPGT:
        for i in range(n):
            bits[t, i] = ONE if real[a, i] > real[b, i] else ZERO
    elif op == VCMPEQ:
        for i in range(n):
            bits[t, i] = ONE if real[a, i] == real[b, i] else ZERO
    else:
        seed(op, real, bits, a, t, s, n)
