"""The descriptor of a fill: fields of datasheet 10, walked as 3.4 says. It must not know what is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

from .errors import Raised
from .formats import bits


def signed(value: int, width: int) -> int:
    return value - (1 << width) if value >> (width - 1) else value


@dataclass
class Descriptor:
    """One of the four (10): walked with dimension 0 outermost (3.4)."""

    base: int = 0
    ndim: int = 0
    dims: list[tuple[int, int, int, int]] = field(default_factory=lambda: [(0, 0, 0, 0)] * 6)
    axes: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))

    def write(self, which: int, value: int) -> None:
        if which == 0:
            if bits(value, 42, 40) > 6:
                raise Raised("FIELD", bits(value, 42, 40))
            self.base, self.ndim = bits(value, 39, 0), bits(value, 42, 40)
        elif which == 7:
            half = [bits(value, low + 15, low) for low in (0, 16, 32, 48)]
            self.axes = ((signed(half[0], 16), half[1]), (signed(half[2], 16), half[3]))
        else:
            axis = bits(value, 49, 48)
            if axis == 3:
                raise Raised("FIELD", axis)
            stride, step = signed(bits(value, 47, 16), 32), signed(bits(value, 65, 50), 16)
            self.dims[which - 1] = (bits(value, 15, 0), stride, axis, step)

    def lanes(self) -> list[int | None]:
        """The address of every element of the walk, None where it does not exist."""
        used = self.dims[: self.ndim]
        found: list[int | None] = []
        for index in product(*(range(count or 1) for count, _, _, _ in used)):
            address, position = self.base, [first for first, _ in self.axes]
            for i, (_, stride, axis, step) in zip(index, used):
                address += i * stride
                if axis:
                    position[axis - 1] += i * step
            inside = all(extent == 0 or 0 <= at < extent for at, (_, extent) in zip(position, self.axes))
            found.append(address if inside else None)
        return found
