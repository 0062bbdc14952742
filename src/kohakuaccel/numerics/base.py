"""What a number format answers about the set of values it holds, and the account of what conversions lost.

Decides when one format's values are all values of another. It must not know bit patterns, arrays or machines.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Rounding = Literal["nearest-even", "nearest-away", "toward-zero"]
"""How a value between two neighbours rounds; the first takes ties to the even code, the second outwards."""


@dataclass
class Tally:
    """What conversions lost, in elements. Passing one is how a caller accepts loss; it adds up over calls.

    saturated:  |x| beyond the largest value before rounding, replaced by it or by the saturation pattern;
                where there is no sign or no zero, a negative value or a zero replaced by the lowest code.
    nan:        NaN written as zero because the format has none, or an operand no block scale can hold.
    overflowed: finite values that became Inf.
    flushed:    nonzero values that became zero.
    inexact:    finite values whose result differs from them, all of the above but NaN included.
    """

    saturated: int = 0
    nan: int = 0
    overflowed: int = 0
    flushed: int = 0
    inexact: int = 0


class ValueSet(ABC):
    """The set of values of a format: magnitudes described binade by binade, and what else there is."""

    name: str

    @property
    @abstractmethod
    def max(self) -> float:
        """Largest finite value that is not the result of a saturation."""

    @property
    @abstractmethod
    def lowest(self) -> float:
        """Most negative finite value; 0 for an unsigned format."""

    @property
    @abstractmethod
    def smallest(self) -> float:
        """Smallest positive value."""

    @property
    def marker(self) -> float | None:
        """The value of the saturation pattern where that lies beyond `max`, else None."""
        return None

    @property
    @abstractmethod
    def extras(self) -> frozenset[str]:
        """What the set holds besides positive finite values: zero, minus zero, negatives, Inf, NaN."""

    @abstractmethod
    def quantum(self, exponent: int) -> int:
        """Exponent of the spacing of the values in [2^exponent, 2^(exponent + 1)), in or near the range."""

    def represents(self, value: float | Fraction) -> bool:
        """Whether the finite nonzero `value` is one of the format's."""
        exact = Fraction(value)
        if exact > Fraction(self.max) or exact < Fraction(self.lowest):
            return self.marker is not None and abs(exact) == Fraction(self.marker)
        if abs(exact) < Fraction(self.smallest):
            return False
        step = Fraction(2) ** self.quantum(floor_log2(abs(exact)))
        return (exact / step).denominator == 1

    def obstacles(self, other: ValueSet) -> tuple[str, ...]:
        """Why a conversion from `other` into this format may change a value; empty when it never does."""
        found = list(self._range_obstacles(other))
        low, high = floor_log2(Fraction(other.smallest)), floor_log2(Fraction(other.max))
        coarse = [e for e in range(low, high + 1) if other.quantum(e) < self.quantum(e)]
        if coarse:
            e = coarse[0]
            found.append(
                f"between 2^{e} and 2^{e + 1} {other.name} steps by 2^{other.quantum(e)} and {self.name} "
                f"by 2^{self.quantum(e)}"
            )
        if other.marker is not None and not self.represents(other.marker):
            found.append(f"the saturation value {other.marker:g} of {other.name} is not a value of {self.name}")
        missing = sorted(other.extras - self.extras)
        if missing:
            found.append(f"{self.name} has no {', no '.join(missing)}")
        return tuple(found)

    def _range_obstacles(self, other: ValueSet) -> tuple[str, ...]:
        found: list[str] = []
        if other.max > self.max or other.lowest < self.lowest:
            found.append(
                f"{other.name} spans [{other.lowest:g}, {other.max:g}], {self.name} [{self.lowest:g}, {self.max:g}]"
            )
        if other.smallest < self.smallest:
            found.append(f"the smallest value of {other.name} is {other.smallest:g}, of {self.name} {self.smallest:g}")
        return tuple(found)

    def contains_range_of(self, other: ValueSet) -> bool:
        """Whether no finite value of `other` can saturate, overflow or be flushed to zero here.

        Says nothing of rounding in between, nor of Inf and NaN.
        """
        return not self._range_obstacles(other)

    def is_exact_from(self, other: ValueSet) -> bool:
        """Whether every value of `other`, signed zeros, Inf and NaN included, is a value of this format."""
        return not self.obstacles(other)


def floor_log2(value: Fraction | float) -> int:
    """Floor of the base-2 logarithm of a positive value, exactly."""
    exact = Fraction(value)
    guess = exact.numerator.bit_length() - exact.denominator.bit_length()
    return guess if exact >= Fraction(2) ** guess else guess - 1


def pow2(exponent: int) -> float:
    """2.0 ** exponent, exact, for exponents of normal doubles."""
    return math.ldexp(1.0, exponent)
