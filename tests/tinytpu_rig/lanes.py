"""The vector unit's operations on tiles of Python integers (datasheet 4)."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from tinytpu_rig import softfloat as f
from tinytpu_rig.softfloat import WORD, wrap

Tile = list[list[int]]
"""Rows of signed 32-bit words."""


def u(x: int) -> int:
    return x & WORD


def clamp(x: int, bits: int) -> int:
    return max(-(1 << bits - 1), min((1 << bits - 1) - 1, x))


def divide(a: int, b: int) -> int:
    return 0 if b == 0 else wrap(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))


def sign(x: int) -> int:
    return (x > 0) - (x < 0)


def packed(op: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def whole(a: int, b: int) -> int:
        def signed(x: int, k: int) -> int:
            return (x >> 8 * k & 255 ^ 128) - 128

        return wrap(sum((op(signed(a, k), signed(b, k)) & 255) << 8 * k for k in range(4)))

    return whole


def on_bits(op: Callable[..., int], operands: int = 2) -> Callable[[int, int], int]:
    """A function of patterns as one of signed words."""
    return lambda a, b: wrap(op(*(u(a), u(b))[:operands]))


def rotate_left(a: int, n: int) -> int:
    text = f"{u(a):032b}"
    return wrap(int(text[n:] + text[:n], 2))


def fmax(a: int, b: int) -> int:
    return a if f.at_least(a, b) else b


def fmin(a: int, b: int) -> int:
    return a if f.at_least(b, a) else b


LANE: dict[int, Callable[[int, int], int]] = {
    0: lambda a, b: wrap(a + b),
    1: lambda a, b: wrap(a * b),
    2: lambda a, b: max(a, 0),
    3: max,
    5: lambda a, b: int(a < b),
    6: lambda a, b: int(a != b),
    7: lambda a, b: wrap(a - b),
    8: lambda a, b: int(a == b),
    10: lambda a, b: wrap(a << b % 32),
    11: lambda a, b: wrap(u(a) >> b % 32),
    12: min,
    14: divide,
    15: lambda a, b: a & b,
    16: lambda a, b: a | b,
    17: lambda a, b: a ^ b,
    18: on_bits(f.add),
    19: on_bits(f.mul),
    20: on_bits(lambda a, b: f.add(a, f.neg(b))),
    21: on_bits(fmax),
    22: on_bits(lambda a, b: int(f.less(a, b))),
    23: on_bits(f.recip, 1),
    24: lambda a, b: wrap(f.from_int(a)),
    25: lambda a, b: f.to_int(u(a)),
    26: lambda a, b: ~a,
    28: lambda a, b: a,
    41: on_bits(fmin),
    51: on_bits(f.exp2, 1),
    52: on_bits(f.log2, 1),
    53: on_bits(f.sin, 1),
    54: on_bits(f.cos, 1),
    55: packed(lambda a, b: clamp(a + b, 8)),
    56: packed(lambda a, b: clamp(a - b, 8)),
    57: packed(max),
    58: packed(min),
    59: packed(lambda a, b: clamp(-a, 8)),
    60: packed(lambda a, b: max(a, 0)),
    61: packed(lambda a, b: 255 * (a < b)),
    62: packed(lambda a, b: 255 * (a == b)),
    63: packed(lambda a, b: a * b),
    64: packed(lambda a, b: a * b >> 8),
    65: packed(lambda a, b: clamp(abs(a), 8)),
    66: lambda a, b: sign(a),
    67: packed(lambda a, b: sign(a)),
    68: lambda a, b: 0 if u(a) << 1 & WORD == 0 else wrap(u(a) >> 31 << 31 | 0x3F800000),
    71: lambda a, b: 32 - u(a).bit_length(),
    72: lambda a, b: f"{u(a):b}".count("1"),
    73: lambda a, b: 32 if a == 0 else (a & -a).bit_length() - 1,
    74: lambda a, b: wrap(int.from_bytes(u(a).to_bytes(4, "little"), "big")),
    75: lambda a, b: clamp(a + b, 32),
    76: lambda a, b: clamp(a - b, 32),
    77: lambda a, b: clamp(abs(a - b), 32),
    78: packed(lambda a, b: clamp(abs(clamp(a - b, 8)), 8)),
    79: lambda a, b: a & 0x7FFFFFFF,
    80: lambda a, b: rotate_left(a, b % 32),
    81: lambda a, b: rotate_left(a, -b % 32),
    82: lambda a, b: wrap(min(u(a), u(b))),
    83: lambda a, b: wrap(max(u(a), u(b))),
}

UNARY = {2, 4, 9, 13, *range(23, 27), *range(28, 41), *range(42, 55), 59, 60, *range(65, 75), 79}


def pairs(row: list[int], turn: list[int], add: Callable[[int, int], int], mul: Callable[[int, int], int],
          neg: Callable[[int], int]) -> list[int]:  # fmt: skip
    out: list[int] = []
    for p in range(0, len(row), 2):
        (x, y), (c, s) = row[p : p + 2], turn[p : p + 2]
        out += [add(mul(x, c), neg(mul(y, s))), add(mul(x, s), mul(y, c))]
    return out


def tree(op: Callable[[int, int], int], items: list[int]) -> int:
    items, stride = list(items), 1
    while stride < len(items):
        for i in range(0, len(items) - stride, 2 * stride):
            items[i] = op(items[i], items[i + stride])
        stride *= 2
    return items[0]


INT_STEP = {"SUM": lambda a, b: wrap(a + b), "MAX": max, "MIN": min, "MUL": lambda a, b: wrap(a * b)}
FLOAT_STEP = {"SUM": LANE[18], "MAX": LANE[21], "MIN": LANE[41], "MUL": LANE[19]}
ONE = 0x3F800000
INT_REDUCE = {4: ("row", "SUM"), 9: ("row", "MAX"), 13: ("row", "MIN"), 35: ("row", "MUL"), 29: ("col", "SUM"),
              30: ("col", "MAX"), 31: ("col", "MIN"), 36: ("col", "MUL"), 32: ("tile", "SUM"), 33: ("tile", "MAX"),
              34: ("tile", "MIN"), 37: ("tile", "MUL")}  # fmt: skip
FLOAT_REDUCE = {42: ("row", "SUM"), 43: ("row", "MAX"), 44: ("row", "MIN"), 49: ("row", "MUL"), 45: ("col", "SUM"),
                46: ("col", "MAX"), 47: ("col", "MIN"), 50: ("col", "MUL"), 38: ("tile", "SUM"), 39: ("tile", "MAX"),
                40: ("tile", "MIN"), 48: ("tile", "MUL")}  # fmt: skip


def float_line(way: str, kind: str, items: list[int]) -> int:
    step = FLOAT_STEP[kind]
    if way == "row" and kind != "MUL":
        return tree(step, items)
    if kind == "MUL" and way != "tile":
        return reduce(step, items, ONE)
    if way == "col" and kind == "SUM":
        return reduce(step, items, 0)
    return reduce(step, items)


def transposed(t: Tile) -> Tile:
    return [list(row) for row in zip(*t)]


def reduced(t: Tile, way: str, line: Callable[[list[int]], int]) -> Tile:
    if way == "row":
        return [[line(row)] * len(row) for row in t]
    if way == "col":
        return transposed(reduced(transposed(t), "row", line))
    x = line([x for row in t for x in row])
    return [[x] * len(row) for row in t]


def operate(code: int, a: Tile, b: Tile, before: Tile) -> Tile:
    """The result tile of VPU operation `code`; `before` is the result register's content."""
    if code in INT_REDUCE:
        way, kind = INT_REDUCE[code]
        return reduced(a, way, lambda items: reduce(INT_STEP[kind], items))
    if code in FLOAT_REDUCE:
        way, kind = FLOAT_REDUCE[code]
        return reduced(a, way, lambda items: float_line(way, kind, items))
    if code == 27:
        return [[y if x else z for x, y, z in zip(*rows)] for rows in zip(a, b, before)]
    if code in (69, 70):
        best = min if code == 69 else max
        return [[row.index(best(row))] * len(row) for row in a]
    if code == 84:
        return [pairs(x, y, LANE[18], LANE[19], lambda z: wrap(f.neg(u(z)))) for x, y in zip(a, b)]
    if code == 85:
        return [pairs(x, y, LANE[0], LANE[1], lambda z: wrap(-z)) for x, y in zip(a, b)]
    return [[LANE[code](x, y) for x, y in zip(r, q)] for r, q in zip(a, b)]


def latency(code: int, words: int) -> int:
    if code in (38, 39, 40, 48):
        return words + 1
    steps = {51: 7, 52: 6, 53: 11, 54: 5}
    return words * steps[code] + 2 if code in steps else 1
