"""Float arithmetic of the vector unit on single lanes: NaN rules, conversions, the serial steps (datasheet 5, 6).

Decides the bits of one lane's result; it must not know opcodes, tiles or time. Values travel as float32 and are
looked at as signed 32-bit patterns. The processor's own add and multiply are IEEE-754 with subnormals; only its
NaN results differ from the machine's, so every NaN result is built anew here.
"""

from __future__ import annotations

import numpy as np

from kohakuaccel.jit import leaf

_SIGN = -(1 << 31)
_MAGNITUDE = 0x7FFFFFFF
_INFINITY = 0x7F800000
_QUIET = 1 << 22
_MANTISSA = 0x7FFFFF
_HIDDEN = 1 << 23
_WORD = 0xFFFFFFFF


@leaf
def bits(x: np.float32) -> int:
    """The pattern of x as a signed 32-bit number."""
    return int(np.float32(x).view(np.int32))


@leaf
def real(pattern: int) -> np.float32:
    """The value of the low 32 bits."""
    return np.int32(pattern).view(np.float32)


@leaf
def nan_of(x: np.float32, y: np.float32) -> np.float32:
    """The NaN that an add or a multiply of x and y gives: signalling operands first, else the first quiet one."""
    a, b = bits(x), bits(y)
    a_nan, b_nan = a & _MAGNITUDE > _INFINITY, b & _MAGNITUDE > _INFINITY
    if a_nan and a & _QUIET == 0:
        return real(a | _QUIET)
    if b_nan and b & _QUIET == 0:
        return real(b | _QUIET)
    if a_nan:
        return x
    if b_nan:
        return y
    return real(_INFINITY | _QUIET)


@leaf
def fadd(x: np.float32, y: np.float32) -> np.float32:
    r = np.float32(x + y)
    if r != r:
        return nan_of(x, y)
    return r


@leaf
def fmul(x: np.float32, y: np.float32) -> np.float32:
    r = np.float32(x * y)
    if r != r:
        return nan_of(x, y)
    return r


@leaf
def negated(x: np.float32) -> np.float32:
    """The sign bit flipped, of a NaN too."""
    return real(bits(x) ^ _SIGN)


@leaf
def fsub(x: np.float32, y: np.float32) -> np.float32:
    return fadd(x, negated(y))


@leaf
def larger(x: np.float32, y: np.float32) -> np.float32:
    """FMAX: x if x >= y, else y; unordered gives y."""
    return x if x >= y else y


@leaf
def smaller(x: np.float32, y: np.float32) -> np.float32:
    """FMIN: x if x <= y, else y; unordered gives y."""
    return x if x <= y else y


@leaf
def reciprocal(x: np.float32) -> np.float32:
    """FRECIP: a seed by subtraction of patterns and three Newton steps."""
    pattern = bits(x)
    y = real((pattern & _SIGN) | ((0x7F000000 - (pattern & _MAGNITUDE)) & _MAGNITUDE))
    for _ in range(3):
        y = fmul(y, fadd(np.float32(2.0), negated(fmul(x, y))))
    return y


@leaf
def from_int(x: int) -> np.float32:
    """I2F: mantissa bits that do not fit are dropped."""
    magnitude = abs(x)
    if magnitude == 0:
        return np.float32(0.0)
    top = 0
    while magnitude >> (top + 1):
        top += 1
    mantissa = magnitude << (23 - top) if top <= 23 else magnitude >> (top - 23)
    pattern = ((top + 127) << 23) | (mantissa & _MANTISSA)
    return real(pattern | _SIGN if x < 0 else pattern)


@leaf
def _whole(pattern: int) -> int:
    """The integer of a pattern without the rule for NaN and Inf, wrapped to a signed 32-bit number."""
    e = ((pattern >> 23) & 0xFF) - 127
    if e < 0:
        return 0
    mantissa = _HIDDEN | (pattern & _MANTISSA)
    magnitude = mantissa >> (23 - e) if e < 23 else mantissa << ((e - 23) & 31)
    return int(np.int32(-magnitude if pattern < 0 else magnitude))


@leaf
def to_int(x: np.float32) -> int:
    """F2I: truncates; NaN and Inf give 0, large values wrap."""
    pattern = bits(x)
    return 0 if pattern & _INFINITY == _INFINITY else _whole(pattern)


@leaf
def _truncated(x: np.float32) -> np.float32:
    pattern = bits(x)
    field = (pattern >> 23) & 0xFF
    if field < 127:
        return np.float32(0.0)
    if field >= 151:
        return x
    return real(pattern & ~(_MANTISSA >> (field - 127)))


@leaf
def exp2(x: np.float32) -> np.float32:
    t = _truncated(x)
    biased = np.int64(np.int32(_whole(bits(t)) + 127))
    scale = real(min(max(biased, 0), 255) << 23)
    f = fadd(x, negated(t))
    a = fadd(fmul(f, real(0x3E800000)), real(0x3F3C0592))
    a = fadd(fmul(a, f), np.float32(1.0))
    return fmul(a, scale)


@leaf
def log2(x: np.float32) -> np.float32:
    pattern = bits(x)
    e = ((pattern >> 23) & 0xFF) - 127
    u = fadd(real(0x3F800000 | (pattern & _MANTISSA)), np.float32(-1.0))
    a = fadd(fmul(u, real(0xBF0B851F)), real(0x3FC161E5))
    return fadd(fmul(a, u), from_int(e))


@leaf
def sine(x: np.float32) -> np.float32:
    y = fmul(x, real(0x3E22F983))
    y = fadd(y, real(0x3F000000 | (bits(x) & _SIGN)))
    a = fmul(_truncated(y), real(0x40C90FDB))
    y = fadd(x, negated(a))
    k = fadd(real(0x40490FDB | (bits(y) & _SIGN)), negated(y))
    q = k if real(bits(y) & _MAGNITUDE) > real(0x3FC90FDB) else y
    z = fmul(q, q)
    a = fadd(fmul(z, real(0x3BFA0514)), real(0xBE2A0E41))
    a = fadd(fmul(a, z), np.float32(1.0))
    return fmul(a, q)


@leaf
def cosine(x: np.float32) -> np.float32:
    z = fmul(x, x)
    a = fadd(fmul(z, real(0x3D1817B9)), real(0xBEFE42E1))
    return fadd(fmul(a, z), np.float32(1.0))
