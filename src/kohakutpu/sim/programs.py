"""What the RUNs of vector cores move: words of memory and flits to nodes, from their programs and descriptors.

It decides traffic only. Scalars are followed through VSETI; a loop count that comes from elsewhere counts as one pass.
Cycles are not its business: they are the unit model's. Source: datasheet 6.1 to 6.3, 10 (r2_vc_quant).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.jit import leaf
from kohakutpu.isa import vector


def _low(word: str, field: str) -> int:
    return vector.WORDS.formats[word][field].slices[0][1]


ENV_IMEM, ENV_DESC, ENV_RUN = vector.ENV_IMEM, vector.ENV_DESC, vector.ENV_RUN
VSETI, VLOOP, VFILL, VDRAIN, VHALT = (int(vector.OP[n]) for n in ("VSETI", "VLOOP", "VFILL", "VDRAIN", "VHALT"))
OP_SHIFT = vector.WORDS.opcode[1]
AD_SHIFT, SA_SHIFT, VD_SHIFT = _low("VFILL", "ad"), _low("VSETI", "sa"), _low("VSETI", "vd")
COUNT_SHIFT, BODY_SHIFT = _low("VLOOP", "va"), _low("VLOOP", "body")
NODE_BIT, QUANT_BIT = 1 << 24, 1 << _low("VDRAIN_NODE", "quant")
FOUND = 6
X_SHIFT, Y_SHIFT = _low("VDRAIN_NODE", "dst_x"), _low("VDRAIN_NODE", "dst_y")
MESH_SHIFT, FINAL_SHIFT = vector.NODE_RECORD["mesh"].slices[0][1], vector.NODE_RECORD["final_x"].slices[0][1]
SRC_K = int(vector.SRC.K)
WORDS, MASK24 = 512, 0xFFFFFF


class Cores(NamedTuple):
    """What vector cores hold between RUNs, as far as their traffic needs it."""

    words: NDArray[np.int64]  # [cores, 512] program memory
    bounds: NDArray[np.int64]  # [cores, 8, 4]
    base: NDArray[np.int64]  # [cores, 8]
    scalars: NDArray[np.int64]  # [cores, 16]


def cores(number: int) -> Cores:
    """Cores out of reset."""
    zeros, ones = np.zeros, np.ones
    return Cores(
        zeros((number, WORDS), np.int64),
        ones((number, 8, 4), np.int64),
        zeros((number, 8), np.int64),
        zeros((number, 16), np.int64),
    )


@leaf
def _walk(c: Any, core: int, pc: int, found: Any) -> None:
    """Adds up what a RUN from word `pc` moves: see `traffic`."""
    words, bounds, scalars = c.words[core], c.bounds[core], c.scalars[core]
    times, end = 1, -1
    while pc < WORDS:
        if pc == end:
            times, end = 1, -1
        word = words[pc]
        op = word >> OP_SHIFT
        pc += 1
        if op == VHALT:
            return
        if op == VSETI:
            if (word >> SA_SHIFT) & 3 != SRC_K and pc < WORDS:
                scalars[(word >> VD_SHIFT) & 15] = words[pc] & MASK24
            pc += 1
        elif op == VLOOP:
            times = max(1, scalars[(word >> COUNT_SHIFT) & 15])
            end = pc + ((word >> BODY_SHIFT) & 15)
        elif op in (VFILL, VDRAIN):
            ad = (word >> AD_SHIFT) & 7
            total = times * bounds[ad, 0] * bounds[ad, 1] * bounds[ad, 2] * bounds[ad, 3]
            if op == VFILL:
                found[0] += total
            elif not word & NODE_BIT:
                found[1] += total
            else:
                if word & QUANT_BIT:
                    total //= 2
                    found[5] = 1
                found[2] += total
                final = (c.base[core, ad] >> FINAL_SHIFT) & 0xFF
                near = ((word >> Y_SHIFT) & 15) << 4 | ((word >> X_SHIFT) & 15)
                found[3] = ((c.base[core, ad] >> MESH_SHIFT) & 3) << 8 | final if final else near
                found[4] = 1 if final else 0


@leaf(python=True)
def traffic(c: Any, core: Any, rows: Any, found: Any) -> None:
    """Follows envelopes in order. core: int64[n], their rows in `c`. rows: int64[n, 4], `decode_envelopes` of them.

    found: int64[n, FOUND], zeros, is filled in for RUNs: words read from memory, words written there, flits to a node
    without their descriptor, the last node {y,x}, whether that is {mesh,y,x}, in another mesh perhaps, and whether
    something passes the drain quantiser.
    """
    for i in range(rows.shape[0]):
        op, k = rows[i, 0], core[i]
        if op == ENV_RUN:
            _walk(c, k, rows[i, 1], found[i])
        elif op == ENV_IMEM:
            c.words[k, rows[i, 1]] = rows[i, 3]
        elif op == ENV_DESC:
            field, value = rows[i, 2], rows[i, 3]
            if field == 0:
                c.base[k, rows[i, 1]] = value
            elif field <= 4:
                c.bounds[k, rows[i, 1], field - 1] = max(1, value & 0xFFFF)
