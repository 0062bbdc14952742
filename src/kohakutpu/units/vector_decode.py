"""How a program word of the vector core is taken apart, once, when it is written.

Decides the columns of a decoded word, what its sources mean as register rows, and which of them are faults in
which place of a chain (datasheet 6.2, 6.3). It must not know what the word does. Bit positions come from the
instruction set's own declaration; bits it does not declare are not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kohakuaccel.jit import leaf
from kohakutpu.isa.vector import ALU_SOURCES, WORDS
from kohakutpu.units.vector_codes import F_CHAIN, F_VSRC, FIRST_OTHER, SEL_C, SEL_K, SEL_S, SEL_V, VDRAIN
from kohakutpu.units.vector_state import ROW_K, ROW_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Columns that hold a field as it stands; two instructions share one where the field has one meaning.
FIELDS = ("op", "sa", "sb", "sc", "vd", "va", "vb", "vc", "pr", "pm", "dtype", "ad", "off", "kind", "body", "mode",
          "ack", "dst_x", "dst_y", "buf", "word", "quant", "node")  # fmt: skip
(OP, SA, SB, SC, VD, VA, VB, VC, PR, PM, DTYPE, AD, OFF, KIND, BODY, MODE, ACK, DST_X, DST_Y, BUF, L1_WORD, QUANT,
 NODE) = range(len(FIELDS))  # fmt: skip
# Columns worked out from them, for ALU words: the row a source reads, relative to its core's rows (CHAINED for
# the previous stage; K0 where the operation does not read the source), and the fault of the word's selectors.
ROW_A, ROW_B, ROW_C, HEAD_FAULT, BODY_FAULT = range(len(FIELDS), len(FIELDS) + 5)
COLUMNS = BODY_FAULT + 1

CHAINED = -1


def _table() -> NDArray[np.int64]:
    """int64[opcodes, FIELDS, 3]: lowest bit, width (0 = the opcode lacks the field), sign bit or 0."""
    opcode = WORDS.opcode
    table = np.zeros((1 << (opcode[0] - opcode[1] + 1), len(FIELDS), 3), np.int64)
    table[:, OP] = opcode[1], opcode[0] - opcode[1] + 1, 0
    for name, layout in WORDS.formats.items():
        for field in layout.fields:
            low, width = layout.position(field.name)
            sign = 1 << (width - 1) if field.signed else 0
            table[WORDS.codes[name], FIELDS.index(field.name)] = low, width, sign
    # A VDRAIN says with one of its constant bits which of its two forms it has.
    node = WORDS.formats["VDRAIN_NODE"].constant & ~WORDS.formats["VDRAIN"].constant
    table[VDRAIN, NODE] = node.bit_length() - 1, 1, 0
    return table


_TABLE = _table()

# Whether an ALU operation reads its sources a, b, c.
_READS = np.zeros((FIRST_OTHER, 3), np.uint8)
for _op, _names in ALU_SOURCES.items():
    for _source in _names:
        _READS[_op, "abc".index(_source)] = 1


@leaf(python=True)
def decode(word: int, out: NDArray[np.int64]) -> None:
    """out int64[COLUMNS] = a 32-bit word taken apart; columns its opcode does not have are 0."""
    op = (word >> _TABLE[0, OP, 0]) & ((1 << _TABLE[0, OP, 1]) - 1)
    for column in range(len(FIELDS)):
        value = (word >> _TABLE[op, column, 0]) & ((1 << _TABLE[op, column, 1]) - 1)
        sign = _TABLE[op, column, 2]
        out[column] = (value ^ sign) - sign
    out[HEAD_FAULT], out[BODY_FAULT] = 0, 0
    if op >= FIRST_OTHER:
        return
    for q in range(3):
        selector, register = out[SA + q], out[VA + q]
        row = register
        if selector == SEL_S:
            row = ROW_S + register
        elif selector == SEL_K:
            row = ROW_K + (register & 3)
        elif selector == SEL_C:
            row = CHAINED
        if selector == SEL_V:
            out[BODY_FAULT] = F_VSRC
        if _READS[op, q]:
            if selector == SEL_C:
                out[HEAD_FAULT] = F_CHAIN
        else:
            row = ROW_K
        out[ROW_A + q] = row


def reset_word() -> NDArray[np.int64]:
    """Erased program memory, decoded: the word 0, which is VMOV v0,v0."""
    out = np.zeros(COLUMNS, np.int64)
    decode(0, out)
    return out
