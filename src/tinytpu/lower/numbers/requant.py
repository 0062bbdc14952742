"""Requantisation on the vector unit: clamp((x * factor + half) >> shift, low, high), exact, lane by lane.

Decides by what is known of x and the factor how many words the product takes: one, two parts that are shifted on the
way, or 64 bits. It must not know the array, whose own requantisation (datasheet 7) is per tensor and without bias.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tinytpu.isa.codes import VPU
from tinytpu.lower.errors import NotLowered
from tinytpu.lower.numbers import Tile
from tinytpu.lower.numbers.base import HALF, unsigned32
from tinytpu.lower.program.code import Code

LEAST, MOST = -HALF, HALF - 1


class _Scale(NamedTuple):
    """half: 2**(shift - 1) or 0."""

    shift: int
    half: int
    low: int
    high: int


def _fits(low: int, high: int) -> bool:
    return low >= LEAST and high <= MOST


def _corners(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    found = [x * y for x in a for y in b]
    return min(found), max(found)


def requantise(code: Code, x: Tile, factor: Tile, shift: int, *, rounded: bool, low: int, high: int) -> Tile:
    """int32 lanes low..high. x, factor: integers of up to 32 bits; a factor is best known to be one number (low equals
    high). Raises NotLowered for words of which the upper half may be meant."""
    for tile, name in ((x, "value"), (factor, "factor")):
        if unsigned32(tile.dtype) and tile.high >= HALF:
            raise NotLowered(
                f"the {name} of a requantisation is known to fit int32", where="requantise", got=str(tile.dtype),
                hint="cast it to S32",
            )  # fmt: skip
    scale = _Scale(shift, (1 << (shift - 1)) if rounded else 0, low, high)
    if factor.low < 0 and factor.high <= 0 and x.low > LEAST and factor.low > LEAST:
        x = x._replace(value=code.unary("VNEG", x.value), low=-x.high, high=-x.low)
        number = code.constant(factor.value)
        value = code.unary("VNEG", factor.value) if number is None else code.fill(-factor.low)
        factor = factor._replace(value=value, low=-factor.high, high=-factor.low)
    value = _of(code, x, factor, scale)
    return x._replace(value=value, low=low, high=high)


def _of(code: Code, x: Tile, factor: Tile, scale: _Scale) -> int:
    """The clamped lanes."""
    constant = factor.low if factor.low == factor.high else None
    if constant is not None:
        ends = sorted((end * constant + scale.half) >> scale.shift for end in (x.low, x.high))
        for bound, always in ((scale.low, ends[1] <= scale.low), (scale.high, ends[0] >= scale.high)):
            if always:
                return code.fill(bound)
    found = _short(code, x, factor, scale)
    if found is None and constant is not None and constant > 0:
        x = _inside(code, x, constant, scale)
        found = _short(code, x, factor, scale)
    if found is None:
        return _long(code, x.value, factor, scale)
    return _clamped(code, *found, scale)


def _clamped(code: Code, value: int, low: int, high: int, scale: _Scale) -> int:
    if high > scale.high:
        value = code.vpu(VPU.MIN, value, code.fill(scale.high))
    if low < scale.low:
        zero = scale.low == 0
        value = code.vpu(VPU.RELU, value) if zero else code.vpu(VPU.MAX, value, code.fill(scale.low))
    return value


def _inside(code: Code, x: Tile, factor: int, scale: _Scale) -> Tile:
    """x held to where the result is not yet beyond its bounds: nothing changes, and the product is smaller."""
    top = -((scale.half - (scale.high << scale.shift)) // factor)  # the least that gives `high`
    bottom = (((scale.low + 1) << scale.shift) - scale.half - 1) // factor  # the greatest that gives `low`
    if top < x.high:
        x = x._replace(value=code.vpu(VPU.MIN, x.value, code.fill(top)), high=top)
    if bottom > x.low:
        x = x._replace(value=code.vpu(VPU.MAX, x.value, code.fill(bottom)), low=bottom)
    return x


def _times(code: Code, x: int, factor: int) -> int:
    return x if code.constant(factor) == 1 else code.vpu(VPU.MUL, x, factor)


def _plus(code: Code, x: int, number: int) -> int:
    return x if number & 0xFFFFFFFF == 0 else code.vpu(VPU.ADD, x, code.fill(number))


def _shifted(code: Code, x: int, low: int, more: int, shift: int) -> int:
    """(x + more) >> shift, arithmetic. low: the least that x + more can be."""
    if low >= 0:
        return code.vpu(VPU.SHR, _plus(code, x, more), code.fill(shift))
    # With 2**31 added it is not negative, and SHR, which is logical, is right.
    positive = code.vpu(VPU.SHR, _plus(code, x, more + HALF), code.fill(shift))
    return _plus(code, positive, -(HALF >> shift))


Value = tuple[int, int, int]
"""A value and its span."""


def _short(code: Code, x: Tile, factor: Tile, scale: _Scale) -> Value | None:
    """The shifted product without bounds where 32 bits are enough on the way, else None."""
    shift, half = scale.shift, scale.half
    least, most = _corners((x.low, x.high), (factor.low, factor.high))
    low, high = least + half, most + half
    ends = low >> shift, high >> shift
    if shift <= 31 and _fits(low, high):
        return _shifted(code, _times(code, x.value, factor.value), low, half, shift), *ends
    for at in _splits(x, factor, scale):
        return _in_parts(code, x, factor, scale, at), *ends
    return None


def _lower_part(x: Tile, factor: Tile, at: int) -> tuple[int, int]:
    """The span of x times the factor's low bits."""
    most = factor.low & ((1 << at) - 1) if factor.low == factor.high else (1 << at) - 1
    return _corners((x.low, x.high), (0, most))


def _splits(x: Tile, factor: Tile, scale: _Scale) -> Iterator[int]:
    """Where the factor can be split: x times either part fits, the upper one with what the lower one carries."""
    for at in range(min(scale.shift, 31), 0, -1):
        aligned = scale.half % (1 << at) == 0
        low, high = _lower_part(x, factor, at)
        low, high = (low, high) if aligned else (low + scale.half, high + scale.half)
        upper = _corners((x.low, x.high), (factor.low >> at, factor.high >> at))
        more = scale.half >> at if aligned else 0
        if _fits(low, high) and _fits(upper[0] + (low >> at) + more, upper[1] + (high >> at) + more):
            yield at


def _in_parts(code: Code, x: Tile, factor: Tile, scale: _Scale, at: int) -> int:
    """x * factor = x * upper * 2**at + x * lower; floors of floors are floors."""
    if factor.low == factor.high:
        lower, upper = code.fill(factor.low & ((1 << at) - 1)), code.fill(factor.low >> at)
    else:
        lower = code.vpu(VPU.AND, factor.value, code.fill((1 << at) - 1))
        upper = _shifted(code, factor.value, factor.low, 0, at)
    aligned = scale.half % (1 << at) == 0
    least, _ = _lower_part(x, factor, at)
    first, more = (0, scale.half >> at) if aligned else (scale.half, 0)
    part = _times(code, x.value, lower)
    if least + first < 0:  # see _shifted; what it takes off is taken off with what follows
        part = code.vpu(VPU.SHR, _plus(code, part, first + HALF), code.fill(at))
        more -= HALF >> at
    else:
        part = code.vpu(VPU.SHR, _plus(code, part, first), code.fill(at))
    total = code.vpu(VPU.ADD, _times(code, x.value, upper), part)
    if scale.shift == at:
        return _plus(code, total, more)
    least = _corners((x.low, x.high), (factor.low, factor.high))[0] + scale.half
    return _shifted(code, total, least, more, scale.shift - at)


def _long(code: Code, x: int, factor: Tile, scale: _Scale) -> int:
    """By the whole product in two words."""
    shift = scale.shift
    upper, lower = _product(code, x, factor, scale.half)
    if shift >= 32:
        upper = _plus(code, upper, scale.half >> 32)
        value = upper if shift == 32 else _shifted(code, upper, LEAST, 0, shift - 32)
        return _clamped(code, value, LEAST, MOST, scale)
    low = code.vpu(VPU.SHR, lower, code.fill(shift))
    if shift == 1:
        value = _clamped(code, code.vpu(VPU.OR, low, code.vpu(VPU.SHL, upper, code.fill(31))), LEAST, MOST, scale)
        over = code.vpu(VPU.CMPLT, code.fill(0), upper)
        value = code.select(over, code.fill(scale.high), value)
        return code.select(code.vpu(VPU.CMPLT, upper, code.fill(-1)), code.fill(scale.low), value)
    # The upper word is held to what the shifted word can take in; beyond it the result is beyond its bounds too.
    most = 1 << (shift - 1)
    upper = code.vpu(VPU.MIN, code.vpu(VPU.MAX, upper, code.fill(-most)), code.fill(most - 1))
    value = code.vpu(VPU.OR, low, code.vpu(VPU.SHL, upper, code.fill(32 - shift)))
    return _clamped(code, value, LEAST, MOST, scale)


def _product(code: Code, x: int, factor: Tile, half: int) -> tuple[int, int]:
    """x * factor + half (less than 2**32 of it) as upper and lower word: of unsigned words by halves of 16 bits, then
    each operand that was negative takes the other one off the upper word."""
    sixteen, mask = code.fill(16), code.fill(0xFFFF)
    half &= 0xFFFFFFFF

    def halves(value: int) -> tuple[int, int]:
        return code.vpu(VPU.AND, value, mask), code.vpu(VPU.SHR, value, sixteen)

    (x0, x1), (f0, f1) = halves(x), halves(factor.value)
    # The rounding goes in where its bits are; no sum leaves 32 bits.
    first = _plus(code, code.vpu(VPU.MUL, x0, f0), half if half < 1 << 16 else 0)
    middle = code.vpu(VPU.ADD, code.vpu(VPU.MUL, x1, f0), code.vpu(VPU.SHR, first, sixteen))
    middle = _plus(code, middle, half >> 16)
    other = code.vpu(VPU.ADD, code.vpu(VPU.MUL, x0, f1), code.vpu(VPU.AND, middle, mask))
    upper = code.vpu(VPU.ADD, code.vpu(VPU.MUL, x1, f1), code.vpu(VPU.SHR, middle, sixteen))
    upper = code.vpu(VPU.ADD, upper, code.vpu(VPU.SHR, other, sixteen))
    zero = code.fill(0)
    upper = code.vpu(VPU.SUB, upper, code.vpu(VPU.MUL, code.vpu(VPU.CMPLT, x, zero), factor.value))
    if factor.low < 0:
        upper = code.vpu(VPU.SUB, upper, code.vpu(VPU.MUL, code.vpu(VPU.CMPLT, factor.value, zero), x))
    return upper, _plus(code, code.vpu(VPU.MUL, x, factor.value), half)
