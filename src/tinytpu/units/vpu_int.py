"""Integer operations of the vector unit on whole tiles, bit-exact (datasheet 4).

Decides the words of one integer result tile; it must not know instructions, time, or where tiles lie. A tile is a
row of `v`; the result row is never an operand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import int8, int32, int64, uint32

from kohakuaccel.jit import leaf, separate
from tinytpu.isa.codes import VPU

if TYPE_CHECKING:
    from numpy.typing import NDArray

TILES = (int32[:, ::1], uint32[:, ::1], int8[:, ::1])
"""numba types of v, vu, vb: the tiles as signed words, unsigned words and bytes, one memory."""

_LOW, _HIGH = -(1 << 31), (1 << 31) - 1


@leaf
def clamp32(x: int) -> int:
    return min(max(x, _LOW), _HIGH)


@leaf
def clamp8(x: int) -> int:
    return min(max(x, -128), 127)


@leaf
def sign(x: int) -> int:
    return (x > 0) - (x < 0)


@leaf
def _divided(x: int, y: int) -> int:
    """Truncating division of words; by zero 0."""
    if y == 0:
        return 0
    q = abs(x) // abs(y)
    return -q if (x < 0) != (y < 0) else q


@leaf
def _ones(x: int) -> int:
    n = 0
    while x:
        x &= x - 1
        n += 1
    return n


@leaf
def _leading(x: int) -> int:
    n = 32
    while x:
        x >>= 1
        n -= 1
    return n


@leaf
def _line(op: int, v: NDArray[np.int32], a: int, first: int, length: int, step: int) -> int:
    """The words first, first + step, .. of a tile, reduced."""
    x = int(v[a, first])
    end = first + length * step
    if op == VPU.SUM_REDUCE:
        for i in range(first + step, end, step):
            x += int(v[a, i])
    elif op == VPU.MAX_REDUCE:
        for i in range(first + step, end, step):
            x = max(x, int(v[a, i]))
    elif op == VPU.MIN_REDUCE:
        for i in range(first + step, end, step):
            x = min(x, int(v[a, i]))
    else:  # MUL_REDUCE; the low word of a product depends on the low words alone
        for i in range(first + step, end, step):
            x *= int(v[a, i])
    return x


@leaf
def _reduce(op: int, v: NDArray[np.int32], a: int, d: int, rows: int, cols: int, way: int) -> None:
    """way 0: each row, 1: each column, 2: the tile; the result stands wherever it was made from. Order is free."""
    if way == 0:
        for first in range(0, rows * cols, cols):
            x = np.int32(_line(op, v, a, first, cols, 1))
            for i in range(first, first + cols):
                v[d, i] = x
    elif way == 1:
        for c in range(cols):
            x = np.int32(_line(op, v, a, c, rows, cols))
            for i in range(c, rows * cols, cols):
                v[d, i] = x
    else:
        x = np.int32(_line(op, v, a, 0, rows * cols, 1))
        for i in range(rows * cols):
            v[d, i] = x


@leaf
def _place_of_best(v: NDArray[np.int32], a: int, d: int, rows: int, cols: int, largest: bool) -> None:
    for r in range(rows):
        best = 0
        for c in range(1, cols):
            x, y = v[a, r * cols + c], v[a, r * cols + best]
            if (x > y) if largest else (x < y):
                best = c
        for c in range(cols):
            v[d, r * cols + c] = best


@leaf
def _words(op: int, v: NDArray[np.int32], vu: NDArray[np.uint32], a: int, b: int, d: int, n: int) -> None:
    """Operations whose lanes are found by more than a machine instruction or two."""
    for i in range(n):
        x, y = np.int64(v[a, i]), np.int64(v[b, i])
        ux = np.int64(vu[a, i])
        amount = y & 31
        if op == VPU.DIV:
            r = _divided(x, y)
        elif op == VPU.SIGN:
            r = sign(x)
        elif op == VPU.CLZ:
            r = _leading(ux)
        elif op == VPU.POPCOUNT:
            r = _ones(ux)
        elif op == VPU.CTZ:
            r = _ones((ux & -ux) - 1) if ux else 32
        elif op == VPU.BYTE_REVERSE:
            r = (ux & 0xFF) << 24 | (ux & 0xFF00) << 8 | (ux >> 8) & 0xFF00 | ux >> 24
        elif op == VPU.SAT_ADD_I32:
            r = clamp32(x + y)
        elif op == VPU.SAT_SUB_I32:
            r = clamp32(x - y)
        elif op == VPU.ABS_DIFF_I32:
            r = clamp32(abs(x - y))
        elif op == VPU.ROTL:
            r = ux << amount | ux >> (32 - amount)
        else:  # ROTR
            r = ux >> amount | ux << (32 - amount)
        v[d, i] = np.int32(r)


@leaf
def _bytes(op: int, vb: NDArray[np.int8], a: int, b: int, d: int, n: int) -> None:
    """The packed operations: four signed bytes a word."""
    for i in range(4 * n):
        x, y = np.int64(vb[a, i]), np.int64(vb[b, i])
        if op == VPU.PACKED_I8_ADD:
            r = clamp8(x + y)
        elif op == VPU.PACKED_I8_SUB:
            r = clamp8(x - y)
        elif op == VPU.PACKED_I8_MAX:
            r = max(x, y)
        elif op == VPU.PACKED_I8_MIN:
            r = min(x, y)
        elif op == VPU.PACKED_I8_NEG:
            r = clamp8(-x)
        elif op == VPU.PACKED_I8_RELU:
            r = max(x, 0)
        elif op == VPU.PACKED_I8_CMPLT:
            r = -1 if x < y else 0
        elif op == VPU.PACKED_I8_CMPEQ:
            r = -1 if x == y else 0
        elif op == VPU.PACKED_I8_MUL_LOW:
            r = x * y
        elif op == VPU.PACKED_I8_MUL_HIGH:
            r = (x * y) >> 8
        elif op == VPU.PACKED_I8_ABS:
            r = clamp8(abs(x))
        elif op == VPU.PACKED_I8_SIGN:
            r = sign(x)
        else:  # PACKED_I8_ABS_DIFF
            r = clamp8(abs(clamp8(x - y)))
        vb[d, i] = np.int8(r)


@leaf
def _pairs(v: NDArray[np.int32], a: int, b: int, d: int, n: int) -> None:
    for i in range(0, n, 2):
        x, y = np.int64(v[a, i]), np.int64(v[a, i + 1])
        c, s = np.int64(v[b, i]), np.int64(v[b, i + 1])
        v[d, i] = np.int32(np.int32(x * c) - np.int32(y * s))
        v[d, i + 1] = np.int32(np.int32(x * s) + np.int32(y * c))


@leaf
def _of_rows(op: int, first: int) -> int:
    """The row reduction that does what a column or tile reduction does; `first` is the latter's SUM."""
    if op == first:
        return VPU.SUM_REDUCE.value
    if op == first + 1:
        return VPU.MAX_REDUCE.value
    if op == first + 2:
        return VPU.MIN_REDUCE.value
    return VPU.MUL_REDUCE.value


@separate(int64(*TILES, int64, int64, int64, int64, int64, int64), python=True)
def integer(
    v: NDArray[np.int32],
    vu: NDArray[np.uint32],
    vb: NDArray[np.int8],
    op: int,
    a: int,
    b: int,
    d: int,
    rows: int,
    cols: int,
) -> int:
    """Row d := op(row a, row b), tiles of rows x cols words. d is neither a nor b. Returns 0, or 1 for no such op.

    SELECT reads what d held before: it is the unit's stateful operation.
    """
    n = rows * cols
    if op == VPU.ADD:
        for i in range(n):
            v[d, i] = v[a, i] + v[b, i]
    elif op == VPU.MUL:
        for i in range(n):
            v[d, i] = v[a, i] * v[b, i]
    elif op == VPU.SUB:
        for i in range(n):
            v[d, i] = v[a, i] - v[b, i]
    elif op == VPU.MAX:
        for i in range(n):
            v[d, i] = max(v[a, i], v[b, i])
    elif op == VPU.MIN:
        for i in range(n):
            v[d, i] = min(v[a, i], v[b, i])
    elif op == VPU.RELU:
        for i in range(n):
            v[d, i] = max(v[a, i], 0)
    elif op == VPU.CMPLT:
        for i in range(n):
            v[d, i] = v[a, i] < v[b, i]
    elif op == VPU.CMPNE:
        for i in range(n):
            v[d, i] = v[a, i] != v[b, i]
    elif op == VPU.CMPEQ:
        for i in range(n):
            v[d, i] = v[a, i] == v[b, i]
    elif op == VPU.AND:
        for i in range(n):
            v[d, i] = v[a, i] & v[b, i]
    elif op == VPU.OR:
        for i in range(n):
            v[d, i] = v[a, i] | v[b, i]
    elif op == VPU.XOR:
        for i in range(n):
            v[d, i] = v[a, i] ^ v[b, i]
    elif op == VPU.NOT:
        for i in range(n):
            v[d, i] = ~v[a, i]
    elif op == VPU.COPY:
        for i in range(n):
            v[d, i] = v[a, i]
    elif op == VPU.SELECT:
        for i in range(n):
            v[d, i] = v[b, i] if v[a, i] != 0 else v[d, i]
    elif op == VPU.MIN_U32:
        for i in range(n):
            vu[d, i] = min(vu[a, i], vu[b, i])
    elif op == VPU.MAX_U32:
        for i in range(n):
            vu[d, i] = max(vu[a, i], vu[b, i])
    elif op == VPU.SUM_REDUCE or op == VPU.MAX_REDUCE or op == VPU.MIN_REDUCE or op == VPU.MUL_REDUCE:
        _reduce(op, v, a, d, rows, cols, 0)
    elif VPU.SUM_REDUCE_COL <= op <= VPU.MIN_REDUCE_COL or op == VPU.MUL_REDUCE_COL:
        _reduce(_of_rows(op, VPU.SUM_REDUCE_COL), v, a, d, rows, cols, 1)
    elif VPU.SUM_REDUCE_TILE <= op <= VPU.MIN_REDUCE_TILE or op == VPU.MUL_REDUCE_TILE:
        _reduce(_of_rows(op, VPU.SUM_REDUCE_TILE), v, a, d, rows, cols, 2)
    elif op == VPU.ARGMIN or op == VPU.ARGMAX:
        _place_of_best(v, a, d, rows, cols, op == VPU.ARGMAX)
    elif op == VPU.IPAIR_ROTATE:
        _pairs(v, a, b, d, n)
    elif (VPU.PACKED_I8_ADD <= op <= VPU.PACKED_I8_ABS) or op == VPU.PACKED_I8_SIGN or op == VPU.PACKED_I8_ABS_DIFF:
        _bytes(op, vb, a, b, d, n)
    elif op == VPU.SHL:
        for i in range(n):
            vu[d, i] = vu[a, i] << (vu[b, i] & 31)
    elif op == VPU.SHR:
        for i in range(n):
            vu[d, i] = vu[a, i] >> (vu[b, i] & 31)
    elif op == VPU.DIV or op == VPU.SIGN or (VPU.CLZ <= op <= VPU.ROTR and op != VPU.FABS):
        _words(op, v, vu, a, b, d, n)
    else:
        return 1
    return 0
