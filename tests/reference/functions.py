"""Vector reductions and the four seeds on plain integers (datasheet 2.7, 2.9).

Tables are built as the datasheet says and evaluated in integers. It must not know units or instructions.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from math import log2 as _log2
from math import sqrt

from .formats import INF, NAN, ONE, SIGN, add8, bits, is_inf, is_nan, is_zero, max8, min8, mul8, rnd8, value8

# --- reductions (2.7) --------------------------------------------------------------------------------------


def tree(op: Callable[[int, int], int], values: Sequence[int]) -> int:
    level = list(values)
    while len(level) > 1:
        level = [op(level[i], level[i + 1]) for i in range(0, len(level), 2)]
    return level[0]


def reduce8(kind: str, a: Sequence[int], b: Sequence[int]) -> tuple[int, list[int]]:
    """VRED over VL = 16n elements: the scalar, and for EXPSUM the exponentials."""
    op = {"MAX": max8, "MIN": min8}.get(kind, add8)
    acc = [{"MAX": SIGN | INF, "MIN": INF}.get(kind, 0)] * 16
    exponentials: list[int] = []
    if kind in ("SUM", "MAX", "MIN"):
        beats = [list(a[i : i + 16]) for i in range(0, len(a), 16)]
    elif kind in ("SUMSQ", "DOT"):
        beats = [[mul8(a[i + k], b[i + k]) for k in range(8)] for i in range(0, len(a), 8)]
    else:
        exponentials = [exp2(v) for v in a]
        beats = [exponentials[i : i + 8] for i in range(0, len(a), 8)]
    for j, beat in enumerate(beats):
        acc[j % 16] = op(tree(op, beat), acc[j % 16])
    return tree(op, acc), exponentials


# --- seeds (2.9) -------------------------------------------------------------------------------------------


def _segment(name: str, index: int) -> Callable[[float], float]:
    i, scale = index % 32, 2.0 if index >= 32 else 1.0
    if name == "exp2":
        return lambda t: 2.0 ** ((i + t) / 32) - 1.0
    if name == "log2":
        return lambda t: _log2(1.0 + (i + t) / 32)
    if name == "inv":
        return lambda t: 1.0 / (1.0 + (i + t) / 32)
    return lambda t: 1.0 / sqrt(scale * (1.0 + (i + t) / 32))


def build_table(name: str, segments: int) -> list[tuple[int, int, int]]:
    """(C0, C1, C2) of every segment, by the datasheet's float64 construction."""
    x0, x1, x2 = 0.5 + sqrt(3.0) / 4, 0.5, 0.5 - sqrt(3.0) / 4
    table: list[tuple[int, int, int]] = []
    for index in range(segments):
        g = _segment(name, index)
        y0, y1, y2 = g(x0), g(x1), g(x2)
        d01, d12 = (y0 - y1) / (x0 - x1), (y1 - y2) / (x1 - x2)
        c2 = (d01 - d12) / (x0 - x2)
        c1 = d01 - c2 * (x0 + x1)
        c0 = y0 - d01 * x0 + c2 * x0 * x1
        table.append((round(c0 * 2**20), round(c1 * 2**24), round(c2 * 2**28)))
    return table


TABLES = {name: build_table(name, n) for name, n in (("exp2", 32), ("log2", 32), ("inv", 32), ("rsqrt", 64))}


def table_crc(name: str) -> int:
    return zlib.crc32(b"".join(struct.pack("<3i", *row) for row in TABLES[name]))


def evaluate(name: str, index: int, u: int) -> int:
    """F, of weight 2**-20."""
    if u == 0 and index == 0:
        return 0 if name in ("exp2", "log2") else 1 << 20
    c0, c1, c2 = TABLES[name][index]
    h = (c2 * u + (c1 << 16) + (1 << 15)) >> 16
    return (h * u + (c0 << 16) + (1 << 15)) >> 16


def exp2(a: int) -> int:
    if is_nan(a):
        return NAN
    if is_zero(a):
        return ONE
    if bits(a, 22, 15) >= 134:
        return 0 if a & SIGN else INF
    m, e = value8(a & 0x7FFFFF)
    shift = e + 17
    r = m << shift if shift >= 0 else ((m << 1 >> -shift) + 1) >> 1
    if a & SIGN:
        r = -r
    k, f = r >> 17, r & 0x1FFFF
    return rnd8((1 << 20) + evaluate("exp2", f >> 12, f & 4095), k - 20)


def log2(a: int) -> int:
    if is_nan(a):
        return NAN
    if is_zero(a):
        return SIGN | INF
    if a & SIGN:
        return NAN
    if is_inf(a):
        return INF
    m = bits(a, 14, 0)
    total = ((bits(a, 22, 15) - 127) << 20) + evaluate("log2", m >> 10, (m & 1023) * 4)
    return rnd8(total, -20) if total else 0


def inv(a: int) -> int:
    if is_nan(a):
        return NAN
    s = a & SIGN
    if is_zero(a):
        return s | INF
    if is_inf(a):
        return s
    m = bits(a, 14, 0)
    f = evaluate("inv", m >> 10, (m & 1023) * 4)
    return s | rnd8(f, 127 - bits(a, 22, 15) - 20)


def rsqrt(a: int) -> int:
    if is_nan(a):
        return NAN
    if is_zero(a):
        return INF
    if a & SIGN:
        return NAN
    if is_inf(a):
        return 0
    m, x = bits(a, 14, 0), bits(a, 22, 15) - 127
    p, k = x & 1, x >> 1
    return rnd8(evaluate("rsqrt", 32 * p + (m >> 10), (m & 1023) * 4), -k - 20)
