"""TDESC (datasheet 10, `r2_desc_fill`), and rows and text of all cluster opcodes.

A TDESC writes one field of one of a cluster's four descriptors, so its value has a layout per field. A decoded row of
it holds them side by side: opcode and base where the other opcodes have opcode and address, the rest behind. It must
not know what a walk does with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import EncodingRefusal, did_you_mean
from kohakuaccel.isa import Field, Format
from kohakuaccel.isa.instructions import source_lines
from kohakutpu.isa.cluster_format import ALWAYS, CLUSTER, OPS, TDESC

VALUE = 119  # lowest bit of the value
DESCRIPTORS = 4
FIELD_BASE, FIELD_AXES = 0, 7
WIDTH = len(CLUSTER.fields)


def _head() -> list[Field]:
    return [
        Field("op", (255, 252), values={"TDESC": TDESC}),
        Field("index", (251, 250), doc="descriptor"),
        Field("field", (249, 247), doc="0 base, 1..6 dimension 0..5, 7 axes"),
    ]


def _at(name: str, high: int, low: int, *, signed: bool = False, doc: str = "", style: str = "d") -> Field:
    return Field(name, (VALUE + high, VALUE + low), signed=signed, doc=doc, style=style)


BASE = Format(
    "TDESC_BASE",
    256,
    [*_head(), _at("base", 39, 0, style="x", doc="byte address"), _at("ndim", 42, 40, doc="dimensions walked")],
    {(246, VALUE + 43): 0, (VALUE - 1, 0): 0},
)
DIMENSION = Format(
    "TDESC_DIMENSION",
    256,
    [
        *_head(),
        _at("count", 15, 0, doc="0 reads as 1"),
        _at("stride", 47, 16, signed=True, doc="bytes"),
        _at("axis", 49, 48, doc="0 none, 1, 2"),
        _at("astep", 65, 50, signed=True),
    ],
    {(246, VALUE + 66): 0, (VALUE - 1, 0): 0},
)
AXES = Format(
    "TDESC_AXES",
    256,
    [
        *_head(),
        _at("abase0", 15, 0, signed=True, doc="first position on axis 1"),
        _at("ext0", 31, 16, doc="extent of axis 1, 0 = unbounded"),
        _at("abase1", 47, 32, signed=True),
        _at("ext1", 63, 48),
    ],
    {(246, VALUE + 64): 0, (VALUE - 1, 0): 0},
)
COLUMNS = (
    "op",
    "base",
    "index",
    "field",
    "ndim",
    "count",
    "stride",
    "axis",
    "astep",
    "abase0",
    "ext0",
    "abase1",
    "ext1",
)
"""A TDESC row's columns; the base is in the column of an address, so that linking adds a buffer's to it."""
assert COLUMNS.index("base") == CLUSTER.column("addr")


def layout_of(field: int) -> Format:
    """The layout of the value that a field number selects."""
    return BASE if field == FIELD_BASE else AXES if field == FIELD_AXES else DIMENSION


def row_of(**values: int) -> list[int]:
    """One TDESC row of a program, from values by column name; those left out are 0."""
    unknown = [name for name in values if name not in COLUMNS]
    if unknown:
        raise EncodingRefusal(f"no field {unknown[0]!r}{did_you_mean(unknown[0], COLUMNS)}", where="TDESC")
    row = [0] * WIDTH
    row[0] = TDESC
    for name, value in values.items():
        row[COLUMNS.index(name)] = value
    return row


def extraction() -> NDArray[np.int64]:
    """All layouts' fields in one table for kohakuaccel.isa.kernels.extract: a reader takes those its field selects."""
    found: dict[tuple[int, ...], None] = {}
    for layout in (BASE, DIMENSION, AXES):
        table = layout.extraction().tolist()
        for column, *rest in table:
            found[(COLUMNS.index(layout.names[column]), *rest)] = None
    return np.array(list(found), np.int64)


def encode_rows(rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """uint64[n, 4] payloads of decoded rows int64[n, WIDTH] of any cluster opcode. Raises EncodingRefusal."""
    rows = np.asarray(rows, np.int64)
    special = rows[:, 0] == TDESC
    if not special.any():
        return CLUSTER.encode_rows(rows)
    payloads = np.zeros((len(rows), 4), np.uint64)
    payloads[~special] = CLUSTER.encode_rows(rows[~special])
    for layout in (BASE, DIMENSION, AXES):
        chosen = special & np.array([layout_of(f) is layout for f in rows[:, COLUMNS.index("field")].tolist()])
        some = rows[chosen]
        columns = {name: some[:, COLUMNS.index(name)].copy() for name in layout.names}
        payloads[chosen] = layout.encode_table(len(some), **columns)
    return payloads


def decode_rows(payloads: NDArray[np.uint64]) -> NDArray[np.int64]:
    """int64[n, WIDTH] rows of payloads of any cluster opcode; the reverse of encode_rows."""
    payloads = np.asarray(payloads, np.uint64).reshape(-1, 4)
    special = (payloads[:, 3] >> np.uint64(60)) == TDESC
    rows = CLUSTER.decode_table(payloads)
    for i in np.flatnonzero(special).tolist():
        number = int.from_bytes(np.asarray(payloads[i], "<u8").tobytes(), "little")
        layout = layout_of(BASE["field"].get(number))
        rows[i] = row_of(**layout.decode(number))
    return rows


def _tdesc_text(row: list[int]) -> str:
    layout = layout_of(row[COLUMNS.index("field")])
    values = {name: row[COLUMNS.index(name)] for name in layout.names}
    return layout.format_row(values, ("index", "field"))


def text(row: NDArray[np.int64] | list[int]) -> str:
    """One decoded row as text, for example `FILL addr=0x2000 n=32 sel=B preq`."""
    if int(row[0]) == TDESC:
        return _tdesc_text([int(v) for v in row])
    return CLUSTER.format_row(row, ALWAYS.get(int(row[0]), ()))


def disassemble(payloads: NDArray[np.uint64] | Iterable[int]) -> str:
    """Payloads, uint64[n, 4] or integers, as text, a line each; what no encoder writes is `.payload`."""
    lines: list[str] = []
    for item in payloads:
        number = item if isinstance(item, int) else int.from_bytes(np.asarray(item, "<u8").tobytes(), "little")
        op = number >> 252
        if op in OPS.values() and CLUSTER.matches(number):
            lines.append(text(list(CLUSTER.decode(number).values())))
        elif op == TDESC and layout_of(BASE["field"].get(number)).matches(number):
            lines.append(text(row_of(**layout_of(BASE["field"].get(number)).decode(number))))
        else:
            lines.append(f".payload {CLUSTER.hex(number)}")
    return "\n".join(lines)


def assemble(source: str) -> NDArray[np.uint64]:
    """Payloads uint64[n, 4] of disassemble's text; `;` and `#` open comments. Raises EncodingRefusal."""
    out: list[NDArray[np.uint64]] = []
    for line in source_lines(source):
        head, _, rest = line.partition(" ")
        if head == ".payload":
            if not re.fullmatch(r"[0-9a-fA-F]{64}", rest.strip()):
                raise EncodingRefusal("a payload is 64 hexadecimal digits", where="cluster", got=repr(line))
            out.append(CLUSTER.to_words(int(rest, 16)))
            continue
        names = {**OPS, "TDESC": TDESC}
        if head not in names:
            rule = f"no instruction {head!r}{did_you_mean(head, names)}"
            raise EncodingRefusal(rule, where="cluster", got=repr(line))
        layout = CLUSTER
        if head == "TDESC":
            found = re.search(r"\bfield=(\d+)", line)
            layout = layout_of(int(found[1]) if found else FIELD_BASE)
        row = layout.parse_row(line)
        out.append(CLUSTER.to_words(layout.encode(**dict(zip(layout.names, row)))))
    return np.array(out, np.uint64).reshape(-1, 4)
