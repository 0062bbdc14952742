"""Symbolic indices and arithmetic on them: what a stage's instance or a loop's iteration is called in a kernel body.

They get numbers (or arrays, one per instance) when a schedule is built. They know no machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.lang.dims import Dim, DimExpr

if TYPE_CHECKING:
    from kohakuaccel.lang.ports import Tiling

Numbers = NDArray[np.int64]
_SYMBOL = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}
_NAMED = {"min": "least", "max": "greatest"}


class IndexExpr:
    """An index, or integer arithmetic over indices, sizes and numbers (an index stands on the left of a size)."""

    def __add__(self, other: IndexExpr | DimExpr | int) -> IndexExpr:
        return IndexOp("add", self, other)

    def __radd__(self, other: int) -> IndexExpr:
        return IndexOp("add", other, self)

    def __sub__(self, other: IndexExpr | DimExpr | int) -> IndexExpr:
        return IndexOp("sub", self, other)

    def __rsub__(self, other: int) -> IndexExpr:
        return IndexOp("sub", other, self)

    def __mul__(self, other: IndexExpr | DimExpr | int) -> IndexExpr:
        return IndexOp("mul", self, other)

    def __rmul__(self, other: int) -> IndexExpr:
        return IndexOp("mul", other, self)

    def __floordiv__(self, other: IndexExpr | DimExpr | int) -> IndexExpr:
        return IndexOp("floordiv", self, other)

    def __mod__(self, other: IndexExpr | DimExpr | int) -> IndexExpr:
        return IndexOp("mod", self, other)

    def __index__(self) -> int:
        raise Refusal(
            "a symbolic index has no number while tracing",
            where=str(self),
            hint="use it to index a port, as a loop bound, or in arithmetic with other indices",
        )


@dataclass(frozen=True, eq=False, slots=True)
class Index(IndexExpr):
    """The instance number along one axis of a stage, or the iteration of a loop over `over`."""

    name: str
    over: Tiling | IndexExpr | DimExpr | int
    source: SourceLine

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False, slots=True)
class IndexOp(IndexExpr):
    op: str
    left: IndexExpr | DimExpr | int
    right: IndexExpr | DimExpr | int

    def __str__(self) -> str:
        if self.op in _NAMED:
            return f"{_NAMED[self.op]}({self.left}, {self.right})"
        return f"({self.left} {_SYMBOL[self.op]} {self.right})"


def least(a: IndexExpr, b: IndexExpr | DimExpr | int) -> IndexExpr:
    """The smaller of two indices."""
    return IndexOp("min", a, b)


def greatest(a: IndexExpr, b: IndexExpr | DimExpr | int) -> IndexExpr:
    """The larger of two indices."""
    return IndexOp("max", a, b)


@dataclass(frozen=True, eq=False, slots=True)
class Lookup(IndexExpr):
    """The number that a table known while tracing holds at an index."""

    numbers: tuple[int, ...]
    at: IndexExpr | int

    def __str__(self) -> str:
        return f"lookup[{self.at}]"


class IndexTable:
    """Whole numbers known while tracing, looked up by index: `order = lookup([2, 0, 1]); y[r] <<= x[order[r]]`."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self.numbers = tuple(int(n) for n in numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, at: IndexExpr | int) -> IndexExpr:
        return Lookup(self.numbers, at)


def lookup(numbers: Iterable[int]) -> IndexTable:
    """A table of whole numbers that indices can be looked up in."""
    return IndexTable(numbers)


Known = Mapping[Index | Dim, Numbers | int]
"""Indices' numbers (arrays where there is one per instance), and sizes."""


def evaluate(index: IndexExpr | DimExpr | int, known: Known) -> Numbers | int:
    """The number of an index expression under `known`, elementwise where those are arrays.

    Raises KeyError(index) for an index that has none there.
    """
    if isinstance(index, Index):
        return known[index]
    if isinstance(index, DimExpr):
        return int(index.value({d.name: int(n) for d, n in known.items() if isinstance(d, Dim)}))
    if isinstance(index, Lookup):
        at = np.asarray(evaluate(index.at, known), np.int64)
        if at.size and (int(at.min()) < 0 or int(at.max()) >= len(index.numbers)):
            raise Refusal(
                "a looked-up position lies in its table",
                where=str(index),
                got=f"{int(at.min())}..{int(at.max())}",
                limit=f"0..{len(index.numbers) - 1}",
                hint="make the table as long as the axis",
            )
        return np.array(index.numbers, np.int64)[at]
    if not isinstance(index, IndexOp):
        return int(index)
    a, b = evaluate(index.left, known), evaluate(index.right, known)
    match index.op:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "min":
            return np.minimum(a, b)
        case "max":
            return np.maximum(a, b)
        case _:
            if not np.all(np.asarray(b) > 0):
                raise Refusal("an index is divided by a number above zero", where=str(index), got=int(np.min(b)))
            return a // b if index.op == "floordiv" else a % b
