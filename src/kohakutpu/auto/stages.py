"""Stages as values: what one pass of the machine computes, from which views, into what.

Decides nothing; the search for them is in `rows`, `tiles` and `fusion`, their writing in `emit`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kohakuaccel.graph import Expr, Index, Read, Statement
from kohakutpu.auto.access import Ranges, View, size
from kohakutpu.auto.expressions import reads


@dataclass(frozen=True, kw_only=True)
class Stage(ABC):
    """One pass: `root` is the value it stores, `members` the statements it computes."""

    root: Statement
    members: tuple[str, ...]
    why: str = ""

    @property
    @abstractmethod
    def reads(self) -> tuple[str, ...]:
        """Values it takes from memory."""


@dataclass(frozen=True, kw_only=True)
class PartsStage(Stage):
    """Elements one by one, in whatever byte order the operands share."""

    body: Expr

    @property
    def reads(self) -> tuple[str, ...]:
        return _names(reads(self.body))


@dataclass(frozen=True, kw_only=True)
class RowPart:
    """Rows along `columns` for every point of `rows`, stored at row `place` of the result."""

    rows: Ranges
    columns: Ranges
    body: Expr
    views: Mapping[Read, View]
    place: Index


@dataclass(frozen=True, kw_only=True)
class RowStage(Stage):
    """A result of `count` rows of `width` elements (0: one number each), made in parts that cover it once."""

    count: int
    width: int
    parts: tuple[RowPart, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        return _names([r for part in self.parts for r in part.views])


@dataclass(frozen=True, kw_only=True)
class Product:
    """One accumulator: operand views over (rows, inner) and (columns, inner), once for every point of `outer`."""

    name: str
    left: tuple[Read, View]
    right: tuple[Read, View]
    inner: Ranges
    outer: Ranges


class Extents(NamedTuple):
    """`batch` sums of `terms` products m x n x k."""

    m: int
    n: int
    k: int
    batch: int
    terms: int

    def __str__(self) -> str:
        return " x ".join([f"{n}" for n in (self.batch, self.terms) if n > 1] + [f"{self.m}x{self.n}x{self.k}"])


Beside = tuple[Literal["whole", "row", "column"], View]
"""How an operand meets an accumulator: of the result's shape, or one value a row or a column."""


@dataclass(frozen=True, kw_only=True)
class TileStage(Stage):
    """Matrices `rows` x `columns` for every point of `lead`; `body` is an expression over accumulators."""

    body: Expr
    lead: Ranges
    rows: Ranges
    columns: Ranges
    products: tuple[Product, ...]
    beside: Mapping[Read, Beside]

    @property
    def reads(self) -> tuple[str, ...]:
        return _names([*(r for p in self.products for r in (p.left[0], p.right[0])), *self.beside])

    @property
    def deepest(self) -> Extents:
        """The extents of the product that folds most."""
        product = max(self.products, key=lambda p: size((*p.outer, *p.inner)))
        high, wide, batch = (size(ranges) for ranges in (self.rows, self.columns, self.lead))
        return Extents(high, wide, size(product.inner), batch, size(product.outer))


def _names(found: list[Read]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(r.value for r in found))
