"""What no program may hold, before it runs (datasheet 8, 9): values beyond a machine's limits and lost control flow.

Looks at decoded rows, int64[n, 9], as bundles hold them. Fields that an instruction does not use may hold anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import EncodingRefusal, SourceLine
from kohakuaccel.machine import Machine
from tinytpu.isa.codes import FIELDS, SXU, VPU, Column, Epilogue, Psum
from tinytpu.isa.opcodes import OPCODES, Form, Named, Part
from tinytpu.isa.roles import Role, widths
from tinytpu.isa.words import name_of

SourceOf = Callable[[int], SourceLine | None]
"""pc -> the line of the program that the instruction stands on."""
SKIPS = (SXU.SKIP_IF_PRED, SXU.SKIP_IF_NOT_PRED)
"""Instructions that may step over the next one."""


@dataclass(frozen=True)
class _Limit:
    """Bits of a column and what they may hold."""

    column: int
    lo: int
    mask: int
    name: str
    values: range


@lru_cache(maxsize=1024)
def _limits(machine: Machine, code: SXU, key: str) -> tuple[_Limit, ...]:
    found: list[_Limit] = []
    for name, use in OPCODES[code].forms[key].uses.items():
        match use:
            case Role():
                found.append(_Limit(FIELDS.index(name), 0, -1, f"{name} ({use.name})", use.values(machine)))
            case Part(role=Role() as role) if (values := role.values(machine))[0] >= 0:
                mask = (1 << (use.hi - use.lo + 1)) - 1
                found.append(_Limit(FIELDS.index(use.field), use.lo, mask, f"{name} ({role.name})", values))
            case _:
                pass
    return tuple(found)


def form_of(row: NDArray[np.int64] | list[int]) -> tuple[SXU, str]:
    """The opcode of an instruction and the key of its form. The opcode must exist."""
    code = SXU(int(row[Column.OP]))
    match code:
        case SXU.VPU | SXU.VPU_BG:
            forms = OPCODES[code].forms
            use = forms["1"].uses["vpu"]
            return code, "1" if isinstance(use, Named) and int(row[Column.VPU]) in use.values.values() else "2"
        case SXU.MXU:
            return code, {Psum.WRITE: "WRITE", Psum.ACCUMULATE: "ACCUMULATE"}.get(Psum(int(row[Column.SRC2])), "")
        case SXU.MXU_EPILOGUE:
            return code, "VMEM" if int(row[Column.VPU]) & Epilogue.TO_VMEM else ""
        case SXU.MXU_VPU_EPILOGUE:
            return code, "VMEM" if int(row[Column.SRC2]) & 1 else ""
        case _:
            return code, ""


def check_row(machine: Machine, row: NDArray[np.int64] | list[int], where: str, source: SourceLine | None) -> None:
    """Refuses an instruction that is wrong on its own. `where` names its place. Raises EncodingRefusal."""
    row = [int(value) for value in row]

    def refuse(rule: str, field: str, got: object, limit: object = None, hint: str = "") -> EncodingRefusal:
        place = f"{where}, {name_of(row)}" + (f".{field}" if field else "")
        return EncodingRefusal(rule, where=place, got=got, limit=limit, hint=hint, source=source)

    for name, value in zip(FIELDS, row):
        bits = widths(machine)[name]
        if not 0 <= value < 1 << bits:
            raise refuse("value does not fit the field", name, value, f"0..{(1 << bits) - 1} ({bits} bits)")
    op, vpu = row[Column.OP], row[Column.VPU]
    if op > max(SXU):
        raise refuse("no such opcode", "", op, int(max(SXU)))
    if op in (SXU.VPU, SXU.VPU_BG, SXU.MXU_VPU_EPILOGUE) and vpu > max(VPU):
        raise refuse("no such operation of the vector unit", "vpu", vpu, int(max(VPU)))
    if op == SXU.MXU and row[Column.SRC2] > max(Psum):
        raise refuse("no such PSUM mode", "src2", row[Column.SRC2], "0 none, 1 write, 2 accumulate")
    if op == SXU.MXU_EPILOGUE and vpu >= 2 * Epilogue.TO_VMEM:
        raise refuse("an epilogue has five flags", "vpu", vpu, 2 * Epilogue.TO_VMEM - 1)
    code, key = form_of(row)
    form = OPCODES[code].forms[key]
    for limit in _limits(machine, code, key):
        value = (row[limit.column] >> limit.lo) & limit.mask
        if value not in limit.values and not _unread(form, limit, row):
            shown = f"{limit.values[0]}..{limit.values[-1]}"
            raise refuse("value beyond the machine's limit", limit.name, value, shown)
    if "abase" in form.uses and row[Column.ABASE] + row[Column.TLEN] > machine.params.amem_vectors:
        raise refuse(
            "the vectors end beyond AMEM (abase + tlen)",
            "abase",
            f"{row[Column.ABASE]} + {row[Column.TLEN]} = {row[Column.ABASE] + row[Column.TLEN]}",
            f"{machine.params.amem_vectors} vectors",
        )


def _unread(form: Form, limit: _Limit, row: list[int]) -> bool:
    """Whether the field is a bias that no flag asks for."""
    return "bias" in form.uses and limit.column == Column.SRC and not row[Column.VPU] & Epilogue.BIAS


def check_program(machine: Machine, rows: NDArray[np.int64], source: SourceOf | None = None) -> None:
    """Refuses the first instruction of a program that cannot be right. Raises EncodingRefusal with pc and line."""

    def line(pc: int) -> SourceLine | None:
        return source(pc) if source is not None and pc >= 0 else None

    def refuse(rule: str, pc: int, got: object = None, limit: object = None, hint: str = "") -> EncodingRefusal:
        where = f"pc {pc}, {name_of(rows[pc])}" if 0 <= pc < len(rows) else "program"
        return EncodingRefusal(rule, where=where, got=got, limit=limit, hint=hint, source=line(pc))

    most = machine.params.program_words
    open_loops: list[int] = []
    for pc, row in enumerate(rows):
        if pc >= most:
            raise refuse("the program does not fit program memory", pc, f"{len(rows)} words", f"{most} words")
        check_row(machine, row, f"pc {pc}", line(pc))
        op = int(row[Column.OP])
        if op == SXU.LOOP_BEGIN:
            open_loops.append(pc)
            if len(open_loops) > machine.params.loop_depth:
                raise refuse("loops too deep inside each other", pc, len(open_loops), machine.params.loop_depth)
        elif op == SXU.LOOP_END:
            if not open_loops:
                raise refuse("LOOP_END closes no loop", pc, hint="write a LOOP_BEGIN before it")
            open_loops.pop()
        elif op in SKIPS and pc >= len(rows) - 2:
            raise refuse("the instruction could step past the end", pc, f"{pc} of {len(rows)} words", len(rows) - 3)
    if open_loops:
        raise refuse("LOOP_BEGIN is never closed", open_loops[-1], hint="write a LOOP_END behind it")
    if not len(rows) or int(rows[-1][Column.OP]) != SXU.HALT:
        raise refuse("the last instruction is HALT", len(rows) - 1, None if len(rows) else "an empty program")
