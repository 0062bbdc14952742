"""Element arithmetic of the vector core: one pass over a register row per operation (datasheet 2.6, 2.9).

Decides the bits of every ALU operation; it must not know instructions, predicates, lengths or time. A row
is 128 E8M15 words in register form: uint32, the pattern of a binary32 whose low 8 bits are zero. Source
rows hold no word with exponent 0 and a nonzero mantissa (the caller cleans them), so the float32 view of a
row is its value.

Why float64 is enough. An E8M15 significand has 16 bits.
* A product has 32 bits and its exponent fits: exact in float64, rounded once by `_finish`.
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

from kohakuaccel.jit import kernel
from kohakutpu.units.seeds import EXP2, INV, LOG2, RSQRT, TABLE

if TYPE_CHECKING:
    from numpy.typing import NDArray

OP = range(32)
MOV, NEG, ABS, ADD, SUB, MUL, FMA, FNMA, MAX, MIN, SEL, CMPLT, CMPGT, CMPEQ, VEXP2, VLOG2, VINV, VRSQRT = (
    range(18)
)

NAN = np.uint32(0x7FC00000)
INF = np.uint32(0x7F800000)
SIGN = np.uint32(0x80000000)
ONE = np.uint32(0x3F800000)
ZERO = np.uint32(0)

# Coefficients as float64, C1 and C0 scaled to the weight they are added at (2.9: C1 << 16, C0 << 16).
_C0 = TABLE[:, 0] * 1.0
_C1 = TABLE[:, 1] * 1.0
_C2 = TABLE[:, 2] / 65536.0
_FORCED = 2.0**20
_FLOOR = 1.5 * 2.0**52  # adding and subtracting it rounds |x| < 2^51 to an integer
_EPS = 2.0**-17


@kernel
def _finish(x: float) -> np.uint32:
    """rndE (2.6): the E8M15 word of a float64, RNE to 16 bits, flush below 2^-126, Inf from 2^128."""
    pattern = np.float64(x).view(np.int64)
    rounded = (pattern + ((1 << 36) - 1) + ((pattern >> 37) & 1)) & -(1 << 37)
    word = np.float32(np.int64(rounded).view(np.float64)).view(np.uint32)
    word = word if (word & INF) != ZERO else word & SIGN
    return word if x == x else NAN


@kernel
def _poly(row: int, u: float) -> float:
    """F of 2.9 as a float64 integer.

    h = (C2*u + (C1<<16) + 2^15) >> 16 is floor(y + 1/2) with y a multiple of 2^-16, hence the nearest
    integer of y + 2^-17, which is never a tie. Every step is exact: integers below 2^40 over 2^16.
    """
    h = ((_C2[row] * u + _C1[row] + _EPS) + _FLOOR) - _FLOOR
    return (((h * u) * (1.0 / 65536.0) + _C0[row] + _EPS) + _FLOOR) - _FLOOR


@kernel
def _power(k: int) -> float:
    """2^k as float64, -1022 <= k <= 1023."""
    return np.int64(np.int64(k + 1023) << 52).view(np.float64)


@kernel
def alu(
    op: int, real: NDArray[np.float32], bits: NDArray[np.uint32], a: int, b: int, c: int, t: int, n: int
) -> None:
    """Row t = op(row a, row b, row c), elements 0..n-1. real and bits are float32 and uint32 views of the
    same [rows, 128]; t differs from a, b and c. Comparisons write 1.0 or +0 (what a chain passes on)."""
    if op == ADD:
        for i in range(n):
            bits[t, i] = _finish(np.float64(real[a, i]) + np.float64(real[c, i]))
    elif op == SUB:
        for i in range(n):
            bits[t, i] = _finish(np.float64(real[a, i]) - np.float64(real[c, i]))
    elif op == MUL:
        for i in range(n):
            bits[t, i] = _finish(np.float64(real[a, i]) * np.float64(real[b, i]))
    elif op == FMA or op == FNMA:
        sign = 1.0 if op == FMA else -1.0
        for i in range(n):
            p = np.float64(real[a, i]) * np.float64(real[b, i]) * sign
            q = np.float64(real[c, i])
            s = p + q
            v = s - p
            e = (p - (s - v)) + (q - v)
            inexact = (e > 0.0) | (e < 0.0)
            away = inexact & ((e > 0.0) != (s > 0.0))
            odd = (np.float64(s).view(np.int64) - np.int64(away)) | np.int64(inexact)
            bits[t, i] = _finish(np.int64(odd).view(np.float64))
    elif op == MAX or op == MIN:
        for i in range(n):
            x, y, xw, yw = real[a, i], real[b, i], bits[a, i], bits[b, i]
            swap = (x < y) if op == MAX else (x > y)
            word = yw if swap else xw
            bits[t, i] = word if x == x else NAN
    elif op == SEL:
        for i in range(n):
            xw, yw = bits[a, i], bits[b, i]
            word = xw if real[c, i] != np.float32(0.0) else yw
            bits[t, i] = word if (word & ~SIGN) <= INF else NAN
    elif op <= ABS:
        keep = ~SIGN if op == ABS else ~ZERO
        flip = SIGN if op == NEG else ZERO
        for i in range(n):
            word = (bits[a, i] & keep) ^ flip
            bits[t, i] = word if (word & ~SIGN) <= INF else NAN
    elif op == CMPLT:
        for i in range(n):
            bits[t, i] = ONE if real[a, i] < real[b, i] else ZERO
    elif op == CMPGT:
        for i in range(n):
            bits[t, i] = ONE if real[a, i] > real[b, i] else ZERO
    elif op == CMPEQ:
        for i in range(n):
            bits[t, i] = ONE if real[a, i] == real[b, i] else ZERO
    elif op == VEXP2:
        for i in range(n):
            x = np.float64(real[a, i])
            size = abs(x) * 131072.0 + 0.5
            whole = np.int32(size if size < 16777217.0 else 0.0)
            r = -whole if x < 0.0 else whole
            f = r & 0x1FFFF
            y = (_poly(EXP2 + (f >> 12), np.float64(f & 4095)) * 2.0**-20 + 1.0) * _power(r >> 17)
            y = y if size < 16777216.0 else (np.inf if x > 0.0 else 0.0)
            bits[t, i] = _finish(y if x == x else x)
    elif op == VLOG2:
        for i in range(n):
            w = np.int32(bits[a, i] >> np.uint32(8))
            e, m = (w >> 15) & 255, w & 0x7FFF
            y = np.float64(e - 127) + _poly(LOG2 + (m >> 10), np.float64((m & 1023) << 2)) * 2.0**-20
            x = real[a, i]
            y = y if x > np.float32(0.0) else (-np.inf if x == np.float32(0.0) else np.nan)
            bits[t, i] = _finish(y if x < np.float32(np.inf) else np.float64(x))
    elif op == VINV:
        for i in range(n):
            w = np.int32(bits[a, i] >> np.uint32(8))
            e, m = (w >> 15) & 255, w & 0x7FFF
            f = _poly(INV + (m >> 10), np.float64((m & 1023) << 2))
            f = f if m != 0 else _FORCED
            y = f * _power(107 - e)
            y = y if e != 0 else np.inf
            y = y if e != 255 else (0.0 if m == 0 else np.nan)
            bits[t, i] = _finish(-y if w >= 0x800000 else y)
    elif op == VRSQRT:
        for i in range(n):
            w = np.int32(bits[a, i] >> np.uint32(8))
            e, m = (w >> 15) & 255, w & 0x7FFF
            row = RSQRT + (((e - 127) & 1) << 5) + (m >> 10)
            y = _poly(row, np.float64((m & 1023) << 2)) * _power(-20 - ((e - 127) >> 1))
            x = real[a, i]
            y = y if x > np.float32(0.0) else (np.inf if x == np.float32(0.0) else np.nan)
            bits[t, i] = _finish(
                y if x < np.float32(np.inf) else (0.0 if x == np.float32(np.inf) else np.nan)
            )
