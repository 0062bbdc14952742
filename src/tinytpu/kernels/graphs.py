"""Graphs by the shapes of their operands, lowered for whatever machine is chosen.

Decides which graph a name and shapes mean. How it is lowered is `tinytpu.lower`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from kohakuaccel.diagnostics import Refusal, Unsupported
from kohakuaccel.graph import Graph, parse
from kohakuaccel.graph.native import stored_in
from kohakuaccel.machine import Machine
from tinytpu.asm import disassemble
from tinytpu.lower import Plan, compile_graph
from tinytpu.lower.plan import Array8
from tinytpu.machines.choice import chosen
from tinytpu.recording import Played, recording
from tinytpu.runner import bundle_of

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Lowered:
    """A kernel's plan for one machine and its operands' shapes."""

    name: str
    made: Plan

    @property
    def machine(self) -> Machine:
        return self.made.machine

    def pretty(self) -> str:
        """What becomes of every statement: programs, cycles, what they load."""
        return f"schedule {self.name} on {self.machine.name}\n{self.made.text()}"

    def played(self) -> list[Played]:
        """Every program as it runs on zeros; no number changes its cycles."""
        inputs = {v.name: np.zeros(v.shape, stored_in(v.dtype)) for v in self.made.graph.inputs}
        with recording() as found:
            self.made.run(inputs)
        return found

    def listing(self, limit: int | None = None) -> str:
        """Every program once, as TASM; at most `limit` lines of each."""
        parts: list[str] = []
        for one in self.played():
            lines = disassemble(bundle_of(one.image), self.machine).splitlines()
            shown = lines if limit is None else lines[:limit]
            rest = [f"# and {len(lines) - len(shown)} more lines"] if len(shown) < len(lines) else []
            parts.append("\n".join([f"# {one.name}: {one.times} times, {one.cycles:,} cycles each", *shown, *rest]))
        return "\n\n".join(parts)

    def nominal_addresses(self) -> None:
        """Nowhere: programs are loaded whole."""

    def image(self, _: object) -> NoReturn:
        """Refused: a plan's programs are bundles."""
        raise Unsupported("an image is saved of a machine that has them", where="TinyTPU", hint="kohaku disasm TARGET")


@dataclass(frozen=True)
class GraphKernel:
    """A graph by name; `text` makes it from shapes and a number format, and `takes` says which shapes those are."""

    name: str
    takes: str
    operands: int
    text: Callable[[str, list[Shape]], str]
    dtype: str

    @property
    def __name__(self) -> str:
        return self.name

    def trace(self, *shapes: Shape, dtype: str = "") -> Graph:
        """The graph for operands of these shapes. Raises Refusal for shapes that it does not take."""
        if len(shapes) != self.operands:
            raise Refusal(f"{self.name} takes {self.takes}", where="shapes", got=f"{len(shapes)} shapes")
        try:
            return parse(self.text(dtype or self.dtype, list(shapes)))
        except (ValueError, IndexError):
            given = " ".join("x".join(map(str, shape)) for shape in shapes)
            raise Refusal(f"{self.name} takes {self.takes}", where="shapes", got=given) from None

    def plan(
        self, *shapes: Shape, machine: Machine | None = None, dtype: str = "", mxu: Array8 = "where it fits"
    ) -> Lowered:
        """The plan on a machine (the chosen one without); dtype, mxu: the knobs."""
        graph = self.trace(*shapes, dtype=dtype)
        return Lowered(self.name, compile_graph(graph, machine or chosen(), mxu=mxu))


def _matmul(dtype: str, shapes: list[Shape]) -> str:
    (m, k), (depth, n) = shapes
    if depth != k:
        raise ValueError
    whole = dtype[0] in "SU"
    sums = "S32" if whole else dtype
    a, w = (f"cast({one}, S32)" if whole else one for one in ("a[i, k]", "w[k, j]"))
    head = f"input a: {dtype}[{m},{k}]\ninput w: {dtype}[{k},{n}]\n"
    return f"{head}p: {sums}[i<{m},j<{n}] = sum[k<{k}] {a} * {w}\noutput p"


def _linear(dtype: str, shapes: list[Shape]) -> str:
    (m, _), (_, n), (columns,) = shapes
    if columns != n:
        raise ValueError
    product = _matmul(dtype, shapes[:2]).removesuffix("output p")
    sums = "S32" if dtype[0] in "SU" else dtype
    return f"{product}input b: {sums}[{n}]\no: {sums}[i<{m},j<{n}] = max(p[i, j] + b[j], cast(0, {sums}))\noutput o"


def _rows(dtype: str, shapes: list[Shape], *statements: str) -> str:
    ((m, n),) = shapes
    lines = (line.replace("M", str(m)).replace("N", str(n)).replace("T", dtype) for line in statements)
    return "\n".join([f"input x: {dtype}[{m},{n}]", *lines, "output o"])


def _relu(dtype: str, shapes: list[Shape]) -> str:
    return _rows(dtype, shapes, "o: T[i<M,j<N] = max(x[i, j], cast(0, T))")


def _rowsum(dtype: str, shapes: list[Shape]) -> str:
    return _rows(dtype, shapes, "o: T[i<M] = sum[k<N] x[i, k]")


def _softmax(dtype: str, shapes: list[Shape]) -> str:
    return _rows(
        dtype, shapes,
        "m: T[i<M] = max[k<N] x[i, k]",
        "s: T[i<M] = sum[k<N] exp2((x[i, k] - m[i]) * 1.4426950408889634)",
        "o: T[i<M,j<N] = exp2((x[i, j] - m[i]) * 1.4426950408889634) / s[i]",
    )  # fmt: skip


def _layernorm(dtype: str, shapes: list[Shape]) -> str:
    part = 1 / shapes[0][1]
    return _rows(
        dtype, shapes,
        f"m: T[i<M] = sum[k<N] x[i, k] * {part!r}",
        "v: T[i<M] = sum[k<N] (x[i, k] - m[i]) * (x[i, k] - m[i])",
        f"r: T[i<M] = rsqrt(v[i] * {part!r} + 1e-05)",
        "o: T[i<M,j<N] = (x[i, j] - m[i]) * r[i]",
    )  # fmt: skip


def _add(dtype: str, shapes: list[Shape]) -> str:
    (m, n), other = shapes
    if other != (m, n):
        raise ValueError
    return f"input b: {dtype}[{m},{n}]\n" + _rows(dtype, shapes[:1], "o: T[i<M,j<N] = x[i, j] + b[i, j]")


_ROWS = "one matrix MxN"
matmul = GraphKernel("matmul", "MxK and KxN", 2, _matmul, "S8")
linear = GraphKernel("linear", "MxK, KxN and N: the product with bias and relu", 3, _linear, "S8")
add = GraphKernel("add", "MxN twice", 2, _add, "S32")
relu = GraphKernel("relu", _ROWS, 1, _relu, "S32")
rowsum = GraphKernel("rowsum", _ROWS, 1, _rowsum, "S32")
softmax = GraphKernel("softmax", _ROWS, 1, _softmax, "FP32")
layernorm = GraphKernel("layernorm", _ROWS, 1, _layernorm, "FP32")
