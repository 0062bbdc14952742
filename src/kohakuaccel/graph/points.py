"""Arrays over a statement's ranges: which parts of them are held at once, index maps as integers, products of matrices.

Decides what the ruler (`run`) and the host's own formats (`native`) have in common: everything but how a number is
rounded. It must not know formats, nor scalar operations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph.expr import Expr
from kohakuaccel.graph.index import Guard, Index, Lookup, Quotient, Range
from kohakuaccel.graph.model import Statement
from kohakuaccel.graph.structure import Contraction

Array = NDArray[Any]
Spans = Sequence[tuple[int, int]]
"""A part of a space of ranges: from where to where, of each."""
CHUNK = 1 << 22
"""Points of an iteration space that are held at once."""


def parts(statement: Statement) -> Iterator[Spans]:
    """The space of a statement in parts of about CHUNK points; folded ranges are never cut."""
    sizes = [r.extent for r in (*statement.ranges, *statement.reduced)]
    depth = 0
    while depth < len(statement.ranges) and prod(sizes[depth:]) > CHUNK:
        depth += 1
    inner = [(0, n) for n in sizes[depth:]]
    if not depth:
        yield inner
        return
    # The range before `depth` is cut into runs of several; those before it go one by one.
    step = max(1, CHUNK // prod(sizes[depth:]))
    for place in np.ndindex(*sizes[: depth - 1]):
        for start in range(0, sizes[depth - 1], step):
            yield [*((n, n + 1) for n in place), (start, min(start + step, sizes[depth - 1])), *inner]


def assembled(statement: Statement, dtype: np.dtype[Any], part: Callable[[Spans], Array]) -> Array:
    """A statement's value from its parts, each over the output ranges of its spans."""
    spans = list(parts(statement))
    if len(spans) == 1:
        made = part(spans[0])
        own = made.flags.owndata and made.flags.c_contiguous and made.dtype == dtype  # no view of what was read
        return (made if own else np.array(made, dtype, order="C")).reshape(statement.shape)
    result = np.empty(statement.shape, dtype)
    for one in spans:
        result[tuple(slice(low, high) for low, high in one[: len(statement.ranges)])] = part(one)
    return result


Matmul = Callable[[Array, Array], Array]
"""A product of stacks of matrices, [batch, M, K] and [batch, K, N]."""


def contracted(
    statement: Statement,
    found: Contraction,
    operand: Callable[[Expr, tuple[Range, ...]], Array],
    matmul: Matmul = np.matmul,
) -> Array:
    """A sum of products as stacks of matrices, one product each. operand: an expression's values over ranges."""

    def stack(expr: Expr, *groups: tuple[Range, ...]) -> Array:
        own = tuple(r for group in groups for r in group)
        filled = np.broadcast_to(operand(expr, own), tuple(r.extent for r in own))
        return filled.reshape(tuple(prod(r.extent for r in group) for group in groups))

    left = stack(found.left, found.batch, found.m, found.k)
    right = stack(found.right, found.batch, found.k, found.n)
    order = (*found.batch, *found.m, *found.n, *found.broadcast)
    product = matmul(left, right).reshape(tuple(1 if r in found.broadcast else r.extent for r in order))
    return np.broadcast_to(product.transpose([order.index(r) for r in statement.ranges]), statement.shape)


class Space(ABC):
    """A part of a space of ranges. Every array over it has an axis a range, of extent 1 where it is constant."""

    def __init__(self, space: tuple[Range, ...], spans: Spans | None = None) -> None:
        self.space = space
        self.rank = len(space)
        self.spans = spans or [(0, r.extent) for r in space]
        self._axes: dict[Range, Array] = {}

    @abstractmethod
    def gathered(self, expr: Expr) -> Array:
        """An integer expression's values."""

    def axis(self, r: Range) -> Array:
        """The values of a range, along its own axis."""
        if r not in self._axes:
            n = self.space.index(r)
            low, high = self.spans[n]
            self._axes[r] = np.arange(low, high, dtype=np.int64).reshape((1,) * n + (-1,) + (1,) * (self.rank - n - 1))
        return self._axes[r]

    def index(self, index: Index, held: Array | None = None) -> Array:
        """An index as int64; where `held` is False its gathers may break their promise."""
        total: Array | None = None
        for atom, factor in index.terms:
            if isinstance(atom, Range):
                part = self.axis(atom)
            elif isinstance(atom, Lookup):
                part = self._lookup(atom, held)
            else:
                inner = self.index(atom.index, held)
                part = inner // atom.divisor if isinstance(atom, Quotient) else inner % atom.divisor
            part = part if factor == 1 else factor * part
            total = part if total is None else total + part
        if total is None:
            return np.full((1,) * self.rank, index.offset, np.int64)
        return total + index.offset if index.offset else total

    def held(self, guards: Sequence[Guard]) -> Array | None:
        """Where all guards hold; None where there are none."""
        found: Array | None = None
        for guard in guards:
            at = self.index(guard.index, found)
            one = (guard.low <= at) & (at < guard.high)
            found = one if found is None else found & one
        return found

    def _lookup(self, lookup: Lookup, held: Array | None) -> Array:
        found = self.gathered(lookup.value).astype(np.int64, copy=False)
        bad = (found < 0) | (found >= lookup.extent)
        if held is not None:
            bad = bad & held
        if bad.any():
            raise Refusal(
                "a gathered index lies in what it promises",
                where=str(lookup),
                got=int(np.broadcast_to(found, bad.shape)[bad][0]),
                limit=f"0..{lookup.extent - 1}",
            )
        return found
