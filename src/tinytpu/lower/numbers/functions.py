"""Functions of binary32 over tiles: reciprocal, powers and logarithms of two, roots, sine.

Polynomials in place of the unit's serial functions, which are slower and right to 3e-2 only (datasheet 14); exact at
zeros, Inf and NaN (datasheet 13.16 to 13.19). The reciprocal is rounded to nearest where it is no subnormal; relative
errors of others, over all binary32: quotient 5e-7, exp2 2e-7, log2 4e-7, sqrt 2e-7; sine 2e-7 of 1 for magnitudes up to
SINE_LIMIT.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tinytpu.isa.codes import VPU
from tinytpu.lower.numbers.base import HALF
from tinytpu.lower.numbers.reals import INFINITY, less, magnitude, real
from tinytpu.lower.program.code import Code

NAN = 0x7FC00000
SINE_LIMIT = 25735.0
"""Up to here the three parts of pi reduce an argument exactly (2**13 half turns)."""
_EXP2 = (1.0, 0.693147207, 0.240226512, 0.0555032721, 0.0096180256, 0.00134004322, 0.00015469732)
_LOG2 = (2.8853900797739565, 0.9617988602859557, 0.5767129226187073, 0.43177611590713305)
_SIN = (1.0, -0.16666666616670103, 0.008333330968156642, -0.0001984086034146371, 2.7525224010796894e-06,
        -2.3888362033301052e-08)  # fmt: skip
_PI = (3.140625, 0.0009670257568359375, 6.277114152908325e-07, 1.2154201013012384e-10)
_ROUNDING = 12582912.0
"""1.5 * 2**23: adding it rounds a small number to an integer, which stands in the low bits."""


def polynomial(code: Code, x: int, coefficients: Sequence[float]) -> int:
    """By Horner's rule, the constant first in `coefficients`."""
    value = real(code, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value = code.vpu(VPU.FADD, code.vpu(VPU.FMUL, value, x), real(code, c))
    return value


def _corrected(code: Code, x: int, y: int) -> int:
    """FRECIP's y, which is up to two last places off, as the number nearest 1 / x. X and Y are mantissas: X * Y is near
    a multiple of 2**32, so the low word of their product is what is wrong, r; Y goes up by the nearest integer to
    -r / X. Right for all mantissas (tests)."""
    mask, lead, one = code.fill(0x007FFFFF), code.fill(0x00800000), code.fill(1)
    mantissa = code.vpu(VPU.OR, code.vpu(VPU.AND, x, mask), lead)
    wrong = code.vpu(VPU.MUL, mantissa, code.vpu(VPU.OR, code.vpu(VPU.AND, y, mask), lead))
    twice = code.vpu(VPU.SHL, wrong, one)
    limit = mantissa
    for n in range(2):
        if n:
            limit = code.vpu(VPU.ADD, limit, code.vpu(VPU.SHL, mantissa, one))
        up = code.vpu(VPU.CMPLT, twice, code.unary("VNEG", limit))
        y = code.vpu(VPU.SUB, code.vpu(VPU.ADD, y, up), code.vpu(VPU.CMPLT, limit, twice))
    return y


def _inverse(code: Code, x: int, *, nearest: bool) -> tuple[int, int]:
    """Two factors of 1 / x. What FRECIP cannot take is scaled by a power of two before, and by the second factor after;
    of 0 and Inf the exponent is turned over, which makes each the other. nearest: the first is the nearest number, else
    one within 3e-7."""
    size = magnitude(code, x)
    down, up, one = real(code, 2.0**-64), real(code, 2.0**64), real(code, 1.0)
    large = code.vpu(VPU.CMPLT, code.fill(0x7E000000), size)
    small = code.vpu(VPU.CMPLT, size, code.fill(0x01000000))
    scale = code.select(small, up, code.select(large, down, one))
    scaled = code.vpu(VPU.FMUL, x, scale)
    found = code.vpu(VPU.FRECIP, scaled)
    found = _corrected(code, scaled, found) if nearest else found
    ends = code.vpu(VPU.OR, code.vpu(VPU.CMPEQ, size, code.fill(0)), code.vpu(VPU.CMPEQ, size, code.fill(INFINITY)))
    return code.select(ends, code.vpu(VPU.XOR, x, code.fill(INFINITY)), found), scale


def reciprocal(code: Code, x: int, *, nearest: bool = True) -> int:
    """1 / x, rounded to nearest, else within 4e-7."""
    bits = code.constant(x)
    if bits is not None:
        with np.errstate(all="ignore"):
            return code.fill(int((np.float32(1) / np.uint32(bits).view(np.float32)).view(np.uint32)))
    return code.vpu(VPU.FMUL, *_inverse(code, x, nearest=nearest))


def quotient(code: Code, a: int, b: int) -> int:
    """a / b: a times both factors of 1 / b; exact where b is a power of two that is known."""
    bits = code.constant(b)
    if bits is not None and bits & 0x007FFFFF == 0 and 2 <= bits >> 23 & 255 <= 252:
        return code.vpu(VPU.FMUL, a, code.fill((bits & HALF) | (254 - (bits >> 23 & 255)) << 23))
    inverse, scale = _inverse(code, b, nearest=False)
    return code.vpu(VPU.FMUL, code.vpu(VPU.FMUL, a, inverse), scale)


def exp2(code: Code, x: int, rest: int | None = None) -> int:
    """2 ** x: 2 ** f by a polynomial, |f| <= 1/2, times two powers of two whose product may be subnormal or Inf.
    rest: a small number that x lacks."""
    held = code.vpu(VPU.FMIN, real(code, 128.0), code.vpu(VPU.FMAX, real(code, -151.0), x))
    shifted = code.vpu(VPU.FADD, held, real(code, _ROUNDING))
    whole = code.vpu(VPU.FSUB, shifted, real(code, _ROUNDING))
    fraction = code.vpu(VPU.FSUB, held, whole)
    fraction = fraction if rest is None else code.vpu(VPU.FADD, fraction, rest)
    near = polynomial(code, fraction, _EXP2)
    # The integer n is in the low bits of `shifted`; half = (n + 300) >> 1, so n = (half - 150) + (n - half + 150).
    n = code.vpu(VPU.ADD, shifted, code.fill(300 - 0x4B400000))
    half = code.vpu(VPU.SHR, n, code.fill(1))
    first = code.vpu(VPU.ADD, half, code.fill(127 - 150))
    second = code.vpu(VPU.SUB, n, code.vpu(VPU.ADD, half, code.fill(150 - 127)))
    places = code.fill(23)
    powers = [code.vpu(VPU.SHL, part, places) for part in (first, second)]
    return code.vpu(VPU.FMUL, code.vpu(VPU.FMUL, near, powers[0]), powers[1])


def _ends(code: Code, x: int, value: int, zero: int) -> int:
    """A function of positive finite numbers, `zero` of zeros: NaN of negative numbers, else x itself (Inf, NaN)."""
    inside = code.vpu(VPU.AND, code.vpu(VPU.CMPLT, code.fill(0), x), code.vpu(VPU.CMPLT, x, code.fill(INFINITY)))
    nothing = code.vpu(VPU.CMPEQ, magnitude(code, x), code.fill(0))
    outside = code.select(less(code, x, real(code, 0.0)), code.fill(NAN), x)
    return code.select(inside, value, code.select(nothing, zero, outside))


def _normal(code: Code, x: int, scale: float) -> tuple[int, int]:
    """x times `scale` where it is subnormal, and 1 there."""
    subnormal = code.vpu(VPU.CMPLT, x, code.fill(0x00800000))
    factor = code.select(subnormal, real(code, scale), real(code, 1.0))
    return code.vpu(VPU.FMUL, x, factor), subnormal


def split_exponent(code: Code, x: int) -> tuple[int, int]:
    """The exponent of a positive finite number as an integer, and its mantissa in [sqrt(1/2), sqrt(2))."""
    scaled, subnormal = _normal(code, x, 2.0**24)
    low = code.fill(0x3F3504F3)  # the bits of sqrt(1/2)
    moved = code.vpu(VPU.SUB, scaled, low)
    mantissa = code.vpu(VPU.ADD, code.vpu(VPU.AND, moved, code.fill(0x007FFFFF)), low)
    # Arithmetic shift of a number above -2**30: made positive by a multiple of 2**23 first.
    exponent = code.vpu(VPU.SHR, code.vpu(VPU.ADD, moved, code.fill(256 << 23)), code.fill(23))
    exponent = code.vpu(VPU.SUB, exponent, code.fill(256))
    return code.vpu(VPU.SUB, exponent, code.vpu(VPU.MUL, subnormal, code.fill(24))), mantissa


def log2(code: Code, x: int) -> int:
    """The exponent, and of the mantissa m in [sqrt(1/2), sqrt(2)) a series in (m - 1) / (m + 1)."""
    exponent, mantissa = split_exponent(code, x)
    one = real(code, 1.0)
    f = code.vpu(VPU.FSUB, mantissa, one)
    s = code.vpu(VPU.FMUL, f, code.vpu(VPU.FRECIP, code.vpu(VPU.FADD, mantissa, one)))
    series = code.vpu(VPU.FMUL, s, polynomial(code, code.vpu(VPU.FMUL, s, s), _LOG2))
    value = code.vpu(VPU.FADD, code.vpu(VPU.I2F, exponent), series)
    return _ends(code, x, value, real(code, -math.inf))


def sqrt(code: Code, x: int) -> int:
    """x * y with y near 1 / sqrt(x) by Newton's rule, corrected by what is left of x."""
    scaled, subnormal = _normal(code, x, 2.0**24)
    y = code.vpu(VPU.SUB, code.fill(0x5F3759DF), code.vpu(VPU.SHR, scaled, code.fill(1)))
    half = code.vpu(VPU.FMUL, scaled, real(code, 0.5))
    for _ in range(3):
        wrong = code.vpu(VPU.FMUL, code.vpu(VPU.FMUL, half, y), y)
        y = code.vpu(VPU.FMUL, y, code.vpu(VPU.FSUB, real(code, 1.5), wrong))
    root = code.vpu(VPU.FMUL, scaled, y)
    left = code.vpu(VPU.FSUB, scaled, code.vpu(VPU.FMUL, root, root))
    root = code.vpu(VPU.FADD, root, code.vpu(VPU.FMUL, code.vpu(VPU.FMUL, left, y), real(code, 0.5)))
    root = code.select(subnormal, code.vpu(VPU.FMUL, root, real(code, 2.0**-12)), root)
    return _ends(code, x, root, x)


def half_turns(code: Code, x: int) -> tuple[int, int]:
    """What is left of x by the nearest multiple of pi, and a word whose last bit says whether that is odd; right for
    magnitudes up to SINE_LIMIT."""
    turns = code.vpu(VPU.FADD, code.vpu(VPU.FMUL, x, real(code, 1 / math.pi)), real(code, _ROUNDING))
    n = code.vpu(VPU.FSUB, turns, real(code, _ROUNDING))
    rest = x
    for part in _PI:
        rest = code.vpu(VPU.FSUB, rest, code.vpu(VPU.FMUL, n, real(code, part)))
    return rest, turns


def sine_near(code: Code, x: int) -> int:
    """The sine of at most a quarter turn."""
    return code.vpu(VPU.FMUL, x, polynomial(code, code.vpu(VPU.FMUL, x, x), _SIN))


def sine(code: Code, x: int) -> tuple[int, int]:
    """sin x, and 1 where x is finite and beyond SINE_LIMIT, where the value is wrong."""
    rest, turns = half_turns(code, x)
    odd = code.vpu(VPU.SHL, turns, code.fill(31))
    size = magnitude(code, x)
    beyond = code.vpu(VPU.AND, less(code, real(code, SINE_LIMIT), size), code.vpu(VPU.CMPLT, size, code.fill(INFINITY)))
    return code.vpu(VPU.XOR, sine_near(code, rest), odd), beyond
