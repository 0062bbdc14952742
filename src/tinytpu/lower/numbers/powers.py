"""Powers of reals: x ** y by a logarithm in two words, so that the exponent's size costs no accuracy.

Relative error 6e-7 over all binary32, exact at the ends as IEEE's pow has them. It must not know expressions.
"""

from __future__ import annotations

from typing import NamedTuple

from tinytpu.isa.codes import VPU
from tinytpu.lower.numbers.base import HALF
from tinytpu.lower.numbers.functions import NAN, exp2, polynomial, split_exponent
from tinytpu.lower.numbers.reals import INFINITY, cut, less, magnitude, real
from tinytpu.lower.program.code import Code

_FACTOR = (2.885390043258667, 3.8519259838e-08)
"""2 / ln 2 as the sum of two binary32."""
_SERIES = (0.9617966939259756, 0.5770780163555854, 0.4121985831111324, 0.3205988979753252, 0.2623081892525388)
"""2 / ln 2 / (2 n + 1) from n = 1 on."""


class _Two(NamedTuple):
    """A number as the sum of two values of code, the second much smaller."""

    high: int
    low: int


def _sum(code: Code, a: int, b: int) -> _Two:
    """a + b exactly, where a is 0 or not the smaller."""
    high = code.vpu(VPU.FADD, a, b)
    return _Two(high, code.vpu(VPU.FSUB, b, code.vpu(VPU.FSUB, high, a)))


def _product(code: Code, a: int, b: int) -> _Two:
    """a * b exactly: the products of halves of 12 bits are exact."""
    mask = code.fill(-4096)
    ah, bh = code.vpu(VPU.AND, a, mask), code.vpu(VPU.AND, b, mask)
    al, bl = code.vpu(VPU.FSUB, a, ah), code.vpu(VPU.FSUB, b, bh)
    high = code.vpu(VPU.FMUL, a, b)
    left = code.vpu(VPU.FSUB, code.vpu(VPU.FMUL, ah, bh), high)
    for x, y in ((ah, bl), (al, bh), (al, bl)):
        left = code.vpu(VPU.FADD, left, code.vpu(VPU.FMUL, x, y))
    return _Two(high, left)


def _logarithm(code: Code, x: int) -> _Two:
    """log2 of positive finite numbers, right to 2**-32 or so of itself."""
    exponent, mantissa = split_exponent(code, x)
    one = real(code, 1.0)
    f = code.vpu(VPU.FSUB, mantissa, one)
    below = _sum(code, one, mantissa)  # also exact where the mantissa is above 1: it has 23 bits behind the point
    inverse = code.vpu(VPU.FRECIP, below.high)
    s = code.vpu(VPU.FMUL, f, inverse)
    back = _product(code, s, below.high)
    rest = code.vpu(VPU.FSUB, code.vpu(VPU.FSUB, f, back.high), back.low)
    rest = code.vpu(VPU.FSUB, rest, code.vpu(VPU.FMUL, s, below.low))
    s_low = code.vpu(VPU.FMUL, rest, inverse)
    square = code.vpu(VPU.FMUL, s, s)
    series = code.vpu(VPU.FMUL, code.vpu(VPU.FMUL, square, s), polynomial(code, square, _SERIES))
    main = _product(code, s, real(code, _FACTOR[0]))
    low = code.vpu(VPU.FADD, main.low, code.vpu(VPU.FMUL, s, real(code, _FACTOR[1])))
    low = code.vpu(VPU.FADD, low, code.vpu(VPU.FMUL, s_low, real(code, _FACTOR[0])))
    low = code.vpu(VPU.FADD, low, series)
    fraction = _sum(code, main.high, low)
    whole = _sum(code, code.vpu(VPU.I2F, exponent), fraction.high)
    return _Two(whole.high, code.vpu(VPU.FADD, whole.low, fraction.low))


def power(code: Code, x: int, y: int) -> int:
    """x ** y."""
    size, zero, one = magnitude(code, x), code.fill(0), real(code, 1.0)
    finite = code.vpu(VPU.AND, code.vpu(VPU.CMPLT, zero, size), code.vpu(VPU.CMPLT, size, code.fill(INFINITY)))
    log = _logarithm(code, code.select(finite, size, one))
    ends = code.select(code.vpu(VPU.CMPEQ, size, zero), code.fill(INFINITY | HALF), size)
    high = code.select(finite, log.high, ends)
    whole = _product(code, y, high)
    low = code.vpu(VPU.FADD, whole.low, code.vpu(VPU.FMUL, y, log.low))
    # What is clamped there lacks nothing.
    small = less(code, magnitude(code, whole.high), real(code, 512.0))
    small = code.vpu(VPU.AND, small, less(code, whole.high, real(code, 128.00002)))
    value = exp2(code, whole.high, code.vpu(VPU.MUL, low, small))
    return _at_ends(code, x, y, value)


def _at_ends(code: Code, x: int, y: int, value: int) -> int:
    """The sign of a negative number's odd power, NaN of its broken ones, and 1 of 1 and to the power of 0."""
    zero, one = code.fill(0), real(code, 1.0)
    whole = code.vpu(VPU.CMPEQ, cut(code, y), y)
    half = code.vpu(VPU.FMUL, y, real(code, 0.5))
    odd = code.vpu(VPU.AND, whole, code.vpu(VPU.CMPNE, cut(code, half), half))
    negative = code.vpu(VPU.CMPLT, x, zero)
    value = code.vpu(VPU.OR, value, code.vpu(VPU.SHL, code.vpu(VPU.AND, odd, negative), code.fill(31)))
    number = less(code, x, code.fill(HALF))  # below zero, and no NaN
    finite = code.vpu(VPU.CMPLT, magnitude(code, x), code.fill(INFINITY))
    broken = code.vpu(VPU.AND, code.vpu(VPU.AND, number, finite), code.vpu(VPU.CMPEQ, whole, zero))
    value = code.select(broken, code.fill(NAN), value)
    nothing = code.vpu(VPU.CMPEQ, magnitude(code, y), zero)
    far = code.vpu(VPU.CMPEQ, magnitude(code, y), code.fill(INFINITY))
    unit = code.vpu(VPU.CMPEQ, code.vpu(VPU.MUL, far, magnitude(code, x)), one)
    plain = code.vpu(VPU.OR, nothing, code.vpu(VPU.OR, unit, code.vpu(VPU.CMPEQ, x, one)))
    return code.select(plain, one, value)
