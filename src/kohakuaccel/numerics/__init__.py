"""Number formats as values: they know their range, their exactness and their rounding, and convert arrays.

Decides which formats ship (datasheet 2.1 to 2.6). Importing it stays cheap: compiled code loads on first use.
"""

from __future__ import annotations

from dataclasses import replace

from kohakuaccel.numerics.base import Rounding, Tally, ValueSet
from kohakuaccel.numerics.blocks import BlockFormat, Blocks
from kohakuaccel.numerics.conversion import convert
from kohakuaccel.numerics.explain import Explanation
from kohakuaccel.numerics.formats import IntFormat, ScalarFormat

FP32 = ScalarFormat("FP32", 8, 23, 127, subnormals=True, inf_nan="ieee", overflow="infinity")
"""IEEE binary32."""

FP32_DAZ = replace(FP32, name="FP32_DAZ", subnormals=False)
"""Binary32 as a vector load reads it: exponent 0 is a signed zero, judged before any rounding (2.8)."""

FP16 = ScalarFormat("FP16", 5, 10, 15, subnormals=True, inf_nan="ieee", overflow="saturate")
"""IEEE binary16 with the machines' store rule: finite overflow saturates, Inf stays (2.1, 2.5, 2.8)."""

BF16 = ScalarFormat("BF16", 8, 7, 127, subnormals=True, inf_nan="ieee", overflow="infinity")
"""The top 16 bits of binary32."""

FP8E4M3 = ScalarFormat("FP8E4M3", 4, 3, 7, subnormals=True, inf_nan="fn", overflow="saturate")
FP8E5M2 = ScalarFormat("FP8E5M2", 5, 2, 15, subnormals=True, inf_nan="ieee", overflow="saturate")
"""The 8-bit floats of the OCP."""

FP8E4M3FNUZ = ScalarFormat("FP8E4M3FNUZ", 4, 3, 8, True, "fnuz", "saturate", zero="unsigned")
FP8E5M2FNUZ = ScalarFormat("FP8E5M2FNUZ", 5, 2, 16, True, "fnuz", "saturate", zero="unsigned")
"""The 8-bit floats with one zero and one NaN."""

E8M15 = ScalarFormat("E8M15", 8, 15, 127, subnormals=False, inf_nan="ieee", overflow="infinity")
"""A vector lane's float (2.6). Codes are 24 bits, right-aligned; the units' register form is code << 8."""

INT8 = IntFormat("INT8", 8)
INT16 = IntFormat("INT16", 16)
INT32 = IntFormat("INT32", 32)


def accumulator(man_bits: int = 14) -> ScalarFormat:
    """The accumulator float with `man_bits` mantissa bits, the machine's `acc_mw` (2.4).

    7 exponent bits, bias 63, one zero, no subnormals, no Inf or NaN; what rounds to exponent 127 or beyond
    becomes {sign, 7F, all ones}.
    """
    return ScalarFormat(
        "FP22" if man_bits == 14 else f"E7M{man_bits}",
        7,
        man_bits,
        63,
        subnormals=False,
        inf_nan="none",
        overflow="marker",
        zero="unsigned",
    )


FP22 = accumulator(14)
"""The accumulator of the shipped machines."""

E5M3 = ScalarFormat("E5M3", 5, 3, 20, False, "none", "saturate", zero="none", signed=False)
"""A block's scale (2.2): 2^(e-20) * (1 + m/8), every code a positive number."""

MXFP7 = BlockFormat("MXFP7", IntFormat("INT7", 7, symmetric=True, rounding="nearest-away"), 32, "K", E5M3, "peak-ceil")
"""The matmul operand format (2.2)."""

__all__ = [
    "BF16",
    "E5M3",
    "E8M15",
    "FP8E4M3",
    "FP8E4M3FNUZ",
    "FP8E5M2",
    "FP8E5M2FNUZ",
    "FP16",
    "FP22",
    "FP32",
    "FP32_DAZ",
    "INT8",
    "INT16",
    "INT32",
    "MXFP7",
    "BlockFormat",
    "Blocks",
    "Explanation",
    "IntFormat",
    "Rounding",
    "ScalarFormat",
    "Tally",
    "ValueSet",
    "accumulator",
    "convert",
]
