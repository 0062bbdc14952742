"""Maxima, comparisons for equality and copies: which kernels rely on an element having the same bits in another kernel.

tinygrad finds where a maximum was (gradients of `max` and of pools, `argmax`) by comparing every element with it, in a
kernel that reads or computes the elements again. Where one of the two kernels rounds otherwise, none is equal: a
gradient becomes 0/0, an index runs out of its range. So such kernels are computed in the tensors' own types unless
nothing can round. Decides that from a kernel's form alone; it must not know devices.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.frontends.tinygrad.kernel import Kernel
from kohakuaccel.graph import OPS, Bits, Cast, Const, Expr, Graph, Op, Read, Statement, kind_of

_CHOOSING = ("where", "max", "min", "neg", "abs", "less", "equal", "and", "or", "not")
LOST = np.uint32((1 << 8) - 1)
"""The bits of a float32 that E8M15 has no place for."""


def reason(kernel: Kernel) -> str:
    """Why a kernel has to be computed in the tensors' own types; empty where it does not."""
    graph = kernel.graph
    for statement in graph.statements:
        for one in statement.body.walk():
            if isinstance(one, Op) and one.name == "equal" and not all(_exact(graph, side) for side in one.args):
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


def copied(kernel: Kernel) -> frozenset[str]:
    """Inputs of which the kernel keeps elements as they are, wherever they go."""
    graph = kernel.graph
    names = {v.name for v in graph.inputs}
    found: set[str] = set()
    left = [store.value for store in kernel.stores]
    while left:
        name = left.pop()
        value = graph[name]
        if name in names:
            found.add(name)
        elif isinstance(value, Statement) and value.reduction is None and _moving(graph, value.body):
            left += _moved(value.body)
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


def _moving(graph: Graph, expr: Expr) -> bool:
    """Whether places alone decide which element or constant an expression is."""
    if isinstance(expr, Op) and expr.name == "where":
        where, *rest = expr.args
        return not any(kind_of(graph[r.value].dtype) == "real" for r in where.reads()) and all(
            _moving(graph, one) for one in rest
        )
    return isinstance(expr, Read | Const)


def _moved(expr: Expr) -> list[str]:
    """What an expression that moves has elements of."""
    if isinstance(expr, Op):
        return [name for one in expr.args[1:] for name in _moved(one)]
    return [expr.value] if isinstance(expr, Read) else []


def _exact(graph: Graph, expr: Expr) -> bool:
    """Whether nothing rounds an expression's values: they are no real numbers, or chosen ones."""
    return not _real(graph, expr) or _chosen(graph, expr)


def _real(graph: Graph, expr: Expr) -> bool:
    if isinstance(expr, Read):
        return kind_of(graph[expr.value].dtype) == "real"
    if isinstance(expr, Cast | Bits):
        return kind_of(expr.dtype) == "real"
    return isinstance(expr, Op) and OPS[expr.name].result != "bool" and any(_real(graph, arg) for arg in expr.args)


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
