"""Shapes: numpy's broadcasting, axis and reshape rules as pure functions, with refusals that show both
shapes.

Decides how operand shapes combine. It must not know tensors, values or devices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kohakuaccel.diagnostics import Refusal

Shape = tuple[int, ...]


def size_of(shape: Shape) -> int:
    """Number of elements of a shape; a scalar has one."""
    return math.prod(shape)


def broadcast(a: Shape, b: Shape, where: str) -> Shape:
    """The shape both operands stretch to (numpy's rule), or a Refusal that shows them."""
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        raise Refusal(
            "operand shapes broadcast: axes, counted from the last, are equal or 1",
            where=where,
            got=f"{a} and {b}",
            hint="reshape one operand",
        ) from None


def trailing(small: Shape, full: Shape) -> int | None:
    """Elements of `small` if it is a block of `full`'s last axes repeated over the others, else None.

    Axes of length 1 in front do not matter: (3,), (1, 3) and (1, 1, 3) all repeat along (5, 3). Lengths that
    do not stretch, as in (4, 1) against (4, 1), are part of the block.
    """
    count = size_of(small)
    stripped = small
    while stripped and stripped[0] == 1:
        stripped = stripped[1:]
    return count if stripped and full[len(full) - len(stripped) :] == stripped else None


def normalise_axes(axis: int | Sequence[int] | None, ndim: int, where: str) -> Shape:
    """Axes as sorted non-negative numbers; None is all of them. Refusal for one out of range or named
    twice. A scalar answers to axis 0 and -1, as in numpy."""
    if axis is None or (ndim == 0 and axis in (0, -1)):
        return tuple(range(ndim))
    wanted = tuple(axis) if isinstance(axis, Sequence) else (axis,)
    found: list[int] = []
    for one in wanted:
        if not isinstance(one, (int, np.integer)) or isinstance(one, bool):
            raise Refusal("an axis is an integer", where=where, got=repr(one))
        if not -ndim <= one < ndim:
            raise Refusal("an axis exists in the tensor", where=where, got=f"axis {one}", limit=f"{ndim} axes")
        found.append(int(one) % ndim)
    if len(set(found)) != len(found):
        raise Refusal("an axis is named once", where=where, got=f"axes {wanted}")
    return tuple(sorted(found))


def as_shape(wanted: Sequence[int | Sequence[int]], where: str) -> Shape:
    """A shape given as one tuple or as separate integers. -1 is passed through, other negatives are
    refused."""
    flat: Sequence[object] = wanted
    if len(wanted) == 1 and isinstance(wanted[0], Sequence):
        flat = wanted[0]
    shape: list[int] = []
    for one in flat:
        if not isinstance(one, (int, np.integer)) or isinstance(one, bool) or one < -1:
            raise Refusal("a shape is made of integers of at least 0", where=where, got=repr(one))
        shape.append(int(one))
    return tuple(shape)


def resolve_reshape(wanted: Shape, size: int) -> Shape:
    """`wanted` with its one -1 replaced so that it has `size` elements; Refusal if that cannot be."""
    unknown = wanted.count(-1)
    known = size_of(tuple(n for n in wanted if n != -1))
    fits = known == size if unknown == 0 else unknown == 1 and known > 0 and size % known == 0
    if not fits:
        raise Refusal("a reshape keeps the number of elements", where="reshape", got=wanted, limit=f"{size} elements")
    return tuple(size // known if n == -1 else n for n in wanted)


def keeps_order(shape: Shape, axes: Shape) -> bool:
    """Whether permuting `shape` by `axes` leaves the flattened order of elements as it is."""
    long = [axis for axis in axes if shape[axis] != 1]
    return long == sorted(long)
