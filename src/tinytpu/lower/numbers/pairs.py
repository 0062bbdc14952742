"""Integers of 64 bits as pairs of words, low and high: arithmetic modulo 2**64, order, shifts, division.

Decides which instructions a pair takes. It must not know formats beyond signed or not, nor when a pair is needed.
"""

from __future__ import annotations

from typing import NamedTuple

from tinytpu.isa.codes import VPU
from tinytpu.lower.numbers import words as w
from tinytpu.lower.program.code import Code


class Pair(NamedTuple):
    """Values of code: the low and the high word."""

    low: int
    high: int


def number(code: Code, value: int) -> Pair:
    """A constant, modulo 2**64."""
    return Pair(code.fill(value & w.MASK), code.fill(value >> 32 & w.MASK))


def add(code: Code, a: Pair, b: Pair) -> Pair:
    low = w.add(code, a.low, b.low)
    one, other = (a.low, b.low) if code.constant(b.low) is None else (b.low, a.low)
    carry = code.fill(0) if 0 in (code.constant(one), code.constant(other)) else w.less(code, low, one)
    return Pair(low, w.add(code, w.add(code, a.high, b.high), carry))


def sub(code: Code, a: Pair, b: Pair) -> Pair:
    borrow = w.less(code, a.low, b.low)
    return Pair(w.sub(code, a.low, b.low), w.sub(code, w.sub(code, a.high, b.high), borrow))


def neg(code: Code, a: Pair) -> Pair:
    return sub(code, number(code, 0), a)


def abs_(code: Code, a: Pair) -> Pair:
    """Of a signed number: all bits turned over where it is negative, and 1 added."""
    minus = w.sign(code, a.high)
    turned = Pair(w.differing(code, a.low, minus), w.differing(code, a.high, minus))
    return sub(code, turned, Pair(minus, minus))


def high_product(code: Code, a: int, b: int) -> int:
    """The high word of the product of two unsigned words, by their halves."""
    mask = code.fill(0xFFFF)
    a0, a1, b0, b1 = w.both(code, a, mask), w.right(code, a, 16), w.both(code, b, mask), w.right(code, b, 16)
    first, second = w.mul(code, a0, b1), w.mul(code, a1, b0)
    middle = w.add(code, w.right(code, w.mul(code, a0, b0), 16), w.both(code, first, mask))
    middle = w.add(code, middle, w.both(code, second, mask))
    high = w.add(code, w.mul(code, a1, b1), w.right(code, first, 16))
    return w.add(code, w.add(code, high, w.right(code, second, 16)), w.right(code, middle, 16))


def mul(code: Code, a: Pair, b: Pair) -> Pair:
    crossed = w.add(code, w.mul(code, a.low, b.high), w.mul(code, a.high, b.low))
    return Pair(w.mul(code, a.low, b.low), w.add(code, high_product(code, a.low, b.low), crossed))


def bitwise(code: Code, op: VPU, a: Pair, b: Pair) -> Pair:
    return Pair(w.word(code, op, a.low, b.low), w.word(code, op, a.high, b.high))


def less(code: Code, a: Pair, b: Pair, *, signed: bool) -> int:
    """1 where a < b."""
    before = w.word(code, VPU.CMPLT, a.high, b.high) if signed else w.less(code, a.high, b.high)
    same = w.word(code, VPU.CMPEQ, a.high, b.high)
    low = w.less(code, a.low, b.low)
    return w.either(code, before, low if code.constant(same) == 1 else w.both(code, same, low))


def equal(code: Code, a: Pair, b: Pair) -> int:
    different = w.either(code, w.differing(code, a.low, b.low), w.differing(code, a.high, b.high))
    return w.word(code, VPU.CMPEQ, different, code.fill(0))


def chosen(code: Code, condition: int, yes: Pair, no: Pair) -> Pair:
    return Pair(w.chosen(code, condition, yes.low, no.low), w.chosen(code, condition, yes.high, no.high))


def left(code: Code, a: Pair, places: int) -> Pair:
    """Shifted by a known number of places; 64 and more leave nothing."""
    if places >= 32:
        return Pair(code.fill(0), w.left(code, a.low, min(places - 32, 32)))
    high = w.either(code, w.left(code, a.high, places), w.right(code, a.low, 32 - places))
    return Pair(w.left(code, a.low, places), high)


def right(code: Code, a: Pair, places: int, *, signed: bool) -> Pair:
    """Shifted by a known number of places; 64 and more leave the sign, or nothing."""

    def shifted(word: int, n: int) -> int:
        return w.arithmetic_right(code, word, min(n, 31)) if signed else w.right(code, word, min(n, 32))

    top = shifted(a.high, 31) if signed and places >= 32 else code.fill(0)
    if places >= 32:
        return Pair(shifted(a.high, places - 32), top)
    low = w.either(code, w.right(code, a.low, places), w.left(code, a.high, 32 - places))
    return Pair(low, shifted(a.high, places))


def left_by(code: Code, a: Pair, places: int) -> Pair:
    """Shifted by a word of 0..63. Shifts take an amount's last five bits: n and then 1 are 32 - (31 - n) of them."""
    far = code.vpu(VPU.AND, places, code.fill(32))
    low = code.vpu(VPU.SHL, a.low, places)
    over = code.vpu(VPU.SHR, w.right(code, a.low, 1), code.vpu(VPU.XOR, places, code.fill(31)))
    high = w.either(code, code.vpu(VPU.SHL, a.high, places), over)
    return Pair(code.select(far, code.fill(0), low), code.select(far, low, high))


def right_by(code: Code, a: Pair, places: int) -> Pair:
    """Shifted by a word of 0..63; zeros come in."""
    far = code.vpu(VPU.AND, places, code.fill(32))
    high = code.vpu(VPU.SHR, a.high, places)
    over = code.vpu(VPU.SHL, w.left(code, a.high, 1), code.vpu(VPU.XOR, places, code.fill(31)))
    low = w.either(code, code.vpu(VPU.SHR, a.low, places), over)
    return Pair(code.select(far, high, low), code.select(far, code.fill(0), high))


def divided(code: Code, a: Pair, b: Pair, bits: int) -> tuple[Pair, Pair]:
    """Quotient and rest of unsigned pairs, a below 2**bits, bit by bit; any pairs where b is 0."""
    quotient, rest = number(code, 0), number(code, 0)
    for n in range(bits - 1, -1, -1):
        over = w.right(code, rest.high, 31)
        bit = w.right(code, a.high if n >= 32 else a.low, n % 32)
        doubled = left(code, rest, 1)
        rest = Pair(w.either(code, doubled.low, w.both(code, bit, code.fill(1))), doubled.high)
        below = less(code, rest, b, signed=False)
        goes = w.either(code, over, w.word(code, VPU.XOR, below, code.fill(1)))
        taken = w.sub(code, code.fill(0), goes)
        rest = sub(code, rest, bitwise(code, VPU.AND, b, Pair(taken, taken)))
        doubled = left(code, quotient, 1)
        quotient = Pair(w.either(code, doubled.low, goes), doubled.high)
    return quotient, rest


_ROUNDS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(code: Code, counter: Pair, key: Pair) -> Pair:
    """Threefry-2x32 of 20 rounds, low halves first."""
    third = w.differing(code, w.differing(code, key.low, key.high), code.fill(0x1BD11BDA))
    keys = (key.high, third, key.low)
    x, y = w.add(code, counter.low, key.low), w.add(code, counter.high, key.high)
    for i in range(5):
        for places in _ROUNDS[i % 2]:
            x = w.add(code, x, y)
            turned = code.vpu(VPU.ROTL, y, code.fill(places))
            y = w.differing(code, x, turned)
        x = w.add(code, x, keys[i % 3])
        y = w.add(code, y, w.add(code, keys[(i + 1) % 3], code.fill(i + 1)))
    return Pair(x, y)
