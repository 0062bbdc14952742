"""Moves across lanes, bit-exact (datasheet 3: opcodes 3, 9 to 12, 37).

Decides where each word of a tile goes; it must not know instructions or time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import int32, int64, void

from kohakuaccel.jit import separate
from tinytpu.isa.codes import SXU

if TYPE_CHECKING:
    from numpy.typing import NDArray


@separate(void(int32[:, ::1], int64, int64, int64, int64, int64, int64), python=True)
def move(v: NDArray[np.int32], op: int, a: int, d: int, pick: int, rows: int, cols: int) -> None:
    """Row d := the words of row a moved as SXU opcode `op` says; pick is its lane, row, column or amount."""
    for r in range(rows):
        for c in range(cols):
            if op == SXU.BROADCAST_SCALAR:
                source = pick
            elif op == SXU.BROADCAST_ROW:
                source = pick * cols + c
            elif op == SXU.TRANSPOSE:
                source = c * cols + r
            elif op == SXU.ROTATE:
                source = r * cols + (c + pick) % cols
            else:  # BROADCAST and BROADCAST_COL
                source = r * cols + pick
            v[d, r * cols + c] = v[a, source]
