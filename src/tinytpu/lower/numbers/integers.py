"""Integer and truth-value operations over tiles of up to 32 bits: division of every kind, shifts, unsigned order.

Every function takes tiles of one format and gives a value whose low 32 bits are those of the exact result; whoever
calls knows its span, and brings it into its format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tinytpu.isa.codes import VPU
from tinytpu.lower.numbers import words
from tinytpu.lower.numbers.base import HALF, Tile, unsigned32
from tinytpu.lower.program.code import Code


def plain(op: VPU) -> Callable[[Code, Tile, Tile], int]:
    """An operation that is one instruction."""
    return lambda code, a, b: code.vpu(op, a.value, b.value)


def neg(code: Code, a: Tile) -> int:
    return code.unary("VNEG", a.value)


def abs_(code: Code, a: Tile) -> int:
    return a.value if a.low >= 0 else code.unary("VABS", a.value)


def greatest(code: Code, a: Tile, b: Tile) -> int:
    if unsigned32(a.dtype):
        return code.vpu(VPU.MAX_U32, a.value, b.value)
    for one, other in ((a, b), (b, a)):
        if code.constant(one.value) == 0:
            return code.vpu(VPU.RELU, other.value)
    return code.vpu(VPU.MAX, a.value, b.value)


def least(code: Code, a: Tile, b: Tile) -> int:
    return code.vpu(VPU.MIN_U32 if unsigned32(a.dtype) else VPU.MIN, a.value, b.value)


def less(code: Code, a: Tile, b: Tile) -> int:
    """1 where a < b."""
    if unsigned32(a.dtype) and max(a.high, b.high) >= HALF:
        return code.vpu(VPU.CMPNE, code.vpu(VPU.MAX_U32, a.value, b.value), a.value)
    return code.vpu(VPU.CMPLT, a.value, b.value)


def _no_less(code: Code, a: int, b: int) -> int:
    """1 where a >= b as unsigned words."""
    return code.vpu(VPU.CMPEQ, code.vpu(VPU.MAX_U32, a, b), a)


def _zero_where(code: Code, b: Tile, value: int) -> int:
    """value, but 0 where b is 0."""
    if b.low > 0 or b.high < 0:
        return value
    return code.vpu(VPU.MUL, value, code.vpu(VPU.CMPNE, b.value, code.fill(0)))


def unsigned_quotient(code: Code, a: Tile, b: Tile) -> int:
    """a / b of unsigned words; any word where b is 0."""
    if max(a.high, b.high) < HALF:
        return code.vpu(VPU.DIV, a.value, b.value)
    one = code.fill(1)
    half = code.vpu(VPU.DIV, code.vpu(VPU.SHR, a.value, one), b.value)
    quotient = code.vpu(VPU.SHL, half, one)
    rest = code.vpu(VPU.SUB, a.value, code.vpu(VPU.MUL, quotient, b.value))
    small = code.vpu(VPU.ADD, quotient, _no_less(code, rest, b.value))
    if b.high < HALF:
        return small
    # A divisor with its top bit set goes in once or not at all.
    return code.select(code.vpu(VPU.CMPLT, b.value, code.fill(0)), _no_less(code, a.value, b.value), small)


def quotient(code: Code, a: Tile, b: Tile) -> int:
    """Cut towards zero; 0 where b is 0."""
    if unsigned32(a.dtype):
        return _zero_where(code, b, unsigned_quotient(code, a, b))
    return code.vpu(VPU.DIV, a.value, b.value)


def _rest(code: Code, a: Tile, b: Tile) -> tuple[int, int]:
    """Quotient cut towards zero, and what is left; both any word where b is 0."""
    whole = unsigned_quotient(code, a, b) if unsigned32(a.dtype) else code.vpu(VPU.DIV, a.value, b.value)
    return whole, code.vpu(VPU.SUB, a.value, code.vpu(VPU.MUL, whole, b.value))


def remainder(code: Code, a: Tile, b: Tile) -> int:
    """What a cut quotient leaves; 0 where b is 0."""
    return _zero_where(code, b, _rest(code, a, b)[1])


def _below(code: Code, a: Tile, b: Tile, rest: int) -> int | None:
    """1 where the quotient rounded down is one less than the one cut towards zero; None where it never is."""
    if (a.low >= 0 and b.low >= 0) or (a.high <= 0 and b.high <= 0):
        return None
    zero = code.fill(0)
    if b.low >= 0:
        return code.vpu(VPU.CMPLT, rest, zero)
    opposite = code.vpu(VPU.CMPLT, code.vpu(VPU.XOR, rest, b.value), zero)
    return code.vpu(VPU.AND, opposite, code.vpu(VPU.CMPNE, rest, zero))


def floor_quotient(code: Code, a: Tile, b: Tile) -> int:
    """Rounded down; 0 where b is 0."""
    whole, rest = _rest(code, a, b)
    below = _below(code, a, b, rest)
    return _zero_where(code, b, whole if below is None else code.vpu(VPU.SUB, whole, below))


def floor_remainder(code: Code, a: Tile, b: Tile) -> int:
    """With the sign of b; 0 where b is 0."""
    _, rest = _rest(code, a, b)
    below = _below(code, a, b, rest)
    value = rest if below is None else code.vpu(VPU.ADD, rest, code.vpu(VPU.MUL, below, b.value))
    return _zero_where(code, b, value)


def _within(code: Code, value: int, amount: Tile) -> int:
    """value, but 0 where the shift amount is no number from 0 to 31."""
    if amount.low >= 0 and amount.high < 32:
        return value
    high = code.vpu(VPU.AND, amount.value, code.fill(-32))
    return code.vpu(VPU.MUL, value, code.vpu(VPU.CMPEQ, high, code.fill(0)))


def shift_left(code: Code, a: Tile, b: Tile) -> int:
    return _within(code, code.vpu(VPU.SHL, a.value, b.value), b)


def shift_right(code: Code, a: Tile, b: Tile) -> int:
    """Arithmetic where the format is signed, as SHR is logical: what is negative is turned over before and after."""
    if a.low >= 0:
        return _within(code, code.vpu(VPU.SHR, a.value, b.value), b)
    if 0 <= b.low == b.high < 32:
        return words.arithmetic_right(code, a.value, b.low)
    minus = words.sign(code, a.value)
    positive = code.vpu(VPU.XOR, a.value, minus)
    shifted = _within(code, code.vpu(VPU.SHR, positive, b.value), b)
    return code.vpu(VPU.XOR, shifted, minus)


BINARY: Mapping[str, Callable[[Code, Tile, Tile], int]] = {
    "add": plain(VPU.ADD),
    "sub": plain(VPU.SUB),
    "mul": plain(VPU.MUL),
    "max": greatest,
    "min": least,
    "and": plain(VPU.AND),
    "or": plain(VPU.OR),
    "xor": plain(VPU.XOR),
    "quot": quotient,
    "rem": remainder,
    "wdiv": floor_quotient,
    "wmod": floor_remainder,
    "idiv": floor_quotient,
    "mod": floor_remainder,
    "shl": shift_left,
    "shr": shift_right,
}
UNARY: Mapping[str, Callable[[Code, Tile], int]] = {"neg": neg, "abs": abs_}
