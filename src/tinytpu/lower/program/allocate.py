"""Registers and slots of a straight line: values are kept in vregs, evicted by their next use, spilled to VMEM.

Decides which vreg and which VMEM slot everything lives in, and whether a code fits one program. Sources are loaded or
filled where they are first needed and again after an eviction. It must not know what the values mean.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.machine import Machine
from tinytpu.isa.codes import VPU
from tinytpu.isa.vpu import VPU_OPS
from tinytpu.isa.words import row_of
from tinytpu.lower.errors import NotLowered
from tinytpu.lower.program.code import TOUCH, Code, Fill, Leaf, Line, Place, Pool, Source
from tinytpu.lower.program.roll import roll


@dataclass(frozen=True)
class Program:
    """A program without its data. rows: int64[n, 9], the last a HALT. data: what fills which VMEM slot. outputs: which
    slots are output, in order, and where they go. cycles: of a whole run, where nothing waits for the MXU (else 0)."""

    rows: NDArray[np.int64]
    data: tuple[tuple[int, Source], ...]
    outputs: tuple[tuple[int, Place], ...]
    spills: int
    cycles: int
    code: Code = field(compare=False, repr=False)
    """What it was made of."""

    @property
    def records(self) -> int:
        return len(self.rows) + len(self.data) + len(self.outputs)


@dataclass(frozen=True, slots=True)
class _Given:
    source: Source


@dataclass(frozen=True, slots=True)
class _Spilled:
    value: int


@dataclass(frozen=True, slots=True)
class _Out:
    place: Place


_Slot = _Given | _Spilled | _Out
"""A slot before it has a number: of a source, of a value that was evicted, of an output."""


@dataclass(frozen=True)
class _Step:
    form: str
    fields: dict[str, int | str]
    slot: _Slot | None = None


@dataclass
class _Registers:
    """The state of the scan. steps: what has been made so far."""

    given: Mapping[int, Source]
    uses: dict[int, list[int]]
    free: list[int]
    pooled: Mapping[int, tuple[int, int]]
    """Constants that stand in a pool: its value and the lane."""
    where: dict[int, int] = field(default_factory=dict[int, int])
    stored: set[int] = field(default_factory=set[int])
    steps: list[_Step] = field(default_factory=list[_Step])
    spills: int = 0

    def take(self, kept: Iterable[int]) -> int:
        """A register; evicts the value whose next use is furthest, one that needs no store where that is not near."""
        if self.free:
            return self.free.pop()

        def distance(value: int) -> int:
            if value < 0:  # a pool is wanted where a constant of it is that is in no register
                absent = (v for v, (pool, _) in self.pooled.items() if pool == value and v not in self.where)
                return min((self.uses[v][-1] for v in absent if self.uses[v]), default=1 << 30) * 2
            clean = value in self.given or value in self.stored
            return self.uses[value][-1] * (2 if clean else 1)

        value = max((v for v in self.where if v not in kept), key=distance, default=None)
        if value is None:
            raise NotLowered(
                "an instruction's operands stand in vregs", where="params.vregs", got=len(self.where),
                limit=f"{len(self.where) + 1} at least", hint="raise vregs",
            )  # fmt: skip
        register = self.where.pop(value)
        if value not in self.given and value not in self.stored:
            self.steps.append(_Step("STORE", {"src": register}, _Spilled(value)))
            self.stored.add(value)
            self.spills += 1
        return register

    def bring(self, value: int, kept: Sequence[int]) -> None:
        """A value into a register."""
        if value in self.where:
            return
        if value in self.pooled:
            pool, lane = self.pooled[value]
            self.bring(pool, kept)
            register = self.take((*kept, pool))
            self.steps.append(_Step("BROADCAST_SCALAR", {"dst": register, "src": self.where[pool], "src2": lane}))
            self.where[value] = register
            return
        register = self.take(kept)
        source = self.given.get(value)
        if isinstance(source, Fill) and source.immediate is not None:
            self.steps.append(_Step("VFILL", {"dst": register, "imm": source.immediate}))
        else:
            slot = _Spilled(value) if source is None else _Given(source)
            self.steps.append(_Step("LOAD", {"dst": register}, slot))
        self.where[value] = register

    def line(self, line: Line) -> None:
        sources = tuple(dict.fromkeys(line.reads()))
        for value in sources:
            self.bring(value, sources)
        if line.form == TOUCH:
            for value in sources:
                self.uses[value].pop()
            return
        fields: dict[str, int | str] = {name: self.where[value] for name, value in line.sources} | dict(line.fields)
        for value in sources:
            self.uses[value].pop()
            if not self.uses[value]:
                self.free.append(self.where.pop(value))
        if line.dst is not None:
            register = self.take(())
            fields["dst"] = register
            if self.uses[line.dst]:
                self.where[line.dst] = register
            else:
                self.free.append(register)  # an effect whose value nobody wants
        self.steps.append(_Step(line.form, fields, None if line.place is None else _Out(line.place)))


def allocate(code: Code, machine: Machine, *, long: bool = False) -> Program | None:
    """The code as one program, or None where it does not fit the machine's memories and its limit of cycles. long:
    whether more words than fit are tried, which loops may make fewer. Raises NotLowered for too few vregs.

    Constants that no VFILL makes are loaded one by one, or moved out of a tile that holds several: what takes fewer
    cycles.
    """
    p = machine.params
    lines = code.live()
    most = p.program_words * (LONG if long else 1)
    if len(lines) >= most:
        return None
    direct = [line for line in lines if line.form == "STORE" and line.sources[0][1] in code.given]
    lines = [line for line in lines if line.form != "STORE" or line.sources[0][1] not in code.given]
    shown = [(code.given[line.sources[0][1]], line.place) for line in direct if line.place is not None]
    given = {code.given[value] for line in lines for value in line.reads() if value in code.given}
    taken = {source for source in given if not isinstance(source, Fill)} | {source for source, _ in shown}
    if len(taken) > p.vmem_tiles or len(shown) + sum(line.place is not None for line in lines) > p.max_outputs:
        return None
    if sum(line.form != TOUCH for line in lines) + len(given) >= most:  # each source takes an instruction at least
        return None
    pools = _pools(code, lines, p.rows * p.columns) if p.vregs >= POOLED_FROM else ({}, {})
    found = [
        _allocated(code, lines, shown, *way, machine, most) for way in (pools, ({}, {})) if way[0] or way is not pools
    ]
    return min((made for made in found if made is not None), key=lambda made: made[1], default=(None, 0))[0]


LONG = 8
"""Programs of more words than this many times those that fit are not tried."""
POOLED_FROM = 6
"""Registers from which on one may hold a pool: an instruction reads three."""
LEAST_POOLED = 3
"""Constants from which on a pool takes fewer cycles: a load of seven, and a move of four each, for seven each."""


def _pools(code: Code, lines: Sequence[Line], lanes: int) -> tuple[dict[int, Source], dict[int, tuple[int, int]]]:
    """Tiles of constants, as values below 0, and where each constant stands."""
    sources = {value: code.given.get(value) for line in lines for value in line.reads()}
    fills = {value: s.bits for value, s in sources.items() if isinstance(s, Fill) and s.immediate is None}
    if len(fills) < LEAST_POOLED:
        return {}, {}
    values = list(fills)
    pools: dict[int, Source] = {}
    places: dict[int, tuple[int, int]] = {}
    for start in range(0, len(values), lanes):
        pool = -1 - len(pools)
        group = values[start : start + lanes]
        pools[pool] = Pool(tuple(fills[value] for value in group))
        places |= {value: (pool, lane) for lane, value in enumerate(group)}
    return pools, places


def _allocated(
    code: Code,
    lines: Sequence[Line],
    shown: Sequence[tuple[Source, Place]],
    pools: Mapping[int, Source],
    places: Mapping[int, tuple[int, int]],
    machine: Machine,
    most: int,
) -> tuple[Program, int] | None:
    """The program, and what it takes where nothing waits for the array. shown: sources that are output as they are."""
    p = machine.params
    uses: dict[int, list[int]] = defaultdict(list)
    for at in range(len(lines) - 1, -1, -1):
        for value in dict.fromkeys(lines[at].reads()):
            uses[value].append(at)  # from the last to the first: the next use is the last element
    scan = _Registers({**code.given, **pools}, uses, list(range(p.vregs))[::-1], places)
    for line in lines:
        scan.line(line)
        if len(scan.steps) >= most:
            return None
    slots = _slots(scan.steps, [source for source, _ in shown], p.vmem_tiles)
    if slots is None:
        return None
    at, data = slots
    rows = [row_of(machine, s.form, **s.fields, **({} if a is None else {"vmem": a})) for s, a in zip(scan.steps, at)]
    numbered = dict(data)
    outputs = [(numbered[source], place) for source, place in shown]
    made = zip(scan.steps, at)
    outputs += [(a, s.slot.place) for s, a in made if isinstance(s.slot, _Out) and a is not None]
    if len(outputs) > p.max_outputs:
        return None
    rolled = roll(machine, rows)
    rows = [*rolled.rows, row_of(machine, "HALT")]
    if len(rows) > p.program_words:
        return None
    given = tuple((slot, source) for source, slot in data)
    program = np.array(rows, np.int64)
    records = len(rows) + len(given) + len(outputs)
    busy = [_cycles(step, machine) for step in scan.steps]
    total = 2 * records + sum(busy) + rolled.loops + 1 + 4 + len(outputs)
    if total > p.cycle_limit:
        return None
    return Program(program, given, tuple(outputs), scan.spills, total if all(busy) else 0, code), total


def _slots(
    steps: Sequence[_Step], shown: Sequence[Source], capacity: int
) -> tuple[list[int | None], list[tuple[Source, int]]] | None:
    """A VMEM address per step, and one per source that is filled; None where there are not enough. Slots of sources are
    taken from the start, those of spills and outputs from their STORE on; what is never loaded again is free."""
    last: dict[_Slot, int] = {}
    for n, step in enumerate(steps):
        if step.slot is not None:
            last[step.slot] = len(steps) if isinstance(step.slot, _Out) else n
    sources: list[Source] = []
    for source in shown:
        last[_Given(source)] = len(steps)
        sources.append(source)
    sources += [step.slot.source for step in steps if isinstance(step.slot, _Given)]
    number: dict[_Slot, int] = {_Given(source): n for n, source in enumerate(dict.fromkeys(sources))}
    data = [(source, number[_Given(source)]) for source in dict.fromkeys(sources)]
    if len(number) > capacity:
        return None
    free = list(range(capacity - 1, len(number) - 1, -1))
    at: list[int | None] = []
    for n, step in enumerate(steps):
        if step.slot is not None and step.slot not in number:
            if not free:
                return None
            number[step.slot] = free.pop()
        at.append(None if step.slot is None else number[step.slot])
        if step.slot is not None and last[step.slot] == n:
            free.append(number[step.slot])
    return at, data


def _cycles(step: _Step, machine: Machine) -> int:
    """FETCH to FETCH of an instruction that waits for nothing (datasheet 3); 0 where it may wait for the MXU."""
    if step.form.startswith("VPU."):
        return VPU_OPS[VPU[str(step.fields["vpu"])]].latency(machine) + 2
    if step.form.startswith(("MXU", "WAIT", "LOAD_MXU")):
        return 0
    return {"LOAD": 3, "PSUM_READ": 3, "SELECT": 4}.get(step.form, 2)


def least(code: Code, machine: Machine, tiles: int) -> int:
    """Cycles that `tiles` tiles like the one of a code take at least, in however many programs: each instruction once
    a tile, and so each source that follows the tile, others once."""
    lines = code.live()
    sources = {code.given[value] for line in lines for value in line.reads() if value in code.given}
    total = 0
    for line in lines:
        total += 2 + (_cycles(_Step(line.form, dict(line.fields)), machine) if line.form != TOUCH else -2)
        total += OUTPUT if line.place is not None else 0
    own = sum(isinstance(source, Leaf) and source.tile is not None for source in sources)
    return (total + own * LOADED) * tiles + (len(sources) - own) * MADE


OUTPUT, LOADED, MADE = 3, 7, 4
"""Cycles of an output record, of a tile that is filled and loaded, of a constant that is made."""
