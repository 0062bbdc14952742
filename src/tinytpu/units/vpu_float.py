"""Float operations of the vector unit on whole tiles, bit-exact (datasheet 4, 5, 6).

Decides the words of one float result tile and in which order a reduction adds; it must not know instructions, time,
or where tiles lie. A tile is a row of `v`, its values the same row of `vf`; the result row is never an operand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import float32, int32, int64

from kohakuaccel.jit import leaf, separate
from tinytpu.isa.codes import VPU
from tinytpu.units.floats import (
    bits,
    cosine,
    exp2,
    fadd,
    fmul,
    from_int,
    fsub,
    larger,
    log2,
    negated,
    real,
    reciprocal,
    sine,
    smaller,
    to_int,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

FLOAT_TILES = (int32[:, ::1], float32[:, ::1])
"""numba types of v and vf: the tiles as words and as values, one memory."""

_SUM, _MAX, _MIN, _PROD = range(4)
_ROW, _COLUMN, _TILE = range(3)


@leaf
def _step(kind: int, x: np.float32, y: np.float32) -> np.float32:
    if kind == _SUM:
        return fadd(x, y)
    if kind == _PROD:
        return fmul(x, y)
    return larger(x, y) if kind == _MAX else smaller(x, y)


@leaf
def _reduce(kind: int, way: int, vf: NDArray[np.float32], a: int, d: int, rows: int, cols: int) -> None:
    """Rows by a tree except products; products from 1.0; column sums from +0.0; the rest from their first element."""
    lines = rows if way == _ROW else cols if way == _COLUMN else 1
    length = cols if way == _ROW else rows if way == _COLUMN else rows * cols
    step = cols if way == _COLUMN else 1
    for line in range(lines):
        first = line * cols if way == _ROW else line
        if way == _ROW and kind != _PROD:
            for k in range(length):
                vf[d, first + k] = vf[a, first + k]
            stride = 1
            while stride < length:
                for k in range(0, length - stride, 2 * stride):
                    vf[d, first + k] = _step(kind, vf[d, first + k], vf[d, first + k + stride])
                stride *= 2
            x = vf[d, first]
        else:
            begin = 0
            if kind == _PROD and way != _TILE:
                x = np.float32(1.0)
            elif kind == _SUM and way == _COLUMN:
                x = np.float32(0.0)
            else:
                x, begin = vf[a, first], 1
            for k in range(begin, length):
                x = _step(kind, x, vf[a, first + k * step])
        for k in range(length):
            vf[d, first + k * step] = x


@leaf
def _serial(op: int, x: np.float32) -> np.float32:
    if op == VPU.EXP2:
        return exp2(x)
    if op == VPU.LOG2:
        return log2(x)
    if op == VPU.SIN:
        return sine(x)
    if op == VPU.COS:
        return cosine(x)
    return reciprocal(x)


@leaf
def _pairs(vf: NDArray[np.float32], a: int, b: int, d: int, n: int) -> None:
    for i in range(0, n, 2):
        x, y, c, s = vf[a, i], vf[a, i + 1], vf[b, i], vf[b, i + 1]
        vf[d, i] = fadd(fmul(x, c), negated(fmul(y, s)))
        vf[d, i + 1] = fadd(fmul(x, s), fmul(y, c))


@leaf
def _unordered(vf: NDArray[np.float32], d: int, n: int) -> bool:
    found = False
    for i in range(n):
        found |= vf[d, i] != vf[d, i]
    return found


@leaf
def _reduction(op: int, vf: NDArray[np.float32], a: int, d: int, rows: int, cols: int) -> None:
    """Any of the twelve float reductions."""
    if VPU.FSUM_REDUCE_TILE <= op <= VPU.FMIN_REDUCE_TILE:
        _reduce(op - VPU.FSUM_REDUCE_TILE.value, _TILE, vf, a, d, rows, cols)
    elif VPU.FSUM_REDUCE <= op <= VPU.FMIN_REDUCE:
        _reduce(op - VPU.FSUM_REDUCE.value, _ROW, vf, a, d, rows, cols)
    elif VPU.FSUM_REDUCE_COL <= op <= VPU.FMIN_REDUCE_COL:
        _reduce(op - VPU.FSUM_REDUCE_COL.value, _COLUMN, vf, a, d, rows, cols)
    elif op == VPU.FPROD_REDUCE:
        _reduce(_PROD, _ROW, vf, a, d, rows, cols)
    elif op == VPU.FPROD_REDUCE_COL:
        _reduce(_PROD, _COLUMN, vf, a, d, rows, cols)
    else:
        _reduce(_PROD, _TILE, vf, a, d, rows, cols)


@separate(int64(*FLOAT_TILES, int64, int64, int64, int64, int64, int64), python=True)
def floating(
    v: NDArray[np.int32], vf: NDArray[np.float32], op: int, a: int, b: int, d: int, rows: int, cols: int
) -> int:
    """Row d := op(row a, row b), tiles of rows x cols words. d is neither a nor b. Returns 0, or 1 for no such op."""
    n = rows * cols
    # The processor's result stands unless it is a NaN, whose bits are the machine's own.
    if op == VPU.FADD:
        for i in range(n):
            vf[d, i] = vf[a, i] + vf[b, i]
        if _unordered(vf, d, n):
            for i in range(n):
                vf[d, i] = fadd(vf[a, i], vf[b, i])
    elif op == VPU.FSUB:
        for i in range(n):
            vf[d, i] = vf[a, i] - vf[b, i]
        if _unordered(vf, d, n):
            for i in range(n):
                vf[d, i] = fsub(vf[a, i], vf[b, i])
    elif op == VPU.FMUL:
        for i in range(n):
            vf[d, i] = vf[a, i] * vf[b, i]
        if _unordered(vf, d, n):
            for i in range(n):
                vf[d, i] = fmul(vf[a, i], vf[b, i])
    elif op == VPU.FMAX:
        for i in range(n):
            v[d, i] = v[a, i] if vf[a, i] >= vf[b, i] else v[b, i]
    elif op == VPU.FMIN:
        for i in range(n):
            v[d, i] = v[a, i] if vf[a, i] <= vf[b, i] else v[b, i]
    elif op == VPU.FCMPLT:
        for i in range(n):
            v[d, i] = vf[a, i] < vf[b, i]
    elif op == VPU.FSIGN:
        for i in range(n):
            pattern = bits(vf[a, i])
            one = 0x3F800000 | (pattern & -(1 << 31))
            vf[d, i] = real(0 if pattern & 0x7FFFFFFF == 0 else one)
    elif op == VPU.FABS:
        for i in range(n):
            v[d, i] = v[a, i] & 0x7FFFFFFF
    elif op == VPU.I2F:
        for i in range(n):
            vf[d, i] = from_int(np.int64(v[a, i]))
    elif op == VPU.F2I:
        for i in range(n):
            v[d, i] = np.int32(to_int(vf[a, i]))
    elif op == VPU.PAIR_ROTATE:
        _pairs(vf, a, b, d, n)
    elif op == VPU.FRECIP or VPU.EXP2 <= op <= VPU.COS:
        for i in range(n):
            vf[d, i] = _serial(op, vf[a, i])
    elif (VPU.FSUM_REDUCE_TILE <= op <= VPU.FPROD_REDUCE_COL) and op != VPU.FMIN:
        _reduction(op, vf, a, d, rows, cols)
    else:
        return 1
    return 0
