"""Integer and truth-value operations over tiles: wrapping, division of every kind, shifts, unsigned order.

Every function takes tiles of one format and gives the value and the span of the exact result; whoever calls brings it
into its format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tinytpu.isa.codes import VPU
from tinytpu.lower.code import Code
from tinytpu.lower.numbers.base import HALF, Tile, span, unsigned32

Exact = tuple[int, int, int]
"""A value and the least and greatest number it is, before it is brought into its format."""


def _corners(what: Callable[[int, int], int], a: Tile, b: Tile) -> tuple[int, int]:
    found = [what(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return min(found), max(found)


def add(code: Code, a: Tile, b: Tile) -> Exact:
    return code.vpu(VPU.ADD, a.value, b.value), a.low + b.low, a.high + b.high


def sub(code: Code, a: Tile, b: Tile) -> Exact:
    return code.vpu(VPU.SUB, a.value, b.value), a.low - b.high, a.high - b.low


def mul(code: Code, a: Tile, b: Tile) -> Exact:
    return code.vpu(VPU.MUL, a.value, b.value), *_corners(lambda x, y: x * y, a, b)


def neg(code: Code, a: Tile) -> Exact:
    return code.unary("VNEG", a.value), -a.high, -a.low


def abs_(code: Code, a: Tile) -> Exact:
    if a.low >= 0:
        return a.value, a.low, a.high
    return code.unary("VABS", a.value), 0, max(-a.low, a.high)


def greatest(code: Code, a: Tile, b: Tile) -> Exact:
    span = max(a.low, b.low), max(a.high, b.high)
    if unsigned32(a.dtype):
        return code.vpu(VPU.MAX_U32, a.value, b.value), *span
    for one, other in ((a, b), (b, a)):
        if code.constant(one.value) == 0:
            return code.vpu(VPU.RELU, other.value), *span
    return code.vpu(VPU.MAX, a.value, b.value), *span


def least(code: Code, a: Tile, b: Tile) -> Exact:
    op = VPU.MIN_U32 if unsigned32(a.dtype) else VPU.MIN
    return code.vpu(op, a.value, b.value), min(a.low, b.low), min(a.high, b.high)


def _bits(op: VPU) -> Callable[[Code, Tile, Tile], Exact]:
    def apply(code: Code, a: Tile, b: Tile) -> Exact:
        value = code.vpu(op, a.value, b.value)
        if min(a.low, b.low) < 0:
            return value, *span(a.dtype)
        top = (1 << max(a.high, b.high).bit_length()) - 1
        return value, 0, min(top, min(a.high, b.high)) if op == VPU.AND else top

    return apply


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


def _unsigned_quotient(code: Code, a: Tile, b: Tile) -> int:
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


def quotient(code: Code, a: Tile, b: Tile) -> Exact:
    """Cut towards zero; 0 where b is 0."""
    if unsigned32(a.dtype):
        return _zero_where(code, b, _unsigned_quotient(code, a, b)), 0, a.high
    most = max(abs(a.low), abs(a.high))
    return code.vpu(VPU.DIV, a.value, b.value), min(0, a.low) if b.low >= 0 else -most, most


def _rest(code: Code, a: Tile, b: Tile) -> tuple[int, int]:
    """Quotient cut towards zero, and what is left; both any word where b is 0."""
    whole = _unsigned_quotient(code, a, b) if unsigned32(a.dtype) else code.vpu(VPU.DIV, a.value, b.value)
    return whole, code.vpu(VPU.SUB, a.value, code.vpu(VPU.MUL, whole, b.value))


def remainder(code: Code, a: Tile, b: Tile) -> Exact:
    """What a cut quotient leaves; 0 where b is 0."""
    most = max(abs(b.low), abs(b.high))
    _, rest = _rest(code, a, b)
    return _zero_where(code, b, rest), -most if a.low < 0 else 0, most if a.high > 0 else 0


def _below(code: Code, a: Tile, b: Tile, rest: int) -> int | None:
    """1 where the quotient rounded down is one less than the one cut towards zero; None where it never is."""
    if (a.low >= 0 and b.low >= 0) or (a.high <= 0 and b.high <= 0):
        return None
    zero = code.fill(0)
    if b.low >= 0:
        return code.vpu(VPU.CMPLT, rest, zero)
    opposite = code.vpu(VPU.CMPLT, code.vpu(VPU.XOR, rest, b.value), zero)
    return code.vpu(VPU.AND, opposite, code.vpu(VPU.CMPNE, rest, zero))


def floor_quotient(code: Code, a: Tile, b: Tile) -> Exact:
    """Rounded down; 0 where b is 0."""
    whole, rest = _rest(code, a, b)
    below = _below(code, a, b, rest)
    value = whole if below is None else code.vpu(VPU.SUB, whole, below)
    most = max(abs(a.low), abs(a.high))
    return _zero_where(code, b, value), -most if below is not None or a.low < 0 else 0, most


def floor_remainder(code: Code, a: Tile, b: Tile) -> Exact:
    """With the sign of b; 0 where b is 0."""
    _, rest = _rest(code, a, b)
    below = _below(code, a, b, rest)
    value = rest if below is None else code.vpu(VPU.ADD, rest, code.vpu(VPU.MUL, below, b.value))
    return _zero_where(code, b, value), min(0, b.low), max(0, b.high)


def _within(code: Code, value: int, amount: Tile) -> int:
    """value, but 0 where the shift amount is no number from 0 to 31."""
    if amount.low >= 0 and amount.high < 32:
        return value
    high = code.vpu(VPU.AND, amount.value, code.fill(-32))
    return code.vpu(VPU.MUL, value, code.vpu(VPU.CMPEQ, high, code.fill(0)))


def shift_left(code: Code, a: Tile, b: Tile) -> Exact:
    value = _within(code, code.vpu(VPU.SHL, a.value, b.value), b)
    top = min(max(b.high, 0), 32)
    return value, min(0, a.low << top), max(0, a.high << top)


def shift_right(code: Code, a: Tile, b: Tile) -> Exact:
    """Arithmetic where the format is signed, as SHR is logical: what is negative is turned over before and after."""
    least = min(max(b.low, 0), 31)
    if a.low >= 0:
        return _within(code, code.vpu(VPU.SHR, a.value, b.value), b), 0, a.high >> least
    minus = code.vpu(VPU.SUB, code.fill(0), code.vpu(VPU.CMPLT, a.value, code.fill(0)))
    positive = code.vpu(VPU.XOR, a.value, minus)
    shifted = _within(code, code.vpu(VPU.SHR, positive, b.value), b)
    return code.vpu(VPU.XOR, shifted, minus), min(a.low >> least, -1), max(a.high >> least, 0)


BINARY: Mapping[str, Callable[[Code, Tile, Tile], Exact]] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "max": greatest,
    "min": least,
    "and": _bits(VPU.AND),
    "or": _bits(VPU.OR),
    "xor": _bits(VPU.XOR),
    "quot": quotient,
    "rem": remainder,
    "wdiv": floor_quotient,
    "wmod": floor_remainder,
    "idiv": floor_quotient,
    "mod": floor_remainder,
    "shl": shift_left,
    "shr": shift_right,
}
UNARY: Mapping[str, Callable[[Code, Tile], Exact]] = {"neg": neg, "abs": abs_}
