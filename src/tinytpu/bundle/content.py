"""A bundle as a value, and what no bundle may hold (datasheet 2, 9).

It knows records and a machine's capacities. How records are written, as numbers or as TASM, is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import KohakuError, Refusal, SourceLine
from kohakuaccel.machine import Machine
from tinytpu.isa.check import check_program
from tinytpu.isa.codes import FIELDS, Record

MEMORIES = {Record.VMEM: "VMEM", Record.WMEM: "WMEM", Record.AMEM: "AMEM"}
"""Records that fill a slot of a memory."""
OUTPUTS = {Record.OUTPUT_VMEM: "VMEM", Record.OUTPUT_AMEM: "AMEM"}
"""Records that name a slot to output."""


class Entry(NamedTuple):
    """A record before END: its kind, the numbers behind the kind, and the line it stands on."""

    kind: Record
    values: tuple[int, ...]
    source: SourceLine | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entry) and (self.kind, self.values) == (other.kind, other.values)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.kind, self.values))


def payload(machine: Machine, kind: Record) -> int:
    """How many numbers stand behind a record's kind (datasheet 2)."""
    p = machine.params
    tile = 1 + p.rows * p.columns
    counts = {Record.WMEM: tile, Record.VMEM: tile, Record.AMEM: 1 + p.rows, Record.INSTRUCTION: len(FIELDS)}
    return {**counts, Record.END: 0}.get(kind, 1)


def slots(machine: Machine, memory: str) -> int:
    """The capacity of VMEM, WMEM or AMEM, in tiles or vectors."""
    p = machine.params
    return {"VMEM": p.vmem_tiles, "WMEM": p.wmem_tiles, "AMEM": p.amem_vectors}[memory]


@contextmanager
def numbered() -> Generator[None]:
    """Errors with a source line begin with its number: `line 3: ...` (datasheet 9)."""
    try:
        yield
    except KohakuError as error:
        if error.source is not None and not error.where.startswith("line "):
            error.where = f"line {error.source.line}: {error.where}".rstrip(": ")
        raise


@dataclass(frozen=True)
class Bundle:
    """Records in file order, END left out. labels: names of instructions, by pc; no file of numbers holds them.

    Two bundles are equal where their records are.
    """

    entries: tuple[Entry, ...]
    labels: Mapping[str, int] = field(default_factory=dict[str, int], compare=False)

    def of(self, kind: Record) -> tuple[Entry, ...]:
        """The records of a kind, in order."""
        return tuple(entry for entry in self.entries if entry.kind == kind)

    @cached_property
    def instructions(self) -> NDArray[np.int64]:
        """int64[n, 9] in the order of isa.Column."""
        rows = [entry.values for entry in self.of(Record.INSTRUCTION)]
        return np.array(rows, np.int64).reshape(-1, len(FIELDS))

    @cached_property
    def sources(self) -> tuple[SourceLine | None, ...]:
        """The line of every instruction, by pc."""
        return tuple(entry.source for entry in self.of(Record.INSTRUCTION))

    def memory(self, kind: Record) -> dict[int, tuple[int, ...]]:
        """What a memory holds before the run: address -> values, row-major."""
        return {entry.values[0]: entry.values[1:] for entry in self.of(kind)}

    def outputs(self, kind: Record) -> tuple[int, ...]:
        """The addresses that are output, in order."""
        return tuple(entry.values[0] for entry in self.of(kind))

    @property
    def mxu_result(self) -> bool:
        """Whether the column sums of the last drain are output: the last record 3 decides."""
        flags = self.of(Record.MXU_RESULT)
        return bool(flags and flags[-1].values[0])

    def check(self, machine: Machine) -> None:
        """Refuses what this machine cannot load. Raises Refusal with line, place, value and limit."""
        with numbered():
            filled: dict[tuple[Record, int], Entry] = {}
            counts: dict[Record, int] = {}
            for entry in self.entries:
                _check_entry(machine, entry, filled)
                counts[entry.kind] = counts.get(entry.kind, 0) + 1
                if entry.kind in OUTPUTS and counts[entry.kind] > machine.params.max_outputs:
                    raise Refusal(
                        "more outputs of a kind than are counted",
                        where=f"output of {OUTPUTS[entry.kind]}[{entry.values[0]}]",
                        got=counts[entry.kind],
                        limit=machine.params.max_outputs,
                        hint="split the program",
                        source=entry.source,
                    )
            check_program(machine, self.instructions, lambda pc: self.sources[pc])


def _check_entry(machine: Machine, entry: Entry, filled: dict[tuple[Record, int], Entry]) -> None:
    kind, values = entry.kind, entry.values

    def refuse(rule: str, where: str, got: object, limit: object, hint: str = "") -> Refusal:
        return Refusal(rule, where=where, got=got, limit=limit, hint=hint, source=entry.source)

    if len(values) != payload(machine, kind):
        raise refuse(
            "a record holds all its numbers", f"{kind.name} record", f"{len(values)} numbers", payload(machine, kind)
        )
    if kind == Record.MXU_RESULT and values[0] not in (0, 1):
        raise refuse("the flag of mxu_result is 0 or 1", "record 3", values[0], 1)
    name = MEMORIES.get(kind) or OUTPUTS.get(kind)
    if name is None:
        return
    most = slots(machine, name)
    if not 0 <= values[0] < most:
        raise refuse(f"the address lies beyond {name}", f"{name}[{values[0]}]", values[0], f"0..{most - 1}")
    if kind not in MEMORIES:
        return
    bits = 32 if kind == Record.VMEM else 8
    for number, value in enumerate(values[1:]):
        if not -1 << (bits - 1) <= value < 1 << (bits - 1):
            limit = f"{-1 << (bits - 1)}..{(1 << (bits - 1)) - 1}"
            raise refuse(f"a value of {name} is an int{bits}", f"{name}[{values[0]}], value {number}", value, limit)
    before = filled.setdefault((kind, values[0]), entry)
    if before is not entry:
        line = f"line {before.source.line}" if before.source else "an earlier record"
        raise refuse("a slot is filled once", f"{name}[{values[0]}]", "a second record", "1", f"{line} fills it")
