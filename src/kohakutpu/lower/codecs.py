"""How L1 rows become payload bits, text and refusals, per kind of unit: the only place where L1 meets the encodings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.machine import Machine, Unit
from kohakuaccel.program import SourceOf
from kohakutpu.isa import cluster, vector

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ClusterCodec:
    """Rows are the decoded fields of a cluster payload (datasheet 5.1)."""

    machine: Machine
    unit: Unit

    @property
    def address_column(self) -> int:
        return cluster.CLUSTER.column("addr")

    def check(self, rows: Rows, source: SourceOf) -> None:
        cluster.check(self.machine, self.unit, rows, source=source, final=True)

    def encode(self, rows: Rows) -> NDArray[np.uint64]:
        return cluster.encode_rows(rows)

    def text(self, rows: Rows) -> list[str]:
        return [cluster.CLUSTER.format_row(row) if row[0] != cluster.TDESC else cluster.text(row) for row in rows]


@dataclass(frozen=True, slots=True)
class VectorCodec:
    """Rows are [op, a, b, value] envelopes (datasheet 6.1)."""

    machine: Machine
    unit: Unit

    @property
    def address_column(self) -> int:
        return 3

    def check(self, rows: Rows, source: SourceOf) -> None:
        vector.check_envelopes(self.machine, self.unit, rows, source=source)

    def encode(self, rows: Rows) -> NDArray[np.uint64]:
        return vector.encode_envelopes(rows)

    def text(self, rows: Rows) -> list[str]:
        return [vector.envelope_text(payload) for payload in vector.encode_envelopes(rows)]
