"""Compiled conversions between the host's float32 arrays and FP16 storage, for arrays too large for numpy's loops.

IEEE rules, as numpy's own: nearest even, overflow to Inf, NaN stays NaN. Arrays are C-contiguous bit patterns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kohakuaccel.jit import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray


@kernel
def fp16_from_fp32(source: NDArray[np.uint32], out: NDArray[np.uint16]) -> None:
    """Binary32 patterns uint32[n] to binary16 patterns uint16[n], nearest even; a NaN becomes quiet, its sign kept."""
    half = np.float32(0.5)
    for i in range(source.shape[0]):
        pattern = np.uint32(source[i])
        magnitude = np.uint32(pattern & np.uint32(0x7FFFFFFF))
        sign = np.uint32((pattern >> np.uint32(16)) & np.uint32(0x8000))
        odd = np.uint32((magnitude >> np.uint32(13)) & np.uint32(1))
        # Exponents 127 and 15 are rebased by 112 << 23; the 13 dropped bits round to even.
        normal = np.uint32((magnitude - np.uint32(0x38000000) + np.uint32(0xFFF) + odd) >> np.uint32(13))
        # Below 2^-14 the sum with 0.5, whose ulp is 2^-24, is the rounding to FP16's subnormal grid.
        value = np.uint32(magnitude).view(np.float32)
        small = np.uint32(np.float32(value + half).view(np.uint32) - np.uint32(0x3F000000))
        bits = small if magnitude < np.uint32(0x38800000) else normal
        bits = np.uint32(0x7C00) if bits > np.uint32(0x7C00) or magnitude >= np.uint32(0x47800000) else bits
        bits = np.uint32(0x7E00) if magnitude > np.uint32(0x7F800000) else bits
        out[i] = np.uint16(bits | sign)
