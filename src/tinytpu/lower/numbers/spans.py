"""The least and greatest integer that an operation gives, before it is brought into its format.

Decides spans from those of the operands alone; never too narrow. It must not know instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

Span = tuple[int, int]
"""Least and greatest, both included."""


def joined(*spans: Span) -> Span:
    return min(low for low, _ in spans), max(high for _, high in spans)


def holds(outer: Span, inner: Span) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _corners(what: Callable[[int, int], int], a: Span, b: Span) -> Span:
    found = [what(x, y) for x in a for y in b]
    return min(found), max(found)


def _size(a: Span) -> int:
    return max(abs(a[0]), abs(a[1]))


def _length(*spans: Span) -> int:
    """Bits that hold every number in two's complement, its sign not counted."""
    return max((n if n >= 0 else ~n).bit_length() for span in spans for n in span)


def _bits(a: Span, b: Span) -> Span:
    top = 1 << _length(a, b)
    return -top if min(a[0], b[0]) < 0 else 0, top - 1


def _and(a: Span, b: Span) -> Span:
    bounds = [high for low, high in (a, b) if low >= 0]  # what is not negative bounds the result
    return (0, min(bounds)) if bounds else _bits(a, b)


def _quotient(a: Span, b: Span) -> Span:
    if b[0] >= 0:
        return min(0, a[0]), max(0, a[1])
    return -_size(a), _size(a)


def _remainder(a: Span, b: Span) -> Span:
    most = min(max(0, _size(b) - 1), _size(a))
    return -most if a[0] < 0 else 0, most if a[1] > 0 else 0


def _floor_remainder(a: Span, b: Span) -> Span:
    if a[0] >= 0 and b[0] >= 0:
        return _remainder(a, b)
    return min(0, b[0] + 1), max(0, b[1] - 1)


def _left(a: Span, b: Span) -> Span:
    least, most = max(0, min(b[0], 64)), max(0, min(b[1], 64))
    low = a[0] << (most if a[0] < 0 else least)
    return (low if b[0] >= 0 and b[1] < 32 else min(0, low)), max(0, a[1] << most)


def _right(a: Span, b: Span) -> Span:
    least = max(0, min(b[0], 64))
    if b[0] == b[1] and b[0] >= 0:
        return a[0] >> least, a[1] >> least
    return 0 if a[0] >= 0 else min(a[0] >> least, -1), max(a[1] >> least, 0)


_SPANS: Mapping[str, Callable[..., Span]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": lambda a, b: _corners(lambda x, y: x * y, a, b),
    "neg": lambda a: (-a[1], -a[0]),
    "abs": lambda a: (0 if a[0] <= 0 <= a[1] else min(abs(a[0]), abs(a[1])), _size(a)),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "and": _and,
    "or": _bits,
    "xor": _bits,
    "quot": _quotient,
    "rem": _remainder,
    "wdiv": lambda a, b: joined(_quotient(a, b), (-_size(a) if a[0] < 0 or b[0] < 0 else 0, 0)),
    "wmod": _floor_remainder,
    "shl": _left,
    "shr": _right,
}
_SPANS = {**_SPANS, "idiv": _SPANS["wdiv"], "mod": _SPANS["wmod"]}


def span_of(name: str, args: Sequence[Span]) -> Span:
    """The span of an operation of integers over operands of these spans."""
    return _SPANS[name](*args)
