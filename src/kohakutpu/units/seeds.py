"""The coefficient tables behind exp2, log2, inv and rsqrt (datasheet 2.9), built from their definition.

Decides 160 triples of integers; it must not know who evaluates them. The CRC-32s of the datasheet are checked by
the tests, so a numpy that rounded differently would be noticed there and nowhere else.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

SEGMENTS = 32  # segments per octave; the top five mantissa bits choose one

# First row of each function in TABLE. rsqrt has two octaves: row RSQRT + 32 * P + i.
EXP2, LOG2, INV, RSQRT = 0, SEGMENTS, 2 * SEGMENTS, 3 * SEGMENTS
ROWS = 5 * SEGMENTS

Vector = NDArray[np.float64]


def _interpolate(g: Callable[[Vector], Vector]) -> NDArray[np.int64]:
    """int64[SEGMENTS, 3]: C0, C1, C2 of `g`, a function of (i + t) / 32, over each segment's t in [0, 1)."""
    segment = np.arange(SEGMENTS, dtype=np.float64)
    x0, x1, x2 = 0.5 + math.sqrt(3.0) / 4.0, 0.5, 0.5 - math.sqrt(3.0) / 4.0
    y0, y1, y2 = (g((segment + x) / SEGMENTS) for x in (x0, x1, x2))
    d01 = (y0 - y1) / (x0 - x1)
    d12 = (y1 - y2) / (x1 - x2)
    c2 = (d01 - d12) / (x0 - x2)
    c1 = d01 - c2 * (x0 + x1)
    c0 = y0 - d01 * x0 + c2 * x0 * x1
    scaled = np.stack([c0 * 2.0**20, c1 * 2.0**24, c2 * 2.0**28], axis=1)
    return np.rint(scaled).astype(np.int64)


def _build() -> NDArray[np.int64]:
    return np.concatenate(
        [
            _interpolate(lambda z: np.exp2(z) - 1.0),
            _interpolate(lambda z: np.log2(1.0 + z)),
            _interpolate(lambda z: 1.0 / (1.0 + z)),
            _interpolate(lambda z: 1.0 / np.sqrt(1.0 + z)),
            _interpolate(lambda z: 1.0 / np.sqrt(2.0 * (1.0 + z))),
        ]
    )


TABLE = _build()
"""int64[160, 3]: C0 (weight 2^-20), C1 (2^-24), C2 (2^-28), each fits 22-bit signed."""

TABLE.flags.writeable = False


def crc(first: int, rows: int) -> int:
    """CRC-32 of `rows` table rows from `first`, as int32 little endian C0, C1, C2 (the datasheet's check)."""
    return zlib.crc32(TABLE[first : first + rows].astype("<i4").tobytes())
