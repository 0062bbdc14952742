"""Axes of a flat buffer, found in the strides that it is read with.

Decides which shape a kernel's reads say a buffer has, and where in it a flat place is: guards and bounds are per axis,
and a flat index loses them. It must not know tinygrad.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from kohakuaccel.graph import Guard, Index

Shape = tuple[int, ...]


def shape_of(size: int, flats: Iterable[Index]) -> Shape:
    """The shape whose strides are the steps of affine reads, as far as these divide one another and the size."""
    steps = sorted({abs(factor) for flat in flats if flat.affine for _, factor in flat.terms}, reverse=True)
    kept: list[int] = []
    over = size
    for step in steps:
        if 1 < step < over and over % step == 0:
            kept.append(step)
            over = step
    ends = [size, *kept, 1]
    return tuple(outer // inner for outer, inner in pairwise(ends))


def arranged(flat: Index, guards: Sequence[Guard], shape: Shape) -> tuple[Index, ...] | None:
    """Indices per axis, each in bounds where the guards hold, that lead to the flat place; None where none do."""
    strides = [1]
    for n in reversed(shape[1:]):
        strides.insert(0, strides[0] * n)
    parts = [Index.of(0)] * len(shape)
    for atom, factor in flat.terms:
        at = next(n for n, s in enumerate(strides) if factor % s == 0)
        parts[at] = parts[at] + Index.of(atom) * (factor // strides[at])
    return _settled(parts, flat.offset, guards, shape, strides)


def _settled(
    parts: list[Index], offset: int, guards: Sequence[Guard], shape: Shape, strides: list[int]
) -> tuple[Index, ...] | None:
    """The offset divided among the axes so that each stays in bounds."""
    low, high = parts[0].interval(guards)
    if len(parts) == 1:
        inside = low + offset >= 0 and high + offset < shape[0]
        return (parts[0] + offset,) if inside else None
    whole = offset // strides[0]
    for own in (whole, whole + 1):
        if low + own >= 0 and high + own < shape[0]:
            rest = _settled(parts[1:], offset - own * strides[0], guards, shape[1:], strides[1:])
            if rest is not None:
                return (parts[0] + own, *rest)
    return None
