"""What a tile's words mean: a format of the graph, and what is known of the numbers.

Decides which formats lanes can hold: integers of up to 32 bits as int32 (narrow ones extended, unsigned 32 as bits),
words of 64 bits as one word where they fit int32 and else as two, truth values as 0 and 1, binary32, and reals of 16
bits as the same numbers in binary32.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kohakuaccel.graph import BOOL, DType, WordFormat, kind_of
from kohakuaccel.numerics import BF16, FP16, FP32, INT32, IntFormat
from tinytpu.isa.codes import VPU
from tinytpu.lower.errors import NotLowered
from tinytpu.lower.program.code import Code

HALF = 1 << 31


class Tile(NamedTuple):
    """A value and its meaning. low, high: of integers and truth values, the least and greatest it can be. number: of
    reals, whether it is known not to be a NaN. top: of a word of 64 bits that may not fit int32, its high word. bits:
    of a real of 16 bits, its bits where they are at hand."""

    value: int
    dtype: DType
    low: int = 0
    high: int = 0
    number: bool = False
    top: int | None = None
    bits: int | None = None


def span(dtype: DType) -> tuple[int, int]:
    """The least and greatest integer of a format."""
    if isinstance(dtype, WordFormat):
        return (-1 << dtype.bits - 1, (1 << dtype.bits - 1) - 1) if dtype.signed else (0, (1 << dtype.bits) - 1)
    return int(dtype.lowest), int(dtype.max)


def check_format(dtype: DType, where: object) -> DType:
    """The format, where lanes can hold it. Raises NotLowered. where: what has it, spelled only then."""
    if dtype in (FP32, FP16, BF16, BOOL):
        return dtype
    if isinstance(dtype, WordFormat) or (isinstance(dtype, IntFormat) and dtype.bits <= 32):
        return dtype
    hint = "cast to a word or to float32 on the host" if kind_of(dtype) in ("int", "real") else ""
    raise NotLowered(
        "lanes hold words, truth values and reals of up to 32 bits", where=str(where)[:200], got=dtype.name, hint=hint
    )


def bits_of(number: float) -> int:
    """The bits of a number rounded to binary32."""
    with np.errstate(over="ignore"):
        return int(np.float32(number).view(np.uint32))


def integer(value: int, dtype: DType, low: int, high: int, where: str) -> Tile:
    """An integer of up to 32 bits that an operation made, low..high before it is brought into its format. Words wrap;
    where an integer of the exact kind might leave 32 bits, it is refused. The value's low 32 bits are right."""
    if isinstance(dtype, WordFormat):
        return Tile(value, dtype, *span(dtype)) if wraps(dtype, low, high) else Tile(value, dtype, low, high)
    least, most = span(INT32)
    if low < least or high > most:
        raise NotLowered(
            "an integer of the exact kind is known to fit 32 bits",
            where=where,
            got=f"{dtype}, {low}..{high}",
            limit=f"{least}..{most}",
            hint="compute in a word format, which wraps",
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
