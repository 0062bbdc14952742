"""A program's words made ready for the interpreter: ranges, stalls, registers (datasheet 2, 3, 9).

Decides which fields of an instruction are wrong on this machine, from the tables of the instruction set; it must not
know what an instruction computes. A wrong word is no error until it is executed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import int64, typeof, void

from kohakuaccel.jit import leaf, separate
from kohakuaccel.machine import Machine
from tinytpu.isa import roles
from tinytpu.isa.codes import FIELDS, SXU, VPU, Epilogue
from tinytpu.isa.opcodes import OPCODES, Part
from tinytpu.isa.vpu import FLOAT, VPU_OPS
from tinytpu.machines import load
from tinytpu.units.faults import F
from tinytpu.units.state import (
    ABASE,
    CODE,
    FAULT,
    GOT,
    K_CONTROL,
    K_DISPATCH,
    K_FLOAT,
    K_INTEGER,
    K_MEMORY,
    K_MOVE,
    K_PSUM,
    K_REGISTER,
    KIND,
    LATENCY,
    LIMIT,
    MXU_DONE,
    MXU_IDLE,
    OP,
    PENDING_WRITE,
    READ_A,
    S_AMEM,
    S_SILICON,
    SRC,
    SRC2,
    STALL,
    TLEN,
    VMEM,
    WBASE,
    WRITES,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WRAPS, _FREE, _REFUSED = range(3)
"""What silicon does with a field beyond its limit: takes the remainder, takes it as it is, or something unknown."""

_ROLES: dict[roles.Role, tuple[F, int]] = {
    roles.VREG: (F.VREG, _WRAPS),
    roles.VMEM: (F.VMEM_ADDRESS, _WRAPS),
    roles.WMEM: (F.WMEM_ADDRESS, _WRAPS),
    roles.AMEM: (F.AMEM_ADDRESS, _WRAPS),
    roles.BUCKET: (F.BUCKET, _WRAPS),
    roles.ROW: (F.ROW, _WRAPS),
    roles.COLUMN: (F.LANE, _WRAPS),
    roles.AMOUNT: (F.LANE, _WRAPS),
    roles.ELEMENT: (F.LANE, _WRAPS),
    roles.TILES: (F.TILES, _FREE),
    roles.DEPTH: (F.K, _REFUSED),
    roles.COUNT: (F.LOOP_COUNT, _FREE),
    roles.SHIFT: (F.SHIFT, _FREE),
}
_STALLS = {"": 0, "P": PENDING_WRITE, "C": MXU_IDLE, "D": MXU_DONE}
_KINDS: dict[SXU, int] = {
    **dict.fromkeys((SXU.VPU, SXU.VPU_BG), K_INTEGER),
    **dict.fromkeys((SXU.LOAD, SXU.STORE), K_MEMORY),
    **dict.fromkeys((SXU.MXU, SXU.MXU_ACCUMULATE, SXU.MXU_OS, SXU.MXU_OS_ACCUMULATE, SXU.MXU_EPILOGUE), K_DISPATCH),
    **dict.fromkeys((SXU.DISPATCH_MXU_REQUANT, SXU.MXU_VPU_EPILOGUE), K_DISPATCH),
    **dict.fromkeys((SXU.PSUM_WRITE, SXU.PSUM_ACCUMULATE, SXU.PSUM_READ, SXU.PSUM_READ_ROW, SXU.PSUM_CLEAR), K_PSUM),
    **dict.fromkeys((SXU.PSUM_ACCUMULATE_ROW, SXU.PSUM_CLEAR_ALL), K_PSUM),
    **dict.fromkeys((SXU.BROADCAST, SXU.BROADCAST_SCALAR, SXU.BROADCAST_ROW, SXU.BROADCAST_COL), K_MOVE),
    **dict.fromkeys((SXU.TRANSPOSE, SXU.ROTATE), K_MOVE),
    **dict.fromkeys((SXU.LOOP_BEGIN, SXU.LOOP_END, SXU.SKIP_IF_PRED, SXU.SKIP_IF_NOT_PRED), K_CONTROL),
}
_VARIANTS = {SXU.VPU: ("1", "2"), SXU.VPU_BG: ("1", "2"), SXU.MXU: ("", "WRITE", "ACCUMULATE")}
_TO_VREG_OR_VMEM = ("", "VMEM")
"""An opcode's forms in the order of `_variant`."""


class Tables(NamedTuple):
    """The instruction set on one machine, as the decoder reads it. A form is an opcode, or one of its variants."""

    first: NDArray[np.int64]  # [opcodes] the number of an opcode's first form
    stall: NDArray[np.int64]  # [opcodes]
    kind: NDArray[np.int64]  # [opcodes]
    low: NDArray[np.int64]  # [forms, 9] the least value of a field
    end: NDArray[np.int64]  # [forms, 9] the first value beyond; 0 where anything goes
    mask: NDArray[np.int64]  # [forms, 9] the bits of the field that count
    fault: NDArray[np.int64]  # [forms, 9]
    silicon: NDArray[np.int64]  # [forms, 9] _WRAPS, _FREE or _REFUSED
    reads: NDArray[np.uint8]  # [forms, 9] the field is a vreg that is read
    writes: NDArray[np.int64]  # [forms] the field that is a vreg written, or -1
    fed: NDArray[np.uint8]  # [forms] vectors of AMEM are read from abase on
    unary: NDArray[np.uint8]  # [operations]
    latency: NDArray[np.int64]  # [operations]
    floats: NDArray[np.uint8]  # [operations] one of vpu_float's


@lru_cache(maxsize=16)
def tables(machine: Machine) -> Tables:
    """The tables of a machine, from the instruction set's rows."""
    forms = [
        (code, form)
        for code in SXU
        for form in (OPCODES[code].forms[key] for key in _VARIANTS.get(code, _TO_VREG_OR_VMEM)
                     if key in OPCODES[code].forms)
    ]  # fmt: skip
    shape = (len(forms), len(FIELDS))
    t = Tables(
        first=np.array([[code for code, _ in forms].index(code) for code in SXU], np.int64),
        stall=np.array([_STALLS[OPCODES[code].stall] for code in SXU], np.int64),
        kind=np.array([_KINDS.get(code, K_REGISTER) for code in SXU], np.int64),
        low=np.zeros(shape, np.int64),
        end=np.zeros(shape, np.int64),
        mask=np.full(shape, -1, np.int64),
        fault=np.zeros(shape, np.int64),
        silicon=np.zeros(shape, np.int64),
        reads=np.zeros(shape, np.uint8),
        writes=np.full(len(forms), -1, np.int64),
        fed=np.array(["abase" in form.uses for _, form in forms], np.uint8),
        unary=np.array([VPU_OPS[code].operands == 1 for code in VPU], np.uint8),
        latency=np.array([VPU_OPS[code].latency(machine) for code in VPU], np.int64),
        floats=np.array([VPU_OPS[code].data == FLOAT or code == VPU.I2F for code in VPU], np.uint8),
    )
    for i, (_, form) in enumerate(forms):
        for name, use in form.uses.items():
            role = use.role if isinstance(use, Part) else use
            if not isinstance(role, roles.Role) or role is roles.IMMEDIATE:
                continue
            column = FIELDS.index(use.field if isinstance(use, Part) else name)
            values = role.values(machine)
            t.low[i, column], t.end[i, column] = values.start, values.stop
            t.fault[i, column], t.silicon[i, column] = _ROLES[role]
            if isinstance(use, Part):
                t.mask[i, column] = (1 << (use.hi + 1)) - 1
        for name in form.reads:
            t.reads[i, FIELDS.index(name)] = 1
        if form.writes:
            t.writes[i] = FIELDS.index("dst")
    return t


TABLES = typeof(tables(load()))

_WIDTHS = tuple(roles.widths(load()).values())
"""Bits of the fields in silicon (datasheet 2)."""
_LAST_OPCODE, _LAST_CODE = max(SXU), max(VPU)
_BIAS, _TO_VMEM = int(Epilogue.BIAS), int(Epilogue.TO_VMEM)


@leaf
def _refuse(word: NDArray[np.int64], fault: int, got: int, limit: int) -> None:
    if word[FAULT] == F.NONE:
        word[FAULT], word[GOT], word[LIMIT] = fault, got, limit


@leaf
def _variant(word: NDArray[np.int64], t: Tables) -> int:
    """Which of its opcode's forms a word is."""
    op, code = word[OP], word[CODE]
    if op == SXU.VPU or op == SXU.VPU_BG:
        return 0 if t.unary[code] else 1
    if op == SXU.MXU:
        return word[SRC2]
    if op == SXU.MXU_EPILOGUE:
        return 1 if code & _TO_VMEM else 0
    return word[SRC2] & 1 if op == SXU.MXU_VPU_EPILOGUE else 0


@leaf
def _fields(word: NDArray[np.int64], t: Tables, form: int, silicon: int) -> None:
    """Hold every field to its limits: the first that breaks one is the word's fault. Silicon wraps addresses."""
    biased = word[OP] != SXU.MXU_EPILOGUE or word[CODE] & _BIAS != 0
    read = READ_A
    for c in range(t.end.shape[1]):
        end, value = t.end[form, c], word[c] & t.mask[form, c]
        if end == 0 or (c == SRC and not biased):
            continue
        if not t.low[form, c] <= value < end:
            rule = t.silicon[form, c]
            if silicon and rule == _WRAPS:
                word[c] = value % end
            elif not silicon or (rule == _REFUSED and value >= end):
                _refuse(word, t.fault[form, c], value, end - 1 if value >= end else t.low[form, c])
        if t.reads[form, c]:
            word[read] = word[c]
            read += 1
    if t.writes[form] >= 0:
        word[WRITES] = word[t.writes[form]]


@separate(void(int64[:, ::1], int64[:, ::1], int64[::1], TABLES), python=True)
def decode(fields: NDArray[np.int64], program: NDArray[np.int64], setting: NDArray[np.int64], t: Tables) -> None:
    """Fill program, int64[words, COLUMNS], from fields, int64[words, 9].

    A word's first wrong field stands in FAULT, GOT and LIMIT. GOT of a right SET_REQUANT_CONFIG is its multiplier.
    """
    silicon = setting[S_SILICON]
    for i in range(fields.shape[0]):
        word = program[i]
        for c in range(fields.shape[1]):
            value = fields[i, c]
            word[c] = value & ((1 << _WIDTHS[c]) - 1) if silicon else value
            if word[c] < 0:
                _refuse(word, F.FIELD.value, value, 0)
        for c in range(READ_A, WRITES + 1):
            word[c] = -1
        op, code = word[OP], word[CODE]
        if op < 0 or op > _LAST_OPCODE:
            _refuse(word, F.OPCODE.value, op, _LAST_OPCODE)
            continue
        word[STALL], word[KIND] = t.stall[op], t.kind[op]
        operates = word[KIND] == K_INTEGER or op == SXU.MXU_VPU_EPILOGUE
        if operates and (code < 0 or code > _LAST_CODE):
            _refuse(word, F.VPU_CODE.value, code, _LAST_CODE)
            continue
        if op == SXU.MXU and (word[SRC2] < 0 or word[SRC2] > 2):
            _refuse(word, F.PSUM_MODE.value, word[SRC2], 2)
            continue
        form = t.first[op] + _variant(word, t)
        _fields(word, t, form, silicon)
        if t.fed[form] and not silicon and word[ABASE] + word[TLEN] > setting[S_AMEM]:
            _refuse(word, F.AMEM_RANGE.value, word[ABASE] + word[TLEN], setting[S_AMEM])
        if word[KIND] == K_INTEGER:
            word[LATENCY] = t.latency[code]
            if t.floats[code]:
                word[KIND] = K_FLOAT
            if t.unary[code]:
                word[SRC2] = word[SRC]  # the second operand is ignored, so it is any vreg that exists
        elif op == SXU.SET_REQUANT_CONFIG and word[FAULT] == F.NONE:
            pattern = word[WBASE] & 255 | (word[ABASE] & 255) << 8 | (word[TLEN] & 255) << 16 | (word[VMEM] & 255) << 24
            word[GOT] = np.int64(np.int32(pattern))
