"""Programs that combine tiles of VMEM: what adds, or compares, what came from other cores.

Decides the instructions of an operation on a number format. It must not know where tiles come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.machine import Machine
from tinytpu.cores.scripts import Bundle
from tinytpu.isa.codes import VPU
from tinytpu.isa.words import row_of
from tinytpu.units.core import Image

OPERATIONS: Mapping[tuple[str, str], VPU | None] = {
    ("int32", "add"): VPU.ADD,
    ("int32", "max"): VPU.MAX,
    ("int32", "min"): VPU.MIN,
    ("float32", "add"): VPU.FADD,
    ("float32", "max"): VPU.FMAX,
    ("float32", "min"): VPU.FMIN,
    ("int8", "add"): None,
    ("int8", "max"): VPU.PACKED_I8_MAX,
    ("int8", "min"): VPU.PACKED_I8_MIN,
}
"""By format and operation; None: bytes are added as words, without their top bits, which are set right afterwards."""

_ACC, _OTHER, _LOW, _HIGH, _MIXED, _SHIFT = range(6)


def check_operation(dtype: str, op: str) -> None:
    """Raises Refusal for what no instruction combines."""
    if (dtype, op) not in OPERATIONS:
        known = ", ".join(f"{o} of {d}" for d, o in OPERATIONS)
        raise Refusal("tiles are combined by an instruction", where="op", got=f"{op} of {dtype}", limit=known)


@cache
def combining(machine: Machine, dtype: str, op: str, groups: tuple[tuple[int, tuple[int, ...]], ...]) -> Bundle:
    """The program that combines, for each (slot, others), the tile in `slot` with each of `others` in their order, and
    leaves the result in `slot`: `((slot op others[0]) op others[1]) ..`. Nothing is filled, nothing is output.

    Raises Refusal for a format and operation that are not there, and for a program longer than program memory.
    """
    check_operation(dtype, op)
    code = OPERATIONS[dtype, op]
    rows: list[list[int]] = []

    def emit(form: str, **fields: int | str) -> None:
        rows.append(row_of(machine, form, **fields))

    def vpu(name: str, dst: int, a: int, b: int | None = None) -> None:
        if b is None:
            emit("VPU.1", dst=dst, src=a, vpu=name)
        else:
            emit("VPU.2", dst=dst, src=a, src2=b, vpu=name)

    if code is None:
        # Top bits of bytes, 80808080, and the others: abs of a byte -1 is 1.
        emit("VFILL", dst=_HIGH, imm=-1)
        vpu("PACKED_I8_ABS", _HIGH, _HIGH)
        emit("VFILL", dst=_SHIFT, imm=7)
        vpu("SHL", _HIGH, _HIGH, _SHIFT)
        vpu("NOT", _LOW, _HIGH)
    for slot, others in groups:
        emit("LOAD", dst=_ACC, vmem=slot)
        for other in others:
            emit("LOAD", dst=_OTHER, vmem=other)
            if code is not None:
                vpu(code.name, _ACC, _ACC, _OTHER)
                continue
            vpu("XOR", _MIXED, _ACC, _OTHER)
            vpu("AND", _MIXED, _MIXED, _HIGH)
            vpu("AND", _ACC, _ACC, _LOW)
            vpu("AND", _OTHER, _OTHER, _LOW)
            vpu("ADD", _ACC, _ACC, _OTHER)
            vpu("XOR", _ACC, _ACC, _MIXED)
        emit("STORE", vmem=slot, src=_ACC)
    emit("HALT")
    most = int(machine.params.program_words)
    if len(rows) > most:
        raise Refusal(
            "instructions of a program", where=f"{op} of {len(groups)} tiles", got=len(rows), limit=most,
            hint="combine fewer tiles at once",
        )  # fmt: skip
    return Bundle(Image(np.array(rows, np.int64)), f"{op} {dtype}")


def combined(slots: Sequence[int], others: Sequence[Sequence[int]]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Groups for `combining`: tile k of `slots` with tile k of each of `others`."""
    return tuple((slot, tuple(o[k] for o in others)) for k, slot in enumerate(slots))
