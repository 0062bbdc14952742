"""Number formats of the machine on plain integers (datasheet section 2).

Every finite nonzero value is a dyadic number (sign, m, e) meaning (-1)**sign * m * 2**e, so sums and products
are exact and rounding happens once, where the datasheet says. It must not know units, memory or instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache


def bits(word: int, hi: int, lo: int) -> int:
    """Bit field [hi:lo]."""
    return (word >> lo) & ((1 << (hi - lo + 1)) - 1)


def signed(value: int, width: int) -> int:
    """Two's complement reading of a `width`-bit field."""
    return value - (1 << width) if value >> (width - 1) & 1 else value


def nearest_even(m: int, drop: int) -> int:
    """m / 2**drop to the nearest integer, ties to even; a negative drop is an exact left shift."""
    if drop <= 0:
        return m << -drop
    q, r, half = m >> drop, m & ((1 << drop) - 1), 1 << (drop - 1)
    return q + 1 if r > half or (r == half and q & 1) else q


def round_to(m: int, e: int, width: int) -> tuple[int, int]:
    """m * 2**e (m > 0) to exactly `width` significant bits, ties to even, unbounded exponent."""
    drop = m.bit_length() - width
    q = nearest_even(m, drop)
    if q >> width:
        return q >> 1, e + drop + 1
    return q, e + drop


def add_exact(a: int, ea: int, b: int, eb: int) -> tuple[int, int]:
    """Signed a * 2**ea + b * 2**eb, exactly."""
    e = min(ea, eb)
    return (a << (ea - e)) + (b << (eb - e)), e


# --- FP16 (2.1) --------------------------------------------------------------------------------------------


def fp16_encode(sign: int, m: int, e: int) -> tuple[int, bool]:
    """RNE of m * 2**e to FP16 with subnormals, never Inf; and whether |x| > 65504 before rounding."""
    if m == 0:
        return sign << 15, False
    beyond = (m << e) > 65504 if e >= 0 else m > 65504 << -e
    quantum = max(m.bit_length() - 1 + e, -14) - 10
    q = nearest_even(m, quantum - e)
    if q << (quantum + 24) >= 65536 << 24:
        return sign << 15 | 0x7BFF, beyond
    code = q if quantum == -24 and q < 1024 else ((quantum + 25) << 10) + (q - 1024)
    return sign << 15 | code, beyond


# --- MXFP7 (2.2, 2.3) --------------------------------------------------------------------------------------

RECIPROCAL = (4096, 3641, 3277, 2979, 2731, 2520, 2341, 2185)

Lane = tuple[tuple[int, ...], int]  # 32 int7 values and the scale byte
Entry = tuple[Lane, Lane, Lane, Lane]


def mxfp7_lane(halves: Sequence[int]) -> tuple[Lane, int]:
    """One lane of 32 FP16 codes: (q, scale byte) and the number of elements with exponent 31."""
    return _lane(tuple(halves))


@lru_cache(maxsize=1 << 14)  # a recording quantises the same lanes when it is made and when it is replayed
def _lane(halves: tuple[int, ...]) -> tuple[Lane, int]:
    parts: list[tuple[int, int, int]] = []
    nonfinite = 0
    for h in halves:
        s, e, f = h >> 15, bits(h, 14, 10), bits(h, 9, 0)
        nonfinite += e == 31
        parts.append((s, f, 1) if e == 0 else (s, 1024 + f, e))
    peak = max(range(len(halves)), key=lambda i: halves[i] & 0x7FFF)
    _, p, ep = parts[peak]
    if p == 0:
        return ((0,) * 32, 0xA0), nonfinite
    while p < 1024:
        p, ep = 2 * p, ep - 1
    c = -(-p // 126)
    if c <= 15:
        m8, es = c, ep - 21
    elif c == 16:
        m8, es = 8, ep - 20
    else:
        m8, es = 9, ep - 20
    es = max(-20, min(11, es))
    q: list[int] = []
    for s, sig, e in parts:
        product, sh = sig * RECIPROCAL[m8 - 8], 37 + es - e
        magnitude = min(63, (product >> sh) + (product >> (sh - 1) & 1))
        q.append(-magnitude if s else magnitude)
    return (tuple(q), (es + 20) << 3 | (m8 - 8)), nonfinite


def mxfp7_entry(halves: Sequence[int]) -> tuple[Entry, int]:
    """128 FP16 codes (4 lanes x 32) to an entry, and the number of elements with exponent 31."""
    lanes: list[Lane] = []
    count = 0
    for lane in range(4):
        value, n = mxfp7_lane(halves[32 * lane : 32 * lane + 32])
        lanes.append(value)
        count += n
    return (lanes[0], lanes[1], lanes[2], lanes[3]), count


def pack_entry(entry: Entry, b_order: bool) -> list[int]:
    """The four 256-bit words of a quantised entry (2.3)."""
    scales = sum(entry[lane][1] << (24 - 8 * lane) for lane in range(4))
    words: list[int] = []
    for w in range(4):
        word = scales
        for lane in range(4):
            for kk in range(8):
                slot = 4 * kk + lane if b_order else 8 * lane + kk
                word |= (entry[lane][0][8 * w + kk] & 0x7F) << (249 - 7 * slot)
        words.append(word)
    return words


def unpack_entry(words: Sequence[int], b_order: bool) -> Entry:
    """The entry of four words; the scales come from word 0."""
    lanes: list[Lane] = []
    for lane in range(4):
        q: list[int] = []
        for w in range(4):
            for kk in range(8):
                slot = 4 * kk + lane if b_order else 8 * lane + kk
                q.append(signed(bits(words[w], 255 - 7 * slot, 249 - 7 * slot), 7))
        lanes.append((tuple(q), bits(words[0], 31 - 8 * lane, 24 - 8 * lane)))
    return lanes[0], lanes[1], lanes[2], lanes[3]


def l1_image(entry: Entry, b_order: bool) -> int:
    """The 928-bit L1 image of an entry (2.3)."""
    image = 0
    for lane in range(4):
        q, scale = entry[lane]
        for k in range(32):
            image |= (q[k] & 0x7F) << 7 * (4 * k + lane if b_order else 32 * lane + k)
        image |= scale << (896 + 8 * lane)
    return image


# --- FP22 (2.4, 2.5) ---------------------------------------------------------------------------------------


def rnd22(x: int, e: int) -> int:
    """Signed x * 2**e to an FP22 code."""
    if x == 0:
        return 0
    sign = 1 if x < 0 else 0
    q, eq = round_to(abs(x), e, 15)
    b = eq + 14 + 63
    if b <= 0:
        return 0
    if b >= 127:
        return sign << 21 | 0x7F << 14 | 0x3FFF
    return sign << 21 | b << 14 | (q - 16384)


def fp22_value(code: int) -> tuple[int, int]:
    """(signed m, e) of an FP22 code; exponent 0 is zero whatever the mantissa."""
    e, m = bits(code, 20, 14), bits(code, 13, 0)
    if e == 0:
        return 0, 0
    return (-(16384 + m) if code >> 21 & 1 else 16384 + m), e - 63 - 14


def partial22(d: int, byte_a: int, byte_b: int) -> int:
    """The rounded partial of one K block: d * m8a * m8b * 2**(Ea + Eb - 46)."""
    m8a, m8b = 8 + (byte_a & 7), 8 + (byte_b & 7)
    return rnd22(d * m8a * m8b, (byte_a >> 3) + (byte_b >> 3) - 46)


def add22(a: int, b: int) -> int:
    """rnd22 of the exact sum of two FP22 codes."""
    return rnd22(*add_exact(*fp22_value(a), *fp22_value(b)))


def emit16(code: int) -> tuple[int, bool]:
    """FP22 to FP16 (2.5), and whether the saturation counter moves."""
    x, e = fp22_value(code)
    return fp16_encode(1 if x < 0 else 0, abs(x), e)


# --- E8M15 (2.6) -------------------------------------------------------------------------------------------

NAN = 0x7FC000
INF = 0x7F8000
ONE = 0x3F8000
SIGN = 0x800000


def is_nan(a: int) -> bool:
    return bits(a, 22, 15) == 255 and bits(a, 14, 0) != 0


def is_inf(a: int) -> bool:
    return a & 0x7FFFFF == INF


def is_zero(a: int) -> bool:
    return bits(a, 22, 15) == 0


def read8(a: int) -> int:
    """What every operation sees: exponent 0 is a signed zero."""
    return a & SIGN if is_zero(a) else a


def value8(a: int) -> tuple[int, int]:
    """(signed m, e) of a finite code."""
    if is_zero(a):
        return 0, 0
    m = 32768 + bits(a, 14, 0)
    return (-m if a & SIGN else m), bits(a, 22, 15) - 127 - 15


def rnd8(x: int, e: int) -> int:
    """rndE of signed nonzero x * 2**e."""
    sign = SIGN if x < 0 else 0
    q, eq = round_to(abs(x), e, 16)
    b = eq + 15 + 127
    if b >= 255:
        return sign | INF
    if b <= 0:
        return sign
    return sign | b << 15 | (q - 32768)


def quiet(a: int) -> int:
    """An operation's result: any NaN becomes the one NaN."""
    return NAN if is_nan(a) else read8(a)


def neg8(a: int) -> int:
    return quiet(quiet(a) ^ SIGN) if not is_nan(a) else NAN


def abs8(a: int) -> int:
    return NAN if is_nan(a) else read8(a) & 0x7FFFFF


def fma8(a: int, b: int, c: int, negate: bool = False) -> int:
    """a*b + c or -(a*b) + c with one rounding (IEEE special cases)."""
    if is_nan(a) or is_nan(b) or is_nan(c):
        return NAN
    ps = (a ^ b) & SIGN ^ (SIGN if negate else 0)
    if is_inf(a) or is_inf(b):
        if is_zero(a) or is_zero(b) or (is_inf(c) and (c & SIGN) != ps):
            return NAN
        return ps | INF
    if is_inf(c):
        return c
    (ma, ea), (mb, eb), (mc, ec) = value8(a), value8(b), value8(c)
    product = -ma * mb if negate else ma * mb
    total, e = add_exact(product, ea + eb, mc, ec)
    if total:
        return rnd8(total, e)
    if product == 0 and mc == 0 and ps and c & SIGN:
        return SIGN
    return 0


def add8(a: int, c: int) -> int:
    if is_nan(a) or is_nan(c):
        return NAN
    if is_inf(a):
        return NAN if is_inf(c) and a != c else a
    if is_inf(c):
        return c
    total, e = add_exact(*value8(a), *value8(c))
    if total:
        return rnd8(total, e)
    return SIGN if is_zero(a) and is_zero(c) and a & c & SIGN else 0


def sub8(a: int, c: int) -> int:
    return NAN if is_nan(c) else add8(a, c ^ SIGN)


def mul8(a: int, b: int) -> int:
    if is_nan(a) or is_nan(b):
        return NAN
    s = (a ^ b) & SIGN
    if is_inf(a) or is_inf(b):
        return NAN if is_zero(a) or is_zero(b) else s | INF
    if is_zero(a) or is_zero(b):
        return s
    (ma, ea), (mb, eb) = value8(a), value8(b)
    return rnd8(ma * mb, ea + eb)


def order(a: int) -> int:
    """A number that compares like the value of a non-NaN code; +0 and -0 give 0."""
    if is_zero(a):
        return 0
    return -(a & 0x7FFFFF) if a & SIGN else a & 0x7FFFFF


def less8(a: int, b: int) -> bool:
    return not is_nan(a) and not is_nan(b) and order(a) < order(b)


def equal8(a: int, b: int) -> bool:
    return not is_nan(a) and not is_nan(b) and order(a) == order(b)


def max8(a: int, b: int) -> int:
    return quiet(b if less8(a, b) else a)


def min8(a: int, b: int) -> int:
    return quiet(b if less8(b, a) else a)


def sel8(a: int, b: int, c: int) -> int:
    return quiet(b if is_zero(c) else a)


# --- conversions (2.8) -------------------------------------------------------------------------------------


def e8_from_fp16(h: int) -> int:
    s, e, f = (h >> 15) << 23, bits(h, 14, 10), bits(h, 9, 0)
    if e == 31:
        return s | INF | f << 5
    if e == 0:
        return s | (rnd8(f, -24) if f else 0)
    return s | (e - 15 + 127) << 15 | f << 5


def fp16_from_e8(a: int) -> tuple[int, bool]:
    """RNE to FP16, and whether the store saturation counter moves."""
    s = (a >> 23) << 15
    if is_nan(a):
        return s | 0x7E00 | bits(a, 13, 5), False
    if is_inf(a):
        return s | 0x7C00, False
    m, e = value8(a)
    return fp16_encode(a >> 23, abs(m), e)


def e8_from_fp32(w: int) -> int:
    s, e = (w >> 31) << 23, bits(w, 30, 23)
    if e == 0:
        return s
    if e == 255 and bits(w, 22, 0):
        return s | INF | 1 << 14 | bits(w, 21, 8)
    return s | nearest_even(w & 0x7FFFFFFF, 8)


def fp32_from_e8(a: int) -> int:
    return read8(a) << 8
