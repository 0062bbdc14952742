"""Products of one row (or one column): a matrix times a vector, on clusters or along rows of vector cores.

Decides which unit computes one, by an estimate from the machine's own costs. It must not know tiles' addresses or how
either stage is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from kohakuaccel.graph import Read, Statement
from kohakuaccel.graph.structure import Contraction
from kohakuaccel.machine import Machine
from kohakutpu.auto import access
from kohakutpu.auto.access import long
from kohakutpu.layouts import ceil_div
from kohakutpu.lower.tiling import choose, cycles

if TYPE_CHECKING:
    from kohakutpu.auto.fusion import Sources

WORD = 16
"""Halves of a memory word."""


@dataclass(frozen=True)
class OneRow:
    """clusters: whether clusters compute the product; why: the decision in words."""

    clusters: bool
    why: str


def one_row(sources: Sources, statement: Statement, found: Contraction) -> OneRow | None:
    """The decision for a product with ranges of its own on one side only; None for other statements."""
    if bool(long(found.m)) == bool(long(found.n)) or not long(found.k):
        return None
    matrix, own = (found.left, found.m) if long(found.m) else (found.right, found.n)
    if not isinstance(matrix, Read) or matrix.guards or not _lies(sources, matrix, found, own):
        return OneRow(False, "one row: its matrix does not lie as tiles are read")
    if _taken_in(sources, matrix, statement):
        return OneRow(False, f"one row: {matrix.value} is not written to memory for it alone")
    batch, deep = access.size(long(found.batch)), access.size(long(found.k))
    high = prod(r.extent for r in own)
    tile = choose(sources.machine, 1, high, deep, batch)
    tiles = cycles(sources.machine, tile, 1, high, deep, batch)
    rows = row_cycles(sources.machine, batch * high, deep)
    words = f"{tiles:,} cycles estimated on clusters, {rows:,} on vector cores"
    return OneRow(tiles <= rows, f"one row: {words}")


def _lies(sources: Sources, matrix: Read, found: Contraction, own: access.Ranges) -> bool:
    """Whether clusters can read the matrix where it is."""
    from kohakutpu.auto.tiles import fits

    return fits(sources, matrix, long(own), long(found.k))


def _taken_in(sources: Sources, matrix: Read, statement: Statement) -> bool:
    """Whether rows would compute the matrix on the way, so that it need not exist."""
    value = sources.graph[matrix.value]
    if not isinstance(value, Statement) or value.name in sources.outputs or value.name in sources.single:
        return False
    product = sources.contraction(value)
    written = product is not None and bool(long(product.m)) and bool(long(product.n))
    return not written and sources.readers[value.name] <= {statement.name} and not sources.problem(value)


def row_cycles(machine: Machine, count: int, width: int) -> int:
    """`count` rows of two operands, each read word by word and folded, dealt to all vector cores (datasheet 8.3)."""
    t = machine.timing
    one = 2 * ceil_div(width, WORD) * (t.read_word + t.L) + t.vred + 2 * t.empty_pipeline
    return ceil_div(count, max(1, len(machine.units_of("VC", mesh=0)))) * one
