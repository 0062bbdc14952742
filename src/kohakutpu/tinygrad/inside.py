"""Float32 values that only a kernel itself sees and that are halves there: sums of products, and operands computed
for one.

Decides which values these are in a plan, and whether they are large enough for given operands: nobody sees them
afterwards, so they are computed once more on the host, unless operands about as large have been found to do well. It
must not know devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kohakuaccel.graph import Cast, Expr, Graph, Read, Statement
from kohakuaccel.graph.native import Array, Native
from kohakuaccel.graph.structure import as_contraction

if TYPE_CHECKING:
    from kohakutpu.auto import GraphPlan

Size = tuple[int, int]
"""The exponents of an operand's greatest and mean magnitude."""
MARGIN = 16.0
"""How much larger than the least all values have to be for the next operands of such sizes to be taken unseen."""
KEPT = 8


def size_of(values: Array) -> Size:
    """How large an operand is."""
    magnitudes = np.abs(values)
    means = (float(magnitudes.max(initial=0.0)), float(magnitudes.mean(dtype=np.float64)) if values.size else 0.0)
    top, mean = (int(np.frexp(one)[1]) if one else -1000 for one in means)
    return top, mean


class Inside:
    """What to look at in a plan. Of values that a library's kernel makes, and what follows them, nothing is known."""

    def __init__(self, plan: GraphPlan) -> None:
        graph = plan.graph
        unknown = {v.name for v in graph.inputs} - {v.name for v in plan.inputs}
        for statement in graph.statements:
            if any(read.value in unknown for read in statement.body.reads()):
                unknown.add(statement.name)
        self.names = tuple(name for name in _halves(graph) if name not in unknown)
        self._native: Native | None = None
        self._good: list[tuple[Size, ...]] = []
        if self.names:
            needed = set(self.names)
            for statement in reversed(graph.statements):
                if statement.name in needed:
                    needed |= {read.value for read in statement.body.reads()}
            values = tuple(v for v in graph.values if v.name in needed)
            self._native = Native(Graph(values, tuple((name, name) for name in self.names)))

    def too_small(self, least: float, sizes: Sequence[Size], inputs: Callable[[], Mapping[str, Array]]) -> bool:
        """Whether the greatest of a value is below `least`, and not 0. sizes: of the plan's inputs; inputs: their
        values, in their formats."""
        if self._native is None or any(_near(sizes, good) for good in self._good):
            return False
        found = self._native(inputs())
        tops = [float(np.abs(found[name]).max(initial=0.0)) for name in self.names]
        if all(top >= MARGIN * least for top in tops):
            self._good = [*self._good[1 - KEPT :], tuple(sizes)]
        return any(0.0 < top < least for top in tops)


def _near(one: Sequence[Size], other: Sequence[Size]) -> bool:
    return all(abs(a - b) <= 1 for left, right in zip(one, other) for a, b in zip(left, right))


def _halves(graph: Graph) -> dict[str, None]:
    """Names of values that are float32 in the graph, halves on the machine and no outputs. A sum that is read as a half
    is one by the program's own word."""
    kept = {name for _, name in graph.outputs}
    found: dict[str, None] = {}
    for statement in graph.statements:
        product = as_contraction(statement)
        if product is None or not product.m or not product.n:
            continue
        made = [read.value for side in (product.left, product.right) for read in side.reads()]
        if not all(_as_half(reader.body, statement.name) for reader in graph.readers(statement.name)):
            made.append(statement.name)
        for name in made:
            value = graph[name]
            if isinstance(value, Statement) and value.dtype.name == "FP32" and name not in kept:
                found[name] = None
    return found


def _as_half(expr: Expr, name: str) -> bool:
    """Whether every read of a value in an expression is cast to a half at once."""
    if isinstance(expr, Cast) and expr.dtype.name == "FP16" and isinstance(expr.arg, Read):
        return True
    if isinstance(expr, Read):
        return expr.value != name
    return all(_as_half(child, name) for child in expr.children)
