"""The matmul cluster's instruction payload (datasheet 5.1): one layout for FILL, GEMM and DRAIN, and its text.

Fields carry the datasheet's names; `addr` merges its two pieces. TDESC, the fourth opcode, has a layout of its own in
`cluster_tdesc`; decoded rows of both have one width, and the opcode says whose columns they are. What a payload means
to a cluster is the unit model's affair; what a machine cannot take is refused elsewhere (`cluster.check`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.isa import Field, Format

FILL, GEMM, DRAIN, TDESC = 1, 2, 3, 4
OPS = {"FILL": FILL, "GEMM": GEMM, "DRAIN": DRAIN}
SIDES = {"A": 0, "B": 1}

CLUSTER = Format(
    "CLUSTER",
    256,
    [
        Field("op", (255, 252), values=OPS, default=FILL),
        Field("addr", (68, 63), (251, 218), style="x", doc="byte address, 40 bits"),
        Field("n", (217, 202), doc="entries of a FILL, sub-tiles of a DRAIN"),
        Field("sel", 201, values=SIDES, doc="side of a FILL"),
        Field("acc", 200, doc="add to the resident tile instead of opening it"),
        Field("gm", (199, 192), doc="groups of 4 rows"),
        Field("gn", (191, 184), doc="groups of 4 columns"),
        Field("nk", (183, 176), default=1, doc="K blocks of 32"),
        Field("anchor", (175, 168), default=40, doc="exponent anchor, 40 on this machine"),
        Field("peers", (167, 144), style="x", doc="three {y,x} bytes, r2_multicast"),
        Field("npeer", (143, 142), doc="peers sharing the fetch, r2_multicast"),
        Field("preq", 141, doc="entries in memory are already quantised"),
        Field("eoff", (140, 133), doc="first entry inside the bank"),
        Field("aoff", (132, 125), doc="first A entry inside the bank"),
        Field("boff", (124, 117), doc="first B entry inside the bank"),
        Field("emit", 116, doc="hand sub-tiles to the drain queue on the last K block"),
        Field("fuse", 115, doc="drain what the preceding emitting GEMM hands out"),
        Field("abank", 114),
        Field("bbank", 113),
        Field("fbank", 112),
        Field("dnode", 111, doc="drain to a node instead of memory"),
        Field("dst_x", (110, 107)),
        Field("dst_y", (106, 103)),
        Field("dbuf", (102, 95), doc="buffer id at the target"),
        Field("dflags", (94, 87), style="x", doc="bit 0 asks the receiver to acknowledge"),
        Field("dack_y", (86, 83)),
        Field("dack_x", (82, 79)),
        Field("dmesh", (78, 77)),
        Field("dfin", (76, 69), style="x", doc="final coordinate {y,x} in another mesh; 0 = local"),
        Field("tsel", 62, doc="accumulator, r2_dual_acc"),
        Field("tag", (61, 54), doc="share tag, r2_multicast"),
        Field("desc", 53, doc="fill by descriptor, r2_desc_fill"),
        Field("dsel", (52, 51), doc="descriptor, r2_desc_fill"),
    ],
    {(50, 0): 0},
)
# What an emitting GEMM and its fused DRAIN must agree on (datasheet 5.4), and the accumulator they are about (10).
DESTINATION = ("addr", "dnode", "dst_x", "dst_y", "dbuf", "dflags", "dack_y", "dack_x", "dmesh", "dfin", "tsel")

FAULT_NONFINITE, FAULT_CUDATA, FAULT_OPCODE = 0x10, 0x11, 0x12
ALWAYS = {FILL: ("sel", "n", "addr"), GEMM: ("gm", "gn", "nk"), DRAIN: ("n", "addr")}
"""Fields that are printed whatever they hold."""


class Columns:
    """Decoded rows by field: `Columns(table).gm` is int64[n]. Copies once, so that columns are contiguous."""

    __slots__ = ("_data",)

    def __init__(self, table: NDArray[np.int64]) -> None:
        self._data = np.ascontiguousarray(table.T)

    def __getattr__(self, name: str) -> NDArray[np.int64]:
        return self._data[CLUSTER.column(name)]

    def field(self, name: str) -> NDArray[np.int64]:
        return self._data[CLUSTER.column(name)]

    def take(self, rows: NDArray[np.int64]) -> Columns:
        return Columns(self._data[:, rows].T)
