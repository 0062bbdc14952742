"""Ports: what enters and leaves a kernel. A port is declared as a parameter's default and handed to the body.

A leading `...` absorbs axes that the kernel does not tile. A port decides nothing about layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import EllipsisType
from typing import Literal, Never, Self

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang.dims import Dim
from kohakuaccel.lang.trace import Index, user_line
from kohakuaccel.lang.values import Value, View

Axis = Dim | int


@dataclass(frozen=True, eq=False, slots=True)
class Tiling:
    """A port cut along one of its axes: `kind` and `size` are the machine language's terms, `count` may be fixed."""

    port: Port | None
    kind: str
    size: int

    def __str__(self) -> str:
        if self.port is None:
            return f"{self.size}"
        return f"{self.port.name}.{self.kind}({self.size if self.size else ''})"


class Port(Value):
    """A tensor parameter. shape: dims or integers, optionally led by `...`; direction: "in" or "out"."""

    direction: Literal["in", "out"] = "in"

    def __init__(self, *shape: Axis | EllipsisType) -> None:
        leading = bool(shape) and shape[0] is Ellipsis
        axes = shape[1:] if leading else shape
        for axis in axes:
            if (
                isinstance(axis, EllipsisType)
                or not isinstance(axis, Dim | int)
                or (isinstance(axis, int) and axis < 1)
            ):
                raise Refusal(
                    "a port's shape is dims and positive integers, with `...` only in front",
                    where="port",
                    got=axis,
                    hint="write In(..., M, N)",
                    source=user_line(),
                )
        self.batched = leading
        self.axes: tuple[Axis, ...] = tuple(a for a in axes if not isinstance(a, EllipsisType))
        self.name = "?"

    def named(self, name: str) -> Self:
        """A fresh handle of the same declaration, under the parameter's name."""
        shape: tuple[Axis | EllipsisType, ...] = (..., *self.axes) if self.batched else self.axes
        handle = type(self)(*shape)
        handle.name = name
        return handle

    @property
    def contiguous(self) -> bool:
        """Declared as In(...): one block of whatever rank arrives."""
        return self.batched and not self.axes

    def __getitem__(self, index: Index | tuple[Index, ...]) -> View:
        picked = index if isinstance(index, tuple) else (index,)
        for i in picked:
            if not isinstance(i, Index):
                raise Refusal(
                    "a port is indexed by the indices of its stage and loops",
                    where=f"{self.name}[...]",
                    got=repr(i),
                    hint="open a grid or sweep over one of its tilings and use what it yields",
                    source=user_line(),
                )
        return View(self, picked)

    def __setitem__(self, index: Index | tuple[Index, ...], value: View) -> None:
        """Second half of `port[i] <<= value`; a plain `port[i] = value` is refused."""
        picked = index if isinstance(index, tuple) else (index,)
        if not (isinstance(value, View) and value.port is self and value.index == picked):
            raise Refusal(
                "a kernel writes with <<=, not with =",
                where=f"{self.name}[...]",
                hint=f"write {self.name}[...] <<= value",
                source=user_line(),
            )

    def __matmul__(self, other: object) -> Never:
        raise Refusal(
            "a contraction between whole buffers states no split",
            where=f"{self.name} @ {getattr(other, 'name', other)}",
            hint="index both inside a grid and a sweep, or call matmul at the tensor level",
            source=user_line(),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def declaration(self) -> str:
        """The port as it was declared: `x In(...,M,N)`."""
        axes = ["..."] if self.batched else []
        axes += [str(a) for a in self.axes]
        word = "In" if self.direction == "in" else "Out"
        return f"{self.name} {word}({','.join(axes)})"
