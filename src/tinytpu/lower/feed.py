"""A program on many places of its stage: tiles filled from arrays, all runs in one call, outputs put back.

Decides what goes into which slot of which run, and counts it. It must not know how programs came about.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.graph.points import Array
from kohakuaccel.machine import Machine
from tinytpu.lower.data import Words
from tinytpu.lower.program.allocate import Program
from tinytpu.lower.program.code import Carry, Fill, Leaf, Pool
from tinytpu.recording import keep_sets
from tinytpu.units.core import Run, execute_sets
from tinytpu.units.given import Filling, Image, Sets

Executor = Callable[[Machine, Image], Run]
_executor: ContextVar[Executor | None] = ContextVar("_executor", default=None)
Places = NDArray[np.int64]
MOST = 4096
"""Runs of one call: what bounds the host's memory, 8 MiB of tiles at 32 slots."""


@contextmanager
def executing(executor: Executor) -> Generator[None]:
    """Meanwhile `executor` runs the programs of plans, one by one, instead of a fresh core each."""
    before = _executor.set(executor)
    try:
        yield
    finally:
        _executor.reset(before)


def executor() -> Executor | None:
    """What runs programs instead of a fresh core each, see `executing`."""
    return _executor.get()


@dataclass
class Counts:
    """What runs took. records: of all bundles; filled, taken: tiles (or vectors) that the host filled and took out;
    carried: of those, what one program left for a later one; bytes: of filled and taken ones."""

    programs: int = 0
    cycles: int = 0
    instructions: int = 0
    records: int = 0
    filled: int = 0
    taken: int = 0
    carried: int = 0
    bytes: int = 0

    def add(self, other: Counts) -> None:
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))


@dataclass(frozen=True)
class Work:
    """What programs of a stage share. filled: int32[tiles, steps, lanes] by data plan; a plan of at most `chunks` tiles
    holds them for every part of a fold. results: int32[tiles, steps, lanes] by output."""

    name: str
    machine: Machine
    filled: Sequence[Words]
    results: Sequence[Words]
    counts: Counts
    chunks: int = 1


@dataclass(frozen=True)
class Slots:
    """Items of WMEM or AMEM and, by slot, which of them every run takes: items: int8[..., words]; chosen: slot ->
    int64[runs], places in the flattened items."""

    items: Array
    chosen: Mapping[int, Places]

    def filling(self, part: slice) -> Filling:
        slots = np.fromiter(self.chosen, np.int64, len(self.chosen))
        chosen = np.stack([places[part] for places in self.chosen.values()], axis=1) if len(slots) else None
        flat = self.items.reshape(-1, self.items.shape[-1])
        return Filling(slots, flat, np.zeros((part.stop - part.start, 0), np.int64) if chosen is None else chosen)


def run_programs(
    work: Work, programs: Sequence[Program], firsts: Places, *, wmem: Sequence[Slots] = (), amem: Sequence[Slots] = ()
) -> None:
    """Run programs, one after the other, for every tile of `firsts`; a later one gets what an earlier one carries.

    wmem, amem: what fills the array's memories, by program.
    """
    for start in range(0, len(firsts), MOST):
        part = slice(start, min(start + MOST, len(firsts)))
        carried: dict[int, Words] = {}
        for number, program in enumerate(programs):
            weights = wmem[number].filling(part) if wmem else None
            vectors = amem[number].filling(part) if amem else None
            run_program(work, program, firsts[part], carried, weights, vectors)


class Done(NamedTuple):
    """What all runs of a program gave, see units.core.Batch; cycles and instructions of all of them."""

    vmem: Words
    amem: Array
    mxu_results: Words
    cycles: int
    instructions: int


def run_program(
    work: Work, program: Program, firsts: Places, carried: dict[int, Words], wmem: Filling | None, amem: Filling | None,
    *, vectors: Sequence[int] = (), mxu_result: bool = False,
) -> Done:  # fmt: skip
    """Run a program for every tile of `firsts`, once each. carried: what earlier ones left, and what this one leaves.
    vectors: slots of AMEM that are output; mxu_result: whether the array's last results are. Its outputs in VMEM go to
    their places."""
    lanes, count = work.machine.params.rows * work.machine.params.columns, len(firsts)
    tiles = np.empty((count, len(program.data), lanes), np.int32)
    carries = 0
    for at, (_, source) in enumerate(program.data):
        match source:
            case Leaf(data=data, tile=tile, step=step):
                held = work.filled[data]
                place = np.zeros(1, np.int64) if tile is None else firsts + tile
                tiles[:, at] = held[place if len(held) > work.chunks else place % len(held), step or 0]
            case Fill(bits=bits):
                tiles[:, at] = bits - (1 << 32) if bits >> 31 else bits
            case Pool(words=words):
                tiles[:, at] = np.resize(np.array(words, np.uint32), lanes).view(np.int32)
            case Carry(value=value):
                tiles[:, at] = carried[value]
                carries += 1
    slots = np.array([slot for slot, _ in program.data], np.int64)
    own = np.arange(count * len(slots)).reshape(count, len(slots))
    outputs = [slot for slot, _ in program.outputs]
    vmem = Filling(slots, tiles.reshape(-1, lanes), own)
    sets = Sets(count, program.rows, vmem, wmem, amem, outputs, vectors, mxu_result)
    done = _executed(work, sets)
    for at, (_, place) in enumerate(program.outputs):
        if isinstance(place, Carry):
            carried[place.value] = done.vmem[:, at]
        else:
            work.results[place.number][firsts + place.tile, place.step] = done.vmem[:, at]
    others = [f for f in (wmem, amem) if f is not None]
    filled = len(slots) + sum(len(f.slots) for f in others)
    moved = len(slots) * lanes * 4 + sum(len(f.slots) * f.items.shape[1] for f in others)
    moved += sum(each[0].nbytes for each in (done.vmem, done.amem, done.mxu_results))
    work.counts.add(
        Counts(
            programs=count,
            cycles=done.cycles,
            instructions=done.instructions,
            records=count * sets.record_count(),
            filled=count * filled,
            taken=count * (len(outputs) + len(vectors) + mxu_result),
            carried=count * carries,
            bytes=count * moved,
        )
    )
    return done


def _executed(work: Work, sets: Sets) -> Done:
    other = executor()
    if other is None:
        done = execute_sets(work.machine, sets)
        keep_sets(work.name, work.machine, sets, done)
        steps = int(done.counters["instructions"].sum())
        return Done(done.vmem, done.amem, done.mxu_results, int(done.cycles.sum()), steps)
    runs = [other(work.machine, sets.image(n)) for n in range(sets.count)]
    p = work.machine.params
    vmem = np.array([run.vmem for run in runs], np.int32).reshape(sets.count, -1, p.rows * p.columns)
    sums = np.array([run.mxu_result if sets.mxu_result else [] for run in runs], np.int32)
    amem = np.array([run.amem for run in runs], np.int8).reshape(sets.count, -1, p.rows)
    return Done(vmem, amem, sums, sum(r.cycles for r in runs), sum(r.counters["instructions"] for r in runs))
