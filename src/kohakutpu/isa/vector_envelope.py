"""The vector core's envelopes (datasheet 6.1): CU_INST payloads that write program memory and descriptors, and run.

Decoding is as tolerant as the core is; encoding is range-checked. A descriptor's walk is checked elsewhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import EncodingRefusal
from kohakuaccel.isa import Field, Format, InstructionSet
from kohakuaccel.isa.format import words_to_int
from kohakutpu.isa.vector_format import WORDS

# Envelopes: CU_INST payloads.
ENV_IMEM, ENV_DESC, ENV_RUN = 1, 2, 3
IMEM = Format(
    "IMEM",
    256,
    [Field("addr", (251, 243), doc="program memory word"), Field("word", (31, 0), style="x")],
    {(255, 252): ENV_IMEM, (242, 32): 0},
)
DESC = Format(
    "DESC",
    256,
    [
        Field("ad", (251, 249), doc="descriptor"),
        Field("fld", (248, 246), values=range(5), doc="0 base, 1..4 dimension 0..3"),
        Field("value", (68, 63), (245, 212), style="x", doc="base, or stride << 16 | bound"),
    ],
    {(255, 252): ENV_DESC, (211, 69): 0, (62, 0): 0},
)
RUN = Format("RUN", 256, [Field("pc", (251, 243))], {(255, 252): ENV_RUN, (242, 0): 0})
ENVELOPES = InstructionSet("vector envelope", (255, 252), {"IMEM": IMEM, "DESC": DESC, "RUN": RUN})
# The value of DESC fields 1..4.
DIMENSION = Format(
    "DIMENSION", 34, [Field("stride", (33, 16), signed=True), Field("bound", (15, 0), doc="0 reads as 1")]
)
# The base of a descriptor that a VDRAIN to a node uses (datasheet 6.3).
NODE_RECORD = Format(
    "NODE_RECORD",
    40,
    [
        Field("granule", (15, 0)),
        Field("ack_y", (23, 20)),
        Field("ack_x", (19, 16)),
        Field("mesh", (25, 24)),
        Field("final_y", (33, 30)),
        Field("final_x", (29, 26)),
    ],
    {(39, 34): 0},
)


def dimension(stride: int, bound: int) -> int:
    """The value of DESC fields 1..4. stride in L1 words (VLD, VST) or bytes (VFILL, VDRAIN)."""
    return DIMENSION.encode(stride=stride, bound=bound)


def node_record(granule: int, ack: tuple[int, int] = (0, 0), mesh: int = 0, final: tuple[int, int] = (0, 0)) -> int:
    """The base of a descriptor used by a VDRAIN to a node (datasheet 6.3); coordinates are (x, y)."""
    return NODE_RECORD.encode(
        granule=granule, ack_x=ack[0], ack_y=ack[1], mesh=mesh, final_x=final[0], final_y=final[1]
    )


def decode_envelopes(payloads: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Envelopes uint64[n, 4] as int64[n, 4]: op, a, b, value.

    IMEM: a = address, value = word; DESC: a = descriptor, b = field, value = 40 bits; RUN: a = pc.
    Tolerant as the core is: bits an envelope does not use are not looked at, an unknown op keeps its number.
    """
    payloads = np.asarray(payloads, np.uint64)
    rows = np.zeros((len(payloads), 4), np.int64)
    rows[:, 0] = (payloads[:, 3] >> np.uint64(60)).astype(np.int64)
    for code, fmt, names in (
        (ENV_IMEM, IMEM, ("addr", None, "word")),
        (ENV_DESC, DESC, ("ad", "fld", "value")),
        (ENV_RUN, RUN, ("pc", None, None)),
    ):
        mine = np.flatnonzero(rows[:, 0] == code)
        if len(mine) == 0:
            continue
        words = payloads[mine]
        for column, name in enumerate(names, 1):
            if name is None:
                continue
            value = np.zeros(len(mine), np.uint64)
            for word, shift, size, at in fmt[name].parts():
                piece = (words[:, word] >> np.uint64(shift)) & np.uint64((1 << size) - 1)
                value |= piece << np.uint64(at)
            rows[mine, column] = value.view(np.int64)
    return rows


def encode_envelopes(rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The reverse of decode_envelopes, range-checked. Raises EncodingRefusal."""
    rows = np.asarray(rows, np.int64).reshape(-1, 4)
    out = np.zeros((len(rows), 4), np.uint64)
    known = np.isin(rows[:, 0], (ENV_IMEM, ENV_DESC, ENV_RUN))
    if not known.all():
        row = int((~known).argmax())
        raise EncodingRefusal("no such envelope", where=f"vector envelope[{row}]", got=int(rows[row, 0]), limit="1..3")
    for code, fmt, names in (
        (ENV_IMEM, IMEM, {"addr": 1, "word": 3}),
        (ENV_DESC, DESC, {"ad": 1, "fld": 2, "value": 3}),
        (ENV_RUN, RUN, {"pc": 1}),
    ):
        mine = np.flatnonzero(rows[:, 0] == code)
        if len(mine):
            columns = {name: rows[mine, column] for name, column in names.items()}
            out[mine] = fmt.encode_table(len(mine), **columns)
    return out


def envelope_text(payload: int | NDArray[np.uint64]) -> str:
    """One envelope as text, for example `DESC A2.base 0x1000` or `IMEM 5: VHALT`."""
    number = payload if isinstance(payload, int) else words_to_int(payload)
    name = ENVELOPES.find(number)
    if name is None:
        return f".payload {number:064x}"
    row = ENVELOPES.formats[name].decode(number)
    if name == "IMEM":
        return f"IMEM {row['addr']}: {WORDS.text(row['word'])}"
    if name == "RUN":
        return f"RUN {row['pc']}"
    if row["fld"] == 0:
        return f"DESC A{row['ad']}.base {row['value']:#x}"
    if row["fld"] > 4 or row["value"] >> DIMENSION.width:
        return f".payload {number:064x}"
    dim = DIMENSION.decode(row["value"])
    return f"DESC A{row['ad']}.dim{row['fld'] - 1} stride {dim['stride']} bound {dim['bound']}"
