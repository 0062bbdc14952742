"""E8M15 arithmetic in Python integers, straight from datasheet 2.6 to 2.9. Shares nothing with the model.

Codes are the 24-bit words of the datasheet. A finite nonzero value is an integer pair (m, e) meaning m * 2^e.
"""

from __future__ import annotations

import math
from random import Random

NAN, INF, ONE, MINUS = 0x7FC000, 0x7F8000, 0x3F8000, 0x800000

SPECIAL = [
    0x000000, 0x800000, 0x000001, 0x807FFF, 0x008000, 0x808000, 0x008001, 0x00FFFF, 0x018000, 0x3F8000,
    0xBF8000, 0x3F8001, 0xBF8002, 0x3FC000, 0x3FFFFF, 0x3F7FFF, 0xC00000, 0x378000, 0x377FFF, 0xB78001,
    0x2F8000, 0x7F7FFF, 0xFF7FFF, 0x7F0000, 0xFE8001, 0x7F8000, 0xFF8000, 0x7F8001, 0xFFA000, 0x7FC000,
    0xFFFFFF, 0x430000, 0xC2FD00,
]  # fmt: skip


def sign(code: int) -> int:
    return code >> 23


def exponent(code: int) -> int:
    return code >> 15 & 255


def is_nan(code: int) -> bool:
    return exponent(code) == 255 and code & 0x7FFF != 0


def is_inf(code: int) -> bool:
    return exponent(code) == 255 and code & 0x7FFF == 0


def is_zero(code: int) -> bool:
    return exponent(code) == 0


def value(code: int) -> tuple[int, int]:
    """(m, e) of a finite code; m = 0 for zeros."""
    if is_zero(code):
        return 0, 0
    m = 0x8000 | code & 0x7FFF
    return (-m if sign(code) else m), exponent(code) - 142


def rnde(m: int, e: int) -> int:
    """The code of m * 2^e, m nonzero: RNE to 16 bits with unbounded exponent, then Inf or signed zero."""
    s, a = (MINUS if m < 0 else 0), abs(m)
    drop = a.bit_length() - 16
    if drop > 0:
        q, rest, half = a >> drop, a & (1 << drop) - 1, 1 << drop - 1
        q += rest > half or (rest == half and q & 1)
    else:
        q = a << -drop
    if q == 1 << 16:
        q, drop = q >> 1, drop + 1
    biased = drop + e + 142
    if biased >= 255:
        return s | INF
    if biased <= 0:
        return s
    return s | biased << 15 | q & 0x7FFF


def fma(a: int, b: int, c: int, negate: bool = False) -> int:
    """a*b + c, or -(a*b) + c, one rounding."""
    if is_nan(a) or is_nan(b) or is_nan(c):
        return NAN
    s = sign(a) ^ sign(b) ^ int(negate)
    if is_inf(a) or is_inf(b):
        if is_zero(a) or is_zero(b) or (is_inf(c) and sign(c) != s):
            return NAN
        return s << 23 | INF
    if is_inf(c):
        return c
    (ma, ea), (mb, eb), (mc, ec) = value(a), value(b), value(c)
    mp, ep = (-ma if negate else ma) * mb, ea + eb
    if mp == 0 and mc == 0:
        return MINUS if s and sign(c) else 0
    if mp == 0:
        return rnde(mc, ec)
    if mc == 0:
        return rnde(mp, ep)
    low = min(ep, ec)
    total = (mp << ep - low) + (mc << ec - low)
    return rnde(total, low) if total else 0


def mul(a: int, b: int) -> int:
    s = (sign(a) ^ sign(b)) << 23
    if is_nan(a) or is_nan(b) or (is_inf(a) and is_zero(b)) or (is_zero(a) and is_inf(b)):
        return NAN
    if is_inf(a) or is_inf(b):
        return s | INF
    (ma, ea), (mb, eb) = value(a), value(b)
    return rnde(ma * mb, ea + eb) if ma and mb else s


def add(a: int, c: int) -> int:
    return fma(a, ONE, c)


def sub(a: int, c: int) -> int:
    return add(a, c if is_nan(c) else c ^ MINUS)


def flush(code: int) -> int:
    """What an operation reads, and what it writes for a NaN."""
    if is_nan(code):
        return NAN
    return code & MINUS if is_zero(code) else code


def less(a: int, b: int) -> bool:
    if is_nan(a) or is_nan(b):
        return False

    def key(code: int) -> int:
        size = 0 if is_zero(code) else code & 0x7FFFFF
        return -size if sign(code) else size

    return key(a) < key(b)


def equal(a: int, b: int) -> bool:
    return not is_nan(a) and not is_nan(b) and not less(a, b) and not less(b, a)


def maximum(a: int, b: int) -> int:
    return flush(b if less(a, b) else a)


def minimum(a: int, b: int) -> int:
    return flush(b if less(b, a) else a)


def select(a: int, b: int, c: int) -> int:
    return flush(b if is_zero(c) else a)


def half_to_e8m15(half: int) -> int:
    s, e, f = half >> 15, half >> 10 & 31, half & 1023
    if e == 31:
        return s << 23 | 0x7F8000 | f << 5
    m = f if e == 0 else 1024 | f
    return (s << 23 | rnde(m, max(e, 1) - 25)) if m else s << 23


def e8m15_to_half(code: int) -> tuple[int, int]:
    """(binary16 pattern, 1 if it saturated)."""
    s = sign(code) << 15
    if is_nan(code):
        return s | 0x7E00 | code >> 5 & 511, 0
    if is_inf(code):
        return s | 0x7C00, 0
    m, e = value(code & 0x7FFFFF)
    if m == 0:
        return s, 0
    # Steps of the result: 2^-24 below 2^-14, else 2^-10 of the value's binade.
    step = max(-24, e + m.bit_length() - 11)
    drop = step - e
    if drop > 0:
        q, rest, half = m >> drop, m & (1 << drop) - 1, 1 << drop - 1
        q += rest > half or (rest == half and q & 1)
    else:
        q = m << -drop
    if q << step + 24 >= 65536 << 24:
        return s | 0x7BFF, 1
    pattern = (step + 24) * 1024 + q if step > -24 else q
    return s | pattern, int(m << e + 24 > 65504 << 24) if e >= -24 else 0


def from_fp32(word: int) -> int:
    s, e, m = word >> 31, word >> 23 & 255, word & 0x7FFFFF
    if e == 255 and m:
        return s << 23 | 0x7FC000 | m >> 8 & 0x3FFF
    if e == 0:
        return s << 23
    q, rest = word >> 8 & 0x7FFFFF, word & 255
    q += rest > 128 or (rest == 128 and q & 1)
    return s << 23 | min(q, 0x7F8000) if e < 255 else s << 23 | 0x7F8000


def to_fp32(code: int) -> int:
    return (code & MINUS if is_zero(code) else code) << 8


# Seeds, 2.9. Tables in plain Python floats, as the datasheet builds them.

_S3 = math.sqrt(3.0)
_NODES = (0.5 + _S3 / 4.0, 0.5, 0.5 - _S3 / 4.0)


def table(name: str) -> list[tuple[int, int, int]]:
    g = {
        "exp2": lambda z: 2.0**z - 1.0,
        "log2": lambda z: math.log2(1.0 + z),
        "inv": lambda z: 1.0 / (1.0 + z),
        "rsqrt": lambda z: 1.0 / math.sqrt(1.0 + z),
        "rsqrt2": lambda z: 1.0 / math.sqrt(2.0 + 2.0 * z),
    }[name]
    rows: list[tuple[int, int, int]] = []
    for i in range(32):
        x0, x1, x2 = _NODES
        y0, y1, y2 = (g((i + x) / 32.0) for x in _NODES)
        d01, d12 = (y0 - y1) / (x0 - x1), (y1 - y2) / (x1 - x2)
        c2 = (d01 - d12) / (x0 - x2)
        c1, c0 = d01 - c2 * (x0 + x1), y0 - d01 * x0 + c2 * x0 * x1
        rows.append((round(c0 * 2.0**20), round(c1 * 2.0**24), round(c2 * 2.0**28)))
    return rows + (table("rsqrt2") if name == "rsqrt" else [])


_TABLES = {name: table(name) for name in ("exp2", "log2", "inv", "rsqrt")}


def _f(name: str, index: int, u: int) -> int:
    if u == 0 and index == 0:
        return 0 if name in ("exp2", "log2") else 1 << 20
    c0, c1, c2 = _TABLES[name][index]
    h = (c2 * u + (c1 << 16) + 32768) >> 16
    return (h * u + (c0 << 16) + 32768) >> 16


def exp2(a: int) -> int:
    if is_nan(a):
        return NAN
    if is_zero(a):
        return ONE
    if exponent(a) >= 134:
        return 0 if sign(a) else INF
    m, e = value(a & 0x7FFFFF)
    shift = e + 17  # R = floor(m * 2^shift + 1/2)
    r = m << shift if shift >= 0 else (m + (1 << -shift - 1)) >> -shift
    r = -r if sign(a) else r
    k, f = r >> 17, r & 0x1FFFF
    return rnde((1 << 20) + _f("exp2", f >> 12, f & 4095), k - 20)


def log2(a: int) -> int:
    if is_nan(a):
        return NAN
    if is_zero(a):
        return MINUS | INF
    if sign(a):
        return NAN
    if is_inf(a):
        return INF
    m = a & 0x7FFF
    total = ((exponent(a) - 127) << 20) + _f("log2", m >> 10, (m & 1023) * 4)
    return rnde(total, -20) if total else 0


def inv(a: int) -> int:
    if is_nan(a):
        return NAN
    s = a & MINUS
    if is_zero(a):
        return s | INF
    if is_inf(a):
        return s
    m = a & 0x7FFF
    return s | rnde(_f("inv", m >> 10, (m & 1023) * 4), 107 - exponent(a))


def rsqrt(a: int) -> int:
    if is_nan(a):
        return NAN
    if is_zero(a):
        return INF
    if sign(a):
        return NAN
    if is_inf(a):
        return 0
    m, e = a & 0x7FFF, exponent(a) - 127
    return rnde(_f("rsqrt", 32 * (e % 2) + (m >> 10), (m & 1023) * 4), -20 - e // 2)


def hard(rng: Random) -> int:
    """A code where rounding is delicate: few significant bits or nearly all of them, any exponent."""
    mantissa = rng.choice([0, 1, 2, 0x4000, 0x7FFF, 0x7FFE, 0x2AAA, rng.getrandbits(15), rng.getrandbits(4) << 11])
    return rng.getrandbits(1) << 23 | rng.randrange(1, 255) << 15 | mantissa


def near(rng: Random, code: int, spread: int) -> int:
    """A hard code whose exponent is within `spread` of that of `code`."""
    e = min(max(exponent(code) + rng.randint(-spread, spread), 1), 254)
    return hard(rng) & 0x807FFF | e << 15
