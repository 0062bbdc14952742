"""Reals of 16 bits, FP16 and BF16: lanes hold them as binary32, which is exact; memory holds their bits.

Decides how a binary32 is rounded to one of them (nearest, ties to even) and how bits are taken and given. Sums and
products that are computed in binary32 and rounded once more are those of the format: 24 bits are twice 11 and 2 more.
It must not know expressions.
"""

from __future__ import annotations

import numpy as np

from kohakuaccel.graph import DType
from kohakuaccel.graph.native import stored_in
from kohakuaccel.numerics import BF16, FP16, FP32
from tinytpu.isa.codes import VPU
from tinytpu.lower.numbers.base import HALF, Tile
from tinytpu.lower.numbers.reals import INFINITY, real
from tinytpu.lower.program.code import Code

HALVES = (FP16, BF16)


def is_half(dtype: DType) -> bool:
    return dtype in HALVES


def rounded(code: Code, a: Tile, dtype: DType) -> Tile:
    """A real as one of another format."""
    if a.dtype == dtype or dtype == FP32:
        return a._replace(dtype=dtype, bits=a.bits if a.dtype == dtype else None)
    return Tile((_to_bf16 if dtype == BF16 else _to_fp16)(code, a.value), dtype, number=a.number)


def _to_fp16(code: Code, a: int) -> int:
    """A power of two that is 2**13 times the number's, at least 2**-1, is added and taken off: what is left has 11
    bits, or is a multiple of 2**-24. From 65520 on it is Inf; a NaN stays."""
    size = code.vpu(VPU.FABS, a)
    power = code.vpu(VPU.MAX, code.vpu(VPU.AND, size, code.fill(INFINITY)), code.fill(113 << 23))
    large = code.vpu(VPU.ADD, power, code.fill(13 << 23))
    near = code.vpu(VPU.FSUB, code.vpu(VPU.FADD, size, large), large)
    beyond = code.vpu(VPU.CMPLT, code.fill(0x477FEFFF), size)
    found = code.select(beyond, code.vpu(VPU.MAX, size, code.fill(INFINITY)), near)
    return code.vpu(VPU.OR, found, code.vpu(VPU.AND, a, code.fill(HALF)))


def _to_bf16(code: Code, a: int) -> int:
    """Half of a last place less one, and one where the last place is odd, are added before the rest is cut."""
    odd = code.vpu(VPU.AND, code.vpu(VPU.SHR, a, code.fill(16)), code.fill(1))
    moved = code.vpu(VPU.ADD, code.vpu(VPU.ADD, a, code.fill(0x7FFF)), odd)
    found = code.vpu(VPU.AND, moved, code.fill(-65536))
    missing = code.vpu(VPU.CMPLT, code.fill(INFINITY), code.vpu(VPU.FABS, a))
    return code.select(missing, code.fill(0x7FC00000), found)


def taken(code: Code, a: int, dtype: DType) -> Tile:
    """The value of 16 bits, 0..65535."""
    return Tile(_value(code, a, dtype), dtype, bits=a)


def _value(code: Code, a: int, dtype: DType) -> int:
    if dtype == BF16:
        return code.vpu(VPU.SHL, a, code.fill(16))
    size = code.vpu(VPU.AND, a, code.fill(0x7FFF))
    value = code.vpu(VPU.FMUL, code.vpu(VPU.SHL, size, code.fill(13)), real(code, 2.0**112))
    ends = code.vpu(VPU.MUL, code.vpu(VPU.CMPLT, code.fill(0x7BFF), size), code.fill(INFINITY))
    sign = code.vpu(VPU.SHL, code.vpu(VPU.SUB, a, size), code.fill(16))
    return code.vpu(VPU.OR, code.vpu(VPU.OR, value, ends), sign)


def given(code: Code, a: Tile) -> int:
    """The bits of a value of its format, 0..65535. Of Inf and NaN the bits that are shifted out are those to spare."""
    if a.bits is not None:
        return a.bits
    if a.dtype == BF16:
        return code.vpu(VPU.SHR, a.value, code.fill(16))
    scaled = code.vpu(VPU.FMUL, code.vpu(VPU.FABS, a.value), real(code, 2.0**-112))
    size = code.vpu(VPU.AND, code.vpu(VPU.SHR, scaled, code.fill(13)), code.fill(0x7FFF))
    sign = code.vpu(VPU.AND, code.vpu(VPU.SHR, a.value, code.fill(16)), code.fill(0x8000))
    return code.vpu(VPU.OR, size, sign)


def bits_of_constant(code: Code, value: int, dtype: DType) -> int:
    """The bits of a known number, as a constant."""
    number = np.array(code.constant(value), np.uint32).view(np.float32)
    return code.fill(int(number.astype(stored_in(dtype)).view(np.uint16)))
