"""The compiled decoder: one loop that follows a Format's extraction table, for unit models and loaders."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.jit import kernel


@kernel
def extract(words: NDArray[np.uint64], table: NDArray[np.int64], out: NDArray[np.int64]) -> Any:
    """Decodes one instruction, uint64[words] word 0 lowest, into out int64[nfields].

    `table` is Format.extraction(). Constant bits are not looked at: a unit sees the fields it sees.
    """
    out[:] = 0
    for i in range(table.shape[0]):
        bits = np.uint64(table[i, 3])
        part = words[table[i, 1]] >> np.uint64(table[i, 2])
        if bits < np.uint64(64):
            part &= (np.uint64(1) << bits) - np.uint64(1)
        column = table[i, 0]
        out[column] |= np.int64(part << np.uint64(table[i, 4]))
        width = table[i, 5]
        if 0 < width < 64:
            sign = np.int64(1) << (width - np.int64(1))
            out[column] = (out[column] ^ sign) - sign
