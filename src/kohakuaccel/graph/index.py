"""Index maps: integers that follow a statement's ranges, and the conditions that guard a read.

Decides what an index can be (affine in ranges, in quotients and remainders by constants, and in gathered integers),
when two are the same, and which interval one lies in. It must not know values, shapes or arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from kohakuaccel.diagnostics import DefinitionError

if TYPE_CHECKING:
    from kohakuaccel.graph.expr import Expr

Interval = tuple[int, int]
"""Least and greatest value, both included."""


class Arithmetic:
    """`+ - * // %` with integers, for ranges and indices alike."""

    __slots__ = ()

    def __add__(self, other: Indexable) -> Index:
        return _sum(Index.of(self), Index.of(other), 1)

    def __radd__(self, other: int) -> Index:
        return _sum(Index.of(other), Index.of(self), 1)

    def __sub__(self, other: Indexable) -> Index:
        return _sum(Index.of(self), Index.of(other), -1)

    def __rsub__(self, other: int) -> Index:
        return _sum(Index.of(other), Index.of(self), -1)

    def __mul__(self, factor: int) -> Index:
        return _sum(Index(0, ()), Index.of(self), factor)

    def __rmul__(self, factor: int) -> Index:
        return self * factor

    def __neg__(self) -> Index:
        return self * -1

    def __floordiv__(self, divisor: int) -> Index:
        whole, rest = _divide(Index.of(self), divisor)
        return whole if rest is None else _sum(whole, Index(0, ((Quotient(rest, divisor), 1),)), 1)

    def __mod__(self, divisor: int) -> Index:
        index = Index.of(self)
        whole, rest = _divide(index, divisor)
        return index - whole * divisor if rest is None else Index(0, ((Remainder(rest, divisor), 1),))


@dataclass(frozen=True, slots=True)
class Range(Arithmetic):
    """A name that takes the integers 0 .. extent - 1."""

    name: str
    extent: int

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise DefinitionError("a range's name is an identifier", where="range", got=self.name)
        if not isinstance(self.extent, int) or isinstance(self.extent, bool) or self.extent < 1:
            raise DefinitionError(
                "an extent is a concrete positive integer", where=f"range {self.name}", got=self.extent
            )

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Quotient:
    """`index // divisor`, rounded down."""

    index: Index
    divisor: int

    def __str__(self) -> str:
        return f"{_operand(self.index)} // {self.divisor}"


@dataclass(frozen=True, slots=True)
class Remainder:
    """`index % divisor`, in 0 .. divisor - 1."""

    index: Index
    divisor: int

    def __str__(self) -> str:
        return f"{_operand(self.index)} % {self.divisor}"


@dataclass(frozen=True, slots=True)
class Lookup:
    """An index that is a value: an integer expression that promises to lie in 0 .. extent - 1.

    The promise is checked wherever numbers are known: a run refuses a value outside it.
    """

    value: Expr
    extent: int

    def __str__(self) -> str:
        return f"at({self.value}, {self.extent})"


Atom = Range | Quotient | Remainder | Lookup


@dataclass(frozen=True, slots=True)
class Index(Arithmetic):
    """offset + sum of coefficient * atom. Made by arithmetic, which keeps one spelling: atoms in order, none twice."""

    offset: int
    terms: tuple[tuple[Atom, int], ...]

    @staticmethod
    def of(what: Indexable | Arithmetic) -> Index:
        """An integer, a range or an atom as an index."""
        if isinstance(what, Index):
            return what
        if isinstance(what, int):
            return Index(what, ())
        if isinstance(what, Range | Quotient | Remainder | Lookup):
            return Index(0, ((what, 1),))
        raise DefinitionError("an index is an integer, a range or an index", where="index", got=type(what).__name__)

    @property
    def constant(self) -> int | None:
        """The integer this always is, else None."""
        return None if self.terms else self.offset

    @property
    def range(self) -> Range | None:
        """The range this is, exactly, else None."""
        if self.offset == 0 and len(self.terms) == 1:
            atom, factor = self.terms[0]
            if factor == 1 and isinstance(atom, Range):
                return atom
        return None

    @property
    def affine(self) -> bool:
        """Whether it is affine in ranges: no quotient, no remainder, no gather."""
        return all(isinstance(atom, Range) for atom, _ in self.terms)

    def coefficient(self, of: Range) -> int:
        """The factor of a range outside quotients and remainders."""
        return next((factor for atom, factor in self.terms if atom == of), 0)

    def lookups(self) -> Iterator[Lookup]:
        """Every gather in it, those inside quotients too, not those inside gathers."""
        for atom, _ in self.terms:
            if isinstance(atom, Lookup):
                yield atom
            elif isinstance(atom, Quotient | Remainder):
                yield from atom.index.lookups()

    def ranges(self) -> frozenset[Range]:
        """Every range it follows, through gathers too."""
        found: set[Range] = set()
        for atom, _ in self.terms:
            if isinstance(atom, Range):
                found.add(atom)
            elif isinstance(atom, Lookup):
                found |= atom.value.ranges()
            else:
                found |= atom.index.ranges()
        return frozenset(found)

    def substitute(self, new: Mapping[Range, Index]) -> Index:
        """The same index with ranges replaced, simplified anew."""
        result = Index(self.offset, ())
        for atom, factor in self.terms:
            if isinstance(atom, Range):
                part = new.get(atom, Index.of(atom))
            elif isinstance(atom, Lookup):
                part = Index.of(Lookup(atom.value.substitute(new), atom.extent))
            elif isinstance(atom, Quotient):
                part = atom.index.substitute(new) // atom.divisor
            else:
                part = atom.index.substitute(new) % atom.divisor
            result = result + part * factor
        return result

    def interval(self, guards: Sequence[Guard] = ()) -> Interval:
        """Bounds of its values where all `guards` hold. Never too narrow; exact for affine maps without guards."""
        low = high = self.offset
        left = dict(self.terms)
        for guard in guards:
            bounds = _together(left, guard, guards)
            if bounds is not None:
                low, high = low + bounds[0], high + bounds[1]
                for atom, _ in guard.index.terms:
                    del left[atom]
        for atom, factor in left.items():
            ends = sorted(end * factor for end in _atom_interval(atom, guards))
            low, high = low + ends[0], high + ends[1]
        return _narrow(self, (low, high), guards)

    def __str__(self) -> str:
        lead = self.offset > 0 and all(factor < 0 for _, factor in self.terms)
        text = str(self.offset) if lead else ""
        for atom, factor in self.terms:
            sign = " - " if factor < 0 else " + "
            body = str(atom)
            if isinstance(atom, Quotient | Remainder) and factor != 1:
                body = f"({body})"
            body = body if abs(factor) == 1 else f"{abs(factor)} * {body}"
            text = text + sign + body if text else ("-" if factor < 0 else "") + body
        if not text:
            return str(self.offset)
        return text if lead or not self.offset else f"{text} {'-' if self.offset < 0 else '+'} {abs(self.offset)}"


Indexable = int | Range | Index | Quotient | Remainder | Lookup


@dataclass(frozen=True, slots=True)
class Guard:
    """The condition low <= index < high."""

    index: Index
    low: int
    high: int

    @property
    def always(self) -> bool:
        """Whether it holds for every value of its ranges."""
        low, high = self.index.interval()
        return self.low <= low and high < self.high

    @property
    def never(self) -> bool:
        """Whether no value of its ranges satisfies it."""
        low, high = self.index.interval()
        return high < self.low or low >= self.high

    def substitute(self, new: Mapping[Range, Index]) -> Guard:
        """The same condition with ranges replaced."""
        return Guard(self.index.substitute(new), self.low, self.high)

    def __str__(self) -> str:
        return f"{self.low} <= {self.index} < {self.high}"


def _operand(index: Index) -> str:
    return str(index) if index.range else f"({index})"


def _atom_interval(atom: Atom, guards: Sequence[Guard]) -> Interval:
    if isinstance(atom, Range | Lookup):
        return _narrow(Index.of(atom), (0, atom.extent - 1), guards)
    low, high = atom.index.interval(guards)
    if isinstance(atom, Quotient):
        return low // atom.divisor, high // atom.divisor
    if low // atom.divisor == high // atom.divisor:
        return low % atom.divisor, high % atom.divisor
    return 0, atom.divisor - 1


def _narrow(index: Index, interval: Interval, guards: Sequence[Guard]) -> Interval:
    """The part of an interval that guards on multiples of the same terms leave."""
    low, high = interval
    for guard in guards:
        ratio = _ratio(index, guard.index)
        if ratio:
            ends = sorted(ratio * (end - guard.index.offset) for end in (guard.low, guard.high - 1))
            low = max(low, math.ceil(ends[0]) + index.offset)
            high = min(high, math.floor(ends[1]) + index.offset)
    return low, high


def _together(terms: Mapping[Atom, int], guard: Guard, guards: Sequence[Guard]) -> Interval | None:
    """Bounds of the terms that a guard on several of them bounds: of 2 * x + y where 1 <= x + y, both never negative.

    None where a sign says nothing.
    """
    pairs = [(atom, terms.get(atom, 0), n) for atom, n in guard.index.terms]
    if len(pairs) < 2 or any(factor <= 0 or n <= 0 for _, factor, n in pairs):
        return None
    spans = [_atom_interval(atom, guards) for atom, _, _ in pairs]
    if any(low < 0 for low, _ in spans):
        return None
    low, high = (sum(factor * span[end] for (_, factor, _), span in zip(pairs, spans)) for end in (0, 1))
    ratios = [Fraction(factor, n) for _, factor, n in pairs]
    least, most = guard.low - guard.index.offset, guard.high - 1 - guard.index.offset
    return max(low, math.ceil(min(ratios) * max(least, 0))), min(high, math.floor(max(ratios) * most))


def _ratio(index: Index, other: Index) -> Fraction | None:
    """How many times the terms of `other` those of `index` are, where they are a multiple."""
    if not index.terms or [a for a, _ in index.terms] != [a for a, _ in other.terms]:
        return None
    ratios = {Fraction(n, m) for (_, n), (_, m) in zip(index.terms, other.terms)}
    return ratios.pop() if len(ratios) == 1 else None


def _sum(left: Index, right: Index, factor: int) -> Index:
    """left + factor * right, with a * c * (x // c) + a * (x % c) brought together as a * x."""
    terms = dict(left.terms)
    for atom, count in right.terms:
        terms[atom] = terms.get(atom, 0) + factor * count
    offset = left.offset + factor * right.offset
    for atom in list(terms):
        if isinstance(atom, Remainder) and terms.get(atom):
            twin = Quotient(atom.index, atom.divisor)
            if terms.get(twin) == terms[atom] * atom.divisor:
                count = terms.pop(atom)
                del terms[twin]
                return _sum(Index(offset, _ordered(terms)), atom.index, count)
    return Index(offset, _ordered(terms))


def _ordered(terms: Mapping[Atom, int]) -> tuple[tuple[Atom, int], ...]:
    return tuple(sorted(((atom, n) for atom, n in terms.items() if n), key=lambda term: (str(term[0]), term[1])))


def _divide(index: Index, divisor: int) -> tuple[Index, Index | None]:
    """`index` as divisor * whole + rest; rest is None where it lies in 0 .. divisor - 1 and so divides to zero."""
    if not isinstance(divisor, int) or divisor < 1:
        raise DefinitionError("an index is divided by a positive integer", where=str(index), got=divisor)
    whole = {atom: n // divisor for atom, n in index.terms if n % divisor == 0}
    rest = {atom: n for atom, n in index.terms if n % divisor}
    low, high = Index(0, _ordered(rest)).interval()
    steps = (index.offset + low) // divisor
    if steps == (index.offset + high) // divisor:
        return Index(steps, _ordered(whole)), None
    steps = index.offset // divisor
    return Index(steps, _ordered(whole)), Index(index.offset - steps * divisor, _ordered(rest))
