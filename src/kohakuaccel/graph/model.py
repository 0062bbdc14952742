"""The graph: named values in order, each an input, a constant or a statement, and which of them leave it.

Decides what a program of tensor expressions is. It must not know byte order, placement or time. `verify` decides
whether one is right; constructors only refuse what has no meaning at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kohakuaccel.diagnostics import DefinitionError, Refusal, did_you_mean
from kohakuaccel.graph.dtypes import DType, Kind, numpy_of
from kohakuaccel.graph.expr import Expr
from kohakuaccel.graph.index import Range

ReduceOp = Literal["sum", "max", "min", "prod"]
REDUCE_OPS: tuple[ReduceOp, ...] = ("sum", "max", "min", "prod")
NUMPY: Mapping[Kind, np.dtype[Any]] = {
    "real": np.dtype("<f8"),
    "int": np.dtype("<i8"),
    "bool": np.dtype("?"),
}
"""What numbers written in an expression are held in, by kind; a word's number is a cast integer."""

Shape = tuple[int, ...]


def reduce_op(name: str) -> ReduceOp:
    """The fold called `name`."""
    for op in REDUCE_OPS:
        if name == op:
            return op
    raise Refusal(f"a fold is one of {', '.join(REDUCE_OPS)}", where="graph", got=name)


@dataclass(frozen=True, slots=True)
class Input:
    """A value given to every run."""

    name: str
    shape: Shape
    dtype: DType


@dataclass(frozen=True, slots=True)
class Constant:
    """A value known now: `data` holds its elements in row-major order, little-endian, as `numpy_of` its format."""

    name: str
    shape: Shape
    dtype: DType
    data: bytes

    @staticmethod
    def of(name: str, values: ArrayLike, dtype: DType) -> Constant:
        """A constant from an array or nested lists."""
        array = np.asarray(values)
        return Constant(name, array.shape, dtype, array.astype(numpy_of(dtype)).tobytes())

    @property
    def array(self) -> NDArray[Any]:
        """Its elements, read-only."""
        return np.frombuffer(self.data, numpy_of(self.dtype)).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Reduction:
    """Which operation folds the body, over which ranges. The order of folding is not part of the meaning."""

    op: ReduceOp
    ranges: tuple[Range, ...]

    def __post_init__(self) -> None:
        if self.op not in REDUCE_OPS or not self.ranges:
            raise DefinitionError(
                f"a reduction folds one or more ranges with {', '.join(REDUCE_OPS)}", where="reduction", got=self
            )

    def __str__(self) -> str:
        return f"{self.op}[{', '.join(f'{r.name}<{r.extent}' for r in self.ranges)}]"


@dataclass(frozen=True, slots=True)
class Statement:
    """name[ranges] = reduce(body): every element of the value, each exactly once."""

    name: str
    dtype: DType
    ranges: tuple[Range, ...]
    body: Expr
    reduction: Reduction | None = None

    @property
    def shape(self) -> Shape:
        return tuple(r.extent for r in self.ranges)

    @property
    def reduced(self) -> tuple[Range, ...]:
        """The ranges that are folded; empty without a reduction."""
        return self.reduction.ranges if self.reduction else ()


Value = Input | Constant | Statement


@dataclass(frozen=True)
class Graph:
    """Values in the order of their making, and the outputs: (label, name of a value).

    Rewrites keep the labels and the inputs; other names they may change.
    """

    values: tuple[Value, ...]
    outputs: tuple[tuple[str, str], ...]

    @cached_property
    def by_name(self) -> dict[str, Value]:
        """Every value under its name (the first, where a wrong graph has two)."""
        found: dict[str, Value] = {}
        for value in self.values:
            found.setdefault(value.name, value)
        return found

    def __getitem__(self, name: str) -> Value:
        if name not in self.by_name:
            raise Refusal(f"a value of the graph{did_you_mean(name, self.by_name)}", where="graph", got=name)
        return self.by_name[name]

    @property
    def inputs(self) -> tuple[Input, ...]:
        return tuple(v for v in self.values if isinstance(v, Input))

    @property
    def statements(self) -> tuple[Statement, ...]:
        return tuple(v for v in self.values if isinstance(v, Statement))

    def statement(self, name: str) -> Statement:
        """The statement called `name`; refuses inputs and constants."""
        value = self[name]
        if not isinstance(value, Statement):
            raise Refusal("a statement of the graph", where="graph", got=f"{name}, {type(value).__name__.lower()}")
        return value

    def readers(self, name: str) -> tuple[Statement, ...]:
        """The statements that read a value."""
        return self._readers.get(name, ())

    @cached_property
    def _readers(self) -> dict[str, tuple[Statement, ...]]:
        found: dict[str, tuple[Statement, ...]] = {}
        for s in self.statements:
            for name in dict.fromkeys(r.value for r in s.body.reads()):
                found[name] = (*found.get(name, ()), s)
        return found

    def with_values(self, values: Iterable[Value]) -> Graph:
        """The same outputs over other values."""
        return Graph(tuple(values), self.outputs)

    def fresh(self, stem: str) -> str:
        """A name no value has yet."""
        if stem not in self.by_name:
            return stem
        return next(f"{stem}_{n}" for n in range(1, len(self.values) + 2) if f"{stem}_{n}" not in self.by_name)

    def __str__(self) -> str:
        from kohakuaccel.graph.text import write

        return write(self)
