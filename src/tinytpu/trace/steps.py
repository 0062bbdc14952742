"""A logged run as steps: which instruction was where in which cycle, and the phases of its MXU dispatch.

Reads the log that the unit model keeps; the phases follow from a dispatch's EXEC and Done (datasheet 10.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kohakuaccel.diagnostics import Refusal
from tinytpu.isa import FIELDS, SXU, VPU
from tinytpu.isa.vpu import VPU_OPS
from tinytpu.units.core import Run

OUTPUT_STATIONARY = (SXU.MXU_OS, SXU.MXU_OS_ACCUMULATE)
BLOCKING = (SXU.MXU_EPILOGUE, SXU.MXU_VPU_EPILOGUE)
DISPATCHES = (SXU.MXU, SXU.MXU_ACCUMULATE, *OUTPUT_STATIONARY, *BLOCKING, SXU.DISPATCH_MXU_REQUANT)
MOVES = {
    SXU.BROADCAST: "lane",
    SXU.BROADCAST_SCALAR: "element",
    SXU.BROADCAST_ROW: "row",
    SXU.BROADCAST_COL: "col",
    SXU.TRANSPOSE: "",
    SXU.ROTATE: "amount",
}
"""Moves of the XLU, and what their field src2 is."""


class Step(NamedTuple):
    """An executed instruction: cycles of its FETCH, of its EXEC, of its last EXEC; ended: when its dispatch is done or
    its background result is written, 0 where neither is known. word: its fields by name."""

    pc: int
    code: SXU
    word: dict[str, int]
    fetch: int
    exec: int
    last: int
    ended: int

    @property
    def operation(self) -> VPU:
        """The operation that field vpu names."""
        return VPU(self.word["vpu"])


class Phases(NamedTuple):
    """Cycles of an MXU dispatch, each [first, end): the weight tile is read, activations are fed, sums drain."""

    read: tuple[int, int]
    feed: tuple[int, int]
    drain: tuple[int, int]


def steps(run: Run) -> Iterator[Step]:
    """The executed instructions of a run with a log. Raises Refusal where none was kept."""
    if not len(run.log):
        raise Refusal("a trace needs a log of the run", where="trace", hint="run with log=True")
    words = [dict(zip(FIELDS, (int(v) for v in row))) for row in run.image.instructions]
    for pc, fetch, first, last, ended in run.log.tolist():
        yield Step(pc, SXU(words[pc]["op"]), words[pc], fetch, first, last, ended)


def phases(run: Run, step: Step) -> Phases:
    """Where a dispatch is in which cycle. Feeding ends two cycles before the drain, whatever its length."""
    rows, columns = int(run.machine.params.rows), int(run.machine.params.columns)
    count = step.word["tlen"]
    if step.code in OUTPUT_STATIONARY:
        length = count + rows + columns - 2 if count else 0
    else:
        length = count + rows - 1
    drain = step.ended - 1
    return Phases((step.exec + 1, drain - 1 - length), (drain - 1 - length, drain - 1), (drain, drain + 1))


def latency(run: Run, step: Step) -> int:
    """Cycles until the result of a VPU instruction."""
    return VPU_OPS[step.operation].latency(run.machine)
