"""Kernels with products of matrices under `matmul="split"`: the products on the clusters, the rest on the host.

Decides which kernels these are, what of them is the host's, and how it is counted. The operands' index maps (windows,
padding, transposes, what is computed before the product) are evaluated on the host into matrices, the products are
computed from digits (`kohakutpu.split`), and what follows them is float32 arithmetic of the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kohakuaccel.diagnostics import KohakuError
from kohakuaccel.frontends.tinygrad.memory import View
from kohakuaccel.frontends.tinygrad.program import Prepared
from kohakuaccel.graph import Cast, Expr, Graph, Read, Statement, kind_of
from kohakuaccel.graph.native import Array, Native, multiplied, stored_in
from kohakuaccel.graph.structure import as_contraction
from kohakutpu.tinygrad import counting
from kohakutpu.tinygrad.numerics import Numerics, current
from kohakutpu.tinygrad.ran import SplitRun

if TYPE_CHECKING:
    from kohakuaccel.sim.timeline import Timeline
    from kohakutpu.device import Device

AROUND = "arithmetic around a split product; the product itself ran on the clusters"
HostStep = Callable[[str, str, int, Numerics], None]
"""Counts or refuses a step of the host: kernel, reason, bytes, what is allowed."""


def fits(graph: Graph) -> bool:
    """Whether a graph has a product that digits are accurate enough for: of real numbers, not of float64."""
    return any(_product(s) for s in graph.statements)


def _product(statement: Statement) -> bool:
    found = as_contraction(statement)
    return found is not None and multiplied(statement, found) and stored_in(statement.dtype).itemsize < 8


def _moves(expr: Expr) -> bool:
    """Whether an expression only names an element, in whatever format."""
    while isinstance(expr, Cast) and kind_of(expr.dtype) == "real":
        expr = expr.arg
    return isinstance(expr, Read)


def _bare(statement: Statement) -> bool:
    """Whether a statement is a product of elements as they are, or a copy."""
    if statement.reduction is None:
        return _moves(statement.body)
    found = as_contraction(statement)
    return _product(statement) and found is not None and _moves(found.left) and _moves(found.right)


class SplitKernel:
    """A kernel whose products go to a device as digits."""

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        graph = prepared.kernel.graph
        self.bare = all(_bare(s) for s in graph.statements) and all(s.place is None for s in prepared.kernel.stores)
        self._native: Native | None = None
        self._device: Device | None = None
        self._host: list[str] = []
        self._products = 0

    def run(self, buffers: Sequence[View], device: Device, timed: bool, host: HostStep) -> float | None:
        """Run it; the seconds of the device and of the link to it, of timed devices."""
        name, nbytes = self.prepared.kernel.name, self.prepared.nbytes(buffers)
        allowed = current()
        if not self.bare:
            host(name, AROUND, nbytes, allowed)
        if self._native is None:
            self._native = Native(self.prepared.kernel.graph, self._matmul)
        native = self._native
        self._device, self._host, self._products = device, [], 0
        counters = device.counters
        passes, moved = counters.split_passes, counters.split_bytes
        timeline: Timeline | None = None
        if timed:
            from kohakutpu.sim.session import timed as timing

            _, timeline = timing(device, lambda: self.prepared.on_host(buffers, native), name)
        else:
            self.prepared.on_host(buffers, native)
        for reason in self._host:
            host(name, reason, nbytes, allowed)
        passes, moved = counters.split_passes - passes, counters.split_bytes - moved
        reasons = [*([] if self.bare else [AROUND]), *self._host]
        return counting.total.split(self, name, SplitRun(self._products, passes, moved), reasons, timeline)

    def _matmul(self, left: Array, right: Array) -> Array:
        """A product of the kernel; on the host where digits are none of it, which `run` counts."""
        from kohakutpu.split import product
        from kohakutpu.split.spread import balanced, loses

        assert self._device is not None
        if left.dtype == np.float64:
            self._host.append("a product of float64 values")
            return np.matmul(left, right)
        if not (np.isfinite(left).all() and np.isfinite(right).all()):
            self._host.append("a product with NaN or Inf")
            return np.matmul(left, right)
        first, second = left, right
        if loses(left, right):
            first, second = balanced(left, right)
            if loses(first, second):
                self._host.append("a split product of rows that span more powers of two than digits hold")
                return np.matmul(left, right)
        try:
            found = product(first, second.swapaxes(-1, -2), self._device, self.prepared.kernel.name).values
        except KohakuError as why:
            self._host.append(f"a split product was refused: {getattr(why, 'rule', why)}")
            return np.matmul(left, right)
        self._products += 1
        return found
