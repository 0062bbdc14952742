"""The drain quantiser of a vector core (datasheet section 10, r2_vc_quant): FP16 entries leave as packed MXFP7 entries.

Decides what a burst that was just posted holds instead of its words. It must not know descriptors, targets or
policies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kohakuaccel.jit import separate
from kohakuaccel.numerics.kernels import mxfp7_quantise
from kohakutpu.units.entries import order_image, pack_entry
from kohakutpu.units.vector_state import LANES

if TYPE_CHECKING:
    from numpy.typing import NDArray

ENTRY_WORDS = 8  # L1 words of an FP16 entry: lane 0 k 0-15, lane 0 k 16-31, lane 1 ..
HALVES = ENTRY_WORDS * LANES


@separate(
    "int64(uint16[::1], int64, int64, int64, int8[:,::1], uint8[::1], int8[::1], uint64[::1], int64[:,::1],"
    " uint64[:,::1], int64[::1])"
)
def quantise_burst(
    half: NDArray[np.uint16],
    first: int,
    entries: int,
    order: int,
    lanes: NDArray[np.int8],
    scales: NDArray[np.uint8],
    image: NDArray[np.int8],
    octets: NDArray[np.uint64],
    heads: NDArray[np.int64],
    data: NDArray[np.uint64],
    used: NDArray[np.int64],
) -> int:
    """The outbox's last burst becomes the packed entries of L1 words first.. (half[16 * first:]), half the granules.

    order: 0 packs for side A, 1 for side B (2.3). lanes, scales, image and octets are scratch. Returns the number of
    non-finite elements (2.2).
    """
    head = heads[used[0] - 1]
    words, found = data.reshape(-1), 0
    for e in range(entries):
        at = first * LANES + e * HALVES
        found += mxfp7_quantise(half[at : at + HALVES].reshape(4, 32), lanes, scales)
        order_image(lanes, 0, order, image)
        pack_entry(octets, 0, scales, 0, order, words, 4 * (head[9] + 4 * e))
    used[1] -= head[5] - 4 * entries
    head[5] = 4 * entries
    return found
