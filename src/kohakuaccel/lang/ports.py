"""Ports: what enters and leaves a kernel. A port is declared as a parameter's default and handed to the body.

A leading `...` absorbs axes that the kernel does not tile. A port decides nothing about layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import EllipsisType
from typing import Literal, Never, Self

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang.dims import Dim
from kohakuaccel.lang.indices import IndexExpr
from kohakuaccel.lang.trace import user_line
from kohakuaccel.lang.values import Value, View

Axis = Dim | int


@dataclass(frozen=True, eq=False, slots=True)
class Tiling:
    """A port cut along one of its axes: `kind` and `size` are the machine language's terms."""

    port: Port
    kind: str
    size: int

    def __str__(self) -> str:
        return f"{self.port.name}.{self.kind}({self.size if self.size else ''})"


class Port(Value):
    """A tensor of a kernel. shape: dims or integers, optionally led by `...`; direction: in, out, temp or table."""

    direction: Literal["in", "out", "temp", "table"] = "in"

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
        self.turned_from: Port | None = None
        self.turned = False

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

    def each(self, axis: int) -> Tiling:
        """The positions along one of the port's axes, one by one (counted from the front, `...` not counted)."""
        if not 0 <= axis < len(self.axes):
            raise Refusal(
                "an axis is one that the port declares",
                where=f"{self.name}.each",
                got=axis,
                limit=f"0..{len(self.axes) - 1}",
                source=user_line(),
            )
        return Tiling(self, "each", axis)

    @property
    def T(self) -> Self:
        """The port with its last two axes exchanged, as a matmul operand: `v.T[j, k]`, `v.T.tiles(g)`."""
        if len(self.axes) < 2:
            raise Refusal("a transposed port has two axes", where=self.declaration, source=user_line())
        shape: tuple[Axis | EllipsisType, ...] = (*self.axes[:-2], self.axes[-1], self.axes[-2])
        turned = type(self)(*((..., *shape) if self.batched else shape))
        turned.name = f"{self.name}.T"
        turned.turned_from = self.turned_from if self.turned_from is not None else self
        turned.turned = not self.turned
        return turned

    def __getitem__(self, index: IndexExpr | int | tuple[IndexExpr | int, ...]) -> View:
        picked = index if isinstance(index, tuple) else (index,)
        for i in picked:
            if not isinstance(i, IndexExpr | int) or isinstance(i, bool):
                raise Refusal(
                    "a port is indexed by indices of its stage and loops, numbers, and arithmetic on them",
                    where=f"{self.name}[...]",
                    got=repr(i),
                    hint="open a grid or sweep over one of its tilings and use what it yields",
                    source=user_line(),
                )
        return View(self, picked)

    def __setitem__(self, index: IndexExpr | int | tuple[IndexExpr | int, ...], value: View) -> None:
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
        word = self.direction if self.direction in ("temp", "table") else self.direction.capitalize()
        return f"{self.name} {word}({','.join(axes)})"
