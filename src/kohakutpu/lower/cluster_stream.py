"""A cluster's instruction stream for a contraction: fills into L1 buffers, sweeps, drains.

It decides which L1 buffer holds what (least recently used goes first, so what was just filled or swept stays) and the
order of instructions; addresses stay relative to buffers.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.machine import Unit
from kohakuaccel.program import UnitProgram
from kohakutpu.isa import cluster as isa
from kohakutpu.lower.codecs import ClusterCodec
from kohakutpu.lower.tiling import Slots

if TYPE_CHECKING:
    from kohakutpu.lower.contraction import ContractionBand, Term

_NAMES = [
    "op",
    "addr",
    "n",
    "sel",
    "acc",
    "gm",
    "gn",
    "nk",
    "preq",
    "eoff",
    "aoff",
    "boff",
    "emit",
    "fuse",
    "abank",
    "bbank",
    "fbank",
    "dnode",
    "dst_x",
    "dst_y",
    "dflags",
    "dack_x",
    "dack_y",
]
_PLACE = [isa.CLUSTER.column(name) for name in _NAMES]
_COLUMNS = len(isa.CLUSTER.fields)
_ANCHOR = isa.CLUSTER.column("anchor")
ANCHOR = 40  # the only accumulator anchor of revision r1 (datasheet 5.6)


class _Side:
    """One L1 side as a set of equal buffers, replaced in least-recently-used order."""

    def __init__(self, shape: Slots) -> None:
        self.shape = shape
        self._slot_of: dict[Hashable, int] = {}
        self._recent: list[int] = list(range(shape.count))  # least recently used first
        self._held: dict[int, Hashable] = {}

    def place(self, key: Hashable) -> tuple[int, bool]:
        """(slot, whether it must be filled) for a chunk. With two or more slots the one in use is never replaced."""
        slot = self._slot_of.get(key)
        missing = slot is None
        if slot is None:
            slot = self._recent[0]
            if slot in self._held:
                del self._slot_of[self._held[slot]]
            self._slot_of[key] = slot
            self._held[slot] = key
        self._recent.remove(slot)
        self._recent.append(slot)
        return slot, missing


class ClusterStream:
    """Collects the rows of one cluster."""

    def __init__(self, band: ContractionBand) -> None:
        self.band = band
        self._rows: list[tuple[int, ...]] = []
        self._buffers: list[int] = []
        self._passes: list[int] = []
        self.filled = [0, 0]
        self._sides = tuple(_Side(side) for side in band.sides())
        self._most = band.machine.params.fill_max

    def _add(self, buffer: int, **fields: int) -> None:
        self._rows.append(tuple(fields.get(name, 1 if name == "nk" else 0) for name in _NAMES))
        self._buffers.append(buffer)

    def _operand(self, sel: int, n: int, term: Term, chunk: int) -> int:
        """The slot of an operand's chunk, filled if it is not in L1."""
        buffer, layout, at = (term.a, term.a_layout, term.a_at) if sel == 0 else (term.b, term.b_layout, term.b_at)
        batch, tile = int(at[n, 0]), int(at[n, 1])
        chunk += int(term.b_first[n] - term.first[n]) if sel else 0
        side = self._sides[sel]
        slot, missing = side.place((buffer, batch, tile, chunk))
        if missing:
            self.filled[sel] += 1
            offset = layout.run_offset(batch, tile, chunk)
            done = 0
            while done < side.shape.size:
                count = min(self._most, side.shape.size - done)
                self._add(
                    buffer,
                    op=isa.FILL,
                    addr=offset + done * layout.entry_bytes,
                    n=count,
                    sel=sel,
                    preq=int(layout.preq),
                    eoff=side.shape.offset(slot) + done,
                    fbank=side.shape.bank(slot),
                )
                done += count
        return slot

    def tiles(self, share: NDArray[np.int64]) -> None:
        """Append the tiles of these instances, in order."""
        band = self.band
        gm, gn, nk = band.gm, band.gn, band.nk
        side_a, side_b = (side.shape for side in self._sides)
        pending: dict[str, int] | None = None  # the previous tile's DRAIN, held back behind the next first fills
        final = len(share) - 1
        for number, n in enumerate(share.tolist()):
            batch, i, j = (int(v) for v in band.out_at[n])
            target = 0 if band.nodes else band.out_layout.tile_offset(batch, i, j)
            goes = self._node(n)
            buffer = -1 if band.nodes else band.out
            # A sweep counts as live until the next GEMM or non-fused DRAIN (datasheet 5.3), so a stream that ended in
            # a fused DRAIN would forbid the first FILL of whatever this cluster runs next: the last tile drains after.
            emits = band.emits(n) and number != final
            blocks = [(t, c) for t in band.terms for c in range(int(t.first[n]), int(t.first[n] + t.count[n]))]
            start = len(self._rows)
            for step, (term, chunk) in enumerate(blocks):
                slot_a = self._operand(0, n, term, chunk)
                slot_b = self._operand(1, n, term, chunk)
                if step == 0:
                    if pending is not None:
                        self._add(buffer, **pending)
                    self._passes.append(start)
                emit = int(emits and step == len(blocks) - 1)
                self._add(
                    buffer if emit else -1,
                    op=isa.GEMM,
                    addr=target if emit else 0,
                    acc=int(step > 0),
                    gm=gm,
                    gn=gn,
                    nk=nk,
                    aoff=side_a.offset(slot_a),
                    boff=side_b.offset(slot_b),
                    abank=side_a.bank(slot_a),
                    bbank=side_b.bank(slot_b),
                    emit=emit,
                    **(goes if emit else {}),
                )
            pending = {"op": isa.DRAIN, "addr": target, "n": gm * gn, "fuse": int(emits), **goes}
        if pending is not None:
            self._add(-1 if band.nodes else band.out, **pending)

    def _node(self, n: int) -> dict[str, int]:
        """The fields that send an instance's drain into a vector core's L1, acknowledged to the dispatch agent."""
        if not self.band.nodes:
            return {}
        core = self.band.nodes[n]
        agent = self.band.machine.meshes[core.mesh]
        return {
            "dnode": 1,
            "dst_x": core.x,
            "dst_y": core.y,
            "dflags": 1,
            "dack_x": agent.agent_x,
            "dack_y": agent.agent_y,
        }

    def finish(self, unit: Unit, source: int) -> UnitProgram:
        """The unit's program."""
        table = np.zeros((len(self._rows), _COLUMNS), np.int64)
        table[:, _PLACE] = np.array(self._rows, np.int64)
        table[:, _ANCHOR] = ANCHOR
        return UnitProgram(
            unit,
            ClusterCodec(self.band.machine, unit),
            table,
            np.array(self._buffers, np.int32),
            np.full(len(self._rows), source, np.int32),
            np.array(self._passes, np.int64),
        )
