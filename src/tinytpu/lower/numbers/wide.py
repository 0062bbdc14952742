"""Words of 64 bits over tiles: one word of 32 where their numbers are known to fit it, else a pair.

Decides when a pair is needed, what comes of it by signs and spans, and conversions. A number that fits int32 is one
word, whose high word is its sign.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isqrt

from kohakuaccel.graph import WORDS, DType, WordFormat
from tinytpu.isa.codes import VPU
from tinytpu.lower.errors import NotLowered
from tinytpu.lower.numbers import integers, pairs, reals
from tinytpu.lower.numbers import words as w
from tinytpu.lower.numbers.base import HALF, Tile, is_real, span, unsigned32
from tinytpu.lower.numbers.pairs import Pair
from tinytpu.lower.numbers.spans import Span, holds, span_of
from tinytpu.lower.program.code import Code

INT = (-HALF, HALF - 1)
UINT = (0, 2 * HALF - 1)
SIGNED = WORDS["S64"]


def is_wide(dtype: DType) -> bool:
    return isinstance(dtype, WordFormat) and dtype.bits == 64


def fits(found: Span) -> bool:
    """Whether numbers fit int32, one word."""
    return holds(INT, found)


def _signed(dtype: DType) -> bool:
    return isinstance(dtype, WordFormat) and dtype.signed


def pair_of(code: Code, a: Tile) -> Pair:
    """Both words of any integer or truth value."""
    if a.top is not None:
        return Pair(a.value, a.top)
    return Pair(a.value, code.fill(0) if a.low >= 0 or unsigned32(a.dtype) else w.sign(code, a.value))


def made(pair: Pair, dtype: DType, found: Span) -> Tile:
    """A pair as a tile: found is the span before it wraps. One word where that is enough."""
    low, high = found if holds(span(dtype), found) else span(dtype)
    return Tile(pair.low, dtype, low, high, top=None if fits((low, high)) else pair.high)


def constant(code: Code, value: int, dtype: DType) -> Tile:
    """A number modulo 2**64."""
    least, most = span(dtype)
    value = value + (1 << 64) if value < least else value - (1 << 64) if value > most else value
    return made(pairs.number(code, value), dtype, (value, value))


def convert(code: Code, a: Tile, dtype: DType) -> Tile:
    """An integer or truth value, or a real cut towards zero, as a word of 64 bits."""
    if is_real(a.dtype):
        return made(_from_real(code, a.value, _signed(dtype)), dtype, (-(1 << 64), 1 << 64))
    return made(pair_of(code, a), dtype, (a.low, a.high))


def _from_real(code: Code, a: int, signed: bool) -> Pair:
    """NaN, Inf and what is beyond the format become 0. The mantissa stands at the top, and is shifted down."""
    mantissa = w.either(code, code.vpu(VPU.SHL, a, code.fill(8)), code.fill(HALF))
    exponent = w.sub(code, w.right(code, code.vpu(VPU.FABS, a), 23), code.fill(127))
    inside = w.less(code, exponent, code.fill(63))
    places = code.vpu(VPU.SUB, code.fill(63), exponent)
    size = pairs.right_by(code, Pair(code.fill(0), mantissa), places)
    minus = w.sign(code, a)
    if not signed:  # 2**63 and more, unless it is negative
        top = w.both(code, w.word(code, VPU.CMPEQ, exponent, code.fill(63)), code.vpu(VPU.CMPEQ, minus, code.fill(0)))
        inside = w.either(code, inside, top)
    size = pairs.chosen(code, inside, size, pairs.number(code, 0))
    turned = pairs.bitwise(code, VPU.XOR, size, Pair(minus, minus))
    return pairs.sub(code, turned, Pair(minus, minus))


def to_real(code: Code, a: Tile) -> int:
    """The nearest binary32, ties to even: the leading 32 bits, the last 1 where more follow, are rounded once."""
    if a.top is None:
        return reals.from_integer(code, a._replace(dtype=WORDS["S32"]))
    if holds(UINT, (a.low, a.high)):
        return reals.from_integer(code, a._replace(dtype=WORDS["U32"], top=None))
    given = Pair(a.value, a.top)
    size = pairs.abs_(code, given) if a.low < 0 else given
    empty = code.vpu(VPU.CLZ, size.high)  # 32 where the high word is 0
    moved = pairs.left_by(code, size, empty)
    lead = w.either(code, moved.high, code.vpu(VPU.CMPNE, moved.low, code.fill(0)))
    found = reals.from_integer(code, Tile(lead, WORDS["U32"], *UINT))
    scale = code.vpu(VPU.SHL, code.vpu(VPU.SUB, code.fill(127 + 32), empty), code.fill(23))
    found = code.vpu(VPU.FMUL, found, scale)
    return found if a.low >= 0 else code.vpu(VPU.OR, found, w.both(code, a.top, code.fill(HALF)))


def to_truth(code: Code, a: Tile) -> int:
    return code.vpu(VPU.CMPNE, a.value if a.top is None else code.vpu(VPU.OR, a.value, a.top), code.fill(0))


def less(code: Code, a: Tile, b: Tile) -> int:
    if a.top is None and b.top is None:
        return code.vpu(VPU.CMPLT, a.value, b.value)
    return pairs.less(code, pair_of(code, a), pair_of(code, b), signed=_signed(a.dtype))


def equal(code: Code, a: Tile, b: Tile) -> int:
    if a.top is None and b.top is None:
        return code.vpu(VPU.CMPEQ, a.value, b.value)
    return pairs.equal(code, pair_of(code, a), pair_of(code, b))


def where(code: Code, condition: int, yes: Tile, no: Tile) -> Tile:
    found = pairs.chosen(code, condition, pair_of(code, yes), pair_of(code, no))
    return made(found, yes.dtype, (min(yes.low, no.low), max(yes.high, no.high)))


def operate(code: Code, name: str, args: Sequence[Tile]) -> Tile:
    """An operation whose result has the operands' format. Raises NotLowered for one that there is not."""
    dtype = args[0].dtype
    if name == "threefry":
        found = pairs.threefry(code, pair_of(code, args[0]), pair_of(code, args[1]))
        return made(found, dtype, span(dtype))
    reach = span_of(name, [(a.low, a.high) for a in args])
    if name in _CLOSED:
        return made(_CLOSED[name](code, *(pair_of(code, a) for a in args)), dtype, reach)
    narrow = _narrow(code, name, args)
    if narrow is not None:
        return made(narrow, dtype, reach)
    if name not in _OTHERS:
        raise NotLowered("an operation of words of 64 bits that has instructions", where=name, got=str(dtype))
    return made(_OTHERS[name](code, *args), dtype, reach)


_CLOSED: Mapping[str, Callable[..., Pair]] = {
    "add": pairs.add,
    "sub": pairs.sub,
    "mul": pairs.mul,
    "neg": pairs.neg,
    "and": lambda code, a, b: pairs.bitwise(code, VPU.AND, a, b),
    "or": lambda code, a, b: pairs.bitwise(code, VPU.OR, a, b),
    "xor": lambda code, a, b: pairs.bitwise(code, VPU.XOR, a, b),
}
"""The low word of the result follows from low words alone; if no more is needed, no more is computed."""


def _narrow(code: Code, name: str, args: Sequence[Tile]) -> Pair | None:
    """The operation on words of 32 bits, where all operands fit int32, or all uint32, and so does the result."""
    for held, dtype in ((INT, WORDS["S32"]), (UINT, WORDS["U32"])):
        shown = [a._replace(dtype=dtype, top=None) for a in args]
        if not all(holds(held, (a.low, a.high)) for a in args):
            continue
        if not holds(held, span_of(name, [(a.low, a.high) for a in args])):
            continue
        if name in integers.UNARY:
            value = integers.UNARY[name](code, shown[0])
        else:
            if name in ("shl", "shr") and not 0 <= args[1].low <= args[1].high < 32:
                continue
            value = integers.BINARY[name](code, shown[0], shown[1])
        return Pair(value, code.fill(0) if held == UINT else w.sign(code, value))
    return None


def _abs(code: Code, a: Tile) -> Pair:
    return pairs.abs_(code, pair_of(code, a)) if _signed(a.dtype) else pair_of(code, a)


def _greatest(code: Code, a: Tile, b: Tile) -> Pair:
    return pairs.chosen(code, less(code, a, b), pair_of(code, b), pair_of(code, a))


def _least(code: Code, a: Tile, b: Tile) -> Pair:
    return pairs.chosen(code, less(code, a, b), pair_of(code, a), pair_of(code, b))


def _inside(code: Code, found: Pair, amount: Tile) -> Pair:
    """A shifted pair, but 0 where the amount is no number from 0 to 63."""
    if holds((0, 63), (amount.low, amount.high)):
        return found
    small = pairs.less(code, pair_of(code, amount), pairs.number(code, 64), signed=False)
    return pairs.chosen(code, small, found, pairs.number(code, 0))


def _left(code: Code, a: Tile, b: Tile) -> Pair:
    if b.low == b.high:
        return pairs.left(code, pair_of(code, a), b.low if 0 <= b.low < 64 else 64)
    return _inside(code, pairs.left_by(code, pair_of(code, a), b.value), b)


def _right(code: Code, a: Tile, b: Tile) -> Pair:
    """Arithmetic where the format is signed: what is negative is turned over before and after."""
    if b.low == b.high:
        return pairs.right(code, pair_of(code, a), b.low if 0 <= b.low < 64 else 64, signed=a.low < 0)
    given = pair_of(code, a)
    if a.low >= 0:
        return _inside(code, pairs.right_by(code, given, b.value), b)
    minus = w.sign(code, given.high)
    turned = pairs.bitwise(code, VPU.XOR, given, Pair(minus, minus))
    found = _inside(code, pairs.right_by(code, turned, b.value), b)
    return pairs.bitwise(code, VPU.XOR, found, Pair(minus, minus))


def _divided(code: Code, a: Tile, b: Tile, down: bool) -> tuple[Pair, Pair]:
    """Quotient and rest, cut towards zero or rounded down; 0 where b is 0."""
    x, y = pair_of(code, a), pair_of(code, b)
    minus = [w.sign(code, v.high) if t.low < 0 else code.fill(0) for v, t in ((x, a), (y, b))]
    sizes = [pairs.abs_(code, v) if t.low < 0 else v for v, t in ((x, a), (y, b))]
    most = max(abs(a.low), abs(a.high)), max(abs(b.low), abs(b.high))
    if most[1] <= 1 << 16:
        quotient, rest = _by_digits(code, sizes[0], Tile(sizes[1].low, WORDS["U32"], 0, most[1]), most[0])
    else:
        quotient, rest = pairs.divided(code, sizes[0], sizes[1], most[0].bit_length())
    turned = w.differing(code, minus[0], minus[1])
    quotient, rest = _signed_as(code, quotient, turned), _signed_as(code, rest, minus[0])
    if down and (a.low < 0 or b.low < 0):
        left = w.word(code, VPU.CMPNE, w.either(code, rest.low, rest.high), code.fill(0))
        lower = w.both(code, turned, w.sub(code, code.fill(0), left))  # -1 where it is rounded down
        quotient = pairs.add(code, quotient, Pair(lower, lower))
        rest = pairs.add(code, rest, pairs.bitwise(code, VPU.AND, y, Pair(lower, lower)))
    if b.low <= 0 <= b.high:
        some = w.word(code, VPU.CMPNE, w.either(code, y.low, y.high), code.fill(0))
        nothing = pairs.number(code, 0)
        quotient, rest = pairs.chosen(code, some, quotient, nothing), pairs.chosen(code, some, rest, nothing)
    return quotient, rest


def _signed_as(code: Code, a: Pair, minus: int) -> Pair:
    """a, or -a where `minus` is -1 and not 0."""
    turned = pairs.bitwise(code, VPU.XOR, a, Pair(minus, minus))
    return pairs.sub(code, turned, Pair(minus, minus))


def _by_digits(code: Code, a: Pair, b: Tile, most: int) -> tuple[Pair, Pair]:
    """Unsigned division by at most 2**16: four digits of 16 bits, each with the rest of those before it."""
    rest, digits = code.fill(0), list[int]()
    for n, part in enumerate((a.high, a.high, a.low, a.low)):
        digit = w.both(code, part, code.fill(0xFFFF)) if n % 2 else w.right(code, part, 16)
        if most < 1 << (48 - 16 * n):
            digits.append(code.fill(0))  # so are all bits of `digit`
            continue
        whole = w.either(code, w.left(code, rest, 16), digit)
        top = min(most >> (48 - 16 * n), (b.high << 16) - 1)
        found = integers.unsigned_quotient(code, Tile(whole, WORDS["U32"], 0, top), b)
        digits.append(found)
        rest = w.sub(code, whole, w.mul(code, found, b.value))
    low = w.either(code, w.left(code, digits[2], 16), digits[3])
    return Pair(low, w.either(code, w.left(code, digits[0], 16), digits[1])), Pair(rest, code.fill(0))


_OTHERS: Mapping[str, Callable[..., Pair]] = {
    "abs": _abs,
    "max": _greatest,
    "min": _least,
    "shl": _left,
    "shr": _right,
    "quot": lambda code, a, b: _divided(code, a, b, False)[0],
    "rem": lambda code, a, b: _divided(code, a, b, False)[1],
    "wdiv": lambda code, a, b: _divided(code, a, b, True)[0],
    "wmod": lambda code, a, b: _divided(code, a, b, True)[1],
}


def across(code: Code, op: str, a: Tile, lanes: int, whole: bool) -> Tile:
    """The numbers of every row, or of the whole tile, folded: of `lanes` lanes, a power of two."""
    given = pair_of(code, a)
    if op == "prod":
        return made(_product_across(code, given, lanes, whole), a.dtype, (-1 << 64, 1 << 64))

    def reduce(name: str, word: int) -> int:
        return code.vpu(VPU[f"{name}_REDUCE_TILE" if whole else f"{name}_REDUCE"], word)

    if op == "sum":
        parts = [part for word in given for part in (w.both(code, word, code.fill(0xFFFF)), w.right(code, word, 16))]
        sums = [reduce("SUM", part) for part in parts]  # of at most 2**16 lanes
        first = pairs.add(code, Pair(sums[0], code.fill(0)), pairs.left(code, Pair(sums[1], code.fill(0)), 16))
        high = w.add(code, sums[2], w.left(code, sums[3], 16))
        found = Pair(first.low, w.add(code, first.high, high))
        return made(found, a.dtype, (min(0, a.low * lanes), max(0, a.high * lanes)))
    # As a signed maximum: of the high words, then of the low ones where the high word is the greatest.
    flip = code.fill(-1 if op == "min" else 0)
    top = code.fill(0 if _signed(a.dtype) else HALF)
    high = w.differing(code, w.differing(code, given.high, flip), top)
    low = w.differing(code, w.differing(code, given.low, flip), code.fill(HALF))
    most = reduce("MAX", high)
    least = reduce("MAX", code.select(code.vpu(VPU.CMPEQ, high, most), low, code.fill(HALF)))
    found = Pair(w.differing(code, w.differing(code, least, code.fill(HALF)), flip),
                 w.differing(code, w.differing(code, most, top), flip))  # fmt: skip
    return made(found, a.dtype, (a.low, a.high))


def _product_across(code: Code, a: Pair, lanes: int, whole: bool) -> Pair:
    """Rows are turned by half, a quarter.. and multiplied; then columns, as rows of the transposed tile."""
    columns = isqrt(lanes) if whole else lanes
    for turn in (False, True)[: 1 + whole]:
        if turn:
            a = Pair(*(code.unary("TRANSPOSE", word) for word in a))
        step = columns // 2
        while step:
            turned = Pair(*(code.emit("ROTATE", {"src": word}, {"src2": step}) for word in a))
            a, step = pairs.mul(code, a, turned), step // 2
    return a
