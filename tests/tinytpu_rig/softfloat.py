"""binary32 on patterns by exact fractions (datasheet 5, 6)."""

from __future__ import annotations

from fractions import Fraction

WORD = 0xFFFFFFFF
NAN = 0x7FC00000
INF = 0x7F800000


def is_nan(b: int) -> bool:
    return b & 0x7FFFFFFF > INF


def is_inf(b: int) -> bool:
    return b & 0x7FFFFFFF == INF


def value(b: int) -> Fraction:
    exponent, mantissa = (b >> 23) & 255, b & 0x7FFFFF
    scaled = mantissa if exponent == 0 else mantissa | 1 << 23
    magnitude = Fraction(scaled) * Fraction(2) ** (max(exponent, 1) - 150)
    return -magnitude if b >> 31 else magnitude


def rounded(x: Fraction, zero_sign: int) -> int:
    """Nearest binary32, ties to even; an exact zero takes `zero_sign`."""
    if x == 0:
        return zero_sign << 31
    sign, x = (1, -x) if x < 0 else (0, x)
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    if Fraction(2) ** exponent > x:
        exponent -= 1
    exponent = max(exponent, -126)
    ulps = x / Fraction(2) ** (exponent - 23)
    whole = ulps.numerator // ulps.denominator
    rest = ulps - whole
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1):
        whole += 1
    # A carry runs from the mantissa into the exponent field by itself.
    pattern = ((exponent + 126) << 23) + whole
    return sign << 31 | min(pattern, INF)


def nan_result(a: int, b: int) -> int:
    for x in (a, b):
        if is_nan(x) and not x & 1 << 22:
            return x | 1 << 22
    return next(x for x in (a, b) if is_nan(x))


def add(a: int, b: int) -> int:
    if is_nan(a) or is_nan(b):
        return nan_result(a, b)
    if is_inf(a) or is_inf(b):
        if is_inf(a) and is_inf(b) and a != b:
            return NAN
        return a if is_inf(a) else b
    return rounded(value(a) + value(b), a >> 31 & b >> 31)


def mul(a: int, b: int) -> int:
    if is_nan(a) or is_nan(b):
        return nan_result(a, b)
    sign = (a ^ b) >> 31
    if is_inf(a) or is_inf(b):
        return NAN if value_is_zero(a) or value_is_zero(b) else sign << 31 | INF
    return rounded(value(a) * value(b), sign)


def value_is_zero(b: int) -> bool:
    return b & 0x7FFFFFFF == 0


def neg(a: int) -> int:
    return a ^ 1 << 31


def less(a: int, b: int) -> bool:
    if is_nan(a) or is_nan(b):
        return False
    order = [(-1 if x >> 31 else 1) * 10**50 if is_inf(x) else value(x) for x in (a, b)]
    return order[0] < order[1]


def at_least(a: int, b: int) -> bool:
    return not (is_nan(a) or is_nan(b)) and not less(a, b)


def wrap(x: int) -> int:
    """An integer as the int32 of its low word."""
    x &= WORD
    return x - (1 << 32) if x >> 31 else x


def from_int(x: int) -> int:
    if x == 0:
        return 0
    digits = f"{abs(x):b}"
    mantissa = int(digits[1:24].ljust(23, "0"), 2)
    return (x < 0) << 31 | (126 + len(digits)) << 23 | mantissa


def whole(b: int) -> int:
    e = (b >> 23 & 255) - 127
    if e < 0:
        return 0
    m = 1 << 23 | b & 0x7FFFFF
    m = m >> 23 - e if e < 23 else m << (e - 23) % 32 & WORD
    return wrap(-m if b >> 31 else m)


def to_int(b: int) -> int:
    return 0 if is_nan(b) or is_inf(b) else whole(b)


def truncated(b: int) -> int:
    field = b >> 23 & 255
    if field < 127:
        return 0
    if field >= 151:
        return b
    return b >> max(0, 150 - field) << max(0, 150 - field)


def recip(x: int) -> int:
    y = x & 1 << 31 | (0x7F000000 - (x & 0x7FFFFFFF)) % 2**31
    for _ in range(3):
        y = mul(y, add(0x40000000, neg(mul(x, y))))
    return y


def exp2(x: int) -> int:
    t = truncated(x)
    n = wrap(whole(t) + 127)
    scale = 255 << 23 if n > 255 else 0 if n <= 0 else n << 23
    f = add(x, neg(t))
    a = add(mul(f, 0x3E800000), 0x3F3C0592)
    return mul(add(mul(a, f), 0x3F800000), scale)


def log2(x: int) -> int:
    e = (x >> 23 & 255) - 127
    u = add(0x3F800000 | x & 0x7FFFFF, 0xBF800000)
    a = add(mul(u, 0xBF0B851F), 0x3FC161E5)
    return add(mul(a, u), from_int(e))


def sin(x: int) -> int:
    y = add(mul(x, 0x3E22F983), 0x3F000000 | x & 1 << 31)
    y = add(x, neg(mul(truncated(y), 0x40C90FDB)))
    k = add(0x40490FDB | y & 1 << 31, neg(y))
    q = k if less(0x3FC90FDB, y & 0x7FFFFFFF) else y
    z = mul(q, q)
    a = add(mul(z, 0x3BFA0514), 0xBE2A0E41)
    return mul(add(mul(a, z), 0x3F800000), q)


def cos(x: int) -> int:
    z = mul(x, x)
    a = add(mul(z, 0x3D1817B9), 0xBEFE42E1)
    return add(mul(a, z), 0x3F800000)
