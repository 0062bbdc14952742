"""tinygrad's dtypes as formats of the graph, and as numpy's.

Decides which dtypes kernels of ours compute with. Index arithmetic, which tinygrad leaves without a width, is S64.
"""

from __future__ import annotations

from collections.abc import Mapping

from tinygrad.dtype import DType as TinyType
from tinygrad.dtype import dtypes

from kohakuaccel.graph import BOOL, FP64, WORDS, DType
from kohakuaccel.numerics import BF16, FP8E4M3, FP8E4M3FNUZ, FP8E5M2, FP8E5M2FNUZ, FP16, FP32

FORMATS: Mapping[TinyType, DType] = {
    dtypes.bool: BOOL,
    dtypes.int8: WORDS["S8"],
    dtypes.uint8: WORDS["U8"],
    dtypes.int16: WORDS["S16"],
    dtypes.uint16: WORDS["U16"],
    dtypes.int32: WORDS["S32"],
    dtypes.uint32: WORDS["U32"],
    dtypes.int64: WORDS["S64"],
    dtypes.uint64: WORDS["U64"],
    dtypes.fp8e4m3: FP8E4M3,
    dtypes.fp8e5m2: FP8E5M2,
    dtypes.fp8e4m3fnuz: FP8E4M3FNUZ,
    dtypes.fp8e5m2fnuz: FP8E5M2FNUZ,
    dtypes.half: FP16,
    dtypes.bfloat16: BF16,
    dtypes.float: FP32,
    dtypes.double: FP64,
    dtypes.weakint: WORDS["S64"],
    dtypes.weakfloat: FP64,
}
WEAK = (dtypes.weakint, dtypes.weakfloat)
"""Types of literals and of index arithmetic: they take the type of what they meet."""
