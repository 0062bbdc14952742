"""The sine of any angle: arguments beyond the three parts of pi are reduced by 224 bits of 1 / pi, in integers.

Right to 3e-7 of 1, and of itself, for every finite number. It takes four times the instructions of `functions.sine`,
so it is for programs that have seen a larger argument. It must not know expressions.
"""

from __future__ import annotations

import math
from itertools import pairwise

from tinytpu.isa.codes import VPU
from tinytpu.lower.numbers import pairs, wide
from tinytpu.lower.numbers import words as w
from tinytpu.lower.numbers.base import HALF
from tinytpu.lower.numbers.functions import half_turns, sine_near
from tinytpu.lower.numbers.pairs import Pair
from tinytpu.lower.numbers.reals import magnitude, real
from tinytpu.lower.program.code import Code

_LEAST = 14
"""Numbers from 2**14 on are reduced here."""
_INVERSE = 0x145F306DC9C882A53F84EAFA3EA69BB81B6C52B3278872083FCA2C
"""1 / pi, times 2**214, cut."""
_WORDS = tuple(_INVERSE >> (192 - 32 * n) & w.MASK for n in range(7))


def sine(code: Code, x: int) -> int:
    """sin x."""
    size = magnitude(code, x)
    small = code.vpu(VPU.CMPLT, size, code.fill((127 + _LEAST) << 23))
    near, turns = half_turns(code, size)
    far, odd = _far(code, size)
    rest = code.select(small, near, far)
    odd = code.select(small, code.vpu(VPU.SHL, turns, code.fill(31)), odd)
    sign = code.vpu(VPU.XOR, odd, code.vpu(VPU.AND, x, code.fill(HALF)))
    found = code.vpu(VPU.XOR, sine_near(code, rest), sign)
    missing = code.vpu(VPU.CMPLT, code.fill(0x7F7FFFFF), size)  # Inf and NaN
    return code.select(missing, code.vpu(VPU.FSUB, x, x), found)


def _far(code: Code, size: int) -> tuple[int, int]:
    """The rest of a number of 2**14 and more to a multiple of pi, and the sign bit where that is odd.

    The number is m * 2**(e - 23); of 1 / pi the 96 bits count from that of weight 2**(23 - e), whose product with m has
    weight 1: those before it give even multiples, those behind it nothing that is seen.
    """
    mantissa = code.vpu(VPU.OR, code.vpu(VPU.AND, size, code.fill(0x007FFFFF)), code.fill(0x00800000))
    start = code.vpu(VPU.SUB, code.vpu(VPU.SHR, size, code.fill(23)), code.fill(127 + _LEAST))
    beyond = [code.vpu(VPU.CMPLT, code.fill(32 * n - 1), start) for n in (1, 2, 3)]
    words = [code.fill(word) for word in _WORDS]
    found: list[int] = []
    for n in range(4):
        word = words[n]
        for more, past in enumerate(beyond, 1):
            word = code.select(past, words[n + more], word)
        found.append(word)
    left = code.vpu(VPU.XOR, start, code.fill(31))
    window = [
        code.vpu(
            VPU.OR,
            code.vpu(VPU.SHL, one, start),
            code.vpu(VPU.SHR, code.vpu(VPU.SHR, following, code.fill(1)), left),
        )
        for one, following in pairwise(found)
    ]
    low = pairs.high_product(code, mantissa, window[2])
    middle = Pair(code.vpu(VPU.MUL, mantissa, window[1]), pairs.high_product(code, mantissa, window[1]))
    total = pairs.add(code, middle, Pair(low, code.fill(0)))
    high = code.vpu(VPU.ADD, total.high, code.vpu(VPU.MUL, mantissa, window[0]))
    # Bit 63 counts half turns; the rest of half a turn or more is that less one.
    rest = pairs.left(code, Pair(total.low, high), 1)
    odd = code.vpu(VPU.AND, code.vpu(VPU.XOR, high, rest.high), code.fill(HALF))
    turned = wide.to_real(code, wide.made(rest, wide.SIGNED, (-(1 << 63), (1 << 63) - 1)))
    return code.vpu(VPU.FMUL, turned, real(code, math.pi * 2.0**-64)), odd
