"""Runs of one core: an image in, or one program and many data sets; results, cycles and counters out (datasheet 2, 9,
10.6).

Decides what is loaded where, what a run returns and how a fault reads; it must not know text or files, nor what an
instruction does. The compiled interpreter is loaded at the first run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kohakuaccel.diagnostics import Fault, Refusal
from kohakuaccel.machine import Machine
from tinytpu.isa.codes import SXU, Column
from tinytpu.isa.opcodes import OPCODES
from tinytpu.isa.words import text_of
from tinytpu.units import errors, given
from tinytpu.units import state as s
from tinytpu.units.faults import F, Lint
from tinytpu.units.given import Filling, Image, Sets

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WAITS_ITSELF = frozenset(int(code) for code, opcode in OPCODES.items() if opcode.stall in ("C", "D"))


class Remark(NamedTuple):
    """A lint: the instruction's program address and what is odd about it."""

    pc: int
    what: str


@dataclass(frozen=True)
class Run:
    """What a run gave.

    mxu_result: int32[columns], or None where it was not asked for. vmem: an int32[rows, columns] per output; amem: an
    int8[rows] per output. cycles: the whole run with loading and output. counters: see `state.COUNTED`. hits, spent:
    executions and cycles of each program word. log: int64[instructions, 5] where it was asked for, columns
    `state.LOG_*`, else empty. remarks: lints. core: the state left behind.
    """

    machine: Machine
    image: Image
    mxu_result: NDArray[np.int32] | None
    vmem: list[NDArray[np.int32]]
    amem: list[NDArray[np.int8]]
    cycles: int
    load_cycles: int
    execute_cycles: int
    counters: Mapping[str, int]
    hits: NDArray[np.int64]
    spent: NDArray[np.int64]
    log: NDArray[np.int64]
    batch: Batch

    @property
    def remarks(self) -> tuple[Remark, ...]:
        return self.batch.remarks

    @property
    def core(self) -> s.Core:
        return self.batch.core

    @property
    def output_cycles(self) -> int:
        return self.cycles - self.load_cycles - self.execute_cycles

    def lines(self) -> list[str]:
        """The result lines a simulator prints (datasheet 2)."""
        out: list[str] = []
        if self.mxu_result is not None:
            out.append(_line("mxu_result", self.mxu_result))
        out += [_line("vmem_result", tile.reshape(-1)) for tile in self.vmem]
        out += [_line("asram_result", vector) for vector in self.amem]
        return [*out, f"cycles {self.cycles}", "status ok"]


@dataclass(frozen=True)
class Batch:
    """What a program gave for n data sets: vmem: int32[n, outputs, rows * columns]; amem: int8[n, outputs, rows];
    mxu_results: int32[n, columns] where they are output, else [n, 0]; cycles: int64[n]; load_cycles of each; counters:
    int64[n] by name; remarks: of all sets, each once; program: fields of its words; outputs: tiles read at the end."""

    vmem: NDArray[np.int32]
    amem: NDArray[np.int8]
    mxu_results: NDArray[np.int32]
    cycles: NDArray[np.int64]
    load_cycles: int
    counters: Mapping[str, NDArray[np.int64]]
    program: NDArray[np.int64]
    outputs: Sequence[int]
    core: s.Core

    @cached_property
    def remarks(self) -> tuple[Remark, ...]:
        return _remarks(self.core, self.program, self.outputs)


def _line(name: str, values: NDArray[np.int32] | NDArray[np.int8]) -> str:
    return " ".join([name, *(str(int(x)) for x in values)])


def _program(machine: Machine, instructions: NDArray[np.int64], silicon: bool) -> NDArray[np.int64]:
    fields = np.ascontiguousarray(instructions, np.int64).reshape(-1, len(Column))
    words = int(machine.params.program_words)
    if len(fields) <= words:
        return fields
    if not silicon:
        raise Refusal("instructions of a program", got=len(fields), limit=words, hint="loop, or split the program")
    kept = np.zeros((words, len(Column)), np.int64)
    for i, row in enumerate(fields):
        kept[i % words] = row
    return kept


def _fault(
    machine: Machine, image: Image | Sets, core: s.Core, program: NDArray[np.int64], code: int, number: int | None
) -> Fault:
    pc = int(core.reg[s.PC])
    message = errors.fault(code, int(core.reg[s.WHY_GOT]), int(core.reg[s.WHY_LIMIT]))
    source = image.lines[pc] if pc < len(image.lines) else None
    unit = f"line {source.line}: {machine.name}" if source else machine.name
    name = text_of(machine, program[pc]) if pc < len(program) else ""
    text = f"{message.what}; cycle {int(core.reg[s.WHEN])}" + ("" if number is None else f" of data set {number}")
    return Fault(text, unit=unit, index=pc, disassembly=name, code=code, hint=message.hint, source=source)


def _remarks(core: s.Core, program: NDArray[np.int64], outputs: Sequence[int]) -> tuple[Remark, ...]:
    found = {(int(pc), errors.lint(int(w), int(d))) for w, pc, d in core.lint[: core.counts[s.N_LINTS]]}
    for at in np.flatnonzero(core.vmem_state & s.STORED):
        if int(at) not in outputs:
            found.add((int(core.stored_by[at]), errors.lint(Lint.STORE_UNUSED, int(at))))
    ops = program[:, Column.OP]
    for pc in np.flatnonzero(ops[:-1] == SXU.WAIT_MXU):
        if int(ops[pc + 1]) in _WAITS_ITSELF:
            found.add((int(pc), errors.lint(Lint.WAIT_UNNEEDED, 0)))
    return tuple(Remark(*item) for item in sorted(found))


@cache
def _kernels() -> tuple[Any, Any, Any]:
    """The compiled parts: decode, its tables, runs. What depends on no other part compiles in a process beside this."""
    from kohakuaccel.jit import compiling_beside, first_call

    with first_call("the TinyTPU core", "tinytpu.units.sets") as cold:
        with compiling_beside("tinytpu.units.vpu_float") if cold else nullcontext():
            from tinytpu.units.decode import decode, tables

            import_module("tinytpu.units.dispatch")
        from tinytpu.units.sets import run_sets
    return decode, tables, run_sets


def execute(machine: Machine, image: Image, *, silicon: bool = False, log: bool = False) -> Run:
    """Run an image on a fresh core.

    silicon: wrap addresses, counters and values as the hardware does instead of refusing them; what the datasheet
    does not say the hardware does stays refused. log: keep every executed instruction.
    Raises Refusal for an image that does not fit, Fault for what stops the run, with the instruction and its line.
    """
    program = _program(machine, image.instructions, silicon)
    room = 0
    while True:
        core = s.reset_core(machine, len(program), silicon=silicon, log=room)
        fillings = (
            given.filling("VMEM", image.vmem, core.vmem, silicon),
            given.filling("WMEM", image.wmem, core.wmem, silicon),
            given.filling("AMEM", image.amem, core.amem, silicon),
        )
        done = _execute(machine, image, program, core, fillings, silicon)
        if not log or room:
            break
        room = int(core.counts[s.N_INSTRUCTIONS])  # a run is the same each time, and now its length is known
    rows = int(machine.params.rows)
    return Run(
        machine=machine,
        image=image,
        mxu_result=done.mxu_results[0] if image.mxu_result else None,
        vmem=[tile.reshape(rows, -1) for tile in done.vmem[0]],
        amem=list(done.amem[0]),
        cycles=int(done.cycles[0]),
        load_cycles=done.load_cycles,
        execute_cycles=int(core.reg[s.TIME]) + 1 - done.load_cycles,
        counters={name: int(values[0]) for name, values in done.counters.items()},
        hits=core.hits,
        spent=core.spent,
        log=core.log,
        batch=done,
    )


def execute_sets(machine: Machine, sets: Sets) -> Batch:
    """Run one program on many data sets, each on a fresh core, in one compiled call.

    Raises Refusal for a program or a filling that does not fit, Fault for what stops a run, with the instruction, its
    line and the number of the set.
    """
    program = _program(machine, sets.instructions, silicon=False)
    core = s.reset_core(machine, len(program))
    fillings = (
        given.checked("VMEM", sets.vmem, core.vmem, sets.count),
        given.checked("WMEM", sets.wmem, core.wmem, sets.count),
        given.checked("AMEM", sets.amem, core.amem, sets.count),
    )
    return _execute(machine, sets, program, core, fillings, silicon=False)


def _execute(
    machine: Machine,
    what: Image | Sets,
    program: NDArray[np.int64],
    core: s.Core,
    fillings: tuple[Filling, Filling, Filling],
    silicon: bool,
) -> Batch:
    """Fillings are right; whatever else is wrong is refused here."""
    decode, tables, run_sets = _kernels()
    p, timing = machine.params, machine.timing
    tiles = given.addresses("VMEM", what.vmem_outputs, machine, len(core.vmem), silicon)
    vectors = given.addresses("AMEM", what.amem_outputs, machine, len(core.amem), silicon)
    count = len(fillings[0].chosen)
    out = np.zeros((count, len(tiles), core.vmem.shape[1]), np.int32)
    out_vectors = np.zeros((count, len(vectors), core.amem.shape[1]), np.int8)
    results = np.zeros((count, len(core.results)), np.int32)
    ends, counts = np.zeros((count, 2), np.int64), np.zeros((count, len(s.COUNTED)), np.int64)
    records = what.record_count()
    first = int(timing.record) * records + int(timing.start) - 1
    decode(program, core.program, core.setting, tables(machine))
    slots = np.array(tiles, np.int64), np.array(vectors, np.int64)
    stopped = run_sets(
        core, first, what.mxu_result, *fillings[0], *fillings[1], *fillings[2], slots[0], out, slots[1], out_vectors,
        results, ends, counts,
    )  # fmt: skip
    if stopped < count:
        raise _stopped(machine, what, core, program, (tiles, vectors), stopped if count > 1 else None)
    late = np.maximum(0, ends[:, 1] - (ends[:, 0] + 2)) if what.mxu_result else 0
    shown = len(tiles) + len(vectors) + int(what.mxu_result)
    cycles = ends[:, 0] + 2 + int(timing.line) * shown + late
    if count and cycles.max() > p.cycle_limit:
        core.reg[s.WHY_LIMIT] = p.cycle_limit
        raise _fault(
            machine, what, core, program, F.TIMEOUT, int(np.argmax(cycles > p.cycle_limit)) if count > 1 else None
        )
    return Batch(
        out,
        out_vectors,
        results[:, : len(core.results) if what.mxu_result else 0],
        cycles,
        first,
        {name: counts[:, i] for i, name in enumerate(s.COUNTED)},
        program,
        tiles,
        core,
    )


def _stopped(
    machine: Machine, what: Image | Sets, core: s.Core, program: NDArray[np.int64],
    outputs: tuple[list[int], list[int]], number: int | None,
) -> Fault | Refusal:  # fmt: skip
    """Why a run stopped."""
    code = int(core.reg[s.WHY])
    if code:
        return _fault(machine, what, core, program, code, number)
    tiles, vectors = outputs
    for name, addresses, written in (("VMEM", tiles, core.vmem_state), ("AMEM", vectors, core.amem_written)):
        for a in addresses:
            if not written[a]:
                return Refusal("an output was never written", where=f"{name}[{a}]", hint="STORE or preload it")
    return Refusal("mxu_result is output, and nothing was dispatched", where=machine.name, hint="drop record 3")
