"""Bundles to TASM: text that assembles to the same records (datasheet 8)."""

from __future__ import annotations

from kohakuaccel.machine import Machine
from tinytpu.bundle.content import MEMORIES, Bundle, Entry
from tinytpu.isa.codes import Record
from tinytpu.isa.words import text_of


def disassemble(bundle: Bundle, machine: Machine) -> str:
    """The text of a bundle, a record a line, labels in front of their instructions.

    A word that no text form writes (unused fields that are not 0, an unknown opcode) is a `.word`.
    """
    at: dict[int, list[str]] = {}
    for name, pc in bundle.labels.items():
        at.setdefault(pc, []).append(name)
    lines: list[str] = []
    pc = 0
    for entry in bundle.entries:
        if entry.kind == Record.INSTRUCTION:
            lines += [f"{name}:" for name in at.get(pc, ())]
            pc += 1
        lines.append(_statement(entry, machine))
    return "\n".join([*lines, "END"]) + "\n"


def _statement(entry: Entry, machine: Machine) -> str:
    match entry.kind:
        case Record.INSTRUCTION:
            return text_of(machine, entry.values)
        case Record.MXU_RESULT:
            return "OUTPUT_MXU" if entry.values == (1,) else f"OUTPUT_MXU {entry.values[0]}"
        case Record.OUTPUT_VMEM:
            return f"OUTPUT_VMEM VMEM[{entry.values[0]}]"
        case Record.OUTPUT_AMEM:
            return f"OUTPUT_ASRAM AMEM[{entry.values[0]}]"
        case _:
            size = machine.params.columns if entry.kind != Record.AMEM else len(entry.values)
            values = [str(value) for value in entry.values[1:]]
            groups = [" ".join(values[i : i + size]) for i in range(0, len(values), size)]
            return f"{MEMORIES[entry.kind]}[{entry.values[0]}] = {'  '.join(groups)}"
