"""How a quantised entry is packed (datasheet 2.3): words of 7-bit fields and scales <-> int8 images.

It must not know where entries come from or go to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kohakuaccel.jit import leaf

if TYPE_CHECKING:
    from numpy.typing import NDArray

ORDER_A, ORDER_B = 0, 1

# One 56-bit run of eight 7-bit fields <-> eight bytes, by halving: 28-, 14-, then 7-bit groups.
_G28, _G14, _G7 = np.uint64(0x0FFFFFFF), np.uint64(0x00003FFF00003FFF), np.uint64(0x007F007F007F007F)
_SIGN7, _TOP, _LOW7 = (
    np.uint64(0x4040404040404040),
    np.uint64(0x8080808080808080),
    np.uint64(0x7F7F7F7F7F7F7F7F),
)
_S7, _S8, _S14, _S16, _S28, _S32 = (np.uint64(s) for s in (7, 8, 14, 16, 28, 32))
_S24, _S40, _S48 = (np.uint64(s) for s in (24, 40, 48))


@leaf
def _spread(run: np.uint64) -> np.uint64:
    """Eight int7 fields, first one on top of 56 bits, to eight int8 bytes, first one lowest."""
    # A run cut from two 64-bit words carries its neighbour's bits above the 56.
    x = np.uint64(((run >> _S28) & _G28) | ((run & _G28) << _S32))
    x = np.uint64(((x >> _S14) & _G14) | ((x & _G14) << _S16))
    x = np.uint64(((x >> _S7) & _G7) | ((x & _G7) << _S8))
    # Per byte: flip the sign bit to get q + 64, subtract 64 with a borrow guard on top, drop the guard.
    return np.uint64((((x ^ _SIGN7) | _TOP) - _SIGN7) ^ _TOP)


@leaf
def _gather(octet: np.uint64) -> np.uint64:
    """The inverse of `_spread`."""
    x = np.uint64(octet & _LOW7)
    x = np.uint64(((x & _G7) << _S7) | ((x >> _S8) & _G7))
    x = np.uint64(((x & _G14) << _S14) | ((x >> _S16) & _G14))
    return np.uint64(((x & _G28) << _S28) | ((x >> _S32) & _G28))


@leaf
def unpack_word(word: NDArray[np.uint64], at: int, w: int, order: int, image: NDArray[np.uint64], to: int) -> None:
    """Word `w` of a quantised entry, word[at:at+4], into the int8 image image[to:to+16] (eight bytes each).

    The image is [lane][k] in A order, [k][lane] in B order: bytes are the L1 image's 7-bit elements (2.3).
    """
    w0, w1, w2, w3 = word[at], word[at + 1], word[at + 2], word[at + 3]
    step = 4 if order == ORDER_A else 1
    first = to + (w if order == ORDER_A else 4 * w)
    image[first] = _spread(w3 >> _S8)
    image[first + step] = _spread(np.uint64((w3 << _S48) | (w2 >> _S16)))
    image[first + 2 * step] = _spread(np.uint64((w2 << _S40) | (w1 >> _S24)))
    image[first + 3 * step] = _spread(np.uint64((w1 << _S32) | (w0 >> _S32)))


@leaf
def pack_entry(
    image: NDArray[np.uint64], at: int, scale: NDArray[np.uint8], s: int, order: int, word: NDArray[np.uint64], to: int
) -> None:
    """The int8 image image[at:at+16] and scale[s:s+4] as four words word[to:to+16] (2.3)."""
    packed_scale = np.uint64(0)
    for lane in range(4):
        packed_scale = np.uint64((packed_scale << _S8) | np.uint64(scale[s + lane]))
    step = 4 if order == ORDER_A else 1
    for w in range(4):
        first = at + (w if order == ORDER_A else 4 * w)
        r0, r1 = _gather(image[first]), _gather(image[first + step])
        r2, r3 = _gather(image[first + 2 * step]), _gather(image[first + 3 * step])
        word[to + 4 * w + 3] = np.uint64((r0 << _S8) | (r1 >> _S48))
        word[to + 4 * w + 2] = np.uint64((r1 << _S16) | (r2 >> _S40))
        word[to + 4 * w + 1] = np.uint64((r2 << _S24) | (r3 >> _S32))
        word[to + 4 * w] = np.uint64((r3 << _S32) | packed_scale)


@leaf
def order_image(rows: NDArray[np.int8], at: int, order: int, image: NDArray[np.int8]) -> None:
    """Quantised lanes rows[at:at+4] (int8[4, 32]) into image[:128] in the side's order."""
    if order == ORDER_A:
        for lane in range(4):
            for k in range(32):
                image[32 * lane + k] = rows[at + lane, k]
        return
    for k in range(32):
        for lane in range(4):
            image[4 * k + lane] = rows[at + lane, k]


@leaf
def scale_bytes(word: np.uint64, scale: NDArray[np.uint8], at: int) -> None:
    """The four scale bytes of an entry from bits 31:0 of its word 0, lane 0 on top."""
    for lane in range(4):
        scale[at + lane] = np.uint8((word >> np.uint64(24 - 8 * lane)) & np.uint64(0xFF))
