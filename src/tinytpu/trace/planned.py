"""The time of a plan's programs before anything runs: each program once, on zeros, with a log.

No program of a plan branches on what it computes, so that such a run tells cycles and units of all. Decides what is
summed; which cycles are work is `spans`'.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.machine import Machine
from tinytpu.lower.array.chain import Linked
from tinytpu.lower.listing import Listed, listed
from tinytpu.lower.program.fed import Fed
from tinytpu.lower.steps import Step
from tinytpu.trace.spans import UNITS, timeline
from tinytpu.units.core import Image, Run, execute


@dataclass(frozen=True)
class Took:
    """What programs take. cycles: all, of which load reads records and output prints results. busy: cycles in which
    each unit works. macs: multiplications of the array, those with padding too. filled: tiles and vectors of records;
    nbytes: of them and of the tiles that are output."""

    programs: int
    cycles: int
    load: int
    output: int
    instructions: int
    records: int
    filled: int
    nbytes: int
    macs: int
    busy: Mapping[str, int]

    def share(self, unit: str) -> float:
        """The part of all cycles in which a unit works."""
        return self.busy[unit] / self.cycles if self.cycles else 0.0

    def shares(self) -> dict[str, float]:
        """Of every unit, and "load": the part in which records are read. Empty without programs."""
        units = {unit: self.share(unit) for unit in self.busy}
        return {"load": self.load / self.cycles, **units} if self.cycles else {}


def dry(machine: Machine, one: Listed) -> Run:
    """A program's run on zeros."""
    rows, lanes = int(machine.params.rows), int(machine.params.rows * machine.params.columns)
    fed = one.fed
    image = Image(
        one.program.rows,
        vmem={slot: np.zeros(lanes, np.int32) for slot, _ in one.program.data},
        wmem={slot: np.zeros(lanes, np.int8) for slot in (fed.wmem if fed else ())},
        amem={slot: np.zeros(rows, np.int8) for slot in (fed.amem if fed else ())},
        vmem_outputs=[slot for slot, _ in one.program.outputs],
        amem_outputs=[slot for slot, _, _ in fed.vectors] if isinstance(fed, Linked) else (),
        mxu_result=isinstance(fed, Fed) and fed.mxu_result,
    )
    return execute(machine, image, log=True)


def programs(machine: Machine, steps: Iterable[Step]) -> Iterator[tuple[Listed, Run]]:
    """Every program of steps with its run on zeros."""
    for step in steps:
        for one in listed(step):
            yield one, dry(machine, one)


def _shown(run: Run) -> list[NDArray[np.int32] | NDArray[np.int8]]:
    """Everything that is output."""
    return [*run.vmem, *run.amem, *(() if run.mxu_result is None else (run.mxu_result,))]


def took(machine: Machine, steps: Iterable[Step]) -> Took:
    """What the programs of steps take, all their runs."""
    total: Counter[str] = Counter()
    busy: Counter[str] = Counter(dict.fromkeys(UNITS, 0))
    for one, run in programs(machine, steps):
        image = run.image
        memories = (image.vmem, image.wmem, image.amem)
        own = {
            "programs": 1,
            "cycles": run.cycles,
            "load": run.load_cycles,
            "output": run.output_cycles,
            "instructions": run.counters["instructions"],
            "records": image.record_count(),
            "filled": sum(map(len, memories)),
            "nbytes": sum(np.asarray(v).nbytes for m in memories for v in m.values())
            + sum(v.nbytes for v in _shown(run)),
            "macs": run.counters["macs"],
        }
        for name, value in own.items():
            total[name] += value * one.count
        for share in timeline(run).shares():
            busy[share.group] += share.busy * one.count
    names = ("programs", "cycles", "load", "output", "instructions", "records", "filled", "nbytes", "macs")
    return Took(*(total[name] for name in names), busy=dict(busy))
