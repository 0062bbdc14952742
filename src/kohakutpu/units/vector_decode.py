"""How a program word of the vector core is taken apart, once, when it is written.

Decides the columns of a decoded word; the positions come from the instruction set's own declaration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kohakuaccel.jit import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

# fmt: off
(OP, SA, SB, SC, VD, VA, VB, VC, PR, PM, DTYPE, AD, OFF, NODE, ACK, DST_X, DST_Y, BUF, L1_WORD, KIND, BODY, MODE,
 COLUMNS) = range(23)

(VMOV, VNEG, VABS, VADD, VSUB, VMUL, VFMA, VFNMA, VMAX, VMIN, VSEL, VCMPLT, VCMPGT, VCMPEQ, VEXP2, VLOG2, VINV, VRSQRT,
 VCVT, VRED, VLD, VST, VBCAST, VSHUF, VSETVL, VSETMODE, VSETI, VLOOP, VBAR, VFILL, VDRAIN, VHALT) = range(32)
# fmt: on

_ALU = {
    SA: (25, 2),
    SB: (23, 2),
    SC: (21, 2),
    VD: (17, 4),
    VA: (13, 4),
    VB: (9, 4),
    VC: (5, 4),
    PR: (3, 2),
    PM: (1, 2),
}
_MEM = {DTYPE: (24, 3), AD: (21, 3), VD: (17, 4), OFF: (0, -14)}
_NODE = {ACK: (25, 1), NODE: (24, 1), DST_X: (17, 4), DST_Y: (13, 4), BUF: (9, 4), L1_WORD: (0, 9)}
_FIELDS: dict[int, dict[int, tuple[int, int]]] = dict.fromkeys(range(VCVT), _ALU)
_FIELDS |= {
    VCVT: {DTYPE: (24, 3), VD: (17, 4), VA: (13, 4)},
    VRED: {VD: (17, 4), VA: (13, 4), VB: (9, 4), KIND: (5, 3), PR: (3, 2)},
    VLD: _MEM,
    VST: _MEM,
    VFILL: _MEM,
    VDRAIN: _MEM | _NODE,
    VBCAST: {SA: (25, 2), VD: (17, 4), VA: (13, 4)},
    VSHUF: {VD: (17, 4), VA: (13, 4), VB: (9, 4)},
    VSETVL: {VA: (13, 4)},
    VSETMODE: {MODE: (13, 2)},
    VSETI: {SA: (25, 2), VD: (17, 4)},
    VLOOP: {VA: (13, 4), BODY: (9, 4)},
}


def _table() -> NDArray[np.int64]:
    table = np.zeros((32, COLUMNS, 2), np.int64)
    table[:, OP] = (27, 5)
    for op, fields in _FIELDS.items():
        for column, place in fields.items():
            table[op, column] = place
    return table


_TABLE = _table()


@kernel
def decode(word: int, out: NDArray[np.int64]) -> None:
    """out int64[COLUMNS] = the fields of a 32-bit word; columns its opcode does not have are 0."""
    op = (word >> _TABLE[0, OP, 0]) & ((1 << _TABLE[0, OP, 1]) - 1)
    for column in range(COLUMNS):
        shift, width = _TABLE[op, column, 0], _TABLE[op, column, 1]
        size = abs(width)
        value = (word >> shift) & ((1 << size) - 1)
        if width < 0:
            sign = 1 << (size - 1)
            value = (value ^ sign) - sign
        out[column] = value


def reset_word() -> NDArray[np.int64]:
    """The decoded word of erased program memory (all zeros, VMOV v0,v0)."""
    return np.zeros(COLUMNS, np.int64)
