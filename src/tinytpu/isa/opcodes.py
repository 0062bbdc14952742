"""What each opcode of the sequencer means: fields, ways to write it, what it waits for, what it costs (datasheet 3, 8).

One row per opcode, with several forms where a field decides which others count. Formats, texts, checks, traces and
tables are made from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tinytpu.isa.codes import SXU, Psum
from tinytpu.isa.roles import (
    AMEM,
    AMOUNT,
    BUCKET,
    COLUMN,
    COUNT,
    DEPTH,
    ELEMENT,
    IMMEDIATE,
    ROW,
    SHIFT,
    TILES,
    VMEM,
    VREG,
    WMEM,
    Role,
)
from tinytpu.isa.vpu import BINARY, UNARY


@dataclass(frozen=True)
class Named:
    """A field that holds one of several names."""

    values: Mapping[str, int]


@dataclass(frozen=True)
class Part:
    """Bits hi..lo of a field as an operand of its own, or always `value`; bits that no operand claims are 0."""

    field: str
    hi: int
    lo: int
    role: Role | None = None
    value: int | None = None


@dataclass(frozen=True)
class Joined:
    """A signed operand whose bytes are the low bytes of several fields, the most significant first."""

    fields: tuple[str, ...]


Use = Role | Named | Part | Joined | int
"""What an operand is. A number is a field that always holds it; a Role or Named stands in the field of its name."""
Way = str | tuple[str, Mapping[str, int | str]]
"""A template, and the values of operands that it does not show (a text: as that operand)."""


@dataclass(frozen=True)
class Form:
    """One kind of instruction of an opcode. uses: its operands; all other bits are 0. ways: how it is written, the
    first fitting one when it is printed."""

    ways: tuple[Way, ...]
    uses: Mapping[str, Use]

    @property
    def reads(self) -> tuple[str, ...]:
        """Fields that name a vreg which is read."""
        return tuple(name for name, use in self.uses.items() if use is VREG and name != "dst")

    @property
    def writes(self) -> bool:
        """Whether field dst names a vreg that is written."""
        return self.uses.get("dst") is VREG


@dataclass(frozen=True)
class Opcode:
    """stall: what EXEC waits for, "P" a background write-back, "C" the MXU idle or done, "D" the MXU done. cycles:
    FETCH to FETCH with nothing in flight, in words where the machine or the operation decides."""

    code: SXU
    effect: str
    stall: str
    cycles: str
    forms: Mapping[str, Form]


def operand(name: str, use: Use, word: Mapping[str, int]) -> int | None:
    """The value of an operand in an instruction's fields; None where a form always has the same."""
    match use:
        case Role() | Named():
            return word[name]
        case Part(value=None):
            width = use.hi - use.lo + 1
            value = word[use.field] >> use.lo & ((1 << width) - 1)
            return value - (1 << width) if use.role is IMMEDIATE and value >> (width - 1) else value
        case Joined():
            return int.from_bytes(bytes(word[part] & 255 for part in use.fields), "big", signed=True)
        case _:
            return None


def _form(*ways: Way, **uses: Use) -> Form:
    return Form(ways, uses)


def _one(code: SXU, effect: str, way: str = "", stall: str = "", cycles: str = "2", /, **uses: Use) -> Opcode:
    """An opcode of one form; without operands written as its name."""
    return Opcode(code, effect, stall, cycles, {"": _form(f"{code.name} {way}".strip(), **uses)})


def _vpu(code: SXU, effect: str, cycles: str) -> Opcode:
    head = f"{code.name} v{{dst}} = {{vpu}}(v{{src}}"
    one = _form(head + ")", dst=VREG, src=VREG, vpu=Named(UNARY))
    two = _form(head + ", v{src2})", dst=VREG, src=VREG, src2=VREG, vpu=Named(BINARY))
    return Opcode(code, effect, "P", cycles, {"1": one, "2": two})


_FED = "WMEM[{wbase}], AMEM[{abase}]"
_GEMM = f"GEMM({_FED}, tiles={{tlen}})"
_WS: dict[str, Use] = {"wbase": WMEM, "abase": AMEM, "tlen": TILES}
_OS: dict[str, Use] = {**_WS, "tlen": DEPTH}
_FLAGS: dict[str, Use] = {
    "src": VREG,
    "bias": Part("vpu", 0, 0),
    "relu": Part("vpu", 1, 1),
    "reduce": Part("vpu", 2, 2),
    "sumsq": Part("vpu", 3, 3),
}
_OP46: dict[str, Use] = {"src": VREG, "vpu": Named({**UNARY, **BINARY})}
_UNARY: dict[str, Use] = {"dst": VREG, "src": VREG}


_TABLE = (
    _one(SXU.LOAD, "dst := VMEM[vmem]", "v{dst}, VMEM[{vmem}]", "P", "3", dst=VREG, vmem=VMEM),
    _one(SXU.STORE, "VMEM[vmem] := src", "VMEM[{vmem}], v{src}", "P", src=VREG, vmem=VMEM),
    _vpu(SXU.VPU, "dst := op(src, src2), blocking", "L+2"),
    Opcode(
        SXU.BROADCAST,
        "dst[r][c] := src[r][lane]",
        "P",
        "2",
        {
            "": _form(
                ("BROADCAST v{dst}, lane={src2}", {"src": "dst"}),
                ("BROADCAST v{dst}", {"src": "dst"}),
                "BROADCAST v{dst} = LANE(v{src}, lane={src2})",
                src2=COLUMN,
                **_UNARY,
            )
        },
    ),
    Opcode(
        SXU.MXU,
        "start a weight-stationary dispatch; the results go to a PSUM bucket row, are added to it, or neither",
        "C",
        "2",
        {
            "": _form(f"MXU {_FED}, tiles={{tlen}}", **_WS),
            "WRITE": _form(
                f"MXU {_FED}, tiles={{tlen}}, psum_write=PSUM[{{dst}}], psum_row={{src}}",
                dst=BUCKET,
                src=ROW,
                src2=int(Psum.WRITE),
                **_WS,
            ),
            "ACCUMULATE": _form(
                f"MXU {_FED}, tiles={{tlen}}, psum_acc=PSUM[{{dst}}], psum_row={{src}}",
                dst=BUCKET,
                src=ROW,
                src2=int(Psum.ACCUMULATE),
                **_WS,
            ),
        },
    ),
    _one(SXU.WAIT_MXU, "wait until the MXU is done", "", "D"),
    _one(SXU.LOAD_MXU_RESULT, "dst := row0(results)", "v{dst}", "D", dst=VREG),
    _one(SXU.HALT, "stop in the FETCH cycle", "", "", "1"),
    _one(
        SXU.SELECT,
        "dst := src != 0 ? src2 : vreg wbase, lane by lane; the result register too",
        "v{dst} = SELECT(v{src}, v{src2}, v{wbase})",
        "P",
        "4",
        dst=VREG,
        src=VREG,
        src2=VREG,
        wbase=VREG,
    ),
    _one(
        SXU.BROADCAST_SCALAR,
        "dst[r][c] := src[row][col]",
        "v{dst} = v{src}[{element}]",
        "P",
        src2=ELEMENT,
        **_UNARY,
    ),
    _one(
        SXU.BROADCAST_ROW,
        "dst[r][c] := src[row][c]",
        "v{dst} = ROW(v{src}, row={src2})",
        "P",
        src2=ROW,
        **_UNARY,
    ),
    _one(
        SXU.BROADCAST_COL,
        "dst[r][c] := src[r][col]",
        "v{dst} = COL(v{src}, col={src2})",
        "P",
        src2=COLUMN,
        **_UNARY,
    ),
    _one(SXU.TRANSPOSE, "dst[r][c] := src[c][r]", "v{dst}, v{src}", "P", **_UNARY),
    _one(SXU.LOAD_VPU_RESULT, "dst := VPU result register", "v{dst}", "P", dst=VREG),
    _one(SXU.LOAD_XLU_RESULT, "dst := XLU result register", "v{dst}", dst=VREG),
    _one(SXU.PSUM_WRITE, "bucket := src", "PSUM[{vmem}], v{src}", "P", vmem=BUCKET, src=VREG),
    _one(SXU.PSUM_ACCUMULATE, "bucket += src", "PSUM[{vmem}], v{src}", "P", vmem=BUCKET, src=VREG),
    _one(SXU.PSUM_READ, "dst := bucket", "v{dst}, PSUM[{vmem}]", "", "3", vmem=BUCKET, dst=VREG),
    _one(
        SXU.PSUM_READ_ROW,
        "dst := row0(bucket[row])",
        "v{dst}, PSUM[{vmem}], row={src}",
        vmem=BUCKET,
        dst=VREG,
        src=ROW,
    ),
    _one(SXU.PSUM_CLEAR, "bucket := 0", "PSUM[{vmem}]", vmem=BUCKET),
    _one(SXU.SET_PRED_IF_ZERO, "pred := src[0][0] == 0", "v{src}", "P", src=VREG),
    _one(SXU.SKIP_IF_PRED, "pc += pred ? 2 : 1; pred := 0"),
    _one(
        SXU.PSUM_ACCUMULATE_ROW,
        "bucket[row] += row 0 of src",
        "PSUM[{vmem}], v{src}, row={dst}",
        "P",
        vmem=BUCKET,
        src=VREG,
        dst=ROW,
    ),
    _one(SXU.MXU_ACCUMULATE, "as MXU, sums kept before and after", f"{_FED}, tiles={{tlen}}", "C", **_WS),
    _one(SXU.MXU_CLEAR, "sums of the array := 0", "", "C"),
    _one(SXU.MXU_OS, "start an output-stationary dispatch, sums cleared before", f"{_FED}, k={{tlen}}", "C", **_OS),
    _one(SXU.LOAD_MXU_MATRIX_ROW, "dst := row0(matrix[row])", "v{dst}, row={src}", "D", dst=VREG, src=ROW),
    _one(SXU.READ_CYCLE, "dst := 0 but [0][0] := number of this EXEC cycle", "v{dst}", dst=VREG),
    _one(SXU.LOOP_BEGIN, "push (count, pc + 1)", "count={tlen}", tlen=COUNT),
    _one(SXU.LOOP_END, "top > 1: top -= 1 and jump to its pc; else pop"),
    _one(SXU.VZERO, "dst := 0", "v{dst}", dst=VREG),
    _one(SXU.VFILL, "dst := sign-extended imm8", "v{dst}, imm={imm}", dst=VREG, imm=Part("wbase", 7, 0, IMMEDIATE)),
    _one(SXU.VMOV, "dst := src", "v{dst}, v{src}", "P", **_UNARY),
    _one(SXU.MXU_OS_ACCUMULATE, "as MXU_OS, sums kept before", f"{_FED}, k={{tlen}}", "C", **_OS),
    _one(SXU.VNEG, "dst := -src", "v{dst}, v{src}", "P", **_UNARY),
    _one(SXU.VABS, "dst := abs(src); INT_MIN stays", "v{dst}, v{src}", "P", **_UNARY),
    _one(SXU.LOAD_LOOP_DEPTH, "dst := 0 but [0][0] := depth of the loop stack", "v{dst}", dst=VREG),
    _one(
        SXU.ROTATE,
        "dst[r][c] := src[r][(c + n) mod columns]",
        "v{dst}, v{src}, amount={src2}",
        "P",
        src2=AMOUNT,
        **_UNARY,
    ),
    _one(SXU.PSUM_CLEAR_ALL, "all buckets := 0, one a cycle", "", "", "1+buckets"),
    _one(SXU.SET_PRED_NE_ZERO, "pred := src[0][0] != 0", "v{src}", "P", src=VREG),
    _one(SXU.SKIP_IF_NOT_PRED, "pc += pred ? 1 : 2; pred := 0"),
    _vpu(SXU.VPU_BG, "dst := op(src, src2), written in the background", "2, 1 at the write-back"),
    Opcode(
        SXU.MXU_EPILOGUE,
        "blocking dispatch; the array's sums, plus bias, relu, row sums, to a vreg or VMEM",
        "C",
        "tlen+rows+7",
        {
            "": _form(f"MXU_EPILOGUE v{{dst}} = {_GEMM} {{flags}}DST_VREG", dst=VREG, **_FLAGS, **_WS),
            "VMEM": _form(
                f"MXU_EPILOGUE v0 = {_GEMM} {{flags}}DST_VMEM[{{vmem}}]",
                vmem=VMEM,
                to_vmem=Part("vpu", 4, 4, value=1),
                **_FLAGS,
                **_WS,
            ),
        },
    ),
    _one(SXU.LOAD_EPILOGUE_STAT, "dst[r][0], [r][1] := low and high word of stat[r]", "v{dst}", "D", dst=VREG),
    _one(
        SXU.SET_REQUANT_CONFIG,
        "latch a signed multiplier and a shift",
        "scale_mul={mul} scale_shift={shift}",
        "C",
        mul=Joined(("vmem", "tlen", "abase", "wbase")),
        shift=Part("vpu", 4, 0, SHIFT),
    ),
    _one(
        SXU.DISPATCH_MXU_REQUANT,
        "start a dispatch whose results are scaled to int8 into an AMEM vector",
        "WMEM[{wbase}] AMEM[{abase}] tiles={tlen} ASRAM[{vmem}]",
        "C",
        vmem=AMEM,
        **_WS,
    ),
    Opcode(
        SXU.MXU_VPU_EPILOGUE,
        "blocking dispatch; row0(op(results, row 0 of src)) to a vreg or VMEM",
        "C",
        "tlen+rows+7",
        {
            "": _form(
                f"MXU_VPU_EPILOGUE v{{dst}} = {_GEMM} SRC2=v{{src}} OP={{vpu}} DST_VREG", dst=VREG, **_OP46, **_WS
            ),
            "VMEM": _form(
                f"MXU_VPU_EPILOGUE v0 = {_GEMM} SRC2=v{{src}} OP={{vpu}} DST_VMEM[{{vmem}}]",
                vmem=VMEM,
                to_vmem=Part("src2", 0, 0, value=1),
                **_OP46,
                **_WS,
            ),
        },
    ),
)
OPCODES: dict[SXU, Opcode] = {row.code: row for row in _TABLE}
