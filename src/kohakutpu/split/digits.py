"""Numbers as integer digits: rows of real numbers as a power of two times six signed digits of radix 16.

Decides how a row is scaled and cut, which pairs of digits a product needs, and what its result is from the sums of
their products. It must not know devices, tiles or byte orders. Host arithmetic, exact where not said otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal

DIGITS = 6
"""Digits of a number: 24 bits below the greatest of its row."""
LEVELS = 7
"""Products of digits are taken whose numbers add up to less: 26 pairs of 36."""
RADIX_BITS = 4
HALF_RADIX = 8
"""No digit is greater in magnitude, so 32 products of two digits stay within 2048."""
EXACT = 4
"""Levels whose sums must leave the clusters exactly; those of later levels may be rounded once."""
EMITTED = 2048
"""Integers of at most this magnitude are FP16 values (datasheet 2.1)."""
ACCUMULATED = 1 << 15
"""Integers of at most this magnitude are FP22 values: 15 significant bits (datasheet 2.4)."""
SIGMAS, MARGIN = 5.0, 1.25
LEAST = 8
"""Sums over this much of K are within EMITTED in every level that must be exact: 4 pairs of digits, 64 each."""

Ints8 = NDArray[np.int8]
Pairs = tuple[tuple[int, int], ...]
"""Planes (of the left, of the right) whose products have one weight and are added in one accumulator."""


@dataclass(frozen=True, eq=False, slots=True)
class Digits:
    """Rows of numbers: element = 2^(exponents - 3) * sum over p of planes[p] * 16^-kinds[p], and at most 2^-21 of
    2^(exponents - 3) beside it.

    planes: int8[P, batch, rows, K], of the P digits that are not all zero; kinds: which digits they are;
    exponents: int32[batch, rows].
    """

    planes: Ints8
    kinds: tuple[int, ...]
    exponents: NDArray[np.int32]


def digits_of(values: NDArray[Any], where: str) -> Digits:
    """Real numbers [batch, rows, K] as digits. Refuses NaN and Inf."""
    wide = values.astype(np.float64, copy=False)
    if not np.isfinite(wide).all():
        raise Refusal(
            "a product of digits is one of finite numbers",
            where=where,
            got="NaN or Inf",
            hint="multiply on the host",
        )
    peak = np.maximum(wide.max(axis=-1, initial=0.0), -wide.min(axis=-1, initial=0.0))
    exponents = np.frexp(peak)[1]
    bits = RADIX_BITS * DIGITS - 1
    left = np.rint(np.ldexp(wide, (bits - exponents)[..., None])).astype(np.int32)
    found: list[Ints8] = []
    for place in range(DIGITS):
        digit = ((left + HALF_RADIX) & 2 * HALF_RADIX - 1) - HALF_RADIX if place < DIGITS - 1 else left
        left = (left - digit) >> RADIX_BITS
        found.append(digit.astype(np.int8))
    kinds = tuple(p for p in range(DIGITS) if found[DIGITS - 1 - p].any())
    planes = np.stack([found[DIGITS - 1 - p] for p in kinds]) if kinds else np.zeros((0, *values.shape), np.int8)
    return Digits(planes, kinds, exponents.astype(np.int32))


def levels_of(left: tuple[int, ...], right: tuple[int, ...]) -> dict[int, Pairs]:
    """The pairs of planes (positions in `kinds`) by level, the sum of their digits' numbers; levels without any, and
    those from LEVELS on, are left out."""
    found: dict[int, list[tuple[int, int]]] = {}
    for i, p in enumerate(left):
        for j, q in enumerate(right):
            if p + q < LEVELS:
                found.setdefault(p + q, []).append((i, j))
    return {level: tuple(found[level]) for level in sorted(found)}


def cut(planes: Ints8, length: int) -> Ints8:
    """[P, batch, rows, K] in stretches of K: [P, batch * stretches, rows, length], the last one filled with zeros."""
    count, batch, rows, k = planes.shape
    if length == k:
        return planes
    stretches = -(-k // length)
    if stretches * length != k:
        padded = np.zeros((count, batch, rows, stretches * length), np.int8)
        padded[..., :k] = planes
        planes = padded
    parts = planes.reshape(count, batch, rows, stretches, length).transpose(0, 1, 3, 2, 4)
    return np.ascontiguousarray(parts).reshape(count, batch * stretches, rows, length)


def shorter(length: int, times: int) -> int:
    """A stretch of K that is `times` shorter, in whole blocks of 32 while there are any, at least LEAST."""
    wanted = length // times
    return wanted // 32 * 32 if wanted >= 32 else 16 if wanted >= 16 else LEAST


def bound(left: Ints8, right: Ints8, pairs: Pairs) -> float:
    """What no sum of products, nor any part of it in any order of adding, exceeds: Cauchy and Schwarz.

    left, right: planes as `cut` gives them, [P, batch, rows, length].
    """
    first, second = (np.sqrt(_squares(planes).max(axis=-1)) for planes in (left, right))
    return float(np.max(sum(first[i] * second[j] for i, j in pairs), initial=0.0))


def probable(left: Ints8, right: Ints8, pairs: Pairs) -> float:
    """About the greatest sum of products over the whole K: a guess from a few rows and from statistics, no bound."""
    a, b = _likely(left), _likely(right)
    seen = sum(a[i] @ b[j].swapaxes(-1, -2) for i, j in pairs)
    length = left.shape[-1]
    (first, spread), (second, width) = _statistics(left), _statistics(right)
    mean = sum(first[i] * second[j] for i, j in pairs) / length
    noise = sum((spread[i] * width[j]) ** 2 for i, j in pairs) / length
    expected = mean + SIGMAS * np.sqrt(noise)
    return max(MARGIN * float(np.abs(seen).max(initial=0.0)), float(np.max(expected, initial=0.0)))


def _statistics(planes: Ints8) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Per plane and batch element the greatest sum of a row, and the greatest norm of a row without its mean."""
    sums = planes.sum(axis=-1, dtype=np.int64).astype(np.float64)
    rest = _squares(planes) - sums**2 / planes.shape[-1]
    return np.abs(sums).max(axis=-1), np.sqrt(np.maximum(rest, 0).max(axis=-1))


def _squares(planes: Ints8) -> NDArray[np.float64]:
    """Sums of squares of rows: below 2^24, so exact in float32, for every K below 2^18."""
    wide = planes.astype(np.float32)
    return np.einsum("perk,perk->per", wide, wide).astype(np.float64)


def _likely(planes: Ints8) -> NDArray[np.float32]:
    """Of every batch element the rows with the greatest sum and with the greatest norm, by the first digit."""
    first = planes[0].astype(np.float32)
    rows = np.stack([np.abs(first.sum(-1)).argmax(-1), np.einsum("erk,erk->er", first, first).argmax(-1)], -1)
    return np.take_along_axis(planes, rows[None, :, :, None], axis=2).astype(np.float32)


def weighted(sums: NDArray[np.float16], level: int) -> NDArray[np.float64]:
    """[batch, stretches, M, N] of one level, added up with the level's weight."""
    whole = sums[:, 0].astype(np.float64) if sums.shape[1] == 1 else sums.sum(axis=1, dtype=np.float64)
    return whole * 2.0 ** (-RADIX_BITS * level)


def scaled(total: NDArray[np.float64], left: NDArray[np.int32], right: NDArray[np.int32]) -> NDArray[np.float64]:
    """The product [batch, M, N] from the levels' sum and both sides' exponents [batch, rows]."""
    return np.ldexp(total, left[:, :, None] + right[:, None, :] - 6)
