"""Words of 32 bits as they are put together to wider ones: instructions, and what needs none.

Decides which operations are known without an instruction (constants, neutral operands). It must not know formats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tinytpu.isa.codes import VPU
from tinytpu.lower.program.code import Code

MASK = 0xFFFFFFFF
TOP = 1 << 31


def _signed(word: int) -> int:
    return word - (1 << 32) if word & TOP else word


_KNOWN: Mapping[VPU, Callable[[int, int], int]] = {
    VPU.ADD: lambda a, b: a + b,
    VPU.SUB: lambda a, b: a - b,
    VPU.MUL: lambda a, b: a * b,
    VPU.AND: lambda a, b: a & b,
    VPU.OR: lambda a, b: a | b,
    VPU.XOR: lambda a, b: a ^ b,
    VPU.SHL: lambda a, b: a << (b & 31),
    VPU.SHR: lambda a, b: a >> (b & 31),
    VPU.MAX_U32: max,
    VPU.CMPEQ: lambda a, b: int(a == b),
    VPU.CMPNE: lambda a, b: int(a != b),
    VPU.CMPLT: lambda a, b: int(_signed(a) < _signed(b)),
}
_SAME: Mapping[VPU, tuple[int, ...]] = {
    VPU.ADD: (0,), VPU.SUB: (0,), VPU.MUL: (1,), VPU.AND: (MASK,), VPU.OR: (0,), VPU.XOR: (0,), VPU.SHL: (0,),
    VPU.SHR: (0,), VPU.MAX_U32: (0,),
}  # fmt: skip
"""Second operands that leave the first as it is."""
_STAYS: Mapping[VPU, int] = {VPU.MUL: 0, VPU.AND: 0, VPU.OR: MASK, VPU.MAX_U32: MASK}
"""Second operands that are the result."""
_EQUAL: Mapping[VPU, int] = {VPU.SUB: 0, VPU.XOR: 0, VPU.CMPEQ: 1, VPU.CMPNE: 0, VPU.CMPLT: 0}
"""What equal operands give."""
_TURNED = frozenset({VPU.ADD, VPU.MUL, VPU.AND, VPU.OR, VPU.XOR, VPU.MAX_U32})


def word(code: Code, op: VPU, a: int, b: int) -> int:
    """An operation of two words, simplified."""
    x, y = code.constant(a), code.constant(b)
    if x is not None and y is not None:
        return code.fill(_KNOWN[op](x, y))
    if a == b and op in _EQUAL:
        return code.fill(_EQUAL[op])
    if a == b and op in (VPU.AND, VPU.OR, VPU.MAX_U32):
        return a
    if x is not None and op in _TURNED:
        a, b, y = b, a, x
    if y is not None:
        if y in _SAME.get(op, ()):
            return a
        if _STAYS.get(op) == y:
            return b
    if x == 0 and op in (VPU.SHL, VPU.SHR):
        return a
    return code.vpu(op, a, b)


def add(code: Code, a: int, b: int) -> int:
    return word(code, VPU.ADD, a, b)


def sub(code: Code, a: int, b: int) -> int:
    return word(code, VPU.SUB, a, b)


def mul(code: Code, a: int, b: int) -> int:
    return word(code, VPU.MUL, a, b)


def both(code: Code, a: int, b: int) -> int:
    return word(code, VPU.AND, a, b)


def either(code: Code, a: int, b: int) -> int:
    return word(code, VPU.OR, a, b)


def differing(code: Code, a: int, b: int) -> int:
    return word(code, VPU.XOR, a, b)


def left(code: Code, a: int, places: int) -> int:
    """Shifted by a known number of places, 0..32."""
    return code.fill(0) if places == 32 else word(code, VPU.SHL, a, code.fill(places))


def right(code: Code, a: int, places: int) -> int:
    """Shifted by a known number of places, 0..32; zeros come in."""
    return code.fill(0) if places == 32 else word(code, VPU.SHR, a, code.fill(places))


def arithmetic_right(code: Code, a: int, places: int) -> int:
    """Shifted by a known number of places, 0..31; the sign comes in. Moved up so that none is negative."""
    if places == 0:
        return a
    moved = right(code, differing(code, a, code.fill(TOP)), places)
    return sub(code, moved, code.fill(TOP >> places))


def less(code: Code, a: int, b: int) -> int:
    """1 where a < b as unsigned words."""
    if code.constant(b) == 0:
        return code.fill(0)
    return word(code, VPU.CMPNE, word(code, VPU.MAX_U32, a, b), a)


def sign(code: Code, a: int) -> int:
    """-1 where a is negative, else 0."""
    known = code.constant(a)
    if known is not None:
        return code.fill(-(known >> 31))
    return code.unary("VNEG", code.vpu(VPU.CMPLT, a, code.fill(0)))


def chosen(code: Code, condition: int, yes: int, no: int) -> int:
    """`yes` where the condition is 1, `no` where it is 0."""
    known = code.constant(condition)
    if known is not None or yes == no:
        return no if known == 0 else yes
    if code.constant(no) == 0:
        return mul(code, yes, condition)
    return code.select(condition, yes, no)
