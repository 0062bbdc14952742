"""Numbers of TASM: integers, bit patterns, and decimal fractions as binary32 (datasheet 8)."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np

_INTEGER = re.compile(r"[+-]?(?:[0-9]+|0x[0-9a-f]+)", re.IGNORECASE)
_BITS = re.compile(r"0x([0-9a-f]{1,8})", re.IGNORECASE)
_FLOAT = re.compile(r"([+-]?)((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]{1,4})?)f", re.IGNORECASE)
_SPECIAL = {"inf": 0x7F800000, "+inf": 0x7F800000, "-inf": 0xFF800000, "nan": 0x7FC00000}


def integer(text: str) -> int | None:
    """A decimal or 0x number, or None."""
    if not _INTEGER.fullmatch(text):
        return None
    return int(text, 16 if "x" in text.lower() else 10)


def word(text: str) -> int | str | None:
    """A VMEM value as int32: a bit pattern, a number with the suffix f, inf or nan. None where the text is none of
    these; a text says why it has no value."""
    if text.lower() in _SPECIAL:
        return _signed(_SPECIAL[text.lower()])
    if bits := _BITS.fullmatch(text):
        return _signed(int(bits[1], 16))
    if number := _FLOAT.fullmatch(text):
        exact = Fraction(number[2])
        magnitude = _nearest(exact)
        if magnitude == _SPECIAL["inf"]:
            return "beyond the largest binary32"
        if exact and not magnitude:
            return "nearer to 0 than any other binary32"
        return _signed(magnitude | (number[1] == "-") << 31)
    return None


def _signed(bits: int) -> int:
    return bits - (1 << 32) if bits >> 31 else bits


def _nearest(exact: Fraction) -> int:
    """The bits of the binary32 nearest to a non-negative number, ties to even; those of infinity beyond the range."""
    limit = Fraction((1 << 25) - 1) * 2**103  # halfway between the largest binary32 and the next power of two
    if exact >= limit:
        return _SPECIAL["inf"]
    bits = int(np.float32(float(min(exact, Fraction(float(np.finfo(np.float32).max))))).view(np.int32))

    def error(candidate: int) -> tuple[Fraction, int]:
        value = Fraction(float(np.array(candidate, np.int32).view(np.float32)))
        return abs(value - exact), candidate & 1

    return min((c for c in (bits - 1, bits, bits + 1) if 0 <= c < _SPECIAL["inf"]), key=error)
