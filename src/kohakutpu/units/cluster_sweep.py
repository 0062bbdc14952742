"""A cluster's sweep and what its tile gives out or takes in (datasheet 2.4, 2.5, 5.3, 5.4).

Decides how L1 images become operand panels, which sub-tiles a sweep updates, and the FP22 codes of a transfer.
It must not know instructions or fields: shapes and entries arrive checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kohakuaccel.jit import leaf, separate
from kohakuaccel.numerics.kernels import emit_fp16, rne
from kohakutpu.units.cluster_array import BLOCK, COLUMNS, pack_columns, sweep_block
from kohakutpu.units.cluster_state import A_PANEL, A_SCALE, B_PANEL, B_SCALE, EDGE

if TYPE_CHECKING:
    from numpy.typing import NDArray

# m8 * 2^(E - 23) of every scale byte: the product of two of them is the m8a*m8b*2^(Ea+Eb-46) of 2.4, exactly.
SCALE = np.array([(8 + (s & 7)) * 2.0 ** ((s >> 3) - 23) for s in range(256)], np.float32)

OVERFLOW = 2.0**64  # FP22 saturates from here
SATURATED = (2.0 - 2.0**-14) * OVERFLOW
SMALLEST = 2.0**-62  # FP22 with b = 1; below it b <= 0 and the value is zero


@separate(
    "void(int8[::1], uint8[::1], int8[::1], uint8[::1], float32[::1], float32[::1], int64, int64, int64, int64, int64)"
)
def sweep(
    image_a: NDArray[np.int8],
    scale_a: NDArray[np.uint8],
    image_b: NDArray[np.int8],
    scale_b: NDArray[np.uint8],
    panel: NDArray[np.float32],
    tile: NDArray[np.float32],
    gm: int,
    gn: int,
    nk: int,
    first_a: int,
    first_b: int,
) -> None:
    """tile += A x B for gm x gn sub-tiles over nk K blocks, from L1 entries first_a.. and first_b.. (5.3)."""
    left, elements = panel[A_PANEL:A_SCALE], image_a[first_a * 128 : (first_a + gm * nk) * 128]
    for i in range(elements.size):
        left[i] = np.float32(elements[i])
    for i in range(gm * nk * 4):
        panel[A_SCALE + i] = SCALE[scale_a[first_a * 4 + i]]
    edge = panel[EDGE : EDGE + 16 * BLOCK]
    for start in range(0, gn, BLOCK):
        count = min(BLOCK, gn - start)
        for kb in range(nk):
            entry = first_b + start * nk + kb
            pack_columns(image_b, entry * 128, nk * 128, count, panel, B_PANEL + kb * 32 * COLUMNS)
            for h in range(count):
                for j in range(4):
                    byte = scale_b[4 * (entry + h * nk) + j]
                    panel[B_SCALE + kb * COLUMNS + 4 * h + j] = SCALE[byte]
        for g in range(gm):
            at = 16 * (g * gn + start)
            a, a_scale = A_PANEL + g * nk * 128, A_SCALE + g * nk * 4
            if count == BLOCK:
                sweep_block(panel, a, a_scale, B_PANEL, B_SCALE, tile, at, nk)
            else:
                for i in range(16 * count):
                    edge[i] = tile[at + i]
                sweep_block(panel, a, a_scale, B_PANEL, B_SCALE, edge, 0, nk)
                for i in range(16 * count):
                    tile[at + i] = edge[i]


@separate("int64(float32[::1], int64, uint16[::1], int64)")
def emit(tile: NDArray[np.float32], subtiles: int, out: NDArray[np.uint16], at: int) -> int:
    """Sub-tiles 0.. as FP16 into out[at:] (2.5); returns how many elements saturated."""
    return emit_fp16(tile[: 16 * subtiles], out[at : at + 16 * subtiles])


@leaf
def fp22_code(x: np.float32) -> np.uint64:
    """The 22-bit code of an FP22 value; zero is 000000."""
    bits = np.uint64(np.float32(x).view(np.uint32))
    if x == 0:
        return np.uint64(0)
    exponent = np.uint64(((bits >> np.uint64(23)) & np.uint64(0xFF)) - np.uint64(64))
    mantissa = np.uint64((bits >> np.uint64(9)) & np.uint64(0x3FFF))
    return np.uint64(((bits >> np.uint64(31)) << np.uint64(21)) | (exponent << np.uint64(14)) | mantissa)


@leaf
def fp22_value(code: np.uint64) -> np.float32:
    """The value of a 22-bit code as float32; exponent 0 is zero whatever the mantissa."""
    exponent = np.uint64((code >> np.uint64(14)) & np.uint64(0x7F))
    if exponent == 0:
        return np.float32(0)
    mantissa = np.uint64((code & np.uint64(0x3FFF)) << np.uint64(9))
    sign = np.uint64(((code >> np.uint64(21)) & np.uint64(1)) << np.uint64(31))
    return np.uint32(sign | ((exponent + np.uint64(64)) << np.uint64(23)) | mantissa).view(np.float32)


@separate("void(float32[::1], int64, uint64[:,::1], int64)")
def pack_fp22(tile: NDArray[np.float32], at: int, out: NDArray[np.uint64], row: int) -> None:
    """Sub-tile tile[at:at+16] as two granules out[row:row+2, 4]: element (i,j) at bit 22*(4i+j) (5.4)."""
    for w in range(4):
        out[row, w] = np.uint64(0)
        out[row + 1, w] = np.uint64(0)
    for e in range(16):
        code = fp22_code(tile[at + e])
        word, shift = (22 * e) // 64, (22 * e) % 64
        out[row + word // 4, word % 4] |= np.uint64(code << np.uint64(shift))
        if shift > 42:
            word += 1
            out[row + word // 4, word % 4] |= np.uint64(code >> np.uint64(64 - shift))


@separate("void(float32[::1], int64, uint64[:,::1], int64)")
def add_peer(tile: NDArray[np.float32], t: int, data: NDArray[np.uint64], row: int) -> None:
    """tile[t] = rnd22(tile[t] + value) of the FP22 sub-tile in granules data[row:row+2] (5.4).

    Both terms have 15 significant bits, so the float64 sum rounded once more to 15 bits is the exact sum rounded
    once (the proof is at cluster_array._add); then both ends of 2.4.
    """
    for e in range(16):
        word, shift = (22 * e) // 64, (22 * e) % 64
        code = np.uint64(data[row + word // 4, word % 4] >> np.uint64(shift))
        if shift > 42:
            word += 1
            code = np.uint64(code | (data[row + word // 4, word % 4] << np.uint64(64 - shift)))
        x = rne(np.float64(tile[16 * t + e]) + np.float64(fp22_value(code)), 15)
        if abs(x) >= OVERFLOW:
            x = SATURATED if x > 0 else -SATURATED
        elif abs(x) < SMALLEST:
            x = 0.0
        tile[16 * t + e] = np.float32(x)
