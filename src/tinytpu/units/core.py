"""A run of one core: an image in, results, cycles and counters out (datasheet 2, 9, 10.6).

Decides what is loaded where, what a run returns and how a fault reads; it must not know text or files, nor what an
instruction does. The compiled interpreter is loaded at the first run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kohakuaccel.diagnostics import Fault, Refusal, SourceLine
from kohakuaccel.machine import Machine
from tinytpu.isa.codes import SXU, Column
from tinytpu.isa.opcodes import OPCODES
from tinytpu.isa.words import text_of
from tinytpu.units import errors
from tinytpu.units import state as s
from tinytpu.units.faults import F, Lint

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WAITS_ITSELF = frozenset(int(code) for code, opcode in OPCODES.items() if opcode.stall in ("C", "D"))


@dataclass(frozen=True)
class Image:
    """What a core is loaded with: a bundle's content without its text.

    instructions: int64[n, 9], columns isa.Column. vmem: address -> rows*columns int32 words (flat). wmem: address ->
    rows*columns int8. amem: address -> rows int8. vmem_outputs, amem_outputs: addresses read back after the HALT, in
    order. mxu_result: whether the column sums latched last are output too. records: records before END; None means
    one per item above. lines: the source line of each instruction.
    """

    instructions: NDArray[np.int64]
    vmem: Mapping[int, Sequence[int] | NDArray[np.int32]] = field(default_factory=dict[int, Sequence[int]])
    wmem: Mapping[int, Sequence[int] | NDArray[np.int8]] = field(default_factory=dict[int, Sequence[int]])
    amem: Mapping[int, Sequence[int] | NDArray[np.int8]] = field(default_factory=dict[int, Sequence[int]])
    vmem_outputs: Sequence[int] = ()
    amem_outputs: Sequence[int] = ()
    mxu_result: bool = False
    records: int | None = None
    lines: Sequence[SourceLine | None] = ()

    def record_count(self) -> int:
        """Records before END."""
        if self.records is not None:
            return self.records
        data = len(self.vmem) + len(self.wmem) + len(self.amem)
        outputs = len(self.vmem_outputs) + len(self.amem_outputs) + int(self.mxu_result)
        return data + len(self.instructions) + outputs


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
    `state.LOG_*`, else empty. core: the state left behind.
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
    remarks: tuple[Remark, ...]
    hits: NDArray[np.int64]
    spent: NDArray[np.int64]
    log: NDArray[np.int64]
    core: s.Core

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


def _line(name: str, values: NDArray[np.int32] | NDArray[np.int8]) -> str:
    return " ".join([name, *(str(int(x)) for x in values)])


def _fill(
    name: str, values: Mapping[int, Sequence[int] | NDArray[np.int32] | NDArray[np.int8]],
    memory: NDArray[np.int32] | NDArray[np.int8], written: NDArray[np.uint8], silicon: bool,
) -> None:  # fmt: skip
    info = np.iinfo(memory.dtype)
    for address, items in values.items():
        words = np.asarray(items, np.int64).reshape(-1)
        if words.size != memory.shape[1]:
            raise Refusal(
                "an item is filled whole", where=f"{name}[{address}]", got=words.size, limit=f"{memory.shape[1]} values"
            )
        if silicon:
            at = address % len(memory)
        else:
            at = address
            if not 0 <= address < len(memory):
                raise Refusal(f"{name} has {len(memory)} items", where=f"{name}[{address}]", limit=len(memory) - 1)
            if words.min() < info.min or words.max() > info.max:
                wrong = next(int(w) for w in words if not info.min <= w <= info.max)
                raise Refusal(f"a value of {name} is {memory.dtype}", where=f"{name}[{address}]", got=wrong)
        memory[at] = words.astype(memory.dtype)
        written[at] = s.WRITTEN


def _addresses(name: str, addresses: Sequence[int], machine: Machine, size: int, silicon: bool) -> list[int]:
    most = int(machine.params.max_outputs)
    if silicon:
        # The counter of output records has just the bits for `most`.
        return [a % size for a in addresses[: len(addresses) % (most + 1)]]
    if len(addresses) > most:
        raise Refusal(f"{name} outputs of one run", got=len(addresses), limit=most, hint="split into several runs")
    for a in addresses:
        if not 0 <= a < size:
            raise Refusal(f"{name} has {size} items", where=f"output of {name}[{a}]", limit=size - 1)
    return list(addresses)


def _program(machine: Machine, image: Image, silicon: bool) -> NDArray[np.int64]:
    fields = np.ascontiguousarray(image.instructions, np.int64).reshape(-1, len(Column))
    words = int(machine.params.program_words)
    if len(fields) <= words:
        return fields
    if not silicon:
        raise Refusal("instructions of a program", got=len(fields), limit=words, hint="loop, or split the program")
    kept = np.zeros((words, len(Column)), np.int64)
    for i, row in enumerate(fields):
        kept[i % words] = row
    return kept


def _fault(machine: Machine, image: Image, core: s.Core, program: NDArray[np.int64], code: int) -> Fault:
    pc = int(core.reg[s.PC])
    message = errors.fault(code, int(core.reg[s.WHY_GOT]), int(core.reg[s.WHY_LIMIT]))
    source = image.lines[pc] if pc < len(image.lines) else None
    unit = f"line {source.line}: {machine.name}" if source else machine.name
    name = text_of(machine, program[pc]) if pc < len(program) else ""
    text = f"{message.what}; cycle {int(core.reg[s.WHEN])}"
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
    """The compiled parts: decode, its tables, run. What depends on no other part compiles in a process beside this."""
    from kohakuaccel.jit import compiling_beside, first_call

    with first_call("the TinyTPU core", "tinytpu.units.run") as cold:
        with compiling_beside("tinytpu.units.vpu_float") if cold else nullcontext():
            from tinytpu.units.decode import decode, tables

            import_module("tinytpu.units.dispatch")
        from tinytpu.units.run import run
    return decode, tables, run


def execute(machine: Machine, image: Image, *, silicon: bool = False, log: bool = False) -> Run:
    """Run an image on a fresh core.

    silicon: wrap addresses, counters and values as the hardware does instead of refusing them; what the datasheet
    does not say the hardware does stays refused. log: keep every executed instruction.
    Raises Refusal for an image that does not fit, Fault for what stops the run, with the instruction and its line.
    """
    decode, tables, run = _kernels()
    program = _program(machine, image, silicon)
    timing, records = machine.timing, image.record_count()
    room = 0
    while True:
        core = s.reset_core(machine, len(program), silicon=silicon, log=room)
        _fill("VMEM", image.vmem, core.vmem, core.vmem_state, silicon)
        _fill("WMEM", image.wmem, core.wmem, core.wmem_written, silicon)
        _fill("AMEM", image.amem, core.amem, core.amem_written, silicon)
        tiles = _addresses("VMEM", image.vmem_outputs, machine, len(core.vmem), silicon)
        vectors = _addresses("AMEM", image.amem_outputs, machine, len(core.amem), silicon)
        decode(program, core.program, core.setting, tables(machine))
        first = int(timing.record) * records + int(timing.start) - 1
        code = int(run(core, first, int(bool(vectors))))
        if code:
            raise _fault(machine, image, core, program, code)
        if not log or room:
            break
        room = int(core.counts[s.N_INSTRUCTIONS])  # a run is the same each time, and now its length is known
    return _result(machine, image, core, program, (tiles, vectors), first)


def _result(
    machine: Machine, image: Image, core: s.Core, program: NDArray[np.int64],
    outputs: tuple[list[int], list[int]], first: int,
) -> Run:  # fmt: skip
    tiles, vectors = outputs
    halt, rows = int(core.reg[s.TIME]), int(core.setting[s.S_ROWS])
    for name, addresses, written in (("VMEM", tiles, core.vmem_state), ("AMEM", vectors, core.amem_written)):
        for a in addresses:
            if not written[a]:
                raise Refusal("an output was never written", where=f"{name}[{a}]", hint="STORE or preload it")
    if image.mxu_result and not core.reg[s.DISPATCHED]:
        raise Refusal("mxu_result is output, and nothing was dispatched", where=machine.name, hint="drop record 3")
    late = max(0, int(core.reg[s.DONE]) - (halt + 2)) if image.mxu_result else 0
    shown = len(tiles) + len(vectors) + int(image.mxu_result)
    cycles = halt + 2 + int(machine.timing.line) * shown + late
    if cycles > machine.params.cycle_limit:
        core.reg[s.WHY_LIMIT] = machine.params.cycle_limit
        raise _fault(machine, image, core, program, F.TIMEOUT)
    return Run(
        machine=machine,
        image=image,
        mxu_result=core.results.copy() if image.mxu_result else None,
        vmem=[core.vmem[a].reshape(rows, -1).copy() for a in tiles],
        amem=[core.amem[a].copy() for a in vectors],
        cycles=cycles,
        load_cycles=first,
        execute_cycles=halt + 1 - first,
        counters={name: int(core.counts[i]) for i, name in enumerate(s.COUNTED)},
        remarks=_remarks(core, program, tiles),
        hits=core.hits,
        spent=core.spent,
        log=core.log,
        core=core,
    )
