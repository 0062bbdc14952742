"""Symbolic sizes: they stand for numbers that a call's arguments decide, and for arithmetic on those numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kohakuaccel.diagnostics import Refusal

_SYMBOL = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%"}
Scalar = int | float


class DimExpr:
    """A size, or arithmetic over sizes and numbers, that gets its value when a call solves the dims."""

    def value(self, sizes: Mapping[str, int]) -> Scalar:
        """The number this expression has under `sizes` (dim name -> extent)."""
        raise TypeError(f"{type(self).__name__} has no value")

    def __add__(self, other: DimExpr | Scalar) -> DimExpr:
        return _Binary("add", self, other)

    def __radd__(self, other: Scalar) -> DimExpr:
        return _Binary("add", other, self)

    def __sub__(self, other: DimExpr | Scalar) -> DimExpr:
        return _Binary("sub", self, other)

    def __rsub__(self, other: Scalar) -> DimExpr:
        return _Binary("sub", other, self)

    def __mul__(self, other: DimExpr | Scalar) -> DimExpr:
        return _Binary("mul", self, other)

    def __rmul__(self, other: Scalar) -> DimExpr:
        return _Binary("mul", other, self)

    def __truediv__(self, other: DimExpr | Scalar) -> DimExpr:
        return _Binary("truediv", self, other)

    def __rtruediv__(self, other: Scalar) -> DimExpr:
        return _Binary("truediv", other, self)

    def __floordiv__(self, other: DimExpr | int) -> DimExpr:
        return _Binary("floordiv", self, other)

    def __rfloordiv__(self, other: int) -> DimExpr:
        return _Binary("floordiv", other, self)

    def __mod__(self, other: DimExpr | int) -> DimExpr:
        return _Binary("mod", self, other)

    def __neg__(self) -> DimExpr:
        return _Binary("sub", 0, self)


@dataclass(frozen=True, slots=True)
class Dim(DimExpr):
    """One named size."""

    name: str

    def value(self, sizes: Mapping[str, int]) -> Scalar:
        if self.name not in sizes:
            raise Refusal(
                "a size used in the kernel appears in no port",
                where=f"dim {self.name}",
                hint="declare a port whose shape names it",
            )
        return sizes[self.name]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class _Binary(DimExpr):
    op: str
    left: DimExpr | Scalar
    right: DimExpr | Scalar

    def value(self, sizes: Mapping[str, int]) -> Scalar:
        a = self.left.value(sizes) if isinstance(self.left, DimExpr) else self.left
        b = self.right.value(sizes) if isinstance(self.right, DimExpr) else self.right
        match self.op:
            case "add":
                return a + b
            case "sub":
                return a - b
            case "mul":
                return a * b
            case "truediv":
                return a / b
            case _:
                if b == 0:
                    raise Refusal(
                        "a size is divided by a size above zero",
                        where=str(self),
                        hint="check the shapes of the arguments",
                    )
                return a // b if self.op == "floordiv" else a % b

    def __str__(self) -> str:
        return f"({self.left} {_SYMBOL[self.op]} {self.right})"


def dims(names: str) -> tuple[Dim, ...]:
    """Dims from a comma- or space-separated list: `M, K, N = dims("M, K, N")`."""
    listed = names.replace(",", " ").split()
    if not listed or not all(name.isidentifier() for name in listed):
        raise Refusal(
            "a dim is named like a Python variable",
            where="dims",
            got=repr(names),
            hint='write dims("M, K, N")',
        )
    if len(set(listed)) != len(listed):
        raise Refusal("every dim of one list has its own name", where="dims", got=repr(names))
    return tuple(Dim(name) for name in listed)
