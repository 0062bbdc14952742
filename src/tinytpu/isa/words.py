"""Instructions as words: the format of a machine, its text forms, and the nine numbers of a bundle (datasheet 2, 8).

Made from the opcode table through `kohakuaccel.isa`. Rows are int64[n, 9] in the order of `Column`; a word is those
fields packed, `op` on top. What a program as a whole may not do is `check`'s affair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import EncodingRefusal, SourceLine
from kohakuaccel.isa import Field, Format, InstructionSet
from kohakuaccel.isa.instructions import Numbers, Operand, Row, Syntax
from kohakuaccel.machine import Machine
from tinytpu.isa.codes import FIELDS, SXU, VPU
from tinytpu.isa.opcodes import OPCODES, Form, Joined, Named, Part, Use
from tinytpu.isa.roles import Role, widths

Slice = tuple[int, int]


@lru_cache(maxsize=32)
def word_format(machine: Machine) -> Format:
    """The nine fields of a machine's instruction word, any values: 57 bits on the datasheet's machine."""
    fields: list[Field] = []
    at = sum(widths(machine).values())
    width = at
    for name in FIELDS:
        bits = widths(machine)[name]
        fields.append(Field(name, (at - 1, at - bits)))
        at -= bits
    return Format("TinyTPU", width, fields)


def _place(machine: Machine, name: str, hi: int | None = None, lo: int = 0) -> Slice:
    """Where bits hi..lo of a field stand in the word; the whole field without them."""
    top, bottom = word_format(machine)[name].slices[0]
    return (top, bottom) if hi is None else (bottom + hi, bottom + lo)


def _operand(machine: Machine, name: str, use: Use) -> Field | None:
    """The field that an operand is, or None where it always holds one value."""
    match use:
        case Role():
            return Field(name, _place(machine, name), values=use.values(machine), doc=use.name)
        case Named():
            return Field(name, _place(machine, name), values=use.values)
        case Joined():
            return Field(name, *(_place(machine, part, 7) for part in use.fields), signed=True)
        case Part(value=None):
            values = use.role.values(machine) if use.role else None
            signed = values is not None and values[0] < 0
            doc = use.role.name if use.role else ""
            return Field(name, _place(machine, use.field, use.hi, use.lo), values=values, signed=signed, doc=doc)
        case _:
            return None


def _format(machine: Machine, code: SXU, label: str, form: Form) -> Format:
    fields: list[Field] = []
    constants: dict[Slice | int, int] = {_place(machine, "op"): code}
    for name, use in form.uses.items():
        field = _operand(machine, name, use)
        if field is not None:
            fields.append(field)
        elif isinstance(use, Part):
            constants[_place(machine, use.field, use.hi, use.lo)] = use.value or 0
        elif isinstance(use, int):
            constants[_place(machine, name)] = use
    width = word_format(machine).width
    claimed = {bit for f in fields for hi, lo in f.slices for bit in range(lo, hi + 1)}
    for slot in tuple(constants):
        hi, lo = (slot, slot) if isinstance(slot, int) else slot
        claimed.update(range(lo, hi + 1))
    constants.update({bit: 0 for bit in range(width) if bit not in claimed})
    return Format(label, width, fields, constants)


def _element(machine: Machine) -> Operand:
    """Field src2 as `row,column`."""
    rows, columns = machine.params.rows, machine.params.columns

    def show(row: Row) -> tuple[str, tuple[str, ...]]:
        return f"{row['src2'] // columns},{row['src2'] % columns}", ("src2",)

    def read(text: str) -> dict[str, int]:
        numbers = [number.strip() for number in text.split(",")]
        for what, number, count in zip(("row", "column"), numbers, (rows, columns)):
            if not number.isdecimal() or int(number) >= count:
                raise EncodingRefusal(
                    "no such element", where=f"BROADCAST_SCALAR.{what}", got=number, limit=f"0..{count - 1}"
                )
        return {"src2": int(numbers[0]) * columns + int(numbers[1])}

    return Operand(r"-?\w+\s*,\s*-?\w+", show, read, numbers=True)


def _show_flags(row: Row) -> tuple[str, tuple[str, ...]]:
    words, covered = list[str](), ["bias", "relu", "reduce"]
    if row["bias"]:
        words.append(f"BIAS=v{row['src']}")
        covered.append("src")
    if row["relu"]:
        words.append("RELU")
    if row["reduce"]:
        words.append("REDUCE_SUMSQ" if row["sumsq"] else "REDUCE_SUM")
        covered.append("sumsq")
    return "".join(f"{word} " for word in words), tuple(covered)


def _read_flags(text: str) -> dict[str, int]:
    values = dict.fromkeys(("bias", "relu", "reduce", "sumsq"), 0)
    for word in text.upper().replace("=", " ").split():
        if word.startswith("V"):
            values |= {"bias": 1, "src": int(word[1:], 0)}
        values["relu"] |= word == "RELU"
        values["reduce"] |= word.startswith("REDUCE")
        values["sumsq"] |= word == "REDUCE_SUMSQ"
    return {name: int(value) for name, value in values.items()}


_FLAGS = Operand(r"(?:BIAS\s*=\s*v\d+\s+)?(?:RELU\s+)?(?:REDUCE_SUM(?:SQ)?\s+)?", _show_flags, _read_flags)


@lru_cache(maxsize=32)
def instruction_set(machine: Machine) -> InstructionSet:
    """Every form of every opcode, with the machine's limits. Texts are read in any case; a word that no form writes
    (unused fields that are not 0, unknown opcodes, values beyond a limit) prints as `.word` and nine numbers."""
    formats: dict[str, Format] = {}
    syntax: dict[str, Sequence[Syntax]] = {}
    for code, opcode in OPCODES.items():
        for key, form in opcode.forms.items():
            label = f"{code.name}.{key}" if key else code.name
            formats[label] = _format(machine, code, code.name, form)
            ways = [(way, dict[str, int | str]()) if isinstance(way, str) else way for way in form.ways]
            syntax[label] = [Syntax(template, implied) for template, implied in ways]
    return InstructionSet(
        "TinyTPU",
        _place(machine, "op"),
        formats,
        syntax,
        {"element": _element(machine), "flags": _FLAGS},
        ignore_case=True,
        raw=word_format(machine),
        extras=False,
    )


def encode(machine: Machine, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """uint64[n, words] from decoded rows int64[n, 9]. Raises EncodingRefusal for a number too wide."""
    return word_format(machine).encode_rows(rows)


def decode(machine: Machine, words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """int64[n, 9] from words; the reverse of encode."""
    return word_format(machine).decode_table(words)


def row_of(machine: Machine, mnemonic: str, /, **operands: int | str) -> list[int]:
    """The nine numbers of an instruction given by form and operands: row_of(m, "LOAD", dst=1, vmem=3).

    A form other than an opcode's only one is named behind a point: "MXU.WRITE", "VPU.2". Raises EncodingRefusal.
    """
    return list(word_format(machine).decode(instruction_set(machine).encode(mnemonic, **operands)).values())


def text_of(machine: Machine, row: Sequence[int] | NDArray[np.int64]) -> str:
    """An instruction's text; nine numbers that fit no form, not even a word, print as `.word` too."""
    numbers = [int(value) for value in row]
    fmt = word_format(machine)
    if not all(field.allows(number) for field, number in zip(fmt.fields, numbers)):
        return " ".join([".word", *map(str, numbers)])
    return instruction_set(machine).text(fmt.encode(**dict(zip(FIELDS, numbers))))


def read(
    machine: Machine,
    text: str,
    *,
    start: int = 0,
    source: SourceLine | None = None,
    numbers: Numbers | None = None,
) -> list[int]:
    """The nine numbers of an instruction's text from position `start` on. Raises EncodingRefusal at its column."""
    word = instruction_set(machine).parse(text, start=start, source=source, numbers=numbers)
    return list(word_format(machine).decode(word).values())


def name_of(row: Mapping[str, int] | Sequence[int] | NDArray[np.int64]) -> str:
    """The mnemonic of an instruction as a short name: LOAD, VPU ADD, `op 47`."""
    op, code = (row["op"], row["vpu"]) if isinstance(row, Mapping) else (int(row[0]), int(row[4]))
    if op not in set(SXU):
        return f"op {op}"
    if op in (SXU.VPU, SXU.VPU_BG) and code in set(VPU):
        return f"{SXU(op).name} {VPU(code).name}"
    return SXU(op).name
