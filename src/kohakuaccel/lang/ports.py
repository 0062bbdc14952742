"""Ports: what enters and leaves a kernel. A port is declared as a parameter's default and handed to the body.

A leading `...` absorbs axes that the kernel does not tile. A port decides nothing about layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import EllipsisType
from typing import Literal, Never, Self

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang.dims import Dim, DimExpr
from kohakuaccel.lang.indices import IndexExpr
from kohakuaccel.lang.trace import user_line
from kohakuaccel.lang.values import Value, View

Axis = DimExpr | int
"""A declared extent: a dim, a number, or (where nothing has to be solved: outputs, temporaries) arithmetic on dims."""


Picked = IndexExpr | int | slice


@dataclass(frozen=True, eq=False, slots=True)
class Tiling:
    """A port cut along one of its axes: `kind` and `size` are the machine language's terms."""

    port: Port
    kind: str
    size: int

    def __str__(self) -> str:
        if isinstance(self.port, Span):
            return self.port.name
        return f"{self.port.name}.{self.kind}({self.size if self.size else ''})"


class Port(Value):
    """A tensor of a kernel. shape: dims or integers, optionally led by `...`; direction: in, out, temp or table."""

    direction: Literal["in", "out", "temp", "table"] = "in"
    inside_tile = False
    """Whether this stands for a tile that the enclosing stage holds, and not for a tensor in memory."""

    def __init__(self, *shape: Axis | EllipsisType) -> None:
        leading = bool(shape) and shape[0] is Ellipsis
        axes = shape[1:] if leading else shape
        for axis in axes:
            if (
                isinstance(axis, EllipsisType)
                or not isinstance(axis, DimExpr | int)
                or (self.direction == "in" and isinstance(axis, DimExpr) and not isinstance(axis, Dim))
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
        self.optional = False
        self.turned_from: Port | None = None
        self.turned = False
        self.stored = ""
        """How its values are stored where its author says so: "float16" or "float32"."""
        self.same_as: Port | None = None
        """The port whose elements, in the same order, this handle reads under another shape."""

    def named(self, name: str) -> Self:
        """A fresh handle of the same declaration, under the parameter's name."""
        shape: tuple[Axis | EllipsisType, ...] = (..., *self.axes) if self.batched else self.axes
        handle = type(self)(*shape)
        handle.name = name
        handle.optional = self.optional
        handle.stored = self.stored
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

    def __getitem__(self, index: Picked | tuple[Picked, ...]) -> View:
        """One instance's part; a slice behind the indices takes columns of a row: `x[r, 3:7]`."""
        whole = index if isinstance(index, tuple) else (index,)
        columns = None
        if whole and isinstance(whole[-1], slice):
            columns, whole = _columns(self, whole[-1]), whole[:-1]
        picked: list[IndexExpr | int] = []
        for i in whole:
            if not isinstance(i, IndexExpr | int) or isinstance(i, bool):
                raise Refusal(
                    "a port is indexed by indices of its stage and loops, numbers, and arithmetic on them",
                    where=f"{self.name}[...]",
                    got=repr(i),
                    hint="open a grid or sweep over one of its tilings and use what it yields",
                    source=user_line(),
                )
            picked.append(i)
        return View(self, tuple(picked), columns)

    def __setitem__(self, index: Picked | tuple[Picked, ...], value: View) -> None:
        """Second half of `port[i] <<= value`; a plain `port[i] = value` is refused."""
        here = self[index]
        if not (
            isinstance(value, View)
            and value.port is self
            and value.index == here.index
            and value.columns == here.columns
        ):
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
        return f"{self.name} {word}({','.join(axes)}{', optional' if self.optional else ''})"


class Span(Port):
    """Whole numbers from 0 up to an extent, where no port has an axis of that length: `grid(n, x.rows())`."""

    direction: Literal["in", "out", "temp", "table"] = "temp"


def span(extent: Axis) -> Tiling:
    """The numbers 0 .. extent - 1, one by one."""
    numbers = Span(extent)
    numbers.name = f"0..{extent}"
    return Tiling(numbers, "each", 0)


def _columns(port: Port, part: slice) -> tuple[Axis | None, Axis | None]:
    """The two ends of a column range. Refused: a step, ends that are neither sizes nor whole numbers from 0 on."""
    for end in (part.start, part.stop):
        if end is not None and (not isinstance(end, DimExpr | int) or isinstance(end, bool)):
            raise Refusal(
                "columns are picked by numbers and sizes known while tracing",
                where=f"{port.name}[..., {part.start}:{part.stop}]",
                got=repr(end),
                hint="make it a knob, or pick rows of the transposed port",
                source=user_line(),
            )
    if part.step not in (None, 1):
        raise Refusal(
            "columns are picked as one stretch",
            where=f"{port.name}[..., {part.start}:{part.stop}:{part.step}]",
            got=f"step {part.step}",
            hint="pick rows of the transposed port: x.T[r * step], then transpose back",
            source=user_line(),
        )
    return part.start, part.stop
