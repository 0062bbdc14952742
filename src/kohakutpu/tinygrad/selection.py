"""Maxima, and comparisons for equality: which kernels rely on an element having the same bits in another kernel.

tinygrad finds where a maximum was (gradients of `max` and of pools, `argmax`) by comparing every element with it, in a
kernel that reads or computes the elements again. Where one of the two kernels rounds otherwise, none is equal: a
gradient becomes 0/0, an index runs out of its range. So such kernels are computed in the tensors' own types unless
nothing can round. Decides that from a kernel's form alone; it must not know devices.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.frontends.tinygrad.kernel import Kernel
from kohakuaccel.graph import Cast, Const, Expr, Graph, Op, Read, Statement, kind_of

_CHOOSING = ("where", "max", "min", "neg", "abs", "less", "equal", "and", "or", "not")
LOST = np.uint32((1 << 8) - 1)
"""The bits of a float32 that E8M15 has no place for."""


def reason(kernel: Kernel) -> str:
    """Why a kernel has to be computed in the tensors' own types; empty where it does not."""
    graph = kernel.graph
    for statement in graph.statements:
        for one in statement.body.walk():
            if isinstance(one, Op) and one.name == "equal" and not all(_chosen(graph, side) for side in one.args):
                return "computed values are compared for equality"
    if any(computed or not _chosen(graph, fold.body) for fold, computed in _folds(kernel)):
        return "the maximum of computed values, which others may be compared with"
    return ""


def elements(kernel: Kernel) -> frozenset[str]:
    """Inputs that a maximum is kept of: it is one of their elements, to the bit."""
    found: set[str] = set()
    names = {v.name for v in kernel.graph.inputs}
    left = [read.value for fold, _ in _folds(kernel) for read in fold.body.reads()]
    while left:
        name = left.pop()
        if name in names:
            found.add(name)
        else:
            value = kernel.graph[name]
            left += [read.value for read in value.body.reads()] if isinstance(value, Statement) else []
    return frozenset(found)


def rounded(values: NDArray[np.float16] | NDArray[np.float32]) -> bool:
    """Whether E8M15 moves any of the values."""
    return values.dtype == np.float32 and bool((np.ascontiguousarray(values).view(np.uint32) & LOST).any())


def _folds(kernel: Kernel) -> list[tuple[Statement, bool]]:
    """Folds by maximum or minimum that the kernel keeps the results of, and whether something is computed of them first
    (tinygrad takes constant factors out of a maximum)."""
    left = [(store.value, False) for store in kernel.stores]
    found: list[tuple[Statement, bool]] = []
    while left:
        name, computed = left.pop()
        value = kernel.graph[name]
        if not isinstance(value, Statement) or kind_of(value.dtype) != "real":
            continue
        reads = [read.value for read in value.body.reads()]
        if value.reduction is not None:
            found += [(value, computed)] if value.reduction.op in ("max", "min") else []
        elif _choosing(value.body) or (len(set(reads)) == 1 and isinstance(kernel.graph[reads[0]], Statement)):
            left += [(name, computed or not _choosing(value.body)) for name in reads]
    return found


def _choosing(expr: Expr) -> bool:
    """Whether an expression's values are some that it reads, or their negatives."""
    if isinstance(expr, Cast):
        return expr.dtype.name in ("FP32", "FP64") and _choosing(expr.arg)
    if isinstance(expr, Op):
        return expr.name in _CHOOSING and all(_choosing(arg) for arg in expr.args)
    return isinstance(expr, Read | Const)


def _chosen(graph: Graph, expr: Expr) -> bool:
    """Whether an expression's values are elements of inputs, constants, or no real numbers at all."""
    if not _choosing(expr):
        return False
    made = [graph[read.value] for read in expr.reads()]
    return all(
        _chosen(graph, value.body) and (value.reduction is None or value.reduction.op in ("max", "min"))
        for value in made
        if isinstance(value, Statement) and kind_of(value.dtype) == "real"
    )
