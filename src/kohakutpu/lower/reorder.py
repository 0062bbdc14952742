"""How a tensor gets from one byte order into another on the vector cores, whatever shape it was stored under.

It decides the steps: relayout trips between orders of one matrix shape, and rows cut anew between two shapes of one
sequence of elements. It must not know buffers' addresses or who asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd

import numpy as np

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.machine import Machine
from kohakuaccel.schedule import Band
from kohakutpu.layouts import WORD_ELEMENTS, Layout, OperandPack, RowMajor, TilePattern
from kohakutpu.lower.relayout import RelayoutBand, Trip, can_relayout, trips
from kohakutpu.lower.row_moves import Group, MoveBand, Strip, groups
from kohakutpu.lower.row_moves_code import Recipe

RECIPES = 256  # distinct ways to put a row together that one resplit may need
_NOWHERE = SourceLine("", 0)


@dataclass(frozen=True, slots=True)
class Resplit:
    """The same sequence of elements in rows of another length."""

    source: RowMajor
    target: RowMajor


Step = Trip | Resplit


def steps(
    machine: Machine, held: Layout, wanted: Layout, transpose: bool, matrices: int, rows: int, cols: int
) -> list[Step] | None:
    """From `held` to `wanted`, in which each of `matrices` matrices of rows x cols (the tensor's present shape) is
    transposed on demand; None: the cores cannot do it."""
    if isinstance(held, TilePattern | OperandPack) or isinstance(wanted, TilePattern):
        return None
    if isinstance(wanted, OperandPack) and wanted.preq:
        return None
    natural = RowMajor.of(matrices * rows, cols, held.element)
    if not transpose and wanted.cols != cols:
        # An order that belongs to another shape of the same elements, which elementwise work adopts.
        batch = 1 if isinstance(wanted, RowMajor) else wanted.batch
        return steps(machine, held, wanted, False, batch, wanted.rows, wanted.cols)
    if held.cols == cols and (isinstance(held, RowMajor) or (held.batch, held.rows) == (matrices, rows)):
        return _trips(machine, held, wanted, transpose, matrices)
    found: list[Step] = []
    if not isinstance(held, RowMajor):
        plain = RowMajor.of(held.batch * held.rows, held.cols)
        first = _trips(machine, held, plain, False, held.batch)
        if first is None:
            return None
        found += first
        held = plain
    if held.cols != cols:
        cut = _resplit(machine, held, natural)
        if cut is None:
            return None
        found += cut
        held = natural
    if transpose or held != wanted:
        last = _trips(machine, held, wanted, transpose, matrices)
        if last is None:
            return None
        found += last
    return found


def _trips(machine: Machine, held: Layout, wanted: Layout, transpose: bool, batch: int) -> list[Step] | None:
    found = trips(held, wanted, transpose, batch, machine)
    return None if found is None else [*found]


def _resplit(machine: Machine, source: RowMajor, target: RowMajor) -> list[Step] | None:
    if can_relayout(source, target, machine=machine):
        return [Trip(source, target, False)]
    # One element per row is a column: turning it makes it a row, and the order of elements stays.
    for single, other in ((source, target), (target, source)):
        if single.cols == 1 and can_relayout(source, target, True, other.rows, machine):
            return [Trip(source, target, True, other.rows)]
    return None if _resplit_groups(machine, source, target) is None else [Resplit(source, target)]


@lru_cache(maxsize=32)
def _resplit_groups(machine: Machine, source: RowMajor, target: RowMajor) -> tuple[Group, ...] | None:
    """The pieces of a resplit of buffer 0; rows that begin at the same place of a source row are made alike."""
    source = _flat(source)
    flat = source.cols == WORD_ELEMENTS
    period = source.cols // gcd(source.cols, target.cols)
    if min(period, target.rows) > RECIPES:
        return None
    cores, walk = len(machine.units_of("VC", mesh=0)), machine.params.walk_max // source.element.words
    merged: dict[Recipe, list[Group]] = {}
    for first in range(min(period, target.rows)):
        here = np.arange(first, target.rows, period, dtype=np.int64)
        begin = here * target.cols
        start, left, strips = int(begin[0]) % source.cols, target.cols, list[Strip]()
        row = begin // source.cols
        while left:
            count = left if flat else min(left, source.cols - start)
            strips.append(Strip(0, source, row, start, count))
            row, start, left = row + 1, 0, left - count
        try:
            made = groups(strips, here * (target.pitch // WORD_ELEMENTS), cores, walk, _NOWHERE)
        except Refusal:
            return None
        for group in made:
            merged.setdefault(group.recipe, []).append(group)
    return tuple(
        Group(
            recipe,
            many[0].buffers,
            np.concatenate([g.source for g in many], axis=1),
            np.concatenate([g.target for g in many]),
        )
        for recipe, many in merged.items()
    )


def _flat(layout: RowMajor) -> RowMajor:
    """Rows without padding are one sequence of words: a stretch of it may begin in any of them."""
    unpadded = layout.pitch == layout.cols
    flat = RowMajor(layout.size // WORD_ELEMENTS, WORD_ELEMENTS, WORD_ELEMENTS, layout.element)
    return flat if unpadded else layout


def band(step: Step, machine: Machine, src: int, dst: int, source: SourceLine) -> Band:
    """The band of one step from buffer src to buffer dst."""
    if isinstance(step, Trip):
        return RelayoutBand(machine, src, dst, step.source, step.target, step.transpose, step.batch, source)
    found = _resplit_groups(machine, step.source, step.target)
    assert found is not None
    named = tuple(Group(g.recipe, (src,) * len(g.buffers), g.source, g.target) for g in found)
    layouts = {src: _flat(step.source), dst: step.target}
    return MoveBand(machine, layouts, dst, named, f"{step.source} -> {step.target}", source, True)
