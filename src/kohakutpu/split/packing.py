"""Compiled: integers and scale bytes as quantised entries, four words each (datasheet 2.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kohakuaccel.jit import kernel
from kohakutpu.units.entries import order_image, pack_entry

if TYPE_CHECKING:
    from numpy.typing import NDArray


@kernel
def pack_all(
    rows: NDArray[np.int8],
    scales: NDArray[np.uint8],
    order: int,
    octets: NDArray[np.uint64],
    image: NDArray[np.int8],
    words: NDArray[np.uint64],
) -> None:
    """Entries rows[4n, 32], scales[4n] into words[16n]. octets uint64[16] and image int8[128]: one scratch buffer."""
    for e in range(rows.shape[0] // 4):
        order_image(rows, 4 * e, order, image)
        pack_entry(octets, 0, scales, 4 * e, order, words, 16 * e)
