"""Axes of a flat buffer, found in the strides that it is read with.

Decides which shape a kernel's reads say a buffer has, and where in it a flat place is: guards and bounds are per axis,
and a flat index loses them. It must not know tinygrad.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kohakuaccel.graph import Guard, Index
from kohakuaccel.graph.rewrite.axes import chain

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Place:
    """A flat place in a buffer, and the conditions under which it is one."""

    flat: Index
    guards: tuple[Guard, ...] = ()


def shape_of(size: int, places: Iterable[Place]) -> Shape:
    """The shape whose strides are the steps of affine reads, as far as these divide one another and the size.

    A step over which the places of a read that takes it run is none: two places overlap where windows of 3 are 2 apart.
    """
    affine = [p for p in places if p.flat.affine]
    kept = chain(size, {abs(factor) for p in affine for _, factor in p.flat.terms})
    strides = [1]
    for step in reversed(kept):
        taking = [p for p in affine if any(abs(factor) == step for _, factor in p.flat.terms)]
        if all(_fits(p, strides[-1], step) for p in taking):
            strides.append(step)
    ends = [size, *reversed(strides)]
    return tuple(outer // inner for outer, inner in pairwise(ends))


def _fits(place: Place, stride: int, over: int) -> bool:
    """Whether what a place's terms between two strides add up to stays within an axis between these."""
    part, offset = Index.of(0), place.flat.offset
    for atom, factor in place.flat.terms:
        if abs(factor) < over and factor % stride == 0:
            part = part + Index.of(atom) * (factor // stride)
    low, high = part.interval(place.guards)
    extent = over // stride
    # What is carried from below is not known, and one at most.
    return any((low + own) // extent == (high + own) // extent for own in (offset // stride, offset // stride + 1))


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
