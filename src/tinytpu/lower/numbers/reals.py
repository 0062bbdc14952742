"""Binary32 operations over tiles: order and equality with NaN and both zeros, rounding to integers, conversions.

Every function takes and gives values of binary32 bits. The unit's own FMAX, FMIN, I2F and F2I are wrong at the ends
(datasheet 13.8, 13.9, 13.20); what is added here makes them right.
"""

from __future__ import annotations

import math

from kohakuaccel.graph import BOOL
from tinytpu.isa.codes import VPU
from tinytpu.lower.numbers.base import HALF, Tile, bits_of, unsigned32
from tinytpu.lower.program.code import Code

INFINITY = 0x7F800000
MAGNITUDE = 0x7FFFFFFF


def real(code: Code, number: float) -> int:
    """A constant."""
    return code.fill(bits_of(number))


def magnitude(code: Code, a: int) -> int:
    return code.vpu(VPU.FABS, a)


def negated(code: Code, a: int) -> int:
    return code.vpu(VPU.XOR, a, code.fill(HALF))


def _nothing_or_nan(code: Code, a: int) -> int:
    """-0.0, or NaN where a is: adding it to a number changes nothing."""
    return code.vpu(VPU.FMIN, real(code, -0.0), magnitude(code, a))


def extreme(code: Code, a: Tile, b: Tile, op: VPU) -> int:
    """FMAX or FMIN with a NaN winning: the unit's gives its second operand where one is a NaN."""
    if b.number and not a.number:
        a, b = b, a
    found = code.vpu(op, a.value, b.value)
    return found if a.number else code.vpu(VPU.FADD, found, _nothing_or_nan(code, a.value))


def with_nan(code: Code, value: int, seen: int) -> int:
    """value, or NaN where the largest magnitude seen (as int32) is one."""
    return code.vpu(VPU.FADD, value, code.vpu(VPU.FMIN, real(code, -0.0), seen))


def less(code: Code, a: int, b: int) -> int:
    return code.vpu(VPU.FCMPLT, a, b)


def equal(code: Code, a: Tile, b: Tile) -> int:
    """1 where equal: both zeros are, a NaN equals nothing."""
    for one, other in ((a, b), (b, a)):
        bits = code.constant(one.value)
        if bits is None:
            continue
        if bits & MAGNITUDE == 0:
            return code.vpu(VPU.CMPEQ, magnitude(code, other.value), code.fill(0))
        if bits & MAGNITUDE > INFINITY:
            return code.fill(0)
        return code.vpu(VPU.CMPEQ, one.value, other.value)
    zero = code.fill(0)
    same = code.vpu(VPU.CMPEQ, code.vpu(VPU.FADD, a.value, zero), code.vpu(VPU.FADD, b.value, zero))
    if a.number or b.number:
        return same
    number = code.vpu(VPU.CMPLT, magnitude(code, a.value), code.fill(INFINITY + 1))
    return code.vpu(VPU.AND, same, number)


def cut(code: Code, a: int) -> int:
    """Rounded towards zero; the sign of a zero, Inf and NaN stay."""
    whole = code.vpu(VPU.I2F, code.vpu(VPU.F2I, a))
    signed = code.vpu(VPU.OR, whole, code.vpu(VPU.AND, a, code.fill(HALF)))
    small = less(code, magnitude(code, a), real(code, 2.0**23))
    return code.select(small, signed, a)


def floor(code: Code, a: int) -> int:
    """Rounded down."""
    whole = cut(code, a)
    return code.vpu(VPU.FSUB, whole, code.vpu(VPU.I2F, less(code, a, whole)))


def from_integer(code: Code, a: Tile) -> int:
    """An integer or truth value, rounded to nearest even: two halves are exact, and their sum is rounded once."""
    if a.dtype == BOOL:
        return code.vpu(VPU.MUL, a.value, real(code, 1.0))
    if a.low >= -(1 << 24) and a.high <= 1 << 24:
        return code.vpu(VPU.I2F, a.value)
    low = code.vpu(VPU.I2F, code.vpu(VPU.AND, a.value, code.fill(0xFFFF)))
    if unsigned32(a.dtype) and a.high >= HALF:
        high = code.vpu(VPU.I2F, code.vpu(VPU.SHR, a.value, code.fill(16)))
        return code.vpu(VPU.FADD, code.vpu(VPU.FMUL, high, real(code, 65536.0)), low)
    return code.vpu(VPU.FADD, code.vpu(VPU.I2F, code.vpu(VPU.AND, a.value, code.fill(-65536))), low)


def to_word(code: Code, a: int) -> int:
    """Cut towards zero, modulo 2**32; NaN, Inf and what 64 bits do not hold become 0."""
    known = less(code, magnitude(code, a), real(code, math.ldexp(1.0, 55)))
    return code.vpu(VPU.MUL, code.vpu(VPU.F2I, a), known)


def to_truth(code: Code, a: int) -> int:
    return code.vpu(VPU.CMPNE, magnitude(code, a), code.fill(0))
