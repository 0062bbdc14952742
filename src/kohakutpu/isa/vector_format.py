"""The vector core's 32-bit words (datasheet 6.2, 6.3), their opcodes and their text.

Text follows the datasheet's examples: `VFMA v3,v1,S4,v2`, `VMUL v5,v5,v6 ?P2` (where P2 is set; `?!P2`
where clear), `VLD v3,A2+8 FP16`, `VDRAIN A3,64 -> (2,1) buf 0 ack`, `VSETI S4,0x3f8000`. A leading `+` marks
a word whose unused selectors are K0, as a non-head word of a chain needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import EncodingRefusal
from kohakuaccel.isa import Field, Format, InstructionSet
from kohakuaccel.isa.instructions import Operand, Row, Syntax, source_lines


class OP(IntEnum):
    """Opcodes, bits 31:27."""

    VMOV = 0x00
    VNEG = 0x01
    VABS = 0x02
    VADD = 0x03
    VSUB = 0x04
    VMUL = 0x05
    VFMA = 0x06
    VFNMA = 0x07
    VMAX = 0x08
    VMIN = 0x09
    VSEL = 0x0A
    VCMPLT = 0x0B
    VCMPGT = 0x0C
    VCMPEQ = 0x0D
    VEXP2 = 0x0E
    VLOG2 = 0x0F
    VINV = 0x10
    VRSQRT = 0x11
    VCVT = 0x12
    VRED = 0x13
    VLD = 0x14
    VST = 0x15
    VBCAST = 0x16
    VSHUF = 0x17
    VSETVL = 0x18
    VSETMODE = 0x19
    VSETI = 0x1A
    VLOOP = 0x1B
    VBAR = 0x1C
    VFILL = 0x1D
    VDRAIN = 0x1E
    VHALT = 0x1F


class SRC(IntEnum):
    """Source selectors."""

    V = 0
    S = 1
    C = 2
    K = 3


class MODE(IntEnum):
    """Chain modes of VSETMODE."""

    FLAT = 0
    D2 = 1
    D4 = 2
    TREE = 3


class DTYPE(IntEnum):
    """Memory types of VLD, VST, VCVT."""

    FP16 = 1
    FP32 = 2


class RED(IntEnum):
    """Kinds of VRED."""

    SUM = 0
    MAX = 1
    MIN = 2
    SUMSQ = 3
    DOT = 4
    EXPSUM = 5
    ANY = 6
    ALL = 7


class FAULT(IntEnum):
    """Fault codes (datasheet 6.3)."""

    F_DTYPE = 1
    F_VSRC = 2
    F_CHAIN = 3
    F_OPCODE = 4
    F_LEN = 5
    F_LOOP = 6
    F_VL = 7
    F_REDVL = 8
    F_CUDATA = 9
    F_NONFIN = 10


# Which sources an ALU operation reads, in the order its text lists them (datasheet 6.3: ADD and SUB use vc).
ALU_SOURCES: dict[OP, str] = {
    **dict.fromkeys((OP.VMOV, OP.VNEG, OP.VABS, OP.VEXP2, OP.VLOG2, OP.VINV, OP.VRSQRT), "a"),
    **dict.fromkeys((OP.VADD, OP.VSUB), "ac"),
    **dict.fromkeys((OP.VMUL, OP.VMAX, OP.VMIN, OP.VCMPLT, OP.VCMPGT, OP.VCMPEQ), "ab"),
    **dict.fromkeys((OP.VFMA, OP.VFNMA, OP.VSEL), "abc"),
}
COMPARES = (OP.VCMPLT, OP.VCMPGT, OP.VCMPEQ)


def _named(kind: type[IntEnum]) -> dict[str, int]:
    return {member.name: member.value for member in kind}


def _alu(op: OP) -> Format:
    selectors = [Field(f"s{s}", (26 - 2 * i, 25 - 2 * i)) for i, s in enumerate("abc")]
    registers = [Field(f"v{s}", (20 - 4 * i, 17 - 4 * i)) for i, s in enumerate("dabc")]
    masks = [
        Field("pr", (4, 3)),
        Field("pm", (2, 1), values=range(3), doc="0 all, 1 where P set, 2 where clear"),
    ]
    return Format(op.name, 32, [*selectors, *registers, *masks], {(31, 27): op, 0: 0})


def _memory(op: OP) -> Format:
    fields = [
        Field("dtype", (26, 24), values=_named(DTYPE), default=1),
        Field("ad", (23, 21)),
        Field("vd", (20, 17)),
        Field("off", (13, 0), signed=True, doc="L1 words"),
    ]
    return Format(op.name, 32, fields, {(31, 27): op, (16, 14): 0})


def _transfer(op: OP) -> Format:
    fields = [Field("ad", (23, 21)), Field("off", (13, 0), values=range(512), doc="first L1 word")]
    return Format(op.name, 32, fields, {(31, 27): op, (26, 24): 0, (20, 14): 0})


def _word(op: OP, *fields: Field) -> Format:
    """A format whose remaining bits are zero."""
    used = {bit for f in fields for hi, lo in f.slices for bit in range(lo, hi + 1)}
    zeros: dict[tuple[int, int] | int, int] = {bit: 0 for bit in range(27) if bit not in used}
    return Format(op.name, 32, fields, {(31, 27): op, **zeros})


_VD, _VA, _VB = Field("vd", (20, 17)), Field("va", (16, 13)), Field("vb", (12, 9))
_FORMATS: dict[str, Format] = {op.name: _alu(op) for op in ALU_SOURCES}
_FORMATS |= {
    "VCVT": _word(OP.VCVT, Field("dtype", (26, 24), values=_named(DTYPE), default=1), _VD, _VA),
    "VRED": _word(OP.VRED, _VD, _VA, _VB, Field("kind", (7, 5), values=_named(RED)), Field("pr", (4, 3))),
    "VLD": _memory(OP.VLD),
    "VST": _memory(OP.VST),
    "VBCAST": _word(OP.VBCAST, Field("sa", (26, 25)), _VD, _VA),
    "VSHUF": _word(OP.VSHUF, _VD, _VA, _VB),
    "VSETVL": _word(OP.VSETVL, _VA),
    "VSETMODE": _word(OP.VSETMODE, Field("mode", (14, 13), values=_named(MODE))),
    "VSETI": _word(OP.VSETI, Field("sa", (26, 25)), _VD),
    "VLOOP": _word(OP.VLOOP, _VA, Field("body", (12, 9), values=range(1, 16), default=1, doc="words")),
    "VBAR": _word(OP.VBAR),
    "VFILL": _transfer(OP.VFILL),
    "VDRAIN": _transfer(OP.VDRAIN),
    "VDRAIN_NODE": Format(
        "VDRAIN_NODE",
        32,
        [
            Field("quant", 26, doc="the words are FP16 entries, quantised on their way, r2_vc_quant"),
            Field("ack", 25),
            Field("ad", (23, 21)),
            Field("dst_x", (20, 17)),
            Field("dst_y", (16, 13)),
            Field("buf", (12, 9)),
            Field("word", (8, 0), doc="first L1 word"),
        ],
        {(31, 27): OP.VDRAIN, 24: 1},
    ),
    "VHALT": _word(OP.VHALT),
}


def _source(which: str) -> Operand:
    select, register = f"s{which}", f"v{which}"

    def show(row: Row) -> tuple[str, tuple[str, ...]]:
        letter = "vSCK"[row[select]]
        number = "" if letter == "C" and row[register] == 0 else str(row[register])
        return letter + number, (select, register)

    def read(text: str) -> dict[str, int]:
        return {select: "vSCK".index(text[0]), register: int(text[1:] or 0)}

    return Operand(r"[vSK]\d+|C\d*", show, read)


def _mask(always: bool) -> Operand:
    """The predicate of an ALU word; `always`: the predicate register is shown elsewhere (compares)."""

    def show(row: Row) -> tuple[str, tuple[str, ...]]:
        if row["pm"] == 0:
            return "", ("pm",) if always or row["pr"] else ("pm", "pr")
        return f" ?{'!' if row['pm'] == 2 else ''}P{row['pr']}", ("pm", "pr")

    def read(text: str) -> dict[str, int]:
        text = text.strip()
        if not text:
            return {"pm": 0}
        return {"pm": 2 if "!" in text else 1, "pr": int(text[text.index("P") + 1 :])}

    return Operand(r"(?:\s+\?!?P\d+)?", show, read)


def _flag_operand(name: str) -> Operand:
    """A one-bit field, shown by its name where it is set."""

    def show(row: Row) -> tuple[str, tuple[str, ...]]:
        return f" {name}" if row[name] else "", (name,)

    return Operand(rf"(?:\s+{name})?", show, lambda text: {name: int(bool(text.strip()))})


def _alu_syntax(op: OP) -> list[Syntax]:
    sources = ALU_SOURCES[op]
    listed = ",".join(f"{{{s}}}" for s in sources)
    target = "P{pr}" if op in COMPARES else "v{vd}"
    mask = "{cmask}" if op in COMPARES else "{mask}"
    unused = [s for s in "abc" if s not in sources]
    chained: dict[str, int | str] = {f"s{s}": int(SRC.K) for s in unused}
    plain = Syntax(f"{op.name} {target},{listed}{mask}")
    return [plain, Syntax(f"+ {op.name} {target},{listed}{mask}", chained)] if unused else [plain]


_REDUCTIONS = [
    *(Syntax(f"VRED S{{vd}},v{{va}},{k}", {"kind": RED[k].value}) for k in ("SUM", "MAX", "MIN")),
    Syntax("VRED S{vd},v{va},SUMSQ", {"kind": RED.SUMSQ, "vb": "va"}),
    Syntax("VRED S{vd},v{va},v{vb},DOT", {"kind": RED.DOT}),
    Syntax("VRED S{vd},v{va},EXPSUM->v{vb}", {"kind": RED.EXPSUM}),
    *(Syntax(f"VRED S{{vd}},P{{pr}},{k}", {"kind": RED[k].value}) for k in ("ANY", "ALL")),
]
_SYNTAX: dict[str, Sequence[Syntax]] = {op.name: _alu_syntax(op) for op in ALU_SOURCES}
_SYNTAX |= {
    "VCVT": [Syntax("VCVT v{vd},v{va} {dtype}")],
    "VRED": _REDUCTIONS,
    "VLD": [Syntax("VLD v{vd},A{ad}{off:+} {dtype}")],
    "VST": [Syntax("VST v{vd},A{ad}{off:+} {dtype}")],
    "VBCAST": [Syntax("VBCAST v{vd},S{va}", {"sa": SRC.S}), Syntax("VBCAST S{vd},v{va}")],
    "VSHUF": [Syntax("VSHUF v{vd},v{va},S{vb}")],
    "VSETVL": [Syntax("VSETVL S{va}")],
    "VSETMODE": [Syntax("VSETMODE {mode}")],
    "VSETI": [Syntax("VSETI K3", {"sa": SRC.K}), Syntax("VSETI S{vd}")],
    "VLOOP": [Syntax("VLOOP S{va},{body}")],
    "VFILL": [Syntax("VFILL A{ad},{off}")],
    "VDRAIN": [Syntax("VDRAIN A{ad},{off}")],
    "VDRAIN_NODE": [Syntax("VDRAIN A{ad},{word} -> ({dst_x},{dst_y}) buf {buf}{quant_}{ack_}")],
}
WORDS = InstructionSet(
    "vector",
    (31, 27),
    _FORMATS,
    _SYNTAX,
    {
        **{s: _source(s) for s in "abc"},
        "mask": _mask(always=False),
        "cmask": _mask(always=True),
        "ack_": _flag_operand("ack"),
        "quant_": _flag_operand("quant"),
    },
)
IMMEDIATE_BITS = 24


def is_seti(word: int) -> bool:
    """Whether the word after this one is its immediate."""
    return word >> 27 == OP.VSETI


def listing(words: Iterable[int] | NDArray[np.uint32]) -> list[tuple[int, str]]:
    """(program counter, text) per instruction; a VSETI and its immediate are one."""
    code = [int(w) for w in words]
    lines: list[tuple[int, str]] = []
    pc = 0
    while pc < len(code):
        text = WORDS.text(code[pc])
        if is_seti(code[pc]) and not text.startswith(".word"):
            if pc + 1 < len(code) and code[pc + 1] >> IMMEDIATE_BITS == 0:
                head, blank, extras = text.partition(" ")
                target, _, extras = extras.partition(" ")
                tail = f" {extras}" if extras else ""
                lines.append((pc, f"{head}{blank}{target},{code[pc + 1]:#x}{tail}"))
            else:
                lines.append((pc, f".word {code[pc]:#010x}"))
                if pc + 1 < len(code):
                    lines.append((pc + 1, f".word {code[pc + 1]:#010x}"))
            pc += 2
            continue
        lines.append((pc, text))
        pc += 1
    return lines


def disassemble(words: Iterable[int] | NDArray[np.uint32]) -> str:
    """Words as text, an instruction a line; assemble gives the same words back, whatever they are."""
    return "\n".join(text for _, text in listing(words))


def assemble(source: str) -> list[int]:
    """Words of a text; `;` and `#` open comments, blank lines are free. Raises EncodingRefusal."""
    words: list[int] = []
    for line in source_lines(source):
        if line.split()[0] != "VSETI":
            words.append(WORDS.parse(line))
            continue
        head, comma, rest = line.partition(",")
        value, _, extras = rest.strip().partition(" ")
        try:
            number = int(value, 0)
        except ValueError:
            number = -1
        if not comma or not 0 <= number < 1 << IMMEDIATE_BITS:
            raise EncodingRefusal(
                "VSETI takes a register and a constant",
                where="vector.VSETI",
                got=repr(line),
                limit=f"0..{(1 << IMMEDIATE_BITS) - 1:#x}",
                hint="write VSETI S4,0x3f8000",
            )
        words += [WORDS.parse(f"{head} {extras}".strip()), number]
    return words


def seti(register: int, value: int, *, constant: bool = False) -> list[int]:
    """The two words that load a 24-bit code into S[register], or into K3."""
    if not 0 <= value < 1 << IMMEDIATE_BITS:
        raise EncodingRefusal("value does not fit the field", where="VSETI.value", got=value, limit="24 bits unsigned")
    head = WORDS.encode("VSETI", sa=SRC.K) if constant else WORDS.encode("VSETI", vd=register)
    return [head, value]
