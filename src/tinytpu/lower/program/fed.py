"""A program with what fills the array's memories, and the cycles it takes.

Decides how cycles are counted before there are numbers. It must not know products.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kohakuaccel.machine import Machine
from tinytpu.lower.program.allocate import Program
from tinytpu.units.core import execute
from tinytpu.units.given import Image


@dataclass(frozen=True)
class Fed:
    """A program with what fills AMEM and WMEM: slot -> (tile row, vector) and (tile column, K-tile) of its block; see
    array.jobs.Jobs for rows. mxu_result: whether the last results are output, as the first row of a tile."""

    program: Program
    amem: Mapping[int, tuple[int, int]]
    wmem: Mapping[int, tuple[int, int]]
    mxu_result: bool = False

    @property
    def records(self) -> int:
        return self.program.records + len(self.amem) + len(self.wmem) + self.mxu_result

    def cycles(self, machine: Machine) -> int:
        """See `cycles_of`."""
        return cycles_of(self.program, machine, self.amem, self.wmem, mxu_result=self.mxu_result)


def cycles_of(
    program: Program,
    machine: Machine,
    amem: Iterable[int],
    wmem: Iterable[int],
    vectors: Iterable[int] = (),
    *,
    mxu_result: bool = False,
) -> int:
    """Cycles of a program, which no number changes: a run with zeros. amem, wmem: slots that are filled; vectors: those
    of AMEM that are output."""
    p = machine.params
    tile, vector = [0] * (p.rows * p.columns), [0] * p.rows
    image = Image(
        program.rows,
        vmem={slot: tile for slot, _ in program.data},
        wmem=dict.fromkeys(wmem, tile),
        amem=dict.fromkeys(amem, vector),
        vmem_outputs=[slot for slot, _ in program.outputs],
        amem_outputs=list(vectors),
        mxu_result=mxu_result,
    )
    return execute(machine, image).cycles
