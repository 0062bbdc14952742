"""Codecs of a chain's many short streams: what differs in addresses only is checked and encoded once.

They decide nothing that the plain codecs do not; what they remember belongs to one chain. The checks look at an
address's place in its page and at its end, which the allocator keeps inside memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.program import PAGE, SourceOf
from kohakutpu.isa import cluster, vector
from kohakutpu.lower.codecs import ClusterCodec, VectorCodec

Rows = NDArray[np.int64]
Memo = dict[object, Any]
_ADDRESS = tuple(cluster.CLUSTER["addr"].parts())


@dataclass(frozen=True, eq=False, slots=True)
class StepClusterCodec(ClusterCodec):
    """A cluster's codec; memo: what streams of this chain were checked and encoded."""

    memo: Memo

    def check(self, rows: Rows, source: SourceOf) -> None:
        placed = rows.copy()
        placed[:, self.address_column] %= PAGE
        key = ("checked", self.unit.index, placed.tobytes())
        if key not in self.memo:
            ClusterCodec.check(self, rows, source)
            self.memo[key] = True

    def encode(self, rows: Rows) -> NDArray[np.uint64]:
        bare, address = rows.copy(), rows[:, self.address_column]
        bare[:, self.address_column] = 0
        key = ("encoded", bare.tobytes())
        if key not in self.memo:
            self.memo[key] = ClusterCodec.encode(self, bare)
        payloads = self.memo[key].copy()
        for word, shift, size, at in _ADDRESS:
            piece = (address >> at & (1 << size) - 1).astype(np.uint64)
            payloads[:, word] |= piece << np.uint64(shift)
        return payloads


@dataclass(frozen=True, eq=False, slots=True)
class StepVectorCodec(VectorCodec):
    """A core's codec for streams that run routines which an earlier stream loaded; prepared: the rows of that one."""

    memo: Memo
    prepared: Rows

    def check(self, rows: Rows, source: SourceOf) -> None:
        placed = rows.copy()
        placed[(rows[:, 0] == vector.ENV_DESC) & (rows[:, 2] == 0), self.address_column] %= PAGE
        key = ("checked", self.unit.index, id(self.prepared), placed.tobytes())
        if key in self.memo:
            return
        before = ("state", self.unit.index, id(self.prepared))
        if before not in self.memo:
            self.memo[before] = vector.check_envelopes(self.machine, self.unit, self.prepared)
        vector.check_envelopes(self.machine, self.unit, rows, self.memo[before], source=source)
        self.memo[key] = True

    def encode(self, rows: Rows) -> NDArray[np.uint64]:
        key = ("encoded", rows.tobytes())
        if key not in self.memo:
            self.memo[key] = VectorCodec.encode(self, rows)
        return self.memo[key]
