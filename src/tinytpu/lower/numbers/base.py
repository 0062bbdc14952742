"""What a tile's words mean: a format of the graph, and what is known of the numbers.

Decides which formats lanes can hold: integers of up to 32 bits as int32 (narrow ones extended, unsigned 32 as bits),
truth values as 0 and 1, binary32.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kohakuaccel.graph import BOOL, DType, WordFormat, kind_of
from kohakuaccel.numerics import FP32, INT32, IntFormat
from tinytpu.isa.codes import VPU
from tinytpu.lower.code import Code
from tinytpu.lower.errors import NotLowered

HALF = 1 << 31


class Tile(NamedTuple):
    """A value and its meaning. low, high: of integers and truth values, the least and greatest it can be. number: of
    reals, whether it is known not to be a NaN."""

    value: int
    dtype: DType
    low: int = 0
    high: int = 0
    number: bool = False


def span(dtype: DType) -> tuple[int, int]:
    """The least and greatest integer of a format."""
    return int(dtype.lowest), int(dtype.max)


def check_format(dtype: DType, where: str) -> DType:
    """The format, where lanes can hold it. Raises NotLowered."""
    if dtype in (FP32, BOOL):
        return dtype
    if isinstance(dtype, WordFormat | IntFormat) and dtype.bits <= 32:
        return dtype
    hint = "cast to int32, uint32 or float32 on the host" if kind_of(dtype) in ("int", "word", "real") else ""
    raise NotLowered(
        "lanes hold integers of up to 32 bits, truth values and binary32", where=where, got=dtype.name, hint=hint
    )


def check_inside(dtype: DType, where: str) -> DType:
    """The format of a part of an expression: 64-bit words too, as long as their numbers are known to fit 32 bits."""
    return dtype if isinstance(dtype, WordFormat) else check_format(dtype, where)


def bits_of(number: float) -> int:
    """The bits of a number rounded to binary32."""
    with np.errstate(over="ignore"):
        return int(np.float32(number).view(np.uint32))


def integer(value: int, dtype: DType, low: int, high: int, where: str) -> Tile:
    """An integer that an operation made, low..high before it is brought into its format. Words wrap; where an integer
    of the exact kind, or a word of 64 bits, might leave 32 bits, it is refused. The value's low 32 bits are right."""
    if isinstance(dtype, WordFormat) and dtype.bits <= 32:
        return Tile(value, dtype, *span(dtype)) if wraps(dtype, low, high) else Tile(value, dtype, low, high)
    least, most = span(INT32)
    if low < max(least, int(dtype.lowest)) or high > most:
        raise NotLowered(
            "an integer of more than 32 bits, or of the exact kind, is known to fit 32",
            where=where,
            got=f"{dtype}, {low}..{high}",
            limit=f"{max(least, int(dtype.lowest))}..{most}",
            hint="compute in a word format of 32 bits, which wraps",
        )
    return Tile(value, dtype, low, high)


def wraps(dtype: DType, low: int, high: int) -> bool:
    """Whether low..high leaves a format."""
    least, most = span(dtype)
    return low < least or high > most


def extended(code: Code, value: int, dtype: DType) -> int:
    """The low bits of lanes as an integer of a narrow word format: extended with its sign, or with zeros."""
    assert isinstance(dtype, WordFormat)
    if dtype.bits == 32:
        return value
    low = code.vpu(VPU.AND, value, code.fill((1 << dtype.bits) - 1))
    if not dtype.signed:
        return low
    sign = code.fill(1 << (dtype.bits - 1))
    return code.vpu(VPU.SUB, code.vpu(VPU.XOR, low, sign), sign)


def is_real(dtype: DType) -> bool:
    return kind_of(dtype) == "real"


def unsigned32(dtype: DType) -> bool:
    """Whether the format's words do not compare as int32."""
    return isinstance(dtype, WordFormat) and not dtype.signed and dtype.bits == 32
